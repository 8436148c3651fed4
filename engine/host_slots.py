"""Which evicted prefixes host memory keeps, and which blocks go there and back. No tensors.

A prefix moves: saved when the pool needs its block, gone from host memory once it is restored, so
that the two together hold as much as they can.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Bytes to move between a block of the pool and a slot of host memory."""

    block: int
    slot: int
    to_host: bool


class HostSlots:
    """Slots 0..num_slots - 1 of one cache group; the least recently saved prefix gives way.

    Blocks are re-used as soon as their copy is noted, and so are slots: copies must be carried out
    in the order noted, all of them before the next step writes to a block.
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._slots: OrderedDict[bytes, int] = OrderedDict()  # the next to give way first
        self._free = list(range(num_slots))
        self._copies: list[BlockCopy] = []

    def __contains__(self, name: bytes) -> bool:
        return name in self._slots

    def save(self, name: bytes, block: int) -> None:
        """Keep the prefix of a block that is about to be overwritten, if there is a slot."""
        if name in self._slots:  # it was computed anew meanwhile: the bytes are the same
            self._slots.move_to_end(name)
            return
        if not self._free and self._slots:
            _, slot = self._slots.popitem(last=False)
            self._free.append(slot)
        if self._free:
            self._slots[name] = self._free.pop()
            self._copies.append(BlockCopy(block, self._slots[name], to_host=True))

    def claim(self, names: Sequence[bytes]) -> list[int]:
        """Slots of prefixes that are wanted back: nothing is saved there before `restore`."""
        return [self._slots.pop(name) for name in names]

    def restore(self, slots: Sequence[int], blocks: Sequence[int]) -> None:
        """Bring claimed slots back into blocks."""
        for slot, block in zip(slots, blocks, strict=True):
            self._copies.append(BlockCopy(block, slot, to_host=False))
            self._free.append(slot)

    def take_copies(self) -> list[BlockCopy]:
        """The copies noted since the last call, for whoever carries them out."""
        copies, self._copies = self._copies, []
        return copies

    def forget_all(self) -> None:
        """Drop every prefix."""
        self._free += self._slots.values()
        self._slots.clear()

    def check_integrity(self) -> None:
        """Raise AssertionError when a slot is lost or has two prefixes."""
        slots = sorted([*self._slots.values(), *self._free])
        assert slots == list(range(self.num_slots)), "slots of host memory do not add up"
