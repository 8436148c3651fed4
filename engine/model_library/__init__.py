"""Models on this machine, listed in place and measured, and how to download more. No torch."""
