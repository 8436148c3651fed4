"""KV cache formats and what each stores of a token: the one place that says so. No torch."""

from __future__ import annotations

KV_FORMATS: tuple[str, ...] = ("auto", "fp32", "bf16")
_DENSE_BITS = {"fp32": 32, "bf16": 16}
_QUANTIZED_BITS = {"int8": (8, 8), "k8v4": (8, 4), "int4": (4, 4)}  # of K and V
_GROUP_SIZE = 64
_GROUP_BYTES = 4  # an FP16 scale and an FP16 minimum


def kv_format_bytes(name: str, num_kv_heads: int, head_dim: int) -> int:
    """Bytes of one token in one layer, K and V together, scales included.

    Quantized formats group 64 numbers of a head, or a whole smaller head; each group has a scale
    and a minimum in FP16. Raises KeyError for a name that is no stored format, such as "auto".
    """
    if name in _DENSE_BITS:
        return 2 * num_kv_heads * head_dim * _DENSE_BITS[name] // 8
    groups = -(-head_dim // _GROUP_SIZE)
    per_head = (-(-head_dim * bits // 8) + groups * _GROUP_BYTES for bits in _QUANTIZED_BITS[name])
    return num_kv_heads * sum(per_head)
