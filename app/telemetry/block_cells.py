"""The block map in figures: what each cell of a grid stands for, and how it is put into words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
from PySide6.QtCore import QCoreApplication

from app.telemetry.format import count
from engine.events import BlockGroupMap, BlockMap

LEVELS = 4  # a cell of many blocks is filled up by quarters
Ints = npt.NDArray[np.int64]

translate = QCoreApplication.translate


class CellState(IntEnum):
    """What most of a cell's blocks that are not free are; the higher one of as many each."""

    FREE = 0
    CACHED = 1
    USED = 2
    SHARED = 3


@dataclass(frozen=True, slots=True)
class ChatOfRequest:
    """Whose chat a request belongs to."""

    title: str
    is_open: bool


ChatLookup = Callable[[str], ChatOfRequest | None]


def no_chats(_request_id: str) -> ChatOfRequest | None:
    """Nobody is known."""
    return None


@dataclass(frozen=True, slots=True)
class Cells:
    """A group's columns merged for the room there is, shape [cells] each; see BlockGroupMap."""

    blocks_per_cell: int
    num_blocks: int
    used: Ints
    shared: Ints
    cached: Ints
    tokens: Ints
    owners: Ints

    @property
    def sizes(self) -> Ints:
        """Blocks in each cell: the last one may have fewer."""
        sizes = np.full(len(self.used), self.blocks_per_cell)
        sizes[-1] = self.num_blocks - self.blocks_per_cell * (len(sizes) - 1)
        return sizes

    @property
    def states(self) -> Ints:
        """A CellState each."""
        kinds = np.vstack((self.shared, self.used, self.cached))
        return np.where(kinds.any(axis=0), CellState.SHARED - kinds.argmax(axis=0), CellState.FREE)

    @property
    def levels(self) -> Ints:
        """How much of each cell is not free: 0 to LEVELS, a single block counting as 1 at least."""
        return -(-(self.used + self.shared + self.cached) * LEVELS // self.sizes)


def merge(group: BlockGroupMap, capacity: int) -> Cells:
    """The group's cells, neighbours put together until at most `capacity` are left."""
    factor = -(-len(group.used) // max(1, capacity))
    starts = np.arange(0, len(group.used), factor)

    def summed(column: tuple[int, ...]) -> Ints:
        return np.add.reduceat(np.array(column, np.int64), starts)

    return Cells(
        group.blocks_per_cell * factor,
        group.num_blocks,
        summed(group.used),
        summed(group.shared),
        summed(group.cached),
        summed(group.tokens),
        np.bitwise_or.reduceat(np.array(group.owners, np.int64), starts),
    )


def open_mask(blocks: BlockMap, chat_of: ChatLookup) -> int:
    """The bits that the open chat's requests have in a cell's `owners`."""
    chats = [chat_of(owner.request_id) for owner in blocks.owners]
    return sum(1 << bit for bit, chat in enumerate(chats) if chat is not None and chat.is_open)


# --- in words ---------------------------------------------------------------------------------


def group_name(blocks: BlockMap, number: int) -> str:
    """What a cache group's layers look at; empty where there is only one group."""
    if len(blocks.groups) == 1:
        return ""
    window = blocks.groups[number].window
    if window is None:
        return translate("BlockMap", "Full attention")
    return _filled(translate("BlockMap", "Window of %1"), count(window))


def summary(blocks: BlockMap, number: int) -> list[str]:
    """A group's pool in a line, in ever fewer words."""
    group = blocks.groups[number]
    in_use = sum(group.used) + sum(group.shared)
    unused = sum(owner.unused_tokens[number] for owner in blocks.owners)
    figures = [in_use, group.num_blocks, sum(group.shared), sum(group.cached), unused]
    wordings = (
        translate(
            "BlockMap", "%1 of %2 in use · %3 shared · %4 cached · %5 tokens unused in last blocks"
        ),
        translate("BlockMap", "%1 of %2 in use · %3 shared · %4 cached · %5 tokens unused"),
        translate("BlockMap", "%1 of %2 in use · %4 cached · %5 tokens unused"),
        translate("BlockMap", "%1 of %2 in use · %5 tokens unused"),
        translate("BlockMap", "%1 of %2 in use"),
    )
    prefix = f"{name}: " if (name := group_name(blocks, number)) else ""
    return [prefix + _filled(wording, *map(count, figures)) for wording in wordings]


def details(blocks: BlockMap, number: int, chat_of: ChatLookup) -> str:
    """What each chat leaves unused in its last block, and what was found since the load."""
    waste = translate("BlockMap", "%1: %2 of %3 tokens unused in its last block")
    size = count(blocks.block_size)
    lines = [
        _filled(waste, _name(o.request_id, chat_of), count(o.unused_tokens[number]), size)
        for o in blocks.owners
        if o.is_running
    ]
    hits = translate("BlockMap", "Found in the cache since the load: %1 of %2 prompt tokens")
    lines.append(_filled(hits, count(blocks.hit_tokens), count(blocks.queried_tokens)))
    evicted = translate("BlockMap", "Cached blocks given up for others: %1")
    lines.append(_filled(evicted, count(blocks.evicted_blocks)))
    return "\n".join(lines)


def describe(blocks: BlockMap, cells: Cells, cell: int, chat_of: ChatLookup) -> str:
    """A cell in words: block number, state, whose it is and how many tokens it holds."""
    first, size = cell * cells.blocks_per_cell + 1, int(cells.sizes[cell])
    place = (
        translate("BlockMap", "Block %1") if size == 1 else translate("BlockMap", "Blocks %1 to %2")
    )
    lines = [f"{_filled(place, count(first), count(first + size - 1))}: {_state(cells, cell)}"]
    owners = int(cells.owners[cell])
    bits = (bit for bit in range(len(blocks.owners)) if owners >> bit & 1)
    # A chat has a request for each of its turns.
    names = dict.fromkeys(_name(blocks.owners[bit].request_id, chat_of) for bit in bits)
    if names:
        lines.append(", ".join(names))
    tokens = translate("BlockMap", "%1 of %2 tokens")
    lines.append(_filled(tokens, count(int(cells.tokens[cell])), count(size * blocks.block_size)))
    return "\n".join(lines)


def _state(cells: Cells, cell: int) -> str:
    used, shared, cached = (int(c[cell]) for c in (cells.used, cells.shared, cells.cached))
    size = int(cells.sizes[cell])
    names = (
        (used, translate("BlockMap", "used")),
        (shared, translate("BlockMap", "shared (a common prefix)")),
        (cached, translate("BlockMap", "cached (kept for a prompt that begins alike)")),
        (size - used - shared - cached, translate("BlockMap", "free")),
    )
    present = [(number, name) for number, name in names if number]
    if size == 1:
        return present[0][1]
    return ", ".join(f"{count(number)} {name}" for number, name in present)


def _name(request_id: str, chat_of: ChatLookup) -> str:
    chat = chat_of(request_id)
    return f"“{chat.title}”" if chat else translate("BlockMap", "a deleted chat or a comparison")


def _filled(text: str, *values: str) -> str:
    return re.sub(r"%(\d)", lambda place: values[int(place[1]) - 1], text)
