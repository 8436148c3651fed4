"""The values a quantized matrix can take, and rounding to the nearest of them.

A group of inputs shares a scale and a zero point: w = scale * (code - zero). Scales are rounded to
FP16 first, as files store them, so that codes are the best for the scale in use.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.quantization.plan import GridSpec

_MAX_SCALE = torch.finfo(torch.float16).max


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """Codes of a matrix [N, K] with G = K / group_size groups along K.

    `codes` uint8 [N, K]; `scale` FP16 [N, G]; `zero` uint8 [N, G], never 0: GPTQ files store
    zero - 1, and readers disagree on what -1 becomes.
    """

    spec: GridSpec
    codes: torch.Tensor
    scale: torch.Tensor
    zero: torch.Tensor

    def dequantize(self) -> torch.Tensor:
        """The matrix FP32 [N, K]."""
        num_out, num_in = self.codes.shape
        codes = self.codes.view(num_out, -1, self.spec.group_size).float()
        values = (codes - self.zero.float()[..., None]) * self.scale.float()[..., None]
        return values.view(num_out, num_in)


def find_grid(groups: torch.Tensor, spec: GridSpec) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and zero point, FP32 [...], of groups FP32 [..., group_size].

    Asymmetric: scale = (high - low) / max_code and zero = round(-low / scale), with
    low <= 0 <= high (GPTQ, arXiv 2210.17323). Symmetric: scale = max |w| / 127, zero = 128.
    """
    if spec.symmetric:
        half = (spec.max_code + 1) // 2
        scale = _stored(groups.abs().amax(-1) / (half - 1))
        return scale, torch.full_like(scale, half)
    low = groups.amin(-1).clamp(max=0.0)
    high = groups.amax(-1).clamp(min=0.0)
    scale = _stored((high - low) / spec.max_code)
    zero = (-low / scale).round().clamp(max=spec.max_code)
    # A group without negative values: its zero point moves up to 1 (see QuantizedMatrix), and the
    # scale grows so that the largest value stays within the codes.
    shifted = _stored(high / (spec.max_code - 1))
    return torch.where(zero == 0, shifted, scale), zero.clamp(min=1.0)


def round_to_grid(
    values: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, spec: GridSpec
) -> torch.Tensor:
    """Codes, whole numbers in FP32, of values with broadcastable scale and zero point."""
    return (values / scale + zero).round().clamp(0, spec.max_code)


def rtn(weight: torch.Tensor, spec: GridSpec) -> QuantizedMatrix:
    """Round-to-nearest of FP32 [N, K]. Raises ValueError when the groups do not divide K."""
    groups = split_groups(weight, spec.group_size)
    scale, zero = find_grid(groups, spec)
    codes = round_to_grid(groups, scale[..., None], zero[..., None], spec)
    return quantized_matrix(spec, codes.flatten(1), scale, zero)


def quantized_matrix(
    spec: GridSpec, codes: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor
) -> QuantizedMatrix:
    """The matrix of FP32 codes [N, K], scales and zero points [N, G]."""
    return QuantizedMatrix(spec, codes.to(torch.uint8), scale.half(), zero.to(torch.uint8))


def split_groups(weight: torch.Tensor, group_size: int) -> torch.Tensor:
    """[N, K] as [N, G, group_size]. Raises ValueError when the groups do not divide K."""
    num_out, num_in = weight.shape
    if num_in % group_size:
        raise ValueError(f"groups of {group_size} do not divide {num_in} inputs")
    return weight.reshape(num_out, num_in // group_size, group_size)


def _stored(scale: torch.Tensor) -> torch.Tensor:
    """As FP16 stores it, and 1 where it vanishes (a group of zeros), so that dividing is safe."""
    half = scale.clamp(max=_MAX_SCALE).half()
    return torch.where(half == 0, torch.ones_like(half), half).float()
