"""Many configurations measured one after the other, as `phasescope bench --sweep` does it."""
