"""Sweeps: what is measured, what is left out and why, and what an interruption leaves."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import bench, sweep_command
from engine.cli import main
from engine.cli_options import config_from
from engine.config import WEIGHT_FORMATS, EngineConfig
from engine.kv_formats import KV_FORMATS
from engine.measuring import Workload
from engine.prediction import decode_s, prefill_s
from engine.sweep import Skipped, Sweep, SweepPlan, SweepProgress, predicted_s
from engine.sweep_command import arguments_of
from tests.engine.test_cli import BENCH_KEYS
from tests.fakes.fake_session import FakeSession, Script
from tests.fakes.figures import WEIGHT_BYTES

WORK = Workload(generate=8, repeat=2)


def plan_of(**fields: Any) -> SweepPlan:
    given_ = {"weights": ("int8",), "kv": ("bf16",), "contexts": (64,), **fields}
    return SweepPlan(EngineConfig("SmolLM2.gguf"), WORK, **given_)


def swept(session: FakeSession, plan: SweepPlan) -> tuple[Sweep, list[SweepProgress]]:
    told: list[SweepProgress] = []
    sweep = Sweep(session, plan, told.append)
    sweep.run()
    return sweep, told


@given(
    st.lists(st.sampled_from(WEIGHT_FORMATS), min_size=1, max_size=4),
    st.lists(st.sampled_from(KV_FORMATS), min_size=1, max_size=4),
    st.lists(st.integers(1, 9_000), min_size=1, max_size=4),
)
def test_every_combination_is_named_once(
    weights: list[str], kv: list[str], contexts: list[int]
) -> None:
    """None twice, none missing, and those of one load stand together, short contexts first."""
    cells = plan_of(weights=tuple(weights), kv=tuple(kv), contexts=tuple(contexts)).cells()
    assert len(set(cells)) == len(cells)
    assert {(c.weights, c.prompt_tokens) for c in cells} == {
        (w, n) for w in weights for n in contexts
    }
    loads = [key for key, _ in groupby(cells, lambda cell: (cell.weights, cell.kv))]
    assert len(loads) == len(set(loads))
    for key in loads:
        tokens = [c.prompt_tokens for c in cells if (c.weights, c.kv) == key]
        assert tokens == sorted(set(contexts))


def test_a_model_is_loaded_once_for_its_formats() -> None:
    """Three contexts share a load, which has room for the longest; prefixes are not shared."""
    session = FakeSession()
    sweep, _ = swept(session, plan_of(weights=("int8", "int4"), contexts=(300, 64, 128)))
    assert [(c.weight_format, c.context_length) for c in session.loads] == [
        ("int8", 308),
        ("int4", 308),
    ]
    assert not any(config.prefix_caching for config in session.loads)
    assert [(r["weights"], r["prompt_tokens"]) for r in sweep.result.sweep] == [
        (w, n) for w in ("int8", "int4") for n in (64, 128, 300)
    ]
    assert {len(r.prompt_ids or ()) for r in session.requests} == {64, 128, 300}


def test_known_speeds_are_measured() -> None:
    """The rows say what the engine did: 4 and 2 ms a token, 1,000 tokens of prompt a second."""
    script = Script(itl_ms_as={"int8": 4.0, "int4": 2.0}, prefill_tok_s=1_000.0, is_even=True)
    sweep, _ = swept(FakeSession(script), plan_of(weights=("int8", "int4"), contexts=(64,)))
    paces = [row["decode_tok_s"] for row in sweep.result.sweep]
    assert paces == pytest.approx([250.0, 500.0])
    assert [row["ttft_ms"] for row in sweep.result.sweep] == pytest.approx([64.0, 64.0])


def test_what_cannot_be_is_listed_with_its_reason() -> None:
    """Too long for the model, and too large for memory; the rest is measured."""
    need = WEIGHT_BYTES["bf16"] - 1  # nothing of it fits
    session = FakeSession(Script(available_bytes=need))
    sweep, told = swept(session, plan_of(weights=("bf16", "int4"), contexts=(64, 8_192)))
    assert [(r["weights"], r["prompt_tokens"]) for r in sweep.result.sweep] == [("int4", 64)]
    skipped = {(s.weights, s.prompt_tokens): s.why for s in sweep.result.skipped}
    assert set(skipped) == {("bf16", 64), ("bf16", 8_192), ("int4", 8_192)}
    assert skipped["bf16", 64].startswith("It needs ")
    assert "are free" in skipped["bf16", 64]
    assert skipped["int4", 8_192].endswith("has 8,192 tokens of context, not 8,200.")
    assert [each.skipped for each in told if each.skipped] == sweep.result.skipped


def test_a_load_that_fails_leaves_the_shorter_contexts() -> None:
    """Memory that went since it was asked about: the longest is left out, the next is tried."""
    session = FakeSession(Script(available_bytes=400_000_000))
    plan = plan_of(weights=("int4",), contexts=(64, 4_000))

    def less_memory(at: SweepProgress) -> None:
        session.script.available_bytes = 200_000_000

    sweep = Sweep(session, plan, less_memory)
    sweep.run()
    assert [row["prompt_tokens"] for row in sweep.result.sweep] == [64]
    [skipped] = sweep.result.skipped
    assert skipped.prompt_tokens == 4_000
    assert skipped.why.startswith("The model does not fit in memory.")


def test_progress_grows_to_the_whole() -> None:
    """Never back, between nothing and all, and every row is told as it comes."""
    sweep, told = swept(FakeSession(), plan_of(weights=("int8", "int4"), contexts=(64, 9_000)))
    shares = [each.share for each in told]
    assert shares == sorted(shares)
    assert shares[0] >= 0
    assert shares[-1] == 1.0
    assert [each.row for each in told if each.row] == sweep.result.sweep


# --- the command ------------------------------------------------------------------------------


@pytest.fixture
def run(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a sweep of the tiny model; gives exit code, stdout, stderr."""

    def run_(*options: str) -> tuple[int, str, str]:
        small = ("--threads", "1", "--generate", "4", "--repeat", "1")
        code = main(["bench", "--model", str(tiny_model), *small, *options])
        out, err = capsys.readouterr()
        return code, out, err

    return run_


