"""Chats on disk: what is saved comes back, and damage is set aside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import safe_files
from app.chat import store
from app.chat.store import AnswerStats, Chat, ChatMessage, ChatStore, ErrorAction, title_from

_figures = st.none() | st.floats(0, 1e6)
_stats = st.builds(
    AnswerStats, ttft_ms=_figures, decode_tok_s=_figures, prompt_tokens=st.integers(0, 10**9)
)
_messages = st.builds(
    ChatMessage,
    id=st.uuids().map(lambda u: u.hex),
    role=st.sampled_from(["user", "assistant", "error", "notice"]),
    text=st.text(st.characters()),
    state=st.sampled_from(["done", "stopped", "failed"]),
    stats=st.none() | _stats,
    token_ids=st.none() | st.lists(st.integers(0, 200_000)).map(tuple),
    why=st.text(),
    actions=st.lists(st.builds(ErrorAction, st.text(), st.text())).map(tuple),
)


@pytest.fixture
def chats(tmp_path: Path) -> ChatStore:
    return ChatStore(tmp_path / "chats")


def _a_chat(chats: ChatStore, text: str = "Hello") -> Chat:
    chat = chats.new_chat()
    chat.add(ChatMessage(store.new_id(), "user", text))
    chats.save(chat)
    return chat


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(_messages, max_size=4), prompt=st.text())
def test_a_saved_chat_comes_back_equal(
    tmp_path: Path, messages: list[ChatMessage], prompt: str
) -> None:
    """Any text of any script, figures and ids survive the trip through the file."""
    chats = ChatStore(tmp_path)
    chat = chats.new_chat(prompt)
    for message in messages:
        chat.add(message)
    chats.save(chat)
    loaded, damaged = chats.load_all()
    assert chat in loaded
    assert not damaged
    chats.delete(chat.id)


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe\x00",
        b'{"id": 3}',
        b"[" * 100_000,
        json.dumps({"id": "x", "title": "t", "messages": 3}).encode(),
    ],
)
def test_a_damaged_file_is_set_aside_and_told(chats: ChatStore, damage: bytes) -> None:
    """One broken file neither stops the start nor is deleted, and the others still load."""
    good = _a_chat(chats)
    bad = _a_chat(chats)
    folder = next(Path(chats._folder).glob(f"{bad.id}.json"))
    folder.write_bytes(damage)
    loaded, set_aside = chats.load_all()
    assert [chat.id for chat in loaded] == [good.id]
    assert [path.name for path in set_aside] == [f"{bad.id}.bad"]
    assert set_aside[0].read_bytes() == damage
    assert chats.load_all() == ([good], [])


def test_a_second_damaged_file_of_one_name_keeps_the_first(chats: ChatStore) -> None:
    """What was set aside earlier is never overwritten."""
    chat = _a_chat(chats)
    path = chats._path(chat.id)
    names = []
    for content in (b"first", b"second"):
        path.write_bytes(content)
        names += [p.name for p in chats.load_all()[1]]
    assert names == [f"{chat.id}.bad", f"{chat.id}.2.bad"]
    assert path.with_suffix(".bad").read_bytes() == b"first"


def test_a_failed_write_keeps_the_old_file(
    chats: ChatStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk leaves the last saved state and no litter behind."""
    chat = _a_chat(chats)
    before = chats._path(chat.id).read_bytes()

    def refuse(fd: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(safe_files.os, "fsync", refuse)
    chat.title = "changed"
    with pytest.raises(OSError, match="disk full"):
        chats.save(chat)
    assert chats._path(chat.id).read_bytes() == before
    assert len(list(chats._folder.iterdir())) == 1


def test_an_answer_cut_off_by_a_crash_is_stopped_after_loading(chats: ChatStore) -> None:
    """A message saved while streaming does not wait for tokens for ever."""
    chat = chats.new_chat()
    chat.add(ChatMessage(store.new_id(), "assistant", "half an ans", "streaming"))
    chats.save(chat)
    (loaded,), _ = chats.load_all()
    assert loaded.messages[0].state == "stopped"
    assert loaded.messages[0].text == "half an ans"


def test_newest_chat_first_and_delete(chats: ChatStore) -> None:
    """The list is in order of use; a deleted chat is gone, deleting twice is harmless."""
    old, new = _a_chat(chats, "old"), _a_chat(chats, "new")
    assert [chat.title for chat in chats.load_all()[0]] == ["new", "old"]
    chats.delete(new.id)
    chats.delete(new.id)
    assert [chat.title for chat in chats.load_all()[0]] == [old.title]


def test_a_chat_id_cannot_lead_out_of_the_folder(chats: ChatStore) -> None:
    """Ids become file names, so one with a path in it is refused."""
    with pytest.raises(ValueError, match="not a chat id"):
        chats.delete("../secret")


def test_the_title_is_the_first_user_message(chats: ChatStore) -> None:
    """Notices do not name a chat, a later message or a given title does not rename it."""
    chat = chats.new_chat()
    chat.add(ChatMessage("a", "notice", "Model changed"))
    chat.add(ChatMessage("b", "user", "  Why is\nthe first token slow? "))
    chat.add(ChatMessage("c", "user", "Other"))
    assert chat.title == "Why is the first token slow?"


@given(st.text(max_size=300))
def test_titles_are_one_short_line(text: str) -> None:
    """Whatever is said, the title fits in a list."""
    title = title_from(text)
    assert len(title) <= store.TITLE_LENGTH
    assert title.split() == title.split(" ") or not title
