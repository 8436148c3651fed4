"""The JSON with vLLM's names: all its readers use, and the same figures again with numpy."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PySide6.QtWidgets import QApplication

from app.export.session_data import RequestWords, SessionData, session_data
from app.export.vllm_json import vllm_result, write_json
from app.telemetry.telemetry_model import TelemetryModel
from engine.events import GenerationFailed, GenerationFinished
from tests.app.telemetry.story import MS, Clock, Story, loaded

NOW = datetime(2026, 12, 3, 12, 0, 5)

# What `vllm bench serve --save-result --save-detailed` saves: vllm/benchmarks/serve.py of
# github.com/vllm-project/vllm at 009e6d4, the generation task.
SAVED = (
    *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts"),
    *("request_rate", "burstiness", "max_concurrency", "duration", "completed", "failed"),
    *("total_input_tokens", "total_output_tokens", "request_throughput", "request_goodput"),
    *("output_throughput", "total_token_throughput", "input_lens", "output_lens", "ttfts", "itls"),
    *("latencies", "start_times", "queue_times", "generated_texts", "errors"),
    *("max_output_tokens_per_s", "max_concurrent_requests", "rtfx"),
)
# save_to_pytorch_benchmark_format in the same file; the serving columns of
# .buildkite/performance-benchmarks/scripts/convert-results-json-to-markdown.py; the default axes
# of vllm/benchmarks/sweep/plot.py (request_throughput, p99_e2el_ms).
READ = (
    *(f"{s}_{m}_ms" for m in ("ttft", "tpot", "itl") for s in ("mean", "median", "std", "p99")),
    *("p99_e2el_ms", "completed", "max_concurrency", "model_id", "request_throughput"),
    *("total_token_throughput", "output_throughput", "total_input_tokens", "total_output_tokens"),
)


@pytest.fixture
def session(qapp: QApplication) -> SessionData:
    """Two overlapping answers, a later one of a single token, and one that failed."""
    clock = Clock()
    model = TelemetryModel(clock)
    model.handle_events([loaded()])
    first = Story("a", num_tokens=110, late={40: 120.0})
    second = Story("b", t_send_ns=first.t_send_ns + 300 * MS, prompt_tokens=64, num_tokens=60)
    third = Story("c", t_send_ns=first.end_ns + 900 * MS, num_tokens=1)
    for story in (first, second, third):
        story.tell(model, clock)
    model.request_sent("d", third.end_ns + 10 * MS)
    model.handle_events([GenerationFailed("d", third.end_ns + 20 * MS, "what", "why", "next")])
    model.request_sent("running", third.end_ns + 30 * MS)
    return session_data(model)


def test_every_field_is_there(session: SessionData) -> None:
    """A script that reads a saved vLLM result finds each of its keys."""
    result = vllm_result(session, NOW)
    assert set(SAVED) | set(READ) <= set(result)
    assert (result["date"], result["backend"]) == ("20261203-120005", "phasescope")
    assert result["model_id"] == "SmolLM2-135M-Instruct"


def test_figures_are_numpys_of_the_lists(session: SessionData) -> None:
    """Means and percentiles, taken again from ttfts, itls and latencies as a reader would."""
    result: Any = vllm_result(session, NOW)
    done = [i for i, error in enumerate(result["errors"]) if not error]
    assert done == [0, 1, 2]
    lists = {
        "ttft": [result["ttfts"][i] for i in done],
        "itl": [itl for i in done for itl in result["itls"][i]],
        "e2el": [result["latencies"][i] for i in done],
        "tpot": [
            (result["latencies"][i] - result["ttfts"][i]) / (result["output_lens"][i] - 1)
            for i in done
            if result["output_lens"][i] > 1
        ],
    }
    for metric, seconds in lists.items():
        ms = np.array(seconds) * 1e3
        assert result[f"mean_{metric}_ms"] == pytest.approx(ms.mean())
        assert result[f"std_{metric}_ms"] == pytest.approx(ms.std())
        assert result[f"median_{metric}_ms"] == pytest.approx(np.median(ms))
        for point in (50, 90, 95, 99):
            assert result[f"p{point}_{metric}_ms"] == pytest.approx(np.percentile(ms, point))
    for i in done:
        rebuilt = result["ttfts"][i] + sum(result["itls"][i])
        assert rebuilt == pytest.approx(result["latencies"][i], abs=1e-6)


def test_totals(session: SessionData) -> None:
    """Sums, rates over the whole duration, what overlapped, and the request that failed."""
    result: Any = vllm_result(session, NOW)
    assert (result["num_prompts"], result["completed"], result["failed"]) == (4, 3, 1)
    assert result["total_output_tokens"] == 110 + 60 + 1
    assert result["total_input_tokens"] == 256 + 64 + 256
    assert result["output_throughput"] == pytest.approx(171 / result["duration"])
    assert result["max_concurrent_requests"] == 2
    assert result["start_times"][:2] == pytest.approx([0.0, 0.3])
    assert (result["ttfts"][3], result["itls"][3], result["errors"][3]) == (0.0, [], "failed")
    assert 60 < result["max_output_tokens_per_s"] <= 171


def test_the_engines_own_figures_agree(qapp: QApplication) -> None:
    """Of one request: the same TTFT, TPOT, E2EL and percentiles as in its metrics."""
    clock, story = Clock(), Story(num_tokens=80)
    model = TelemetryModel(clock)
    story.tell(model, clock)
    metrics = next(e for e in story.events() if isinstance(e, GenerationFinished)).metrics
    result: Any = vllm_result(session_data(model), NOW)
    for name in ("ttft_ms", "tpot_ms", "e2el_ms"):
        assert result[f"mean_{name}"] == pytest.approx(getattr(metrics, name), abs=1e-3)
    for point in (50, 90, 95, 99):
        own = getattr(metrics, f"itl_p{point}_ms")
        assert result[f"p{point}_itl_ms"] == pytest.approx(own, abs=1e-3)


def test_nothing_measured_is_null(qapp: QApplication, tmp_path: Path) -> None:
    """No value is null, never NaN or Infinity, which JSON does not have."""
    path = tmp_path / "empty.json"
    write_json(path, session_data(TelemetryModel()), NOW)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    result = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert (result["p99_itl_ms"], result["request_throughput"]) == (None, None)
    assert result["itls"] == []


def test_text_only_when_it_is_given(session: SessionData) -> None:
    """Answers are blank unless they were asked for."""
    assert vllm_result(session, NOW)["generated_texts"] == [""] * 4
    clock, model = Clock(), TelemetryModel()
    Story().tell(model, clock)
    told = session_data(model, lambda _: RequestWords(answer="an answer"))
    assert vllm_result(told, NOW)["generated_texts"] == ["an answer"]


def test_a_file_that_cannot_be_leaves_nothing(session: SessionData, tmp_path: Path) -> None:
    """The error is the caller's to tell; no half file stays."""
    with pytest.raises(OSError, match="nowhere"):
        write_json(tmp_path / "nowhere" / "result.json", session, NOW)
    assert list(tmp_path.iterdir()) == []
