"""What the writers pack, the readers unpack: any codes, sizes, groups and orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.loading.files import Fields
from engine.loading.packed.awq import awq
from engine.loading.packed.gptq import gptq
from engine.loading.packed.module import Module, PackedMatrix
from engine.loading.packed.words import pack_words, unpack_words
from engine.loading.tensors import TensorInfo
from engine.quantization.packing import pack_awq, pack_gptq

DTYPES = {torch.int32: "I32", torch.float16: "F16"}
SIZES = st.integers(1, 4).map(lambda n: 8 * n)
SEEDS = st.integers(0, 2**32 - 1)


def module(tensors: dict[str, torch.Tensor], num_out: int, num_in: int) -> Module:
    """What a header would say of a layer's tensors."""
    parts = {
        part: TensorInfo(f"x.{part}", tuple(t.shape), DTYPES[t.dtype], t.numel() * t.element_size())
        for part, t in tensors.items()
    }
    return Module("x", num_out, num_in, parts, Path("folder"))


def dense(matrix: PackedMatrix, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """Expanded from tensors by name."""
    return matrix.dense(lambda name: tensors[name.removeprefix("x.")])


def kept(matrix: PackedMatrix, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """The kept payload's values with its columns put back."""
    blocks = matrix.quantized(lambda name: tensors[name.removeprefix("x.")])
    assert blocks is not None
    group_size = blocks.codes.shape[1] // blocks.scale.shape[1]
    values = blocks.codes.float() * blocks.scale.float().repeat_interleave(group_size, 1)
    if blocks.minimum is not None:
        values += blocks.minimum.float().repeat_interleave(group_size, 1)
    if blocks.order is None:
        return values
    unsorted = torch.empty_like(values)
    unsorted[:, blocks.order.long()] = values
    return unsorted


def expected(
    codes: torch.Tensor, scale: torch.Tensor, zeros: torch.Tensor, group_of: torch.Tensor
) -> torch.Tensor:
    """The definition, one group after another."""
    values = torch.empty(codes.shape)
    for group in range(scale.shape[1]):
        columns = group_of == group
        steps = (codes[:, columns] - zeros[:, group, None]).float()
        values[:, columns] = scale[:, group, None].float() * steps
    return values


@settings(deadline=None)  # the first use of torch's threads takes a second
@given(st.sampled_from([4, 8]), st.integers(0, 1), SIZES, SIZES, SEEDS)
def test_words(bits: int, dim: int, rows: int, columns: int, seed: int) -> None:
    """Every place of a word, the highest bit too."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 2**bits, (rows, columns), generator=generator)
    words = pack_words(codes, bits, dim)
    assert words.dtype == torch.int32
    assert words.numel() * 32 == codes.numel() * bits
    assert torch.equal(unpack_words(words, bits, dim).long(), codes)


@settings(deadline=None)  # the first use of torch's threads takes a second
@given(
    bits=st.sampled_from([4, 8]),
    num_out=SIZES,
    num_in=SIZES,
    group_size=st.sampled_from([-1, 2, 8, 12, 16, 64]),
    desc_act=st.booleans(),
    symmetric=st.booleans(),
    seed=SEEDS,
)
def test_gptq(
    bits: int,
    num_out: int,
    num_in: int,
    group_size: int,
    desc_act: bool,
    symmetric: bool,
    seed: int,
) -> None:
    """Version 1; the last group may be short, columns may be in any order."""
    generator = torch.Generator().manual_seed(seed)
    size = num_in if group_size == -1 else min(group_size, num_in)
    groups = -(-num_in // size)
    codes = torch.randint(0, 2**bits, (num_out, num_in), generator=generator)
    zeros = torch.randint(1, 2**bits, (num_out, groups), generator=generator)
    if symmetric:
        zeros.fill_(2 ** (bits - 1))
    scale = torch.rand(num_out, groups, generator=generator).half() / 8
    group_of = torch.arange(num_in) // size
    if desc_act:
        group_of = group_of[torch.randperm(num_in, generator=generator)]
    tensors = pack_gptq(codes, scale, zeros, group_of, bits)
    config: dict[str, Any] = {"bits": bits, "group_size": group_size, "desc_act": desc_act}
    packing = gptq(Fields(config | {"sym": symmetric}, Path("config.json")))
    matrix = packing.matrix(module(tensors, num_out, num_in))
    values = expected(codes, scale, zeros, group_of)
    assert torch.equal(dense(matrix, tensors), values)
    if num_in % size:
        assert matrix.info.grouping is None
        return
    # Half an FP16 step of a minimum of at most 128 scales, beside codes counted from 0 or 128.
    largest = 128 if bits == 8 else 15
    bound = 0 if symmetric else float(scale.max()) * largest * 2**-11
    error = (kept(matrix, tensors) - values).abs().max()
    assert float(error) <= bound + 1e-5 * float(values.abs().max() + scale.max() * largest)


@settings(deadline=None)  # the first use of torch's threads takes a second
@given(SIZES, SIZES, st.sampled_from([-1, 2, 8]), st.booleans(), SEEDS)
def test_awq(num_out: int, num_in: int, group_size: int, has_zeros: bool, seed: int) -> None:
    """Zero points of 0 to 15, and symmetric files that leave them out."""
    generator = torch.Generator().manual_seed(seed)
    size = num_in if group_size == -1 else group_size
    codes = torch.randint(0, 16, (num_out, num_in), generator=generator)
    zeros = torch.randint(0, 16, (num_out, num_in // size), generator=generator)
    scale = torch.rand(zeros.shape, generator=generator).half()
    if not has_zeros:
        zeros.fill_(8)
    tensors = pack_awq(codes, scale, zeros)
    if not has_zeros:
        del tensors["qzeros"]
    config = {"bits": 4, "group_size": group_size, "zero_point": has_zeros}
    matrix = awq(Fields(config, Path("config.json"))).matrix(module(tensors, num_out, num_in))
    values = expected(codes, scale, zeros, torch.arange(num_in) // size)
    assert torch.equal(dense(matrix, tensors), values)
    torch.testing.assert_close(kept(matrix, tensors), values, rtol=0, atol=15 * 2**-11 * 1.01)


def test_version_2_has_its_zero_points_as_they_are() -> None:
    """Those of 0 too, which version 1 brings back by carrying into the next one."""
    zeros = torch.tensor([[0, 15, 0, 1, 2, 3, 4, 0]])
    codes = torch.arange(64).view(8, 8) % 16
    tensors = pack_gptq(codes, torch.ones(8, 1), torch.ones(8, 1), torch.zeros(8), 4)
    config = {"bits": 4, "group_size": -1, "sym": False}
    for layout, stored in (
        ("gptq_v2", pack_words(zeros, 4, 1)),
        ("gptq", pack_words(zeros, 4, 1) - 0x11111111),
    ):
        packing = gptq(Fields(config | {"checkpoint_format": layout}, Path("config.json")))
        changed = tensors | {"qzeros": stored}
        values = dense(packing.matrix(module(changed, 8, 8)), changed)
        assert torch.equal(values, (codes - zeros.t()).float())


def test_writers_refuse_what_does_not_fit() -> None:
    """A zero point of 0 in version 1, codes too large, sizes that fill no word."""
    codes, scale, zeros = torch.ones(8, 8).int(), torch.ones(8, 1), torch.ones(8, 1).int()
    groups = torch.zeros(8)
    with pytest.raises(ValueError, match="zero point of 0"):
        pack_gptq(codes, scale, zeros * 0, groups, 4)
    with pytest.raises(ValueError, match=r"0\.\.15"):
        pack_gptq(codes * 16, scale, zeros, groups, 4)
    with pytest.raises(ValueError, match="whole words"):
        pack_awq(codes[:7], scale[:7], zeros[:7])
