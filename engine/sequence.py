"""One request on its way through the scheduler: token ids, counters, stamps. No tensors."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.config import GenerationRequest


@dataclass(slots=True, eq=False)
class Sequence:
    """Prompt and answer of a request, how much of it is in the cache, and when it happened.

    `token_ids` is what the model sees: the prompt, then what was sampled, without the
    `dropped_ids` that followed its first `num_kept_first`. `num_computed_tokens` chases its length;
    the last token is sampled before it is computed. Stamps are perf_counter_ns.
    """

    request: GenerationRequest
    prompt_ids: list[int]
    max_tokens: int
    seed: int
    t_send_ns: int
    started_at: str
    token_ids: list[int] = field(init=False)
    dropped_ids: list[int] = field(default_factory=list)
    num_kept_first: int = 0
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    block_tables: list[list[int]] = field(default_factory=list)  # a cache group each
    first_blocks: list[int] = field(default_factory=list)  # the first that is held, by group
    block_names: list[bytes] = field(default_factory=list)
    tail: int = 0  # where the keys of its newest block are, while it runs; 0: nowhere
    t_first_scheduled_ns: int | None = None
    t_prefill_done_ns: int | None = None
    t_tokens_ns: list[int] = field(default_factory=list)
    num_preemptions: int = 0
    peak_kv_tokens: int = 0
    peak_kv_blocks: list[int] = field(default_factory=list)  # by group

    def __post_init__(self) -> None:
        self.token_ids = list(self.prompt_ids)

    @property
    def request_id(self) -> str:
        """The request's id."""
        return self.request.request_id

    @property
    def num_prompt_tokens(self) -> int:
        """Length of the prompt."""
        return len(self.prompt_ids)

    @property
    def completion_ids(self) -> list[int]:
        """What was sampled so far."""
        kept = self.num_kept_first
        whole = self.token_ids[:kept] + self.dropped_ids + self.token_ids[kept:]
        return whole[len(self.prompt_ids) :]

    @property
    def num_tokens(self) -> int:
        """Prompt and answer, whether still seen or not."""
        return len(self.token_ids) + len(self.dropped_ids)

    @property
    def num_completion_tokens(self) -> int:
        """How many tokens were sampled so far."""
        return self.num_tokens - len(self.prompt_ids)

    @property
    def num_prompt_tokens_seen(self) -> int:
        """How many of `token_ids`, from their start, belong to the prompt."""
        kept = min(self.num_prompt_tokens, self.num_kept_first)
        return kept + max(0, self.num_prompt_tokens - kept - len(self.dropped_ids))

    @property
    def held_blocks(self) -> list[int]:
        """Cache blocks it holds, by group."""
        return [
            len(table) - first
            for table, first in zip(self.block_tables, self.first_blocks, strict=True)
        ]

    @property
    def shown_tables(self) -> tuple[tuple[int, ...], ...]:
        """The block tables as events tell them: they do not change with the sequence."""
        return tuple(map(tuple, self.block_tables))

    @property
    def num_uncomputed_tokens(self) -> int:
        """Tokens that are known but not in the cache."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def is_decoding(self) -> bool:
        """Whether only the newest sampled token waits to be computed."""
        return self.num_uncomputed_tokens == 1 and self.num_completion_tokens > 0

    def drop_between(self, num_first: int, num_last: int) -> None:
        """Let the model see only the first and the last tokens; they must be computed anew."""
        end = len(self.token_ids) - num_last
        self.dropped_ids += self.token_ids[num_first:end]
        del self.token_ids[num_first:end]
        self.num_kept_first = num_first
