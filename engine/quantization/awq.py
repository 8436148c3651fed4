"""AWQ (Lin et al. 2023, arXiv 2306.00978): inputs that are large get finer weights, by scaling
weights up and what feeds them down; then each group is clipped to the range that serves it best.

Errors are those of the products' outputs over the calibration inputs. With E the change of a weight
and H the inputs' second moment they are tr(E H E^T), so that no input need be kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.quantization.grid import find_grid, round_to_grid, rtn, split_groups
from engine.quantization.plan import GridSpec

_NUM_RATIOS = 20
_NUM_CLIPS = 10  # down to 11/20 of a group's largest value
_CLIP_STEPS = 20
_SMALLEST = 1e-4
_ROWS = 256  # of a matrix at a time in the clip search


def search_scale(
    weights: Sequence[torch.Tensor],
    magnitude: torch.Tensor,
    moment: torch.Tensor,
    spec: GridSpec,
) -> torch.Tensor:
    """The scales FP32 [K] of inputs shared by weights FP32 [N_i, K]: W -> W * s, x -> x / s.

    `magnitude` FP32 [K] is the mean |x|, `moment` FP32 [K, K] is E[x x^T]. Tried are no scales and
    s = magnitude^r / (w^(1-r) + 1e-4) for r = 0, 1/20 ... 19/20, where w is the mean over outputs
    of |W| over its group's largest (the variant with weights: AutoAWQ's `duo_scaling`), each
    divided by sqrt(max(s) min(s)). The best has the least error of all outputs together.
    """
    relative = _relative_magnitude(weights, spec.group_size)
    best = torch.ones_like(magnitude)
    least = _scaled_error(weights, best, moment, spec)
    for step in range(_NUM_RATIOS):
        ratio = step / _NUM_RATIOS
        scale = magnitude**ratio / (relative ** (1 - ratio) + _SMALLEST)
        scale = scale.clamp(min=_SMALLEST)
        scale = scale / (scale.max() * scale.min()).sqrt()
        error = _scaled_error(weights, scale, moment, spec)
        if error < least:
            best, least = scale, error
    return best


def clip(weight: torch.Tensor, moment: torch.Tensor, spec: GridSpec) -> torch.Tensor:
    """FP32 [N, K] with each group of each output clamped to +-c of the least error.

    c is 1, 19/20 ... 11/20 of the group's largest |w|. The error counts a group by itself, as if
    inputs of different groups were independent: only the blocks of `moment` on its diagonal.
    """
    groups = split_groups(weight, spec.group_size)
    num_groups = groups.shape[1]
    blocks = moment.view(num_groups, spec.group_size, num_groups, spec.group_size)
    blocks = blocks.diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # [G, size, size]
    parts = [_clip_rows(part, blocks, spec) for part in groups.split(_ROWS)]
    return torch.cat(parts).view_as(weight)


def _clip_rows(groups: torch.Tensor, blocks: torch.Tensor, spec: GridSpec) -> torch.Tensor:
    """`clip` of some rows, [R, G, size]."""
    largest = groups.abs().amax(-1, keepdim=True)
    best = groups
    least: torch.Tensor | None = None
    for step in range(_NUM_CLIPS):
        bound = largest * (1 - step / _CLIP_STEPS)
        clipped = groups.clamp(-bound, bound)
        change = _round(clipped, spec) - groups
        error = torch.einsum("rgi,gij,rgj->rg", change, blocks, change)[..., None]
        if least is None:
            best, least = clipped, error
        else:
            better = error < least
            best, least = torch.where(better, clipped, best), torch.where(better, error, least)
    return best


def _relative_magnitude(weights: Sequence[torch.Tensor], group_size: int) -> torch.Tensor:
    """Mean over all outputs of |w| / largest |w| of its group, [K]."""
    groups = split_groups(torch.cat(list(weights)).abs(), group_size)
    largest = groups.amax(-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    return (groups / largest).mean(0).flatten()


def _scaled_error(
    weights: Sequence[torch.Tensor], scale: torch.Tensor, moment: torch.Tensor, spec: GridSpec
) -> float:
    error = 0.0
    for weight in weights:
        change = rtn(weight * scale, spec).dequantize() / scale - weight
        error += float(((change @ moment) * change).sum())
    return error


def _round(groups: torch.Tensor, spec: GridSpec) -> torch.Tensor:
    scale, zero = (part[..., None] for part in find_grid(groups, spec))
    return (round_to_grid(groups, scale, zero, spec) - zero) * scale
