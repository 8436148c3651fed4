"""What a model would take and reach on this machine, asked before it is downloaded or loaded."""
