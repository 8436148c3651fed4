"""Secondary windows."""
