"""What is said under an answer about its speed, and the buttons that try to better it."""
