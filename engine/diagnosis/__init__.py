"""Why an answer was slow, or what limits a fast one, and what a change would gain. No torch."""