def test_a_sweep_of_a_real_model(run: Callable[..., Any]) -> None:
    """The last line has bench's own rows and what was left out; the table has a line each."""
    options = ("--sweep-weights", "fp32,int8", "--sweep-kv", "bf16,int4")
    code, out, err = run("--sweep", *options, "--sweep-contexts", "20,40,300")
    assert (code, err) == (0, "")
    *table, last = out.splitlines()
    result = json.loads(last)
    assert list(result) == ["sweep", "skipped"]
    assert all(list(row) == BENCH_KEYS for row in result["sweep"])
    assert [(r["weights"], r["kv"], r["prompt_tokens"]) for r in result["sweep"]] == [
        (w, kv, n) for w in ("fp32", "int8") for kv in ("bf16", "int4") for n in (20, 40)
    ]
    assert all(row["decode_tok_s"] > 0 for row in result["sweep"])
    assert [s["prompt_tokens"] for s in result["skipped"]] == [300] * 4
    assert result["skipped"][0]["why"] == "tiny has 256 tokens of context, not 304."
    assert len(table) == 1 + 8 + 4
    assert table[-1].startswith("left out: weights int8, KV int4, context 300: tiny has 256")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--sweep", "--weights", "int8"), "--sweep-weights"),
        (("--sweep", "--context", "64"), "--sweep-contexts"),
        (("--sweep-kv", "int8"), "needs --sweep"),
        (("--progress", "json"), "needs --sweep"),
    ],
)
def test_options_that_do_not_go_together_exit_2(
    run: Callable[..., Any], options: tuple[str, ...], word: str
) -> None:
    """Nothing that was asked for is left out silently."""
    code, out, err = run(*options)
    assert (code, out) == (2, "")
    assert word in err


@pytest.mark.parametrize("option", ["--sweep-weights=int3", "--sweep-kv=,", "--sweep-contexts=0"])
def test_unknown_formats_exit_2(run: Callable[..., Any], option: str) -> None:
    """argparse's own exit."""
    with pytest.raises(SystemExit) as exit_:
        run("--sweep", option)
    assert exit_.value.code == 2


