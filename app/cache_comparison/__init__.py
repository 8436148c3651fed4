"""The same prompt with and without the KV cache, side by side."""
