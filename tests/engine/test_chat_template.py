"""Chat templates: what models are given, kept ids, adaptations, and templates that misbehave."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest

from engine.chat_template import ChatTemplate, fold_system_prompt, merge_same_roles
from engine.config import Message
from engine.session import EngineError
from engine.tokenizer import Tokenizer
from tests.engine.test_tokenizer import byte_level, sentencepiece

HI = [Message("user", "hi")]
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content']"
    " + '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA2 = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token + '[INST] ' + m.content"
    " + ' [/INST]' }}{% else %}{{ ' ' + m.content + ' ' + eos_token }}{% endif %}{% endfor %}"
)
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/...') }}"
    "{% endif %}{{ m.role }}={{ m.content }};{% endfor %}"
)
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}"
)


def render(source: str, messages: list[Message] = HI, **options: Any) -> str:
    """A rendering with a BOS and an EOS token."""
    return ChatTemplate(source, "<s>", "</s>", **options).render(messages)


def test_chatml_renders_as_trained() -> None:
    """The commonest template, with and without the opening of an answer."""
    template = ChatTemplate(CHATML, "", "")
    assert template.render(HI) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(HI, add_generation_prompt=False) == "<|im_start|>user\nhi<|im_end|>\n"


LOOP = "{%% for i in [1, 2, 3] %%}{%% if i == 2 %%}{%% %s %%}{%% endif %%}{{ i }}{%% endfor %%}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}|{{ eos_token }}", "<s>|</s>"),
        ("{{ tools is none }}{{ documents is none }}", "TrueTrue"),
        ("{{ {'a': '<é>', 'b': [1]} | tojson }}", '{"a": "<é>", "b": [1]}'),
        ("{{ {'b': 1} | tojson(indent=2) }}", '{\n  "b": 1\n}'),
        (LOOP % "continue", "13"),
        (LOOP % "break", "1"),
        ("{% if true %}\n  x\n  {% endif %}\ny", "  x\ny"),
        ("{% set ns = namespace(a='1') %}{% set ns.a = ns.a ~ 2 %}{{ ns.a }}", "12"),
        ("{{ messages[0]['content'] | trim | upper }}", "HI"),
        ("{{ messages[0].tool_calls is defined }}", "False"),
        ("{{ 'a-b'.split('-') | join('+') }}{{ 'aXb'.replace('X', '.') }}", "a+ba.b"),
        ("{{ '%s!' % 'x' }}{{ '{}?'.format('y') }}", "x!y?"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{% generation %}{{ 'kept' }}{% endgeneration %}", "kept"),
        ("{% macro f(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}", "12"),
        ("{{ [1, 2] | sum }}{{ [3, 1] | sort | list }}", "3[1, 3]"),
        ("{{ 'x' * 3 }}{{ [1] + [2] }}{{ ['a', 'b'] | join(', ') }}", "xxx[1, 2]a, b"),
        ("{{ 'ab' | replace('b', 'c') | indent(2, true) }}", "  ac"),
        ("{{ messages | map(attribute='role') | list }}{{ '<b>' }}", "['user']<b>"),
    ],
)
def test_variables_and_filters_of_hugging_face(source: str, expected: str) -> None:
    """What templates are written against, bounded here without a difference in the result."""
    assert render(source) == expected


def repeated(start: str, step: str, after: str = "") -> str:
    """A template that changes ns.x sixty times."""
    return (
        f"{{% set ns = namespace(x={start}) %}}"
        f"{{% for i in range(60) %}}{step}{{% endfor %}}{after}"
    )


def doubled(start: str, expression: str, after: str = "") -> str:
    """A template that sets ns.x to an expression of itself sixty times."""
    return repeated(start, f"{{% set ns.x = {expression} %}}", after)


BOMBS = [
    "{{ 'x' * 1000000000 }}",
    "{{ [0] * 1000000000 }}",
    "{{ (10 ** 5) ** 100000 }}",
    "{% for i in range(10 ** 9) %}{% endfor %}",
    doubled("'a'", "ns.x ~ ns.x"),
    doubled("'a'", "ns.x + ns.x"),
    doubled("[1]", "ns.x + ns.x"),
    doubled("[1]", "[ns.x, ns.x]", "{{ ns.x }}"),
    doubled("(1,)", "(ns.x, ns.x)", "{{ ns.x }}"),
    doubled("{}", "{'a': ns.x, 'b': ns.x}", "{{ ns.x | tojson }}"),
    doubled("{}", "dict(a=ns.x, b=ns.x)", "{{ ns.x }}"),
    doubled("'aa'", "ns.x | replace('a', 'aa')"),
    doubled("'aa'", "ns.x.replace('a', 'aa')"),
    repeated("'aa'", "{% set q %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = q %}"),
    "{% set q %}{% for i in range(100000) %}" + "z" * 4000 + "{% endfor %}{% endset %}",
    "{{ 'a'.center(1000000000) }}",
    "{{ 'a'.join(range(100000) | map('string')) }}",
    "{{ ('a' * 100000).join(range(100000) | list) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{w}}'.format(1, w=1000000000) }}",
    "{{ 'x' | indent(1000000000, true) }}",
    "{{ [1] | tojson(indent=1000000000) }}",
    "{{ strftime_now('%1000000000d') }}",
    "{{ range(99999) | map('string') | join('x' * 100000) }}",
    "{{ [['a'] * 9000] | sum(start=[]) }}",
    "{% for i in range(100000) %}{{ 'long text ' * 10 }}{% endfor %}",
]


@pytest.mark.parametrize("source", BOMBS)
def test_growth_without_end_is_stopped(source: str) -> None:
    """Whatever multiplies text, lists or numbers ends in a sentence, soon and without memory."""
    started = time.perf_counter()
    with pytest.raises(EngineError, match="chat template") as caught:
        render(source, deadline_s=20.0)
    assert caught.value.next_step
    assert time.perf_counter() - started < 4.0


def test_loop_without_output_is_stopped_at_the_deadline() -> None:
    """10^10 turns of nothing: no output to bound, only time."""
    loop = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"
    started = time.perf_counter()
    with pytest.raises(EngineError, match="does not end"):
        render(loop, deadline_s=0.2)
    assert time.perf_counter() - started < 1.5


def test_deadline_follows_the_clock_it_is_given() -> None:
    """The default two seconds, on a clock that jumps: stopped without any real wait."""
    ticks = iter(range(1_000_000))
    with pytest.raises(EngineError, match="stopped after 2 s"):
        render("{% for a in range(1000) %}{{ a }}{% endfor %}", clock=lambda: float(next(ticks)))


def test_tracing_is_left_as_it_was() -> None:
    """A debugger or coverage that traces goes on tracing, also after a timeout."""
    events: list[str] = []

    def tracer(frame: Any, event: str, argument: Any) -> None:
        events.append(event)

    previous = sys.gettrace()
    sys.settrace(tracer)
    try:
        render("{{ 1 }}")
        with pytest.raises(EngineError):
            render("{% for a in range(9999) %}{% endfor %}", deadline_s=-1.0)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(previous)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__.os }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ cycler.__init__.__globals__.os }}",
        "{% for x in y",
        "{{ nothing.at.all }}",
        "{{ 1 / 0 }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{" + "(" * 5000,
        "x" * 600_000,
    ],
)
def test_broken_and_prying_templates_are_errors(source: str) -> None:
    """Syntax, missing names, Python's internals, files, endless recursion, a huge source."""
    with pytest.raises(EngineError, match="chat template"):
        render(source)


