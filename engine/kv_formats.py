"""KV cache formats and what each stores of a token: the one place that says so. No torch."""

from __future__ import annotations

KV_FORMATS: tuple[str, ...] = ("auto", "fp32", "bf16")
_ELEMENT_BYTES = {"fp32": 4, "bf16": 2}


def kv_format_bytes(name: str, num_kv_heads: int, head_dim: int) -> int:
    """Bytes of one token in one layer, K and V together.

    Raises KeyError for a name that is no stored format, such as "auto".
    """
    return 2 * num_kv_heads * head_dim * _ELEMENT_BYTES[name]
