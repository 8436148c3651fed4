"""What quantizing is asked for and what it reports: plain values, no torch, for any caller."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from engine.config import ModelInfo

Method: TypeAlias = Literal["rtn", "gptq", "awq"]
METHODS: tuple[Method, ...] = ("rtn", "gptq", "awq")
BITS = (4, 8)
GROUP_SIZES = (32, 64, 128)


@dataclass(frozen=True, slots=True)
class GridSpec:
    """How values are rounded: `group_size` inputs share a scale and a zero point.

    4 bits are asymmetric, 8 bits symmetric (zero point 128). Raises ValueError by field.
    """

    bits: int = 4
    group_size: int = 128

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise ValueError(f"bits: {self.bits} is not one of {', '.join(map(str, BITS))}")
        if self.group_size not in GROUP_SIZES:
            sizes = ", ".join(map(str, GROUP_SIZES))
            raise ValueError(f"group_size: {self.group_size} is not one of {sizes}")

    @property
    def symmetric(self) -> bool:
        """Whether the zero point is the middle of the codes."""
        return self.bits == 8

    @property
    def max_code(self) -> int:
        """The largest code."""
        return (1 << self.bits) - 1


@dataclass(frozen=True, slots=True)
class QuantizePlan:
    """One job. `calibration` None takes the text that comes along; RTN needs none.

    The calibration is the first `num_samples` pieces of `sample_tokens` tokens of the text.
    `act_order`, which only GPTQ looks at, takes the columns with the largest inputs first, their
    groups fixed beforehand. `threads` None: the physical cores. Raises ValueError by field.
    """

    model_path: str
    out: Path
    method: Method = "gptq"
    grid: GridSpec = GridSpec()
    calibration: Path | None = None
    act_order: bool = True
    num_samples: int = 128
    sample_tokens: int = 512
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method: {self.method!r} is not one of {', '.join(METHODS)}")
        if self.method == "awq" and self.grid.bits != 4:
            raise ValueError("bits: AWQ files hold 4 bits; rtn and gptq know 8 too")
        if self.num_samples < 1 or self.sample_tokens < 2:
            raise ValueError("calibration: at least one sample of two tokens")


@dataclass(frozen=True, slots=True)
class QuantizeProgress:
    """How far a job is: `layer` of `num_layers` is being worked on, counted from 1.

    `fraction` is 0 to 1 of the whole; `remaining_s` None until it can be told.
    """

    layer: int
    num_layers: int
    fraction: float
    elapsed_s: float
    remaining_s: float | None


@dataclass(frozen=True, slots=True)
class Quantized:
    """A finished job. `bits_per_weight` is of the quantized matrices, scales included."""

    out: Path
    file_bytes: int
    num_quantized: int
    bits_per_weight: float
    calibration_tokens: int
    elapsed_s: float
    notices: tuple[str, ...]


def group_sizes(info: ModelInfo) -> tuple[int, ...]:
    """Those of GROUP_SIZES that divide the inputs of every matrix of a layer."""
    inputs = (info.hidden_size, info.num_heads * info.head_dim, info.intermediate_size)
    return tuple(size for size in GROUP_SIZES if not any(number % size for number in inputs))


def expected_bytes(info: ModelInfo, grid: GridSpec) -> int:
    """About what the weights of a quantized model will take: scales included, the rest in 16 bits.

    Norms, and biases where there are any, count among the rest.
    """
    queries, keys = info.num_heads * info.head_dim, info.num_kv_heads * info.head_dim
    attention = 2 * info.hidden_size * (queries + keys)
    quantized = info.num_layers * (attention + 3 * info.hidden_size * info.intermediate_size)
    # A scale of 16 bits and a zero point as wide as a code for each group.
    bits = grid.bits + (16 + grid.bits) / grid.group_size
    return round(quantized * bits / 8) + 2 * (info.parameters - quantized)
