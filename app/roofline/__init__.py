"""Every step of the engine under what the device was measured to give at most."""
