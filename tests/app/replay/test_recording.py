"""Recordings: what is told comes back, texts only when asked for, and bad files are a sentence."""

from __future__ import annotations

import contextlib
import json
import tempfile
import types
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.replay import session_recorder
from app.replay.encoding import DamagedError, decode, encode
from app.replay.items import KINDS, TEXT_FIELDS, RequestPainted, RequestSent, without_traces
from app.replay.recording import RecordingError, read_recording
from app.replay.session_recorder import SessionRecorder
from engine.events import ModelLoaded, TokenEvent
from engine.sensors import SensorSample
from tests.app.replay.conftest import SECRET, record, secret
from tests.app.telemetry.story import Clock, Story, loaded

INTS = st.integers(-(2**63) + 1, 2**63 - 1)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: INTS,
    float: st.floats(allow_nan=False, allow_infinity=False),
}
CHECKED = {"ModelLoaded"}  # its configuration checks itself; a made-up one stands for it below


def instances(kind: type) -> st.SearchStrategy[Any]:
    """Any instance of a dataclass whose numbers JSON can hold."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{f.name: _values(hints[f.name]) for f in fields(kind)})


def _values(hint: Any) -> st.SearchStrategy[Any]:
    args = get_args(hint)
    if get_origin(hint) is types.UnionType:
        return st.one_of(*map(_values, args))
    if get_origin(hint) is tuple:
        return st.lists(_values(args[0]), max_size=4).map(tuple)
    if is_dataclass(hint):
        return instances(cast(type, hint))
    return PLAIN.get(hint, st.from_type(hint))


@pytest.fixture
def recorder() -> Iterator[SessionRecorder]:
    """A recorder of a session that begins at one second."""
    recorder = SessionRecorder(Clock())
    yield recorder
    recorder.close()


@settings(deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(set(KINDS) - CHECKED)))
def test_round_trip(data: st.DataObject, name: str) -> None:
    """Every field of every kind comes back as it was, through JSON."""
    item = data.draw(instances(KINDS[name]))
    assert decode(KINDS[name], json.loads(json.dumps(encode(item)))) == item


@given(st.lists(st.one_of(st.integers(-3, 3), INTS), max_size=60))
def test_runs(values: list[int]) -> None:
    """Long rows of numbers, in steps or not, come back from the short form."""
    item = replace(loaded().blocks.groups[0], used=tuple(values))  # type: ignore[union-attr]
    assert decode(type(item), json.loads(json.dumps(encode(item)))) == item


def test_a_loaded_model_comes_back(tmp_path: Path) -> None:
    """The largest event comes back whole but for this machine's folders and serial numbers."""
    model = replace(loaded(), device_uuid="GPU-1")
    found = decode(ModelLoaded, json.loads(json.dumps(encode(without_traces(model)))))
    assert found == replace(model, device_uuid=None)


