"""The same prompt again with something changed, the earlier run beside it."""
