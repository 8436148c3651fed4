"""Quantized keys and values: their layout byte by byte, their error, and attention over them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import reference
from kernels.kv_entries import (
    ChannelGroups,
    KVEntries,
    channel_entry_bytes,
    dequantize_by_channel,
    dequantize_by_token,
    quantize_by_channel,
    quantize_by_token,
    token_entry_bytes,
    token_group_size,
)
from kernels.reference import PrefillSpan
from tests.kernels.kv_caches import QUANTIZED, entries, read_channels, read_token
from tests.kernels.test_reference import SEEN, naive_attention

DIMS = [32, 64, 96, 128, 256]
HALF_ULP = 2.0**-11  # of FP16, to which scales and offsets are rounded


def heads_of(dim: int, seed: int, shift: float) -> torch.Tensor:
    """Three tokens of two heads, with a large channel, as keys have them."""
    x = torch.randn(3, 2, dim, generator=torch.Generator().manual_seed(seed))
    x[..., seed % dim] += shift
    return x


@pytest.mark.parametrize("bits", [8, 4])
@settings(deadline=None)
@given(dim=st.sampled_from(DIMS), seed=st.integers(0, 999), shift=st.floats(-60, 60))
def test_by_token(bits: int, dim: int, seed: int, shift: float) -> None:
    """Values come back within half a step of their group, read as the layout says."""
    x = heads_of(dim, seed, shift)
    stored = quantize_by_token(x, bits)
    assert stored.shape == (3, 2, token_entry_bytes(bits, dim))
    back = dequantize_by_token(stored, bits, dim)
    by_hand = torch.tensor(
        [[read_token(bytes(h.tolist()), bits, dim) for h in token] for token in stored]
    )
    torch.testing.assert_close(back, by_hand, rtol=1e-6, atol=1e-6)
    groups = x.unflatten(-1, (-1, token_group_size(dim)))
    reach = groups.amax(-1, keepdim=True) - groups.amin(-1, keepdim=True)
    # Half a step, and what rounding the scale (at the far end) and the offset adds.
    bound = reach * (0.5 / (2**bits - 1) + 2 * HALF_ULP) + groups.abs().amax() * 2 * HALF_ULP
    assert ((back.unflatten(-1, (-1, token_group_size(dim))) - groups).abs() <= bound).all()


@settings(deadline=None)
@given(dim=st.sampled_from(DIMS), size=st.sampled_from([8, 16]), seed=st.integers(0, 999))
def test_by_channel(dim: int, size: int, seed: int) -> None:
    """Each channel has a scale of its own: a large one does not cost the others anything."""
    keys = torch.randn(2, size, 3, dim, generator=torch.Generator().manual_seed(seed))
    keys[..., seed % dim] += 50
    stored = quantize_by_channel(keys)
    assert stored.shape == (2, 3, channel_entry_bytes(size, dim))
    back = dequantize_by_channel(stored, dim)
    by_hand = [
        torch.tensor([read_channels(bytes(h.tolist()), size, dim) for h in block])
        for block in stored
    ]
    torch.testing.assert_close(back, torch.stack(by_hand).transpose(1, 2), rtol=1e-6, atol=1e-6)
    reach = keys.amax(1, keepdim=True) - keys.amin(1, keepdim=True)
    bound = reach * (0.5 / 15 + 2 * HALF_ULP) + keys.abs().amax(1, keepdim=True) * 2 * HALF_ULP
    assert ((back - keys).abs() <= bound).all()


@pytest.mark.parametrize("bits", [8, 4])
def test_equal_values_are_kept(bits: int) -> None:
    """A group without any spread has no step to divide by."""
    x = torch.full((1, 1, 64), 0.375)
    assert torch.equal(dequantize_by_token(quantize_by_token(x, bits), bits, 64), x)


class Stored:
    """A text computed in `chunks`, in blocks that lie anywhere, read back value by value."""

    def __init__(self, kv_format: str, length: int, chunks: list[int], tail: int = 4) -> None:
        self.size, self.heads, self.dim, self.tail = 8, 2, 32, tail
        rng = torch.Generator().manual_seed(length)
        key_part, value_part = QUANTIZED[kv_format]
        blocks = -(-length // self.size)
        self.table = torch.randperm(blocks, generator=rng) + 1
        self.keys, self.values = (
            torch.randn(2, length, self.heads, self.dim, generator=rng).bfloat16().float()
        )
        self.k_cache = self._room(key_part, blocks)
        self.v_cache = self._room(value_part, blocks)
        at = torch.arange(length)
        self.slots = self.table[at // self.size] * self.size + at % self.size
        self.outputs: list[torch.Tensor] = []
        start = 0
        for count in chunks:
            self.store(start, start + count)
            start += count

    def _room(self, part: str, blocks: int) -> KVEntries:
        return entries(part, blocks + 1, self.size, self.heads, self.dim)

    def store(self, start: int, end: int) -> None:
        """Compute and keep these tokens."""
        now = slice(start, end)
        tails = torch.full((end - start,), self.tail)
        reference.store_kv(
            self.keys[now], self.values[now], self.k_cache, self.v_cache, self.slots[now], tails
        )

    def as_seen(self, position: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of all positions up to this one, as its query sees them."""
        return (
            self._read(self.k_cache, self.keys, position),
            self._read(self.v_cache, self.values, position),
        )

    def _read(self, cache: KVEntries, exact: torch.Tensor, position: int) -> torch.Tensor:
        if isinstance(cache, torch.Tensor):
            raise TypeError("this one is not quantized")
        rows = []
        for at in range(position + 1):
            block, within = int(self.table[at // self.size]), at % self.size
            if not isinstance(cache, ChannelGroups):
                stored = cache.data[block, within]
                read = [read_token(bytes(h.tolist()), cache.bits, self.dim) for h in stored]
            elif at // self.size == position // self.size:
                read = exact[at].tolist()
            else:
                stored = cache.data[block]
                read = [
                    read_channels(bytes(h.tolist()), self.size, self.dim)[within] for h in stored
                ]
            rows.append(read)
        return torch.tensor(rows)


@pytest.mark.parametrize("kv_format", QUANTIZED)
@pytest.mark.parametrize("seen", SEEN)
def test_prefill_reads_what_is_stored(kv_format: str, seen: tuple[int, float]) -> None:
    """A chunk behind a prefix against float64 over what the bytes say."""
    text = Stored(kv_format, 29, [16, 13])
    q = torch.randn(13, 4, text.dim, generator=torch.Generator().manual_seed(0))
    out = reference.attention_prefill(
        q, text.k_cache, text.v_cache, [PrefillSpan(13, 29, text.table)], 0.3, *seen
    )
    for row in range(13):
        k, v = text.as_seen(16 + row)
        expected = naive_attention(q[row : row + 1], k, v, 0.3, *seen)[0]
        torch.testing.assert_close(out[row].double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kv_format", QUANTIZED)
@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("length", [1, 8, 9, 30])
def test_decode_reads_what_is_stored(kv_format: str, seen: tuple[int, float], length: int) -> None:
    """One token at a time against float64 over what the bytes say."""
    text = Stored(kv_format, length, [1] * length)
    q = torch.randn(1, 4, text.dim, generator=torch.Generator().manual_seed(0))
    out = reference.attention_decode(
        q,
        text.k_cache,
        text.v_cache,
        text.table[None],
        torch.tensor([length]),
        0.3,
        *seen,
        torch.tensor([text.tail]),
    )
    expected = naive_attention(q, *text.as_seen(length - 1), 0.3, *seen)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunks", [[8, 8, 13], [24, 5], [16] + [1] * 13, [1] * 29])
def test_chunks_do_not_matter(chunks: list[int]) -> None:
    """Keys by channel: a text in pieces leaves the same blocks and the same tail as in one."""
    whole, pieces = Stored("int4", 29, [29]), Stored("int4", 29, chunks)
    one, other = whole.k_cache, pieces.k_cache
    assert isinstance(one, ChannelGroups)
    assert isinstance(other, ChannelGroups)
    full = whole.table[:3]
    assert torch.equal(one.data[full], other.data[full])
    assert torch.equal(one.tails[4, :5], other.tails[4, :5])