def test_refusal_of_the_template_is_passed_on() -> None:
    """raise_exception's own words are what the person reads."""
    with pytest.raises(EngineError, match="Only one turn, please"):
        render("{{ raise_exception('Only one turn, please') }}")


def test_large_conversation_passes_the_bounds() -> None:
    """A megabyte of text is no attack."""
    messages = [Message("user", "word " * 200_000), Message("assistant", "ok"), *HI]
    assert len(render(CHATML, messages)) > 1_000_000


def test_two_user_turns_are_merged_where_roles_must_alternate() -> None:
    """Stop before the first token, then send again: the chat stays usable."""
    messages = [Message("user", "one"), Message("user", "two")]
    assert render(ALTERNATING, messages) == "user=one\n\ntwo;"


def test_system_prompt_is_folded_where_there_is_no_system_role() -> None:
    """It becomes the head of the first user turn, for both wordings of the refusal."""
    messages = [Message("system", "Be brief."), *HI]
    assert render(NO_SYSTEM, messages) == "user=Be brief.\n\nhi;"
    assert render(ALTERNATING, messages) == "user=Be brief.\n\nhi;"


def test_both_adaptations_together() -> None:
    """A system prompt and two user turns for a template that takes neither."""
    messages = [Message("system", "S"), Message("user", "a"), Message("user", "b")]
    assert render(ALTERNATING, messages) == "user=S\n\na\n\nb;"


def test_conversation_that_no_adaptation_mends_is_refused() -> None:
    """An answer without a question stays an error, and no retry loops."""
    with pytest.raises(EngineError, match="roles must alternate"):
        render(ALTERNATING, [Message("assistant", "hello")])


def test_adaptations_leave_fitting_messages_alone() -> None:
    """Only neighbours of one role and only a leading system message change."""
    chat = [Message("user", "a"), Message("assistant", "b", (1,)), Message("user", "c")]
    assert merge_same_roles(chat) == chat
    assert fold_system_prompt(chat) == chat
    assert fold_system_prompt([Message("system", "only")]) == [Message("system", "only")]


