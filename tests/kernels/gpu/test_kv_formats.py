"""Which entries of the KV cache the Triton kernels take."""

from __future__ import annotations

import pytest
import torch

from kernels.kv_entries import ChannelGroups, TokenGroups, channel_entry_bytes, token_entry_bytes

pytest.importorskip("triton", reason="Triton exists for Linux only")

from kernels.gpu.kv_entries import kernel_format


def _token_groups(bits: int, head_dim: int) -> TokenGroups:
    entry = token_entry_bytes(bits, head_dim)
    return TokenGroups(bits, head_dim, torch.zeros(1, 4, 1, entry, dtype=torch.uint8))


def _channel_groups(block_size: int) -> ChannelGroups:
    data = torch.zeros(1, 1, channel_entry_bytes(block_size, 32), dtype=torch.uint8)
    tails = torch.zeros(1, block_size, 1, 32, dtype=torch.bfloat16)
    return ChannelGroups(32, data, tails, tails[0])


def test_each_layout_has_a_format_of_its_own() -> None:
    """Kernels are compiled for it."""
    layouts = (
        torch.zeros(1, 4, 1, 32),
        _token_groups(8, 32),
        _token_groups(4, 32),
        _channel_groups(16),
    )
    assert len({kernel_format(entries)[1] for entries in layouts}) == len(layouts)


def test_heads_whose_scales_lie_at_odd_addresses_are_refused() -> None:
    """A scale and its offset are read as one word."""
    with pytest.raises(ValueError, match="12 dims"):
        kernel_format(_token_groups(4, 12))


@pytest.mark.parametrize("block_size", [12, 64])
def test_blocks_that_do_not_fill_tiles_are_refused(block_size: int) -> None:
    """Tiles of 32 keys hold whole blocks."""
    with pytest.raises(ValueError, match=f"blocks of {block_size}"):
        kernel_format(_channel_groups(block_size))
