"""Where in the cache a request's tokens lie, and which of its tokens lie in given blocks."""

from __future__ import annotations

import numpy as np

from app.telemetry.request_trace import RequestTrace
from app.telemetry.series import Array
from engine.events import BlockMap


def token_places(trace: RequestTrace) -> Array:
    """The place in the context of each answer token, the first of the prompt being 0.

    Where the context slid, tokens before lie elsewhere now or nowhere: their place is -1.
    """
    seen = np.searchsorted(trace.kv["t_s"], trace.tokens["t_s"], side="right") - 1
    places = trace.kv["context"][seen] - 1
    places[: max(trace.slid_rows, default=0)] = -1
    return places


def block_of(trace: RequestTrace, blocks: BlockMap, group: int, place: int) -> int | None:
    """The block of a cache group that has the token at this place; None for none, or no more."""
    table = trace.block_tables[group] if group < len(trace.block_tables) else ()
    index = place // blocks.block_size
    block = table[index] if 0 <= index < len(table) else 0
    return block if block > 0 else None


def rows_in(trace: RequestTrace, blocks: BlockMap, group: int, wanted: range) -> list[int]:
    """The rows of the answer's tokens that lie in the `wanted` blocks of a group, in order."""
    table = trace.block_tables[group] if group < len(trace.block_tables) else ()
    held = np.isin(np.array((*table, 0)), np.arange(wanted.start, wanted.stop))
    index = token_places(trace).astype(np.intp) // blocks.block_size
    # Before the first and beyond the last is the 0 at the end, which is no block.
    index[(index < 0) | (index >= len(table))] = len(table)
    rows: list[int] = np.flatnonzero(held[index]).tolist()
    return rows


def still_holds(trace: RequestTrace, blocks: BlockMap, owners: int) -> bool:
    """Whether the request still has what it had of a cell with these `owners`.

    That of one that runs is known, that of one that has ended may be another's by now.
    """
    for bit, owner in enumerate(blocks.owners):
        if owner.request_id == trace.request_id:
            return owner.is_running or bool(owners >> bit & 1)
    return False
