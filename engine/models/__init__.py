"""One file per architecture, found through the registry."""
