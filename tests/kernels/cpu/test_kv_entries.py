"""Native quantized keys and values at every level: what they store, and attention over it.

Tolerances: stored bytes are the reference's, since both round the same quotients. Queries beside
INT8 keys are rounded to 16 bits, an error of 1/65534 of a group's largest value: 1e-4. The rest is
FP32 sums in another order: 1e-5.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels import reference
from kernels.cpu.kernel_set import cpu_kernels
from kernels.cpu.library import open_level, runnable_levels
from kernels.kv_entries import ChannelGroups, KVEntries, TokenGroups
from kernels.reference import PrefillSpan
from kernels.select import KernelSet
from tests.kernels.kv_caches import QUANTIZED, copied, entries

TOLERANCES = {"int8": 1e-4, "k8v4": 1e-4, "int4": 1e-5}
SEEN = [(0, 0.0), (70, 0.0), (16, 0.7), (0, 0.7)]  # window, soft-cap
SIZE = 16
HEADS = [(4, 4), (9, 3), (5, 1), (14, 2)]
pytestmark = pytest.mark.skipif(not runnable_levels(), reason="no native kernels are compiled")


@pytest.fixture(params=runnable_levels())
def kernels(request: pytest.FixtureRequest) -> KernelSet:
    """The operations of one level."""
    library = open_level(request.param)
    assert library is not None
    return cpu_kernels(library, 2, torch.float32)


@pytest.fixture
def rng() -> torch.Generator:
    """A generator with a fixed seed."""
    return torch.Generator().manual_seed(5)


def bytes_of(cache: KVEntries) -> list[torch.Tensor]:
    """All that a cache keeps, the null block, into which padding rows write, left out."""
    if isinstance(cache, ChannelGroups):
        return [cache.data[1:], cache.tails, cache.fresh]
    assert isinstance(cache, TokenGroups)
    return [cache.data[1:]]


class Room:
    """Caches of a format for sequences of these lengths, their blocks anywhere."""

    def __init__(
        self, rng: torch.Generator, kv_format: str, lengths: list[int], heads: int, dim: int
    ) -> None:
        width = max(-(-length // SIZE) for length in lengths)
        count = len(lengths) * width
        self.heads, self.dim = heads, dim
        self.tables = (torch.randperm(count, generator=rng) + 1).view(len(lengths), width)
        self.caches = [entries(part, count + 1, SIZE, heads, dim) for part in QUANTIZED[kv_format]]

    def store(
        self,
        rng: torch.Generator,
        operations: KernelSet,
        spans: list[tuple[int, int]],
        caches: list[KVEntries],
    ) -> None:
        """Keep positions begin to end of each sequence, turned by nothing."""
        at = [torch.arange(begin, end) for begin, end in spans]
        slots = [
            table[each // SIZE] * SIZE + each % SIZE
            for table, each in zip(self.tables, at, strict=True)
        ]
        tails = [torch.full((len(each),), 8 - row) for row, each in enumerate(at)]
        positions = torch.cat(at)
        kv = torch.randn(2, len(positions), self.heads, self.dim, generator=rng) * 3
        kv[0, ..., 3] += 40
        one, zero = (
            torch.ones(1 + int(positions.max()), 4),
            torch.zeros(1 + int(positions.max()), 4),
        )
        q = torch.zeros(len(positions), self.heads, self.dim)
        operations.rope_and_store_kv(
            q, kv[0], kv[1], positions, one, zero, *caches, torch.cat(slots), torch.cat(tails)
        )


@pytest.mark.parametrize("kv_format", QUANTIZED)
@pytest.mark.parametrize("dim", [32, 64, 96, 128, 256])
def test_stored_bytes(kernels: KernelSet, rng: torch.Generator, kv_format: str, dim: int) -> None:
    """A prompt in chunks beside another one, then tokens that fill and begin blocks."""
    room = Room(rng, kv_format, [70, 40], 3, dim)
    native = room.caches
    expected = [copied(cache) for cache in native]
    plain = reference_set(kernels)
    steps = [[(0, 48), (0, 16)], [(48, 62), (16, 31)]]
    steps += [[(62 + i, 63 + i), (31 + i, 32 + i)] for i in range(8)]
    for number, spans in enumerate(steps):
        for operations, caches in ((kernels, native), (plain, expected)):
            room.store(torch.Generator().manual_seed(number), operations, spans, caches)
        for one, other in zip(native, expected, strict=True):
            for stored, wanted in zip(bytes_of(one), bytes_of(other), strict=True):
                assert torch.equal(stored, wanted)


def reference_set(kernels: KernelSet) -> KernelSet:
    """The same set with the reference's store."""
    return replace(kernels, rope_and_store_kv=reference.rope_and_store_kv)


@pytest.mark.parametrize("kv_format", QUANTIZED)
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("dim", [32, 64, 96])
def test_decode(
    kernels: KernelSet, rng: torch.Generator, kv_format: str, heads: tuple[int, int], dim: int
) -> None:
    """Contexts from one token to several spans; a row does not depend on the others."""
    lengths = [1, 16, 17, 300, 1100]
    room = Room(rng, kv_format, lengths, heads[1], dim)
    for first in range(0, max(lengths), 48):  # those that have ended store their last token again
        spans = [(min(first, n - 1), min(first + 48, n)) for n in lengths]
        room.store(rng, kernels, spans, room.caches)
    q = torch.randn(len(lengths), heads[0], dim, generator=rng) / 4
    context, tails = torch.tensor(lengths), 8 - torch.arange(len(lengths))
    for seen in SEEN:
        arguments = (room.tables, context, 0.1, *seen, tails)
        out = kernels.attention_decode(q, *room.caches, *arguments)
        expected = reference.attention_decode(q.double(), *room.caches, *arguments)
        close(out, expected, TOLERANCES[kv_format])
        for row in range(len(lengths)):
            alone = slice(row, row + 1)
            single = kernels.attention_decode(
                q[alone], *room.caches, room.tables[alone], context[alone], 0.1, *seen, tails[alone]
            )
            assert torch.equal(single, out[alone])


@pytest.mark.parametrize("kv_format", QUANTIZED)
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("dim", [32, 64, 96])
def test_prefill(
    kernels: KernelSet, rng: torch.Generator, kv_format: str, heads: tuple[int, int], dim: int
) -> None:
    """Whole prompts and chunks behind a prefix, several sequences at once."""
    room = Room(rng, kv_format, [100, 33, 64], heads[1], dim)
    room.store(rng, kernels, [(0, 48), (0, 32), (0, 1)], room.caches)
    spans = [(48, 100), (32, 33), (0, 64)]
    room.store(rng, kernels, spans, room.caches)
    q = torch.randn(sum(end - begin for begin, end in spans), heads[0], dim, generator=rng) / 4
    prefill = [
        PrefillSpan(end - begin, end, table)
        for (begin, end), table in zip(spans, room.tables, strict=True)
    ]
    for seen in SEEN:
        out = kernels.attention_prefill(q, *room.caches, prefill, 0.1, *seen)
        expected = reference.attention_prefill(q.double(), *room.caches, prefill, 0.1, *seen)
        close(out, expected, 1e-5)


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """Within `tolerance` of the expected values' scale."""
    torch.testing.assert_close(
        actual.double(),
        expected.double(),
        rtol=tolerance,
        atol=tolerance * float(expected.abs().max()),
    )
