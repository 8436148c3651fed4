"""Native kernels for the CPU: compiled at installation, optional, chosen by instruction level."""
