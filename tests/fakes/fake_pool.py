"""The block pool of the fake session: the engine's own bookkeeping, told how far answers are."""

from __future__ import annotations

from engine.block_manager import BlockManager, PoolSpec
from engine.block_map import block_map
from engine.config import GenerationRequest
from engine.events import BlockMap
from engine.sequence import Sequence

BLOCK_TOKENS = 16
CHUNK = 512


class FakePool:
    """A full cache group of `tokens`, and a group for each of `windows` beside it."""

    def __init__(
        self, tokens: int, windows: tuple[int, ...] = (), *, prefix_caching: bool = True
    ) -> None:
        specs = [PoolSpec(tokens // BLOCK_TOKENS)]
        specs += [PoolSpec((window + CHUNK) // BLOCK_TOKENS + 1, window) for window in windows]
        self._blocks = BlockManager(specs, BLOCK_TOKENS, prefix_caching=prefix_caching)
        self._sequences: dict[str, Sequence] = {}

    def admit(self, request: GenerationRequest, prompt_ids: list[int]) -> int:
        """Give a request its blocks; how many of its tokens were found, none where all is taken."""
        sequence = Sequence(request, prompt_ids, 0, 0, 0, "")
        if not self._blocks.admit(sequence, CHUNK):
            return 0
        self._sequences[request.request_id] = sequence
        return sequence.num_computed_tokens

    def advance(self, request_id: str, computed_tokens: int, sampled: int | None = None) -> None:
        """So many tokens of a request are computed now, and one is sampled from the last."""
        sequence = self._sequences.get(request_id)
        if sequence is None or not self._blocks.can_grow(sequence, computed_tokens):
            return
        self._blocks.grow(sequence, computed_tokens)
        sequence.num_computed_tokens = computed_tokens
        self._blocks.commit(sequence)
        if sampled is not None:
            sequence.token_ids.append(sampled)

    def slide(self, request_id: str, num_first: int, num_last: int) -> None:
        """Keep so many of a request's first and last tokens and compute them anew, in chunks."""
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return
        sequence.drop_between(num_first, num_last)
        self._blocks.restart(sequence)
        kept = num_first + num_last
        for computed in (*range(CHUNK, kept, CHUNK), kept):
            self.advance(request_id, computed)

    def end(self, request_id: str) -> tuple[tuple[int, ...], ...]:
        """Take a request's blocks back and say which; what they hold stays known."""
        sequence = self._sequences.pop(request_id, None)
        if sequence is None:
            return ()
        tables = sequence.shown_tables
        self._blocks.release(sequence)
        return tables

    def map(self, t_ns: int) -> BlockMap:
        """What the engine tells."""
        return block_map(self._blocks, self._sequences.values(), t_ns)