def test_fallbacks_where_the_model_brings_no_template() -> None:
    """ChatML where the vocabulary has its tokens, else plain lines; and it says so."""
    template = ChatTemplate(None, "", "")
    assert not template.has_template
    assert ChatTemplate(CHATML, "", "").has_template
    assert template.render(HI) == "user: hi\n\nassistant:"
    with_chatml = chatml_tokenizer()
    expected = with_chatml.encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", False)
    assert template.encode(HI, with_chatml) == expected
    assert template.encode(HI, byte_level()) == byte_level().encode("user: hi\n\nassistant:", False)


def chatml_tokenizer() -> Tokenizer:
    """Byte-level with ChatML's tokens and every byte, so that all text has ids."""
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = ("<|im_start|>", "<|im_end|>", *letters, "he", "ll")
    return byte_level(
        tokens=tokens,
        token_types=(3, 3, *[1] * (len(tokens) - 2)),
        scores=(0.0,) * len(tokens),
        merges=("h e", "l l"),
    )


def test_kept_ids_stand_where_the_answer_was() -> None:
    """An answer sampled as h, e, l, l is not re-encoded to he, ll: the cache stays valid."""
    tokenizer = chatml_tokenizer()
    sampled = tuple(tokenizer.token_id(letter) or 0 for letter in "hell")
    assert list(sampled) != tokenizer.encode("hell", False)
    chat = [*HI, Message("assistant", "hell", sampled), Message("user", "more")]
    ids = ChatTemplate(CHATML, "", "").encode(chat, tokenizer)
    first_turn = ChatTemplate(CHATML, "", "").encode(HI, tokenizer)
    assert ids[: len(first_turn) + len(sampled)] == [*first_turn, *sampled]
    assert tokenizer.decode(ids) == tokenizer.decode(
        tokenizer.encode(ChatTemplate(CHATML, "", "").render(chat), False)
    )


def test_several_kept_answers_keep_their_order() -> None:
    """Each answer's ids stand in its own turn, eleven turns and equal texts included."""
    tokenizer = chatml_tokenizer()
    sampled = tuple(tokenizer.token_id(letter) or 0 for letter in "hell")
    chat: list[Message] = []
    for turn in range(12):
        kept = sampled if turn % 2 else (*sampled[:2], tokenizer.token_id("ll") or 0)
        chat += [Message("user", f"kept0x{turn}x"), Message("assistant", "hell", kept)]
    ids = ChatTemplate(CHATML, "", "").encode(chat, tokenizer, add_generation_prompt=False)
    text = " ".join(map(str, ids))
    last = -1
    for message in chat[1::2]:
        last = text.index(" ".join(map(str, message.token_ids or ())), last + 1)
    plain = [Message(message.role, message.content) for message in chat]
    reencoded = ChatTemplate(CHATML, "", "").encode(plain, tokenizer, add_generation_prompt=False)
    assert tokenizer.decode(ids) == tokenizer.decode(reencoded)


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{{ m.content | upper }}{% endfor %}",
        "{% for m in messages %}{{ m.content | length }}{% endfor %}",
        "{{ messages[0].content }}",
        "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}",
        "{% for m in messages | reverse %}{{ m.content }}{% endfor %}{{ messages[1].content }}",
        "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}",
    ],
)
def test_template_that_rewrites_answers_is_encoded_as_text(source: str) -> None:
    """Where ids cannot stand for what the template makes of the answer, its text counts."""
    tokenizer = chatml_tokenizer()
    template = ChatTemplate(source, "", "")
    chat = [*HI, Message("assistant", "x</think>hell", (2, 3))]
    assert template.encode(chat, tokenizer) == tokenizer.encode(template.render(chat), False)


def test_bos_is_never_doubled_and_never_lost() -> None:
    """One BOS, whether the template writes it or the tokenizer is to add it."""
    tokenizer = sentencepiece()
    bos = tokenizer.bos_token_id
    assert tokenizer.add_bos
    for source in ("{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"):
        ids = ChatTemplate(source, "<s>", "</s>").encode([Message("user", "hello")], tokenizer)
        assert ids == [bos, tokenizer.token_id("▁hello")]
    without = ChatTemplate("{{ messages[0].content }}", "<s>", "</s>")
    assert bos not in without.encode([Message("user", "hello")], sentencepiece(add_bos=False))


def test_sentencepiece_answer_does_not_gain_spaces() -> None:
    """The space Llama 2's template writes before an answer is the one its first id carries."""
    tokenizer = sentencepiece()
    hello = tokenizer.token_id("▁hello") or 0
    template = ChatTemplate(LLAMA2, "<s>", "</s>")
    question = [Message("user", "he")]
    first_turn = template.encode(question, tokenizer)
    chat = [*question, Message("assistant", "hello", (hello,)), Message("user", "hell")]
    ids = template.encode(chat, tokenizer)
    assert ids[: len(first_turn) + 1] == [*first_turn, hello]
    plain = [Message(message.role, message.content) for message in chat]
    assert ids == template.encode(plain, tokenizer)
