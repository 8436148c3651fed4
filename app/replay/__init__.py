"""Recorded sessions: written down as they happen, opened again and played without a model."""