@pytest.mark.parametrize("batch_bytes", [1, 10_000, 10**9])
def test_a_session_comes_back(
    recorder: SessionRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    """With its texts it is what was told, in order, whether kept in memory or in the file."""
    monkeypatch.setattr(session_recorder, "BATCH_BYTES", batch_bytes)
    story = Story()
    record(recorder, story)
    recorder.save(tmp_path / "a.phasescope", with_text=True)
    recording = read_recording(tmp_path / "a.phasescope")
    told = [t.item for t in recording.items]
    assert told[0] == story.model
    happened = [i for i in told[1:] if not isinstance(i, RequestSent | RequestPainted)]
    assert happened == [i if isinstance(i, SensorSample) else secret(i) for i in story.until()]
    assert len(told) == len(happened) + 3
    times = [t.t_ns for t in recording.items]
    assert times == sorted(times)
    assert recording.header.has_text


def test_no_text_unless_asked(recorder: SessionRecorder, tmp_path: Path) -> None:
    """Neither texts nor token ids are in the file, and it plays all the same."""
    record(recorder, Story())
    recorder.save(tmp_path / "a.phasescope", with_text=False)
    data = (tmp_path / "a.phasescope").read_bytes()
    assert SECRET.encode() not in data
    assert not any(f'"{n}"'.encode() in data for names in TEXT_FIELDS.values() for n in names)
    tokens = [
        t.item
        for t in read_recording(tmp_path / "a.phasescope").items
        if isinstance(t.item, TokenEvent)
    ]
    assert {(t.text, t.token_id) for t in tokens} == {("", -1)}


def test_texts_stay_off_the_disk(
    recorder: SessionRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is put away while nobody has saved anything holds no text."""
    monkeypatch.setattr(session_recorder, "BATCH_BYTES", 1)
    kept = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: kept)
    record(recorder, Story())
    kept.seek(0)
    data = kept.read()
    assert b"TokenEvent" in data
    assert SECRET.encode() not in data


def test_a_full_disk(
    recorder: SessionRecorder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expected_log: list[str],
) -> None:
    """When nothing more can be put away the session so far can still be saved."""
    expected_log.append("no longer recorded")

    def fail(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session_recorder, "BATCH_BYTES", 10_000)
    monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    record(recorder, Story())
    recorder.save(tmp_path / "a.phasescope", with_text=False)
    assert len(read_recording(tmp_path / "a.phasescope").items) > 5


def test_a_failed_save_leaves_the_old_file(recorder: SessionRecorder, tmp_path: Path) -> None:
    """Nothing half-written lies about when saving fails."""
    (tmp_path / "folder").mkdir()
    record(recorder, Story())
    with pytest.raises(OSError, match="folder"):
        recorder.save(tmp_path / "folder", with_text=False)
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


@pytest.fixture
def lines(recorder: SessionRecorder, tmp_path: Path) -> list[bytes]:
    """The lines of a good recording."""
    record(recorder, Story(num_tokens=3))
    recorder.save(tmp_path / "good", with_text=True)
    return (tmp_path / "good").read_bytes().splitlines(keepends=True)


def sentence(path: Path, data: bytes) -> str:
    """What is said of a file with this content."""
    path.write_bytes(data)
    with pytest.raises(RecordingError) as error:
        read_recording(path)
    return str(error.value)


def test_unknown_kinds_are_skipped(lines: list[bytes], tmp_path: Path) -> None:
    """What a newer version tells besides, and fields it adds, do no harm."""
    more = [*lines[:2], b'["Weather",5,{"a":1}]\n', *lines[2:]]
    (tmp_path / "more").write_bytes(b"".join(more).replace(b'"index":', b'"new":[1],"index":'))
    assert read_recording(tmp_path / "more") == read_recording(tmp_path / "good")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b'["TokenEvent",5,{}]\n', "missing"),
        (b'["TokenEvent",true,{}]\n', "not an event"),
        (b'["SensorSample",5,7]\n', "not an object"),
        (b'["RequestSent",5,{"request_id":"r","t_ns":1e999}]\n', "not a whole number"),
        (b'["RequestSent",5,{"request_id":"r","t_ns":' + b"9" * 30 + b"}]\n", "not a whole"),
        (b'["ModelDropped",' + b"9" * 30 + b',{"t_ns":1}]\n', "out of range"),
        (b'["RequestPainted",5,{"request_id":"r","t_ns":1,"index":-4}]\n', "negative"),
        (b"[" * 100_000 + b"\n", "not JSON"),
        (b"9" * 10_000 + b"\n", "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"{}\n", "not an event"),
        (b'["TokenEv', "in the middle of line 3"),
    ],
)
def test_a_bad_line_is_told(lines: list[bytes], tmp_path: Path, bad: bytes, said: str) -> None:
    """Whatever a line holds, one sentence says which line and what is wrong."""
    told = sentence(tmp_path / "bad", b"".join(lines[:2]) + bad)
    assert said in told
    assert "line 3" in told.lower()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a recorded session"),
        (b"\x89PNG\r\n", "not a recorded session"),
        (b"[]\n", "not a recorded session"),
        (b'{"format":"phasescope-recording"}\n', "not a recorded session"),
        (b'{"format":"phasescope-recording","version":99}\n', "newer version"),
    ],
)
def test_another_file_is_told(tmp_path: Path, data: bytes, said: str) -> None:
    """A file that is none of ours, or of a later version, is named as such."""
    assert said in sentence(tmp_path / "bad", data)


def test_what_cannot_be_read_is_told(lines: list[bytes], tmp_path: Path) -> None:
    """No file, a header alone, and one that is too long."""
    assert "empty" in sentence(tmp_path / "bad", lines[0])
    with pytest.raises(RecordingError, match="cannot be read"):
        read_recording(tmp_path / "missing")


@settings(deadline=None)
@given(data=st.data())
def test_any_damage_is_a_sentence(data: st.DataObject) -> None:
    """Bytes changed or cut anywhere give a recording or a RecordingError, nothing else."""
    recorder = SessionRecorder(Clock())
    record(recorder, Story(num_tokens=2, prompt_tokens=16))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        recorder.save(path, with_text=True)
        recorder.close()
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
        with contextlib.suppress(RecordingError):
            read_recording(path)


@pytest.mark.parametrize("kind", sorted(TEXT_FIELDS))
def test_text_fields_exist(kind: str) -> None:
    """A field that was renamed would no longer be left out: its name is checked, and its blank."""
    known = {f.name: f for f in fields(KINDS[kind])}
    assert set(TEXT_FIELDS[kind]) <= set(known)
    assert all(known[name].default is MISSING for name in TEXT_FIELDS[kind])


def test_damage_names_the_field() -> None:
    """The sentence leads to the place."""
    with pytest.raises(DamagedError, match="t_ns: not a whole number"):
        decode(SensorSample, {"t_ns": "now"})
