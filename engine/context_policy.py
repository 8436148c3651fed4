"""What is left out when a conversation outgrows the context. No tensors, no events."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from engine.config import Message

# Tokens that are always kept, because attention leans on the first ones whatever they say.
# StreamingLLM (arXiv 2309.17453) needs four; whole blocks of the usual size are found again by
# the next turn, and a short system prompt fits in.
SINK_TOKENS = 64

Count = Callable[[Sequence[Message]], int]


def kept_when_sliding(context_length: int) -> tuple[int, int]:
    """How many of the first and of the last tokens stay when the context slides.

    Keeping half leaves the other half to grow into: one prefill of that many tokens every so many
    tokens. As in StreamingLLM positions are those within what is kept.
    """
    return min(SINK_TOKENS, context_length // 4), context_length // 2


def answer_room(context_length: int, max_tokens: int | None) -> int:
    """Tokens left free for an answer when turns are dropped: at most a quarter of the context."""
    quarter = context_length // 4
    return quarter if max_tokens is None else min(max_tokens, quarter)


def drop_turns(
    messages: Sequence[Message], count: Count, limit: int
) -> tuple[tuple[Message, ...], int]:
    """Leave out as few of the oldest turns as it takes for `count` to be at most `limit`.

    A turn is a question with what was answered. The system prompt and the last question stay, even
    if they alone are too long. Returns the messages kept and how many were left out.
    """
    first = _first_spoken(messages)
    head, spoken = tuple(messages[:first]), tuple(messages[first:])
    starts = [0, *(i for i, m in enumerate(spoken) if i and m.role == "user")]
    # Fewer turns are fewer tokens: the first start that fits is found by bisection.
    fits = bisect_left(starts[:-1], True, key=lambda start: count(head + spoken[start:]) <= limit)
    return head + spoken[starts[fits] :], starts[fits]


def messages_before(messages: Sequence[Message], count: Count, position: int) -> int:
    """How many messages, the system prompt not counted, end within the first `position` tokens."""
    first = _first_spoken(messages)
    ends = range(first + 1, len(messages) + 1)
    return bisect_right(ends, position, key=lambda end: count(messages[:end]))


def _first_spoken(messages: Sequence[Message]) -> int:
    return int(bool(messages) and messages[0].role == "system")
