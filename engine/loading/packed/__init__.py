"""Quantized safetensors: GPTQ, AWQ, compressed-tensors and FP8 checkpoints to logical tensors."""
