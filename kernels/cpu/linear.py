"""Products over weights in any format: native for few rows, native or a dense GEMM for many.

Which of the two is faster for many rows depends on the processor (one with fast BF16 products
wins by the dense GEMM), the format and the shape, so it is measured when a model is loaded.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch

from kernels.cpu.structs import Expand, Format, LinearOp, NativeWeight
from kernels.cpu.tape import Recorder
from kernels.reference import LinearKernel
from kernels.weights import TILE_BLOCK, DenseWeight, GroupedWeight, KernelWeight, TiledWeight

_TRIED_ROWS = (16, 32, 64, 128, 256)  # with fewer, reading the weight is the cost
_NEVER = sys.maxsize
_REPEATS = 3
_CLEARLY = 1.1  # how much faster the dense GEMM must be: timings are noisy, and native is exact
_HEAD_OUTPUTS = 16_384  # a matrix with more is an output head, which never meets many rows
FORMATS = {torch.float32: Format.FP32, torch.bfloat16: Format.BF16, torch.float16: Format.FP16}


def native_weight(weight: DenseWeight | TiledWeight) -> tuple[NativeWeight, torch.Tensor]:
    """What C sees of a weight, and the tensor that holds it."""
    if isinstance(weight, DenseWeight):
        num_out, num_in = weight.shape
        dense = NativeWeight(format=FORMATS[weight.data.dtype], num_out=num_out, num_in=num_in)
        dense.data = weight.data.data_ptr()
        return dense, weight.data
    native = NativeWeight(
        format=Format.INT8 if weight.bits == 8 else Format.INT4,
        group_size=weight.group_size,
        has_minimum=weight.has_minimum,
        padded_in=-(-weight.num_in // TILE_BLOCK) * TILE_BLOCK,
        num_out=weight.num_out,
        num_in=weight.num_in,
    )
    native.data = weight.data.data_ptr()
    return native, weight.data


class CpuLinear:
    """x @ weight.T + bias; owns the scratch for quantized rows and for expanded weights."""

    def __init__(self, recorder: Recorder, dense_dtype: torch.dtype) -> None:
        self.dense_dtype = dense_dtype
        self._recorder = recorder
        self._reference = LinearKernel(dense_dtype)
        self._codes = torch.empty(0, dtype=torch.uint8)
        self._scales = torch.empty(0)
        self._expanded = torch.empty(0, dtype=dense_dtype)
        # Rows from which the dense GEMM is faster, by format; absent: not measured, always native.
        self._crossover: dict[Format, int] = {}

    def __call__(
        self,
        x: torch.Tensor,
        weight: KernelWeight,
        bias: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """x [M, K] -> [M, N] in FP32, into `out` where one is given; rows may lie apart."""
        if isinstance(weight, GroupedWeight):
            self._recorder.refuse_to_record()
            return self._reference(x, weight, bias, out)
        # A decode step of many rows is native too: torch's GEMM would not be on the tape.
        if self._recorder.recording or x.shape[0] < self._many_rows(weight):
            return self._native(x, weight, bias, out)
        return self._dense(x, weight, bias, out)

    def tune(self, weight: KernelWeight) -> None:
        """Measure from how many rows on the dense GEMM is faster, once for each format."""
        if isinstance(weight, GroupedWeight) or weight.shape[0] > _HEAD_OUTPUTS:
            return
        kind = Format(native_weight(weight)[0].format)
        if kind in self._crossover:
            return
        self._crossover[kind] = next(
            (rows for rows in _TRIED_ROWS if self._dense_wins(weight, rows)), _NEVER
        )

    def _dense_wins(self, weight: DenseWeight | TiledWeight, rows: int) -> bool:
        x = torch.randn(rows, weight.shape[1])
        native = _best_seconds(lambda: self._native(x, weight, None, None))
        return _CLEARLY * _best_seconds(lambda: self._dense(x, weight, None, None)) < native

    def _many_rows(self, weight: DenseWeight | TiledWeight) -> int:
        kind = Format(native_weight(weight)[0].format)
        return self._crossover.get(kind, _NEVER)

    def _native(
        self,
        x: torch.Tensor,
        weight: DenseWeight | TiledWeight,
        bias: torch.Tensor | None,
        out: torch.Tensor | None,
    ) -> torch.Tensor:
        rows, num_out = x.shape[0], weight.shape[0]
        out = torch.empty(rows, num_out) if out is None else out
        native, data = native_weight(weight)
        op = LinearOp(
            rows=rows,
            weight=native,
            x=x.data_ptr(),
            x_stride=x.stride(0),
            bias=None if bias is None else bias.data_ptr(),
            out=out.data_ptr(),
            out_stride=out.stride(0),
        )
        kept = [x, data, out] if bias is None else [x, data, out, bias]
        if isinstance(weight, TiledWeight):
            blocks = rows * native.padded_in // TILE_BLOCK
            self._reserve_rows(blocks)
            op.codes, op.scales = self._codes.data_ptr(), self._scales.data_ptr()
            op.sums = self._scales.data_ptr() + 4 * blocks
            kept += [self._codes, self._scales]
        self._recorder.emit(op, *kept)
        return out

    def _dense(
        self,
        x: torch.Tensor,
        weight: DenseWeight | TiledWeight,
        bias: torch.Tensor | None,
        out: torch.Tensor | None,
    ) -> torch.Tensor:
        if isinstance(weight, DenseWeight):
            return self._reference(x, weight, bias, out)
        num_out, num_in = weight.shape
        expanded = self._expand(weight).view(num_in, num_out)
        result = (x.to(self.dense_dtype) @ expanded).to(x.dtype)
        if bias is not None:
            result += bias
        return result if out is None else out.copy_(result)

    def _expand(self, weight: TiledWeight) -> torch.Tensor:
        """The weight [K, N] in the dense dtype, valid until the next call."""
        count = weight.shape[0] * weight.shape[1]
        if self._expanded.numel() < count:
            self._expanded = torch.empty(count, dtype=self.dense_dtype)
        native, data = native_weight(weight)
        op = Expand(weight=native, to_bf16=self.dense_dtype is torch.bfloat16)
        op.out = self._expanded.data_ptr()
        self._recorder.emit(op, data, self._expanded)
        return self._expanded[:count]

    def _reserve_rows(self, blocks: int) -> None:
        """Scratch that grows is replaced; a tape that points to the old one keeps it."""
        if self._scales.numel() < 2 * blocks:
            self._codes = torch.empty(
                2 * blocks * TILE_BLOCK, dtype=torch.uint8
            )  # 8 or 16 bits each
            self._scales = torch.empty(2 * blocks)


def _best_seconds(run: Callable[[], object]) -> float:
    run()
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best
