"""The thread boundary: worker in a QThread, controller in the GUI thread."""
