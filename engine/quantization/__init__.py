"""Quantizing checkpoints and writing them."""
