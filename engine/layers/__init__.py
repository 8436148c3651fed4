"""Layers shared by model architectures."""
