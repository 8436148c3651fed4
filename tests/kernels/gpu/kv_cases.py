"""The quantized KV cache: what is stored, to the bit, and attention over it. See `cases`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from kernels import reference
from kernels.kv_entries import (
    ChannelGroups,
    KVEntries,
    TokenGroups,
    channel_entry_bytes,
    dequantize_by_token,
    token_entry_bytes,
)
from tests.kernels.gpu import tolerances
from tests.kernels.gpu.rig import ALL, Heads, Rig, Seen, check, make_spans
from tests.kernels.gpu.tolerances import BF16, FP16, FP32

# Keys and values; by channel are keys alone.
FORMATS = {"int8": ("int8", "int8"), "k8v4": ("int8", "int4"), "int4": ("channel", "int4")}
# As scale or offset 0xFFFF is NaN.
POISON = 0xFF


@dataclass(frozen=True)
class Pair:
    """Keys and values of a layer."""

    keys: KVEntries
    values: KVEntries

    def put(self, rig: Rig) -> Pair:
        """A copy on the device under test."""
        return Pair(*(_mapped(part, lambda x: rig.put(x)[0]) for part in (self.keys, self.values)))

    def tensors(self) -> list[torch.Tensor]:
        """Everything stored, on the CPU."""
        found: list[torch.Tensor] = []
        for part in (self.keys, self.values):
            _mapped(part, lambda x: found.append(x.cpu()) or x)  # type: ignore[func-returns-value]
        return found


def _mapped(part: KVEntries, change: Callable[[torch.Tensor], torch.Tensor]) -> KVEntries:
    """The part with each of its tensors changed."""
    if isinstance(part, torch.Tensor):
        return change(part)
    if isinstance(part, TokenGroups):
        return replace(part, data=change(part.data))
    tensors = {name: change(getattr(part, name)) for name in ("data", "tails", "fresh")}
    return replace(part, **tensors)


def _pair(
    kv_format: str, num_blocks: int, block_size: int, heads: Heads, tokens: int, fill: int
) -> Pair:
    """Blocks, 5 tails and room for a step of `tokens`, all bytes `fill`."""
    _, num_kv_heads, head_dim = heads

    def filled(*shape: int) -> torch.Tensor:
        return torch.full(shape, fill, dtype=torch.uint8)

    def part(kind: str) -> KVEntries:
        if kind == "channel":
            entry = channel_entry_bytes(block_size, head_dim)
            bf16_head = (num_kv_heads, 2 * head_dim)
            tails, fresh = filled(5, block_size, *bf16_head), filled(tokens, *bf16_head)
            data = filled(num_blocks, num_kv_heads, entry)
            return ChannelGroups(head_dim, data, tails.view(BF16), fresh.view(BF16))
        bits = int(kind.removeprefix("int"))
        entry = token_entry_bytes(bits, head_dim)
        return TokenGroups(bits, head_dim, filled(num_blocks, block_size, num_kv_heads, entry))

    return Pair(*map(part, FORMATS[kv_format]))


def _quarter_turns(rig: Rig, positions: int, rotary_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of multiples of 90 degrees: rotations without any rounding."""
    turns = torch.randint(4, (positions, rotary_dim // 2), generator=rig.rng)
    cos, sin = (torch.tensor(row, dtype=FP32)[turns] for row in ((1, 0, -1, 0), (0, 1, 0, -1)))
    return cos, sin


@dataclass(frozen=True)
class Step:
    """The rows of one step: a slot and a tail for each."""

    slots: torch.Tensor
    tails: torch.Tensor


def _steps(rig: Rig, block_size: int) -> tuple[list[Step], int]:
    """Chunks of three prompts, then steps that fill blocks out of tails; and the blocks needed.

    One chunk goes on past the end of a block. Steps of one token begin with two padding rows, which
    share the null block and the null tail, so that a row that fills a block has others before it.
    """
    size = block_size
    lengths = (2 * size, size - 1, size + 3)
    order = iter((torch.randperm(9, generator=rig.rng) + 1).tolist())
    tables = [torch.tensor([next(order) for _ in range(3)]) for _ in lengths]

    def rows(sequence: int, begin: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        at = torch.arange(begin, begin + count)
        slots = tables[sequence][at // size] * size + at % size
        return slots, torch.full_like(slots, sequence + 1)

    def step(*parts: tuple[torch.Tensor, torch.Tensor]) -> Step:
        slots, tails = (torch.cat(one) for one in zip(*parts, strict=True))
        return Step(slots, tails)

    nothing = torch.zeros(2, dtype=torch.int64)
    steps = [
        step(rows(0, 0, size), rows(1, 0, lengths[1]), rows(2, 0, lengths[2])),
        step(rows(0, size, size)),
    ]
    for new in range(2):
        ones = [rows(sequence, lengths[sequence] + new, 1) for sequence in (0, 2, 1)]
        steps.append(step((nothing, nothing), *ones))
    return steps, 10


def stored_bytes(
    rig: Rig, dtype: torch.dtype, kv_format: str, heads: Heads, rotary_dim: int, block_size: int
) -> None:
    """Entries, tails and fresh keys equal the reference's to the bit, over several steps.

    Inputs are exact in BF16, which fresh keys are kept in, and turned by multiples of 90 degrees:
    what is quantized is the same however the rotation is computed.
    """
    num_heads, num_kv_heads, head_dim = heads
    steps, num_blocks = _steps(rig, block_size)
    most = max(len(step.slots) for step in steps)
    expected = _pair(kv_format, num_blocks, block_size, heads, most, fill=0)
    actual = expected.put(rig)
    split = (num_heads, num_kv_heads, num_kv_heads)
    rotation = _quarter_turns(rig, 7, rotary_dim)
    for step in steps:
        tokens = len(step.slots)
        fused = rig.randn(tokens, sum(split), head_dim, dtype=BF16)
        fused[:, :, head_dim // 2] *= 30  # a channel that is large in every token
        fused[-1, num_heads:] = 0.3  # groups without a range
        fused[:2] = fused[0]  # padding rows write the same slot
        positions = torch.randint(7, (tokens,), generator=rig.rng)
        positions[:2] = positions[0]
        turned = reference.rope_and_store_kv(
            *fused.float().split(split, dim=1), positions, *rotation,
            expected.keys, expected.values, step.slots, step.tails,
        )  # fmt: skip
        (device_fused,) = rig.put(fused.to(dtype))
        q = rig.ops.rope_and_store_kv(
            *device_fused.split(split, dim=1), *rig.put(positions, *rotation),
            actual.keys, actual.values, *rig.put(step.slots, step.tails),
        )  # fmt: skip
        torch.testing.assert_close(q.float().cpu(), turned, rtol=0, atol=0)
        for mine, theirs in zip(actual.tensors(), expected.tensors(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


def stored_at_any_angle(rig: Rig, dtype: torch.dtype, heads: Heads, rotary_dim: int) -> None:
    """INT8 keys within a code: a rotation computed in another order may tip one over."""
    num_heads, num_kv_heads, head_dim = heads
    expected = _pair("int8", 2, 4, heads, 0, fill=0)
    actual = expected.put(rig)
    fused = rig.randn(3, num_heads + 2 * num_kv_heads, head_dim, dtype=dtype)
    split = (num_heads, num_kv_heads, num_kv_heads)
    angles = 7 * rig.randn(41, rotary_dim // 2)
    rows = (torch.randint(41, (3,), generator=rig.rng), angles.cos(), angles.sin())
    slots = torch.tensor([6, 1, 5])
    q, k, v = fused.float().split(split, dim=1)
    reference.rope_and_store_kv(q, k, v, *rows, expected.keys, expected.values, slots)
    (device_fused,) = rig.put(fused)
    rig.ops.rope_and_store_kv(
        *device_fused.split(split, dim=1), *rig.put(*rows),
        actual.keys, actual.values, *rig.put(slots),
    )  # fmt: skip
    (keys, values), (expected_keys, expected_values) = actual.tensors(), expected.tensors()
    assert torch.equal(values, expected_values)
    codes, expected_codes = (
        part[..., :head_dim].view(torch.int8).int() for part in (keys, expected_keys)
    )
    assert (codes - expected_codes).abs().max() <= 1
    apart = (dequantize_by_token(part, 8, head_dim) for part in (keys, expected_keys))
    torch.testing.assert_close(*apart, rtol=0, atol=0.1)  # a code is 0.03


@dataclass(frozen=True)
class Sequences:
    """The same sequences twice: what no key owns is 0, and NaN where there are scales."""

    clean: Pair
    poisoned: Pair
    tables: list[torch.Tensor]
    tails: torch.Tensor


def _sequences(
    rig: Rig, kv_format: str, heads: Heads, block_size: int, spans: Sequence[tuple[int, int]]
) -> Sequences:
    """Stored by the reference; `fresh` has the keys of the last tokens of each span."""
    _, num_kv_heads, head_dim = heads
    needed = [-(-context // block_size) for _, context in spans]
    order = (torch.randperm(sum(needed), generator=rig.rng) + 1).tolist()
    tables = [torch.tensor([order.pop() for _ in range(count)]) for count in needed]
    tokens = max(sum(count for count, _ in spans), max(context for _, context in spans))
    clean, poisoned = (
        _pair(kv_format, sum(needed) + 1, block_size, heads, tokens, fill) for fill in (0, POISON)
    )
    newest = []
    for row, ((count, context), table) in enumerate(zip(spans, tables, strict=True)):
        at = torch.arange(context)
        slots = table[at // block_size] * block_size + at % block_size
        k, v = (rig.randn(context, num_kv_heads, head_dim, dtype=BF16) for _ in range(2))
        k[:, :, head_dim // 2] *= 4
        newest.append(k[context - count :])
        for pair in (clean, poisoned):
            owners = torch.full_like(slots, row + 1)
            reference.store_kv(k.float(), v.float(), pair.keys, pair.values, slots, owners)
    for pair in (clean, poisoned):
        if isinstance(pair.keys, ChannelGroups):
            fresh = torch.cat(newest)
            pair.keys.fresh[: len(fresh)] = fresh
            pair.keys.fresh[len(fresh) :] = float("nan")
    return Sequences(clean, poisoned, tables, torch.arange(len(spans)) + 1)


def quantized_prefill(
    rig: Rig,
    dtype: torch.dtype,
    kv_format: str,
    heads: Heads,
    block_size: int,
    spans: Sequence[tuple[int, int]],
    seen: Seen = ALL,
) -> None:
    """Spans (queries, context) that begin with a block: whole prompts, and chunks after one."""
    num_heads, _, head_dim = heads
    stored = _sequences(rig, kv_format, heads, block_size, spans)
    q = rig.randn(sum(count for count, _ in spans), num_heads, head_dim, dtype=dtype)
    scale = head_dim**-0.5
    clean, device = stored.clean, stored.poisoned.put(rig)
    expected = reference.attention_prefill(
        q.float(), clean.keys, clean.values, make_spans(spans, stored.tables), scale, *seen
    )
    tables = rig.put(*stored.tables)
    actual = rig.ops.attention_prefill(
        *rig.put(q), device.keys, device.values, make_spans(spans, tables), scale, *seen
    )
    assert actual.dtype == dtype
    check(actual, expected, tolerances.attention(dtype))


def quantized_decode(
    rig: Rig,
    dtype: torch.dtype,
    kv_format: str,
    heads: Heads,
    block_size: int,
    lengths: Sequence[int],
    seen: Seen = ALL,
) -> None:
    """Rows of unequal length in a table wider than any; a row alone gives the very same."""
    num_heads, _, head_dim = heads
    stored = _sequences(rig, kv_format, heads, block_size, [(1, length) for length in lengths])
    width = max(len(table) for table in stored.tables)
    tables = torch.zeros(len(lengths), width + 3, dtype=torch.int64)
    for row, table in zip(tables, stored.tables, strict=True):
        row[: len(table)] = table
    context_lens = torch.tensor(lengths)
    q = rig.randn(len(lengths), num_heads, head_dim, dtype=dtype)
    scale = head_dim**-0.5
    clean, device = stored.clean, stored.poisoned.put(rig)
    expected = reference.attention_decode(
        q.float(), clean.keys, clean.values, tables[:, :width], context_lens, scale, *seen,
        tails=stored.tails,
    )  # fmt: skip
    inputs = rig.put(q, tables, context_lens, stored.tails)

    def attend(rows: slice) -> torch.Tensor:
        part_q, part_tables, part_lens, tails = (one[rows] for one in inputs)
        out: torch.Tensor = rig.ops.attention_decode(
            part_q, device.keys, device.values, part_tables, part_lens, scale, *seen, tails=tails
        )
        return out

    actual = attend(slice(None))
    assert actual.dtype == dtype
    check(actual, expected, tolerances.attention(dtype))
    if len(lengths) > 1:
        torch.testing.assert_close(attend(slice(1, 2)), actual[1:2], rtol=0, atol=0)


# Adds a case: its function and its arguments.
Add = Callable[..., None]


def add_small_cases(add: Add) -> None:
    """Every format with heads of a power of two or not, of two groups or of one."""
    add(stored_bytes, FP32, "int8", (3, 1, 32), 32, 4)
    add(stored_bytes, FP16, "int4", (2, 2, 64), 16, 16)
    for kv_format in ("k8v4", "int4"):
        add(stored_bytes, BF16, kv_format, (10, 10, 96), 96, 4)
        add(stored_bytes, BF16, kv_format, (4, 2, 128), 128, 4)
    for kv_format in FORMATS:
        for dtype, heads, size, spans in (
            (FP32, (4, 2, 32), 4, ((9, 9), (6, 38))),
            (FP16, (2, 1, 96), 16, ((37, 69), (16, 16), (1, 33))),
            (BF16, (2, 1, 128), 16, ((70, 150),)),
        ):
            add(quantized_prefill, dtype, kv_format, heads, size, spans)
        for dtype, heads, size, lengths in (
            (FP32, (4, 2, 32), 4, (70, 33, 1)),
            (FP16, (5, 1, 64), 16, (150, 16, 17)),
            (FP16, (2, 1, 96), 16, (64, 65)),
            (BF16, (20, 1, 128), 16, (128, 79)),
        ):
            add(quantized_decode, dtype, kv_format, heads, size, lengths)
        for seen in ((7, 0.0), (40, 1.5), (0, 1.5)):
            add(quantized_prefill, FP32, kv_format, (2, 1, 32), 4, ((9, 9), (70, 130)), seen)
            add(quantized_decode, FP32, kv_format, (2, 1, 32), 4, (130, 39, 1), seen)
    add(stored_at_any_angle, BF16, (4, 2, 64), 64)
    add(stored_at_any_angle, FP16, (4, 2, 80), 20)


def add_large_cases(add: Add) -> None:
    """The shapes of Llama-3.1-8B, for a GPU."""
    for kv_format in FORMATS:
        add(stored_bytes, BF16, kv_format, (32, 8, 128), 128, 16)
        spans = ((1000, 1000), (300, 5004))
        add(quantized_prefill, BF16, kv_format, (32, 8, 128), 16, spans)
        add(quantized_decode, BF16, kv_format, (32, 8, 128), 16, (16384, 1, 4097))
