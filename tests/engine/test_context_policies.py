"""What happens at the context limit: turns dropped from the prompt, or a context that slides."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import GenerationRequest, Message, SamplingParams
from engine.context_policy import answer_room, drop_turns, kept_when_sliding, messages_before
from engine.events import (
    ContextCut,
    Event,
    GenerationFailed,
    GenerationFinished,
    PrefillProgress,
    TokenEvent,
)
from engine.local_session import LocalSession
from engine.sequence import Sequence as Tokens

Opener = Callable[..., LocalSession]
CONTEXT = 32
PROMPT = tuple(range(40, 61))


def request(name: str = "r", **options: object) -> GenerationRequest:
    """Greedy, from ids, end tokens ignored, a context that slides unless said otherwise."""
    settings: dict[str, object] = {
        "prompt_ids": PROMPT,
        "ignore_eos": True,
        "on_context_full": "slide",
    }
    return GenerationRequest(name, **settings | options)  # type: ignore[arg-type]


def of(kind: type, events: list[Event]) -> list:
    """Events of a kind."""
    return [event for event in events if isinstance(event, kind)]


def run(session: LocalSession, *requests: GenerationRequest) -> list[Event]:
    """Everything the session says until it has no work; then every block is free."""
    for each in requests:
        session.submit(each)
    events: list[Event] = []
    assert session._loaded is not None
    while session.has_work():
        events += session.step()
        session._loaded.scheduler.check_integrity()
    blocks = session._loaded.blocks
    assert blocks.num_free_blocks == blocks.num_blocks
    return events


def by_hand(session: LocalSession, prompt: tuple[int, ...], num_tokens: int) -> tuple[int, ...]:
    """The reference: whenever the context is full, its two ends are a fresh prompt."""
    first, last = kept_when_sliding(CONTEXT)
    answer: tuple[int, ...] = ()
    seen = prompt
    while len(answer) < num_tokens:
        rest = num_tokens - len(answer)
        [end] = of(
            GenerationFinished,
            run(session, request(prompt_ids=seen, max_tokens=rest, on_context_full="stop")),
        )
        answer += end.token_ids
        seen += end.token_ids
        if len(seen) == CONTEXT:
            seen = seen[:first] + seen[-last:]
    return answer


@pytest.mark.parametrize("options", [{}, {"max_num_batched_tokens": 9}, {"block_size": 4}])
def test_a_sliding_answer_is_that_of_the_cut_prompt(
    open_session: Opener, options: dict[str, int]
) -> None:
    """Exactly what a fresh prompt of the kept tokens would say, over several slides."""
    session = open_session(context_length=CONTEXT, **options)
    events = run(session, request(max_tokens=50))
    [end] = of(GenerationFinished, events)
    assert end.finish_reason == "length"
    assert end.prompt_ids == PROMPT
    assert end.token_ids == by_hand(session, PROMPT, 50)
    tokens = of(TokenEvent, events)
    assert [t.token_id for t in tokens] == list(end.token_ids)
    assert [t.index for t in tokens] == list(range(50))
    assert max(t.context_tokens for t in tokens) == CONTEXT
    first, last = kept_when_sliding(CONTEXT)
    cuts = of(ContextCut, events)
    grown = CONTEXT - first - last
    assert [c.dropped_tokens for c in cuts] == [grown * n for n in range(1, len(cuts) + 1)]
    assert {(c.kept_first, c.kept_last) for c in cuts} == {(first, last)}
    after = tokens[CONTEXT - len(PROMPT)]
    assert after.context_tokens == first + last + 1
    assert after.kv_bytes_used < tokens[CONTEXT - len(PROMPT) - 1].kv_bytes_used


def test_sliding_beside_others_changes_nothing(open_session: Opener) -> None:
    """Two that slide, one that stops and one without cache say what they say alone."""
    session = open_session(context_length=CONTEXT, kv_pool_tokens=64, block_size=4)
    asked = [
        request("a", max_tokens=40),
        request("b", prompt_ids=PROMPT[:7], max_tokens=60),
        request("c", on_context_full="stop"),
        request("d", max_tokens=30, use_cache=False),
    ]
    alone = [of(GenerationFinished, run(session, each))[0].token_ids for each in asked]
    together = {e.request_id: e for e in of(GenerationFinished, run(session, *asked))}
    assert [together[each.request_id].token_ids for each in asked] == alone
    assert together["c"].finish_reason == "context_full"
    assert alone[3] == alone[0][:30]


def test_random_numbers_do_not_repeat_after_a_slide(open_session: Opener) -> None:
    """They belong to the place in the answer, not in what is left of the context."""
    session = open_session(context_length=CONTEXT)
    sampling = SamplingParams(temperature=50.0, seed=1)
    [end] = of(GenerationFinished, run(session, request(max_tokens=60, sampling=sampling)))
    first, last = kept_when_sliding(CONTEXT)
    grown = CONTEXT - first - last
    start = CONTEXT - len(PROMPT)
    pieces = [end.token_ids[i : i + grown] for i in range(start, 60 - grown, grown)]
    assert len(set(pieces)) == len(pieces) > 2


def test_a_prompt_too_long_slides_too(open_session: Opener) -> None:
    """Its two ends are read; what is missing is told before anything else."""
    session = open_session(context_length=CONTEXT)
    long = tuple(range(100, 190))
    events = run(session, request(prompt_ids=long, max_tokens=4))
    first, last = kept_when_sliding(CONTEXT)
    cut = events[0]
    assert isinstance(cut, ContextCut)
    assert (cut.dropped_messages, cut.dropped_tokens) == (0, 90 - first - last)
    [end] = of(GenerationFinished, events)
    assert end.prompt_ids == long[:first] + long[-last:]
    assert of(PrefillProgress, events)[-1].tokens_total == first + last
    assert end.token_ids == by_hand(session, end.prompt_ids, 4)


def test_a_slide_says_which_messages_are_gone(open_session: Opener) -> None:
    """Those that end before the latest half begins; the system prompt is not counted."""
    session = open_session(context_length=64)
    chat = (
        Message("system", "Be brief."),
        Message("user", "one"),
        Message("assistant", "two"),
        Message("user", "three four five six"),
    )
    events = run(session, request(prompt_ids=None, messages=chat, max_tokens=120))
    cuts = of(ContextCut, events)
    assert len(cuts) > 1
    gone = [cut.dropped_messages for cut in cuts]
    assert gone == sorted(gone)
    assert gone[-1] == 3, "in the end all that was asked has left"
    loaded = session._loaded
    assert loaded is not None
    for cut in cuts:
        before = loaded.template.encode(
            chat[: 1 + cut.dropped_messages], loaded.tokenizer, add_generation_prompt=False
        )
        assert cut.dropped_messages == 0 or len(before) <= cut.kept_first + cut.dropped_tokens


def test_old_turns_are_dropped_and_told(open_session: Opener) -> None:
    """The prompt is that of the shorter conversation, as if it had been asked so."""
    session = open_session(context_length=128)
    loaded = session._loaded
    assert loaded is not None
    system = Message("system", "Be brief.")
    turns = [
        message
        for n in range(6)
        for message in (Message("user", f"question {n}"), Message("assistant", f"answer {n}"))
    ]
    last = Message("user", "the last question")
    options = {"prompt_ids": None, "max_tokens": 8, "on_context_full": "drop_turns"}
    events = run(session, request(messages=(system, *turns, last), **options))
    [cut], [end] = of(ContextCut, events), of(GenerationFinished, events)
    assert cut.dropped_messages in range(2, 12, 2)
    kept = (system, *turns[cut.dropped_messages :], last)
    assert list(end.prompt_ids) == loaded.template.encode(kept, loaded.tokenizer)
    more = (system, *turns[cut.dropped_messages - 2 :], last)
    assert session.count_tokens(kept) <= 128 - 8 < session.count_tokens(more)
    assert cut.dropped_tokens == session.count_tokens((system, *turns, last)) - len(end.prompt_ids)


def test_what_fits_is_left_alone(open_session: Opener) -> None:
    """No cut, no event, whatever the policy."""
    session = open_session(context_length=128)
    chat = (Message("user", "hello"),)
    for policy in ("stop", "drop_turns", "slide"):
        options = {"prompt_ids": None, "messages": chat, "max_tokens": 3}
        events = run(session, request(on_context_full=policy, **options))
        assert not of(ContextCut, events)
        assert of(GenerationFinished, events)


def test_a_last_question_that_is_too_long_is_refused(open_session: Opener) -> None:
    """Dropping turns never drops what was just asked."""
    session = open_session(context_length=CONTEXT)
    chat = (Message("user", "a"), Message("assistant", "b"), Message("user", "long " * 60))
    options = {"prompt_ids": None, "messages": chat, "on_context_full": "drop_turns"}
    events = run(session, request(**options))
    assert of(GenerationFailed, events)
    assert not of(GenerationFinished, events)


def words(messages: Sequence[Message]) -> int:
    """A count without a tokenizer: words, and two for each message."""
    return sum(2 + len(m.content.split()) for m in messages)


conversations = st.lists(
    st.builds(
        lambda role, length: Message(role, "word " * length),
        st.sampled_from(["user", "user", "assistant"]),
        st.integers(0, 6),
    ),
    min_size=1,
    max_size=14,
).map(lambda messages: [*messages, Message("user", "last")])


@given(conversations, st.booleans(), st.integers(0, 60))
def test_as_few_turns_as_possible_are_dropped(
    spoken: list[Message], has_system: bool, limit: int
) -> None:
    """Compared with trying every cut in turn: whole turns, system prompt and question kept."""
    head = [Message("system", "be brief")] if has_system else []
    kept, dropped = drop_turns([*head, *spoken], words, limit)
    assert list(kept) == [*head, *spoken[dropped:]]
    cuts = [0, *(i for i, m in enumerate(spoken) if i and m.role == "user")]
    fitting = [cut for cut in cuts if words([*head, *spoken[cut:]]) <= limit]
    assert dropped == (fitting[0] if fitting else cuts[-1])


@given(conversations, st.booleans(), st.integers(0, 80))
def test_messages_before_a_position_are_counted(
    spoken: list[Message], has_system: bool, position: int
) -> None:
    """Compared with adding them up one by one."""
    head = [Message("system", "be brief")] if has_system else []
    ends = [words([*head, *spoken[: n + 1]]) for n in range(len(spoken))]
    expected = sum(end <= position for end in ends)
    assert messages_before([*head, *spoken], words, position) == expected


@given(st.integers(1, 40), st.lists(st.integers(1, 30), max_size=6), st.integers(1, 9))
def test_a_sequence_remembers_what_it_dropped(
    num_prompt: int, growth: list[int], num_first: int
) -> None:
    """Answer, counts and the prompt's share of what is seen, against a plain list beside it."""
    whole = list(range(num_prompt))
    seen = list(whole)
    prompt = GenerationRequest("r", prompt_ids=tuple(whole))
    sequence = Tokens(prompt, list(whole), 0, 0, 0, "")
    for amount in growth:
        new = list(range(len(whole), len(whole) + amount))
        for token in new:
            sequence.token_ids.append(token)
        whole += new
        seen += new
        last = len(seen) // 2
        if num_first + last < len(seen):
            sequence.drop_between(num_first, last)
            seen = seen[:num_first] + seen[-last:] if last else seen[:num_first]
        assert sequence.token_ids == seen
        assert sequence.completion_ids == whole[num_prompt:]
        assert sequence.num_completion_tokens == len(whole) - num_prompt
        assert sequence.num_tokens == len(whole)
        assert sequence.num_prompt_tokens_seen == sum(t < num_prompt for t in seen)


@given(st.integers(16, 200_000), st.one_of(st.none(), st.integers(1, 300_000)))
def test_a_slide_always_makes_room(context: int, max_tokens: int | None) -> None:
    """What is kept is well below the limit, and so is what is set aside for an answer."""
    first, last = kept_when_sliding(context)
    assert first >= 4
    assert first + last <= 3 * context // 4
    assert 1 <= answer_room(context, max_tokens) <= context // 4
