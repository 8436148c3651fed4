"""Settings schema and storage."""
