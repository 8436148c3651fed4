"""The operations' arguments as C sees them: every struct mirrors one in native/ops.h."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from enum import IntEnum
from typing import Any, ClassVar


class Kind(IntEnum):
    """ps_kind."""

    EMBED = 0
    RMS_NORM = 1
    LINEAR = 2
    ROPE_STORE = 3
    ATTENTION_DECODE = 4
    GATE_MUL = 5
    TOP_K = 6
    EXPAND = 7
    ATTENTION_PREFILL = 8
    SOFT_CAP = 9
    GATHER_COLUMNS = 10


class Format(IntEnum):
    """ps_format."""

    FP32 = 0
    BF16 = 1
    FP16 = 2
    INT8 = 3
    INT4 = 4
    INT4_CHANNEL = 5


class Op(Structure):
    """What every operation begins with; subclasses say their kind."""

    KIND: ClassVar[Kind]
    _fields_: ClassVar[Any] = [("kind", c_int32), ("stage", c_int32)]


class NativeWeight(Structure):
    """ps_weight."""

    _fields_: ClassVar[Any] = [
        ("format", c_int32),
        ("group_size", c_int32),
        ("has_minimum", c_int32),
        ("padded_in", c_int32),
        ("num_out", c_int64),
        ("num_in", c_int64),
        ("data", c_void_p),
    ]


class NativeKV(Structure):
    """ps_kv."""

    _fields_: ClassVar[Any] = [
        ("format", c_int32),
        ("group_size", c_int32),
        ("data", c_void_p),
        ("tails", c_void_p),
        ("fresh", c_void_p),
    ]


class Embed(Op):
    """ps_embed."""

    KIND = Kind.EMBED
    _fields_: ClassVar[Any] = [
        ("rows", c_int64),
        ("weight", NativeWeight),
        ("ids", c_void_p),
        ("scale", c_float),
        ("out", c_void_p),
    ]


class RmsNorm(Op):
    """ps_rms_norm."""

    KIND = Kind.RMS_NORM
    _fields_: ClassVar[Any] = [
        ("rows", c_int64),
        ("parts", c_int64),
        ("hidden", c_int64),
        ("stride", c_int64),
        ("eps", c_float),
        ("delta", c_void_p),
        ("residual", c_void_p),
        ("weight", c_void_p),
        ("out", c_void_p),
    ]


class LinearOp(Op):
    """ps_linear."""

    KIND = Kind.LINEAR
    _fields_: ClassVar[Any] = [
        ("rows", c_int64),
        ("weight", NativeWeight),
        ("x", c_void_p),
        ("x_stride", c_int64),
        ("bias", c_void_p),
        ("out", c_void_p),
        ("out_stride", c_int64),
        ("codes", c_void_p),
        ("scales", c_void_p),
        ("sums", c_void_p),
    ]


class RopeStore(Op):
    """ps_rope_store."""

    KIND = Kind.ROPE_STORE
    _fields_: ClassVar[Any] = [
        ("rows", c_int64),
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("half", c_int32),
        ("q", c_void_p),
        ("k", c_void_p),
        ("v", c_void_p),
        ("q_stride", c_int64),
        ("k_stride", c_int64),
        ("v_stride", c_int64),
        ("positions", c_void_p),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("q_out", c_void_p),
        ("k_cache", NativeKV),
        ("v_cache", NativeKV),
        ("block_size", c_int64),
        ("slot_mapping", c_void_p),
        ("tails", c_void_p),
    ]


class AttentionDecode(Op):
    """ps_attention_decode."""

    KIND = Kind.ATTENTION_DECODE
    _fields_: ClassVar[Any] = [
        ("rows", c_int64),
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("block_size", c_int32),
        ("table_width", c_int64),
        ("window", c_int64),
        ("scale", c_float),
        ("softcap", c_float),
        ("q", c_void_p),
        ("k_cache", NativeKV),
        ("v_cache", NativeKV),
        ("block_tables", c_void_p),
        ("context_lens", c_void_p),
        ("tails", c_void_p),
        ("partial", c_void_p),
        ("out", c_void_p),
    ]


class AttentionPrefill(Op):
    """ps_attention_prefill."""

    KIND = Kind.ATTENTION_PREFILL
    _fields_: ClassVar[Any] = [
        ("num_queries", c_int64),
        ("context_len", c_int64),
        ("q_stride", c_int64),
        ("window", c_int64),
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("block_size", c_int32),
        ("scale", c_float),
        ("softcap", c_float),
        ("q", c_void_p),
        ("k_cache", NativeKV),
        ("v_cache", NativeKV),
        ("block_table", c_void_p),
        ("out", c_void_p),
    ]


class Activation(IntEnum):
    """ps_activation."""

    SILU = 0
    GELU_TANH = 1


class GateMul(Op):
    """ps_gate_mul."""

    KIND = Kind.GATE_MUL
    _fields_: ClassVar[Any] = [
        ("rows", c_int64),
        ("width", c_int64),
        ("activation", c_int32),
        ("x", c_void_p),
        ("out", c_void_p),
    ]


class SoftCap(Op):
    """ps_soft_cap."""

    KIND = Kind.SOFT_CAP
    _fields_: ClassVar[Any] = [
        ("rows", c_int64),
        ("width", c_int64),
        ("cap", c_float),
        ("x", c_void_p),
    ]


class TopKOp(Op):
    """ps_top_k."""

    KIND = Kind.TOP_K
    _fields_: ClassVar[Any] = [
        ("rows", c_int64),
        ("vocab", c_int64),
        ("k", c_int64),
        ("logits", c_void_p),
        ("inverse_temperature", c_void_p),
        ("values", c_void_p),
        ("ids", c_void_p),
        ("log_sum", c_void_p),
        ("largest", c_void_p),
        ("partial", c_void_p),
    ]


class Expand(Op):
    """ps_expand."""

    KIND = Kind.EXPAND
    _fields_: ClassVar[Any] = [
        ("weight", NativeWeight),
        ("to_bf16", c_int32),
        ("out", c_void_p),
    ]


class GatherColumns(Op):
    """ps_gather_columns."""

    KIND = Kind.GATHER_COLUMNS
    _fields_: ClassVar[Any] = [
        ("rows", c_int64),
        ("width", c_int64),
        ("x", c_void_p),
        ("x_stride", c_int64),
        ("order", c_void_p),
        ("out", c_void_p),
    ]


OpPointer = POINTER(Op)


def op_pointer(op: Op) -> Any:
    """The address of any operation as what the list of operations holds."""
    return ctypes.cast(ctypes.pointer(op), OpPointer)
