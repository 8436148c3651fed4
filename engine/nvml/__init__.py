"""What NVML says of the GPUs, read in a process of its own (docs/decisions/0010).

A driver's library that crashes or hangs costs the GPUs' values and nothing else: `link.NvmlLink`
asks, `reader` answers, and only the reader's process imports `gpus` and `gpm`.
"""
