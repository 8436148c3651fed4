"""The formats of the KV cache and what they take. Plain values, no torch."""

from __future__ import annotations

KV_FORMATS = ("auto", "fp32", "bf16", "int8", "k8v4", "int4")

# How keys and how values are kept; "int4-channel" is by channel over the tokens of a block.
KV_PARTS: dict[str, tuple[str, str]] = {
    "fp32": ("fp32", "fp32"),
    "bf16": ("bf16", "bf16"),
    "int8": ("int8", "int8"),
    "k8v4": ("int8", "int4"),
    "int4": ("int4-channel", "int4"),
}
_DENSE_BYTES = {"fp32": 4, "bf16": 2}
_TOKEN_GROUP_SIZE = 64


def possible_kv_formats(head_dim: int, block_size: int) -> tuple[str, ...]:
    """Formats that a head and a block can be kept in: what 4 bits make of them is whole bytes."""
    return tuple(
        name
        for name, parts in KV_PARTS.items()
        if all(_is_whole(part, head_dim, block_size) for part in parts)
    )


def kv_format_bytes(name: str, num_kv_heads: int, head_dim: int, block_size: int) -> int:
    """Bytes of a token in one layer, keys and values, scales and offsets included.

    By token a group of 64 dims (the whole head where 64 does not divide it) has FP16 scale and
    offset; by channel those of a dim are shared by the `block_size` tokens of a full block.
    Raises KeyError for a name that is no stored format, such as "auto".
    """
    return num_kv_heads * sum(_part_bytes(part, head_dim, block_size) for part in KV_PARTS[name])


def kv_tail_bytes(name: str, num_kv_heads: int, head_dim: int) -> int:
    """Bytes a token of an incomplete block takes besides, in one layer: its keys in BF16."""
    return 2 * num_kv_heads * head_dim if KV_PARTS[name][0] == "int4-channel" else 0


def _is_whole(part: str, head_dim: int, block_size: int) -> bool:
    if part == "int4-channel":
        return head_dim % 2 == 0 and 4 * head_dim % block_size == 0
    return part != "int4" or head_dim % 2 == 0


def _part_bytes(part: str, head_dim: int, block_size: int) -> int:
    if part in _DENSE_BYTES:
        return _DENSE_BYTES[part] * head_dim
    if part == "int4-channel":
        return head_dim // 2 + 4 * head_dim // block_size
    groups = head_dim // _TOKEN_GROUP_SIZE if head_dim % _TOKEN_GROUP_SIZE == 0 else 1
    return head_dim * (8 if part == "int8" else 4) // 8 + 4 * groups
