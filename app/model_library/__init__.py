"""Finding models: the list of what is on this machine, what it would reach, and downloads."""
