"""GPTQ (Frantar et al. 2022, arXiv 2210.17323): each column's rounding error is made up for by
the columns that are still to be rounded, as the inputs' second moment says they can."""

from __future__ import annotations

import torch

from engine.quantization.grid import (
    QuantizedMatrix,
    find_grid,
    quantized_matrix,
    round_to_grid,
    split_groups,
)
from engine.quantization.plan import GridSpec
from engine.session import EngineError

BLOCK = 128  # columns between two updates of all that follow; a multiple of every group size
_DAMPING = 0.01  # of the mean of H's diagonal, as in the paper's code
_MAX_DAMPING = 1.0


def gptq(
    weight: torch.Tensor, moment: torch.Tensor, spec: GridSpec, act_order: bool = False
) -> QuantizedMatrix:
    """Quantize FP32 [N, K] for inputs whose second moment E[x x^T] is `moment` FP32 [K, K].

    A group's scale and zero point are found when its first column's turn comes, on weights that
    earlier errors were moved into. With `act_order` columns go by falling mean square of their
    input, and the groups, which stay where they are, get their grids from the original weights.
    Raises ValueError when the groups do not divide K, EngineError for a moment that is no number.
    """
    size = spec.group_size
    scale, zero = (part.t().contiguous() for part in find_grid(split_groups(weight, size), spec))
    num_in = weight.shape[1]
    order = torch.arange(num_in, device=weight.device)
    if act_order:
        order = torch.argsort(moment.diagonal(), descending=True, stable=True)
    factor = inverse_factor(moment[order][:, order])
    work = weight.t()[order].contiguous()  # [K, N]: a column of the weight is a row here
    codes = torch.empty_like(work)
    groups = (order // size).tolist()
    for start in range(0, num_in, BLOCK):
        end = min(start + BLOCK, num_in)
        errors = torch.empty_like(work[start:end])
        for column in range(start, end):
            group = groups[column]
            if not act_order and column % size == 0:
                scale[group], zero[group] = find_grid(work[column : column + size].t(), spec)
            codes[column] = round_to_grid(work[column], scale[group], zero[group], spec)
            rounded = (codes[column] - zero[group]) * scale[group]
            error = (work[column] - rounded) / factor[column, column]
            work[column:end].addr_(factor[column, column:end], error, alpha=-1)
            errors[column - start] = error
        work[end:].addmm_(factor[start:end, end:].t(), errors, alpha=-1)
    codes = codes[torch.argsort(order)]
    return quantized_matrix(spec, codes.t().contiguous(), scale.t(), zero.t())


def inverse_factor(moment: torch.Tensor) -> torch.Tensor:
    """Upper triangular U with U^T U = (moment + damping)^-1, FP32 [K, K].

    Inputs that are always 0 get the others' mean on the diagonal: their columns are rounded to
    nearest. The damping grows until the matrix is positive definite. Raises EngineError when none
    helps.
    """
    damped = moment.clone()
    diagonal = damped.diagonal()
    never_seen = diagonal == 0
    mean = diagonal.sum() / (~never_seen).sum().clamp(min=1)
    diagonal[never_seen] = mean if mean > 0 else 1.0
    added = 0.0
    damping = _DAMPING
    while damping <= _MAX_DAMPING:
        diagonal += (damping - added) * mean
        added = damping
        lower, failed = torch.linalg.cholesky_ex(damped)
        if not failed:
            inverse = torch.cholesky_inverse(lower)
            upper: torch.Tensor
            upper, failed = torch.linalg.cholesky_ex(inverse, upper=True)
            if not failed and bool(upper.isfinite().all()):
                return upper
        damping *= 2
    raise EngineError(
        "The layer's inputs cannot be used to quantize it.",
        "Their second moment has no inverse, however much it is damped: "
        "it holds values that are not finite.",
        "Check the model with `phasescope perplexity`, or quantize it with --method rtn.",
    )
