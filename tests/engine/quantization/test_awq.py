"""AWQ's searches against brute force in float64."""

from __future__ import annotations

import pytest
import torch

from engine.quantization.awq import clip, search_scale
from engine.quantization.grid import rtn
from engine.quantization.plan import GridSpec

SPEC = GridSpec(4, 32)


def inputs(num_in: int, seed: int = 0) -> torch.Tensor:
    """Activations [500, K], a few of them much larger, as in language models."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(500, num_in, generator=generator)
    x[:, ::17] *= 20
    return x


def weights(num_in: int) -> list[torch.Tensor]:
    """Two matrices over one input."""
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(n, num_in, generator=generator) for n in (24, 8)]


def squared_error(ws: list[torch.Tensor], scale: torch.Tensor, x: torch.Tensor) -> float:
    """Sum over outputs of the mean squared change of the products, in float64."""
    total = 0.0
    for weight in ws:
        rounded = rtn(weight * scale, SPEC).dequantize().double() / scale.double()
        outputs = x.double() @ (rounded - weight.double()).T
        total += float(outputs.square().mean(0).sum())
    return total


def test_the_scale_is_the_best_of_the_papers_grid() -> None:
    """Each candidate written out again and judged on the inputs themselves."""
    x, ws = inputs(96), weights(96)
    magnitude = x.abs().mean(0)
    found = search_scale(ws, magnitude, x.T @ x / len(x), SPEC)
    together = torch.cat(ws).abs().view(32, 3, 32)
    relative = (together / together.amax(-1, keepdim=True)).mean(0).flatten()
    candidates = [torch.ones(96)]
    for step in range(20):
        scale = magnitude ** (step / 20) / (relative ** (1 - step / 20) + 1e-4)
        candidates.append(scale / (scale.max() * scale.min()).sqrt())
    errors = [squared_error(ws, scale, x) for scale in candidates]
    assert squared_error(ws, found, x) == pytest.approx(min(errors), rel=1e-3)
    assert squared_error(ws, found, x) < 0.7 * errors[0]


def test_inputs_alike_need_no_scale_that_hurts() -> None:
    """Never worse than rounding to nearest."""
    generator = torch.Generator().manual_seed(2)
    x, ws = torch.randn(500, 64, generator=generator), weights(64)
    found = search_scale(ws, x.abs().mean(0), x.T @ x / len(x), SPEC)
    assert squared_error(ws, found, x) <= squared_error(ws, torch.ones(64), x) * (1 + 1e-6)


def test_inputs_that_are_always_zero_keep_the_scale_finite() -> None:
    """A magnitude of 0 is no division by 0."""
    x = inputs(64)
    x[:, [0, 9]] = 0
    found = search_scale(weights(64), x.abs().mean(0), x.T @ x / len(x), SPEC)
    assert bool((found.isfinite() & (found > 0)).all())


def test_clipping_is_the_best_of_its_grid_for_each_group() -> None:
    """Every bound tried again on each group's own inputs."""
    x, weight = inputs(64, seed=3), weights(64)[0]
    weight[:, 5] *= 6  # an outlier worth giving up
    found = clip(weight, x.T @ x / len(x), SPEC)
    assert bool((found.abs() <= weight.abs() + 1e-7).all())
    for group in range(2):
        part = slice(32 * group, 32 * group + 32)
        own = x[:, part].double()

        def error(
            candidate: torch.Tensor, part: slice = part, own: torch.Tensor = own
        ) -> torch.Tensor:
            change = rtn(candidate, SPEC).dequantize().double() - weight[:, part].double()
            return (own @ change.T).square().mean(0)

        largest = weight[:, part].abs().amax(-1, keepdim=True)
        tried = [
            error(weight[:, part].clamp(-largest * (1 - i / 20), largest * (1 - i / 20)))
            for i in range(10)
        ]
        torch.testing.assert_close(
            error(found[:, part].contiguous()), torch.stack(tried).amin(0), rtol=1e-3, atol=1e-6
        )
    assert not torch.equal(found, weight)
