"""A sweep: choosing, under way, over with a combination left out. Its rows are scripted."""

from __future__ import annotations

from typing import Any

from app.sweep.dialog import SweepDialog
from app.sweep.sweeping import SweepRow
from engine.config import EngineConfig
from tests.fakes.window import MODEL, FakeProgram, settle, wait_until

PACES = {"fp32": 47.0, "bf16": 84.0, "int8": 121.0, "int4": 162.0}


def row(weights: str, kv: str, context: int) -> dict[str, Any]:
    """As `phasescope bench` gives it, at plausible paces."""
    pace = PACES[weights] / (1 + context / (9_000 if kv == "bf16" else 16_000))
    prefill = 700.0 + 2 * PACES[weights]
    return {
        "model": "SmolLM2-135M-Instruct",
        "device": "CPU",
        "threads": 2,
        "weights": weights,
        "kv": kv,
        "prompt_tokens": context,
        "completion_tokens": 32,
        "load_s": 0.4,
        "ttft_ms": 1e3 * context / prefill,
        "prefill_tok_s": prefill,
        "decode_tok_s": pace,
        "itl_ms": {p: 1e3 / pace * f for p, f in (("p50", 1), ("p90", 1.05), ("p95", 1.1))},
        "weight_bytes": 100_000_000,
        "kv_bytes_used": context * 23_040,
        "kv_bytes_reserved": context * 23_040,
        "peak_memory_bytes": 500_000_000,
        "kernels": "native AVX512-VNNI",
    }


def measured(weights: str, kv: str, context: int) -> SweepRow:
    """A row of the table."""
    return SweepRow(weights, kv, context, row(weights, kv, context))


def opened(program: FakeProgram) -> SweepDialog:
    """The window of the loaded model."""
    program.window.loading.load(EngineConfig(MODEL, weight_format="bf16"))
    wait_until(lambda: program.controller.model is not None)
    dialog = program.window.instruments.sweeps.open()
    assert dialog is not None
    wait_until(lambda: "take" in dialog.estimate.text())
    return dialog


def choosing(program: FakeProgram) -> None:
    """Nothing measured yet: how many there are and how long they take."""
    opened(program)
    settle(50)


def finished(program: FakeProgram) -> None:
    """Two cache formats, four contexts, one combination that did not fit."""
    dialog = opened(program)
    sweeping = program.window.instruments.sweeps.sweeping
    sweeping.plan = dialog.plan
    sweeping.rows = [
        measured(weights, kv, context)
        for weights in ("bf16", "int8", "int4")
        for kv in ("bf16", "int8")
        for context in (512, 1_024, 2_048, 4_096)
    ]
    why = "It needs 1.30 GB, and 950 MB are free."
    sweeping.rows.append(SweepRow("fp32", "fp32", 4_096, why=why))
    sweeping.changed.emit()
    dialog.table.choose(sweeping.rows[18])
    settle(50)


def running(program: FakeProgram) -> None:
    """Half of it is there."""
    dialog = opened(program)
    sweeping = program.window.instruments.sweeps.sweeping
    sweeping.plan, sweeping.running, sweeping.share = dialog.plan, True, 0.58
    sweeping.text = "weights int8, KV bf16, 2,048 tokens: run 1 of 1"
    sweeping.rows = [
        measured(*each) for each in (("bf16", "bf16", 512), ("bf16", "bf16", 2_048))
    ] + [measured("int8", "bf16", 512)]
    sweeping.changed.emit()
    settle(50)
