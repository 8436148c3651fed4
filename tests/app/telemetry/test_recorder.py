"""The CSV tables: fixed columns, each row once, and a disk that fails is a sentence."""

from __future__ import annotations

import csv
import errno
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytestqt.qtbot import QtBot

from app.telemetry import csv_tables, session_log
from app.telemetry.csv_tables import COLUMNS, cell, lines
from app.telemetry.recorder import CsvRecorder
from engine.events import GenerationFailed, GenerationFinished, TokenEvent
from engine.sensors import SensorSample
from tests.app.telemetry.story import MS, Clock, Story, loaded

HEADERS = {
    "requests": "schema_version,session_id,request_id,started_at,model,device,weight_format,"
    "kv_format,context_length,kernels,prompt_tokens,cached_tokens,completion_tokens,"
    "finish_reason,queue_ms,ttft_ms,prefill_ms,prefill_tok_s,decode_tok_s,tpot_ms,itl_p50_ms,"
    "itl_p90_ms,itl_p95_ms,itl_p99_ms,e2el_ms,kv_bytes_used,kv_bytes_allocated,weight_bytes,"
    "peak_memory_bytes,temperature,top_p,top_k,seed,kv_bytes_reserved,threads,warmup_s,"
    "use_cache",
    "tokens": "request_id,index,phase,t_ms,itl_ms,token_id,context_tokens,kv_bytes_used,paint_ms,"
    "session_id,t_session_ms,step_id",
    "samples": "t_ms,request_id,phase,gpu_util_pct,gpu_mem_used_bytes,gpu_power_w,cpu_util_pct,"
    "process_rss_bytes,kv_bytes_used,session_id,t_session_ms,device_index,"
    "gpu_process_mem_bytes,gpu_sm_clock_mhz,gpu_mem_clock_mhz,gpu_temperature_c,gpu_slowed_by,"
    "gpu_sm_active_pct,gpu_dram_active_pct,on_battery,power_saving",
    "steps": "session_id,step_id,t_session_ms,phase,num_seqs,num_tokens,step_ms,flops,bytes,"
    "mfu_pct,mbu_pct",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where it records; does not exist yet."""
    return tmp_path / "metrics"


@pytest.fixture
def recorder(qtbot: QtBot, folder: Path, clock: Clock) -> Iterator[CsvRecorder]:
    """A recorder that records continuously, its session beginning at one second."""
    recorder = CsvRecorder(folder, "s1", clock)
    yield recorder
    recorder.close()


def tell(recorder: CsvRecorder, story: Story, *, paint: bool = True) -> None:
    """Let an answer happen, its tokens painted 5 ms after they were known."""
    recorder.handle_events([loaded()])
    recorder.request_sent(story.request_id, story.t_send_ns)
    for item in story.until():
        if isinstance(item, SensorSample):
            recorder.handle_sample(item)
            continue
        recorder.handle_events([item])
        if paint and isinstance(item, TokenEvent):
            recorder.request_painted(story.request_id, item.index, item.t_ns + 5 * MS)


def read(folder: Path, table: str) -> list[dict[str, str]]:
    """A table's rows by column."""
    with (folder / f"{table}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def header(folder: Path, table: str) -> str:
    """A table's first line."""
    return (folder / f"{table}.csv").read_text(encoding="utf-8").splitlines()[0]


def test_the_columns_are_the_contract(recorder: CsvRecorder, folder: Path) -> None:
    """Scripts read these headers: they may only grow at their end."""
    tell(recorder, Story(num_tokens=3))
    assert {table: ",".join(columns) for table, columns in COLUMNS.items()} == HEADERS
    for table, text in HEADERS.items():
        assert header(folder, table) == text


def test_an_answer_in_all_four_tables(recorder: CsvRecorder, folder: Path) -> None:
    """A row a request, a token and a step; times from Send and from the session's start."""
    story = Story(t_send_ns=1_500 * MS, num_tokens=12, queue_ms=10.0)
    tell(recorder, story)
    metrics = next(e for e in story.events() if isinstance(e, GenerationFinished)).metrics
    (request,) = read(folder, "requests")
    assert request["schema_version"] == "1"
    assert request["session_id"] == "s1"
    assert request["finish_reason"] == "stop"
    assert float(request["ttft_ms"]) == pytest.approx(metrics.ttft_ms)
    assert float(request["decode_tok_s"]) == pytest.approx(metrics.decode_tok_s)
    tokens = read(folder, "tokens")
    assert [t["index"] for t in tokens] == [str(i) for i in range(12)]
    assert [t["phase"] for t in tokens] == ["prefill"] + ["decode"] * 11
    assert tokens[0]["itl_ms"] == ""
    assert float(tokens[0]["t_ms"]) == pytest.approx(metrics.ttft_ms)
    assert float(tokens[0]["t_session_ms"]) == pytest.approx(metrics.ttft_ms + 500)
    assert {t["paint_ms"] for t in tokens} == {"5"}
    steps = read(folder, "steps")
    assert len(steps) == 2 + 11
    assert [s["phase"] for s in steps] == ["prefill"] * 2 + ["decode"] * 11
    assert {s["session_id"] for s in steps} == {"s1"}


def test_samples_know_what_ran(qtbot: QtBot, recorder: CsvRecorder, folder: Path) -> None:
    """While idle no request and no t_ms; else the request, its phase and cache; no GPU: blank."""
    story = Story(t_send_ns=2_000 * MS, num_tokens=60)
    recorder.handle_sample(SensorSample(1_200 * MS, None, None, None, None, 3.5, 600_000_000))
    tell(recorder, story)
    recorder.close()
    idle, *rest = read(folder, "samples")
    assert (idle["t_ms"], idle["request_id"], idle["phase"]) == ("", "", "idle")
    assert (idle["t_session_ms"], idle["cpu_util_pct"]) == ("200", "3.5")
    assert (idle["gpu_util_pct"], idle["kv_bytes_used"]) == ("", "")
    running = [s for s in rest if s["request_id"] == "r1"]
    assert [float(s["t_ms"]) for s in running[:2]] == [0.0, 200.0]
    assert [s["phase"] for s in running[:2]] == ["prefill", "decode"]
    assert int(running[1]["kv_bytes_used"]) > 0


def test_rows_are_flushed_when_the_answer_is_painted(recorder: CsvRecorder, folder: Path) -> None:
    """Nothing waits for the end of the session: a crash after the answer loses nothing."""
    story = Story(num_tokens=4)
    tell(recorder, story, paint=False)
    assert not (folder / "tokens.csv").exists()
    recorder.request_painted("r1", 3, story.end_ns + 8 * MS)
    assert len(read(folder, "tokens")) == 4


def test_an_answer_nobody_saw_is_written_without_paint_times(
    recorder: CsvRecorder, folder: Path
) -> None:
    """When its chat is not shown, the rows do not wait for ever."""
    story = Story(num_tokens=4)
    tell(recorder, story, paint=False)
    later = story.end_ns + 600 * MS
    recorder.handle_sample(SensorSample(later, None, None, None, None, 1.0, 1))
    assert [t["paint_ms"] for t in read(folder, "tokens")] == [""] * 4
    recorder.request_painted("r1", 3, later)
    assert len(read(folder, "requests")) == 1


def test_a_failed_request_has_a_row(recorder: CsvRecorder, folder: Path) -> None:
    """What is known of it is written, the rest is blank."""
    recorder.handle_events([loaded()])
    recorder.request_sent("r9", 2_000 * MS)
    recorder.handle_events([GenerationFailed("r9", 2_100 * MS, "what", "why", "next")])
    (row,) = read(folder, "requests")
    assert (row["request_id"], row["finish_reason"]) == ("r9", "failed")
    assert row["model"] == "SmolLM2-135M-Instruct"
    assert (row["ttft_ms"], row["seed"]) == ("", "")


def test_no_text_is_recorded(recorder: CsvRecorder, folder: Path) -> None:
    """Neither prompt nor answer gets into any table."""
    tell(recorder, Story(num_tokens=6))
    for table in COLUMNS:
        text = (folder / f"{table}.csv").read_text(encoding="utf-8")
        assert " token" not in text
        assert "Why?" not in text


def test_a_second_session_shares_the_header(
    qtbot: QtBot, recorder: CsvRecorder, folder: Path, clock: Clock
) -> None:
    """Two sessions in one folder: one header, the rows of both, told apart by session_id."""
    tell(recorder, Story(num_tokens=3))
    other = CsvRecorder(folder, "s2", clock)
    tell(other, Story(num_tokens=3))
    other.close()
    assert [r["session_id"] for r in read(folder, "requests")] == ["s1", "s2"]
    text = (folder / "tokens.csv").read_text(encoding="utf-8")
    assert text.count("request_id") == 1
    assert len(text.splitlines()) == 1 + 3 + 3


def test_a_foreign_file_is_set_aside(recorder: CsvRecorder, folder: Path) -> None:
    """A tokens.csv of something else is kept under another name and never mixed with."""
    folder.mkdir()
    (folder / "tokens.csv").write_text("name,price\napple,3\n", encoding="utf-8")
    (folder / "tokens.other-1.csv").write_text("older", encoding="utf-8")
    tell(recorder, Story(num_tokens=3))
    assert len(read(folder, "tokens")) == 3
    aside = folder / "tokens.other-2.csv"
    assert aside.read_text(encoding="utf-8") == "name,price\napple,3\n"
    assert (folder / "tokens.other-1.csv").read_text(encoding="utf-8") == "older"


def test_a_line_cut_by_a_crash_is_ended_first(recorder: CsvRecorder, folder: Path) -> None:
    """New rows never continue the half line that a killed process left."""
    folder.mkdir()
    (folder / "steps.csv").write_text(HEADERS["steps"] + "\ns0,1,0.5,dec", encoding="utf-8")
    tell(recorder, Story(num_tokens=3))
    rows = read(folder, "steps")
    assert rows[0]["phase"] == "dec"
    assert rows[1]["session_id"] == "s1"


def test_export_has_everything_once(qtbot: QtBot, clock: Clock, tmp_path: Path) -> None:
    """Without continuous recording the whole session can be exported, and again after more."""
    recorder = CsvRecorder(None, "s1", clock)
    first = Story("a", num_tokens=5)
    tell(recorder, first)
    assert recorder.export(tmp_path / "out") is None
    assert recorder.export(tmp_path / "out") is None
    assert len(read(tmp_path / "out", "tokens")) == 5
    tell(recorder, Story("b", t_send_ns=first.end_ns + 50 * MS, num_tokens=7))
    assert recorder.export(tmp_path / "out") is None
    assert recorder.export(tmp_path / "elsewhere") is None
    for folder in ("out", "elsewhere"):
        assert len(read(tmp_path / folder, "tokens")) == 12
        assert [r["request_id"] for r in read(tmp_path / folder, "requests")] == ["a", "b"]
    recorder.close()


def test_export_writes_again_what_was_deleted(recorder: CsvRecorder, folder: Path) -> None:
    """A person who deletes the tables and exports again gets all of them."""
    tell(recorder, Story(num_tokens=5))
    shutil.rmtree(folder)
    assert recorder.export(folder) is None
    assert len(read(folder, "tokens")) == 5


def test_export_before_anything_happened_writes_the_headers(
    qtbot: QtBot, clock: Clock, tmp_path: Path
) -> None:
    """Four tables with a header each, so that a script finds what it expects."""
    recorder = CsvRecorder(None, "s1", clock)
    assert recorder.export(tmp_path) is None
    assert {t: header(tmp_path, t) for t in COLUMNS} == HEADERS
    recorder.close()


def test_recording_switched_on_later_has_the_session_so_far(
    qtbot: QtBot, clock: Clock, folder: Path
) -> None:
    """Switching on catches up, switching off stops, and the export still has everything."""
    recorder = CsvRecorder(None, "s1", clock)
    story = Story("a", num_tokens=5)
    tell(recorder, story)
    recorder.set_folder(folder)
    assert recorder.folder == folder
    assert len(read(folder, "tokens")) == 5
    recorder.set_folder(None)
    tell(recorder, Story("b", t_send_ns=story.end_ns, num_tokens=5))
    assert len(read(folder, "tokens")) == 5
    recorder.export(folder)
    assert len(read(folder, "tokens")) == 10
    recorder.close()


def test_a_long_session_leaves_memory_and_stays_complete(
    qtbot: QtBot, clock: Clock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond its bound a table lives in a temporary file; the export has every row all the same."""
    monkeypatch.setattr(session_log, "MEMORY_BYTES", 2_000)
    recorder = CsvRecorder(None, "s1", clock)
    start = 1_000 * MS
    for i in range(5):
        story = Story(f"r{i}", t_send_ns=start, num_tokens=40)
        tell(recorder, story)
        start = story.end_ns
    assert recorder.export(folder) is None
    tokens = read(folder, "tokens")
    assert [t["request_id"] for t in tokens] == [f"r{i}" for i in range(5) for _ in range(40)]
    recorder.close()


def test_what_comes_after_the_end_is_harmless(recorder: CsvRecorder, folder: Path) -> None:
    """A sample or a paint that was on its way while the window closed raises nothing."""
    story = Story(num_tokens=3)
    tell(recorder, story, paint=False)
    recorder.close()
    recorder.close()
    recorder.handle_sample(SensorSample(story.end_ns + 900 * MS, None, None, None, None, 1.0, 1))
    tell(recorder, Story("late", t_send_ns=story.end_ns, num_tokens=2))
    assert [r["request_id"] for r in read(folder, "requests")] == ["r1"]


def test_a_folder_that_cannot_be_is_a_sentence(
    qtbot: QtBot, clock: Clock, tmp_path: Path, expected_log: list[str]
) -> None:
    """Recording into something that is no folder: said once, the program goes on."""
    expected_log.append("Recording failed.")
    expected_log.append("could not be exported")
    (tmp_path / "file").write_text("", encoding="utf-8")
    recorder = CsvRecorder(tmp_path / "file", "s1", clock)
    problems: list[object] = []
    recorder.problem_occurred.connect(problems.append)
    story = Story("a", num_tokens=2)
    tell(recorder, story)
    tell(recorder, Story("b", t_send_ns=story.end_ns, num_tokens=2))
    assert len(problems) == 1
    problem = recorder.export(tmp_path / "file")
    assert problem is not None
    assert "could not be exported" in problem.what
    assert str(tmp_path / "file") in problem.why
    assert recorder.export(tmp_path / "good") is None
    assert len(read(tmp_path / "good", "requests")) == 2
    recorder.close()


def test_a_full_disk_leaves_whole_rows_and_is_made_up_for(
    recorder: CsvRecorder,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    expected_log: list[str],
) -> None:
    """A write that stops midway is taken back; when there is room again nothing is missing."""
    expected_log.append("Recording failed.")
    first = Story("a", num_tokens=3)
    tell(recorder, first)
    before = (folder / "tokens.csv").read_bytes()

    def stops_midway(source: IO[bytes], target: IO[bytes]) -> None:
        target.write(source.read(20))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(csv_tables.shutil, "copyfileobj", stops_midway)
        second = Story("b", t_send_ns=first.end_ns, num_tokens=3)
        tell(recorder, second)
        assert (folder / "tokens.csv").read_bytes() == before
    tell(recorder, Story("c", t_send_ns=second.end_ns, num_tokens=3))
    assert [t["request_id"] for t in read(folder, "tokens")] == ["a"] * 3 + ["b"] * 3 + ["c"] * 3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (float("nan"), ""),
        (float("inf"), ""),
        (0.7, "0.7"),
        (118.0, "118"),
        (1e20, "100000000000000000000"),
        (1e-9, "0"),
        (0, "0"),
        (23_040, "23040"),
    ],
)
def test_cells(value: float | None, text: str) -> None:
    """Blank for no value, "." decimal, no exponent, no thousands."""
    assert cell(value) == text


@given(st.lists(st.lists(st.text(), min_size=2, max_size=4), max_size=5))
def test_any_text_survives_the_table(rows: list[list[str]]) -> None:
    """Model names with commas, quotes, line ends or broken characters keep a row a line."""
    data = lines(rows)
    assert data.count(b"\n") == len(rows)
    back = list(csv.reader(io.StringIO(data.decode("utf-8"), newline="")))
    plain = [
        [t.replace("\r", " ").replace("\n", " ").encode("utf-8", "replace").decode() for t in row]
        for row in rows
    ]
    assert back == plain
