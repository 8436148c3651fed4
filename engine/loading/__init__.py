"""Checkpoints to tensors: safetensors and GGUF, headers checked before anything is read."""
