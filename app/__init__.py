"""The Qt program: window, chat, telemetry panels. Imports the engine through its face only."""
