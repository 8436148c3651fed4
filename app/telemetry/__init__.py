"""Live panels, readings, recorder: engine events in, pictures and CSV out."""