def test_ctrl_c_prints_what_was_measured(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 130, and a last line with the rows so far; the session is closed."""
    session = FakeSession()

    def interrupt(_seconds: float) -> None:
        if len(session.requests) > 3:
            raise KeyboardInterrupt

    session.script.wait = interrupt
    monkeypatch.setattr("engine.sweep_command.create_session", lambda: session)
    code, out, err = run("--sweep", "--sweep-weights", "int8", "--sweep-contexts", "20,40")
    assert code == 130
    assert err == "phasescope bench: interrupted\n"
    result = json.loads(out.splitlines()[-1])
    assert [row["prompt_tokens"] for row in result["sweep"]] == [20]
    assert session.closed


def test_another_program_reads_it_and_stops_it(tiny_model: Path) -> None:
    """Each row as it comes; the end of stdin ends it with a result of the rows so far, exit 130."""
    formats = ("--sweep-weights", "fp32,bf16,fp16,int8,int4", "--sweep-kv", "fp32,bf16,int8,int4")
    small = ("--threads", "1", "--generate", "4", "--repeat", "20", "--sweep-contexts", "300,20,40")
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "engine.bench", "--sweep", "--model", str(tiny_model)),
            *(*formats, *small, "--progress", "json"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        lines = []
        for line in child.stdout:
            lines.append(json.loads(line))
            if lines[-1].get("progress", {}).get("row"):
                child.stdin.close()
                break
        lines += map(json.loads, child.stdout)
        assert child.wait(60) == 130
    *progress, last = lines
    rows = [line["progress"]["row"] for line in progress if line["progress"]["row"]]
    assert 1 <= len(rows) < 40
    assert last["result"]["sweep"] == rows
    assert Skipped(**last["result"]["skipped"][0]).prompt_tokens == 300


def test_output_without_rows_has_no_header(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where everything is left out the table is the reasons alone."""
    monkeypatch.setattr("engine.sweep_command.create_session", FakeSession)
    code = main(["bench", "--sweep", "--model", "SmolLM2.gguf", "--sweep-contexts", "9000"])
    assert code == 0
    assert capsys.readouterr().out.startswith("left out: weights bf16")


@given(
    st.lists(st.sampled_from(WEIGHT_FORMATS), min_size=1, max_size=4),
    st.lists(st.sampled_from(KV_FORMATS), min_size=1, max_size=4),
    st.lists(st.integers(1, 9_000), min_size=1, max_size=4),
    st.none() | st.integers(1, 64),
)
def test_its_command_line_asks_for_the_same(
    weights: list[str], kv: list[str], contexts: list[int], threads: int | None
) -> None:
    """What a window starts is read back as the plan it was made of."""
    plan = SweepPlan(
        EngineConfig("SmolLM2.gguf", device="cpu", threads=threads),
        Workload(generate=7, repeat=3),
        tuple(weights),
        tuple(kv),
        tuple(contexts),
    )
    command, *arguments = arguments_of(plan)
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    args = parser.parse_args(arguments)
    sweep_command.refuse_mixed(args)
    assert command == "bench"
    assert config_from(args) == plan.config
    assert (args.generate, args.repeat) == (7, 3)
    assert (args.sweep_weights, args.sweep_kv, args.sweep_contexts) == (
        plan.weights,
        plan.kv,
        plan.contexts,
    )


def test_the_time_of_its_runs_is_predicted() -> None:
    """Every run with its warm-up, from the formulas of prompt and token; not what is left out."""
    session = FakeSession(Script())
    plan = plan_of(weights=("int8", "int4"), contexts=(64, 10_000_000))
    planning = session.planning("SmolLM2.gguf", "cpu", None)
    expected = 0.0
    for weights in plan.weights:
        work, device = planning.model.token_work(weights, "bf16"), planning.machine.speeds[weights]
        a_run = prefill_s(work, device, 64) + 8 * decode_s(work, device, 64 + 4)
        expected += 3 * a_run
    assert predicted_s(planning, plan) == pytest.approx(expected)
    unmeasured = FakeSession(Script(is_measured=False)).planning("SmolLM2.gguf", "cpu", None)
    assert predicted_s(unmeasured, plan) is None
