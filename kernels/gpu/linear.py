"""Products with weights of every format on a GPU, each with the kernel for its number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import triton

from kernels.gpu import linear_int4, linear_int8
from kernels.gpu.autotune import LinearConfig, Timer, TuningFile, fastest, time_on_device
from kernels.gpu.dequantize import dequantize_into
from kernels.gpu.launch import DOT_ROWS, cdiv, packed
from kernels.reference import LinearKernel
from kernels.weights import GroupedWeight, Weight

# Programs that a launch should come to, by splits: from one to many for each processor of a large
# GPU. Few splits save the second launch where there are enough columns.
_ROW_PROGRAMS = (128, 512, 1024, 2048)
_ROWS_PROGRAMS = (128, 256, 512, 1024)
# (columns, warps, stages) of the kernels for one row and for 2 to 16.
# A warp that owns 512 columns adds within its lanes only; INT8 has no registers left for it.
_ROW_SHAPES = {
    8: ((128, 1, 2), (256, 2, 2), (512, 4, 2)),
    4: ((512, 1, 1), (128, 1, 2), (256, 2, 2)),
}
_ROWS_SHAPES = ((64, 2, 4), (64, 4, 3), (128, 4, 3))
_MAX_SPLITS = 64


class GpuLinear(LinearKernel):
    """`reference.LinearKernel` with kernels of its own for grouped weights.

    Up to 16 rows read the codes as they are stored; more rows expand the weight into the scratch
    and multiply with the library's dense product. A row's result is the same for 2 to 16 rows;
    alone, and in more than 16, its sums are taken in another order (and in more than 16 over
    weights rounded to `dense_dtype`).
    """

    def __init__(
        self,
        activation_dtype: torch.dtype,
        dense_dtype: torch.dtype,
        folder: Path | None = None,
        device_name: str = "cpu",
        timer: Timer = time_on_device,
    ) -> None:
        super().__init__(dense_dtype)
        self._activation_dtype = activation_dtype
        self._timer = timer
        self._file = TuningFile(folder, device_name, triton.__version__)
        self._configs: dict[tuple[int, int, int, int, bool], LinearConfig] = {}
        self._recorded: list[torch.Tensor] = []

    def tune(self, weight: Weight) -> None:
        """Choose the configurations for a weight's shape, unless known; call it while loading.

        Without this call, configurations that fit most shapes are used.
        """
        if isinstance(weight, GroupedWeight) and _can_multiply(weight):
            for rows in (1, DOT_ROWS):
                self._tune(weight, rows)

    def _product(self, x: torch.Tensor, weight: Weight) -> torch.Tensor:
        if not isinstance(weight, GroupedWeight):
            return super()._product(x, weight)
        if x.shape[0] <= DOT_ROWS and _can_multiply(weight):
            return _multiply(x, weight, self.config(weight, x.shape[0]))
        num_out, num_in = weight.shape
        expanded = self._take((num_in, num_out), self.dense_dtype, x.device)
        dequantize_into(weight, expanded)
        return (x.to(self.dense_dtype) @ expanded).to(x.dtype)

    def _take(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """As the reference's; what a recorded graph writes to is never given back."""
        scratch = super()._take(shape, dtype, device)
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            self._recorded.append(scratch)
        return scratch

    def config(self, weight: GroupedWeight, rows: int) -> LinearConfig:
        """What a product of `rows` (1 to 16) rows with a weight of this shape runs with."""
        key = (weight.bits, weight.group_size, *weight.shape, rows > 1)
        config = self._configs.get(key)
        if config is None:
            config = self._file.get(_file_key(weight, rows)) or candidates(weight, rows)[0]
            self._configs[key] = config
        return config

    def _tune(self, weight: GroupedWeight, rows: int) -> None:
        key = _file_key(weight, rows)
        if self._file.get(key) is not None:
            return
        size = (rows, weight.shape[1])
        x = torch.ones(size, dtype=self._activation_dtype, device=weight.codes.device)
        config = fastest(
            candidates(weight, rows), lambda config: _multiply(x, weight, config), self._timer
        )
        self._file.put(key, config)
        self._configs.pop((weight.bits, weight.group_size, *weight.shape, rows > 1), None)


def candidates(weight: GroupedWeight, rows: int) -> list[LinearConfig]:
    """Configurations worth timing for a product of `rows` rows; the first is the default."""
    num_out, num_in = weight.shape
    shapes, programs = (
        (_ROW_SHAPES[weight.bits], _ROW_PROGRAMS) if rows == 1 else (_ROWS_SHAPES, _ROWS_PROGRAMS)
    )
    most = min(_MAX_SPLITS, max(1, num_in // 128))
    found = {
        LinearConfig(block_n, max(1, min(most, wanted // cdiv(num_out, block_n))), warps, stages)
        for block_n, warps, stages in shapes
        for wanted in programs
    }
    first = LinearConfig(
        shapes[0][0],
        max(1, min(most, programs[2] // cdiv(num_out, shapes[0][0]))),
        *shapes[0][1:],
    )
    return [first, *sorted(found - {first}, key=repr)]


def _can_multiply(weight: GroupedWeight) -> bool:
    if weight.bits == 4:
        return linear_int4.can_multiply(weight)
    return linear_int8.can_multiply(weight)


def _multiply(x: torch.Tensor, weight: GroupedWeight, config: LinearConfig) -> torch.Tensor:
    x = packed(x)
    if weight.bits == 4:
        return linear_int4.linear_int4(x, weight, config)
    return linear_int8.linear_int8(x, weight, config)


def _file_key(weight: GroupedWeight, rows: int) -> str:
    num_out, num_in = weight.shape
    count = "1 row" if rows == 1 else f"2 to {DOT_ROWS} rows"
    return f"int{weight.bits} {num_out}x{num_in} groups of {weight.group_size}, {count}"
