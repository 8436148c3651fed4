"""What the roofline shows, said in words: the phases' places under the roofs, and a single step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QCoreApplication

from app.model_menus import FORMAT_NAMES
from app.run_bar import run_values
from app.telemetry.format import (
    bandwidth,
    count,
    memory,
    milliseconds,
    operation_rate,
    operations,
    three_digits,
)
from app.telemetry.step_points import StepPoints
from engine.events import ModelLoaded
from engine.peaks import Roofs


@dataclass(frozen=True, slots=True)
class PhasePlace:
    """Where a phase lies: medians over its steps. `roof_pct`: share of the roof above it, in %."""

    intensity: float
    rate: float
    roof_pct: float
    under_bandwidth: bool
    tokens: float  # a step


def place(points: StepPoints) -> PhasePlace | None:
    """The middle of some steps, None of none."""
    if not len(points):
        return None
    mfu, mbu = float(np.median(points.mfu_pct)), float(np.median(points.mbu_pct))
    return PhasePlace(
        intensity=float(np.median(points.intensity)),
        rate=float(np.median(points.rate)),
        roof_pct=max(mfu, mbu),
        under_bandwidth=mbu >= mfu,
        tokens=float(np.median(points.num_tokens)),
    )


def headline(prefill: PhasePlace | None, decode: PhasePlace | None) -> str:
    """Under which roof the phases of an answer lie."""
    if prefill is None and decode is None:
        return _tr("Each step against what this machine can do")
    if prefill is None or decode is None:
        return _one_phase(prefill, decode)
    match prefill.under_bandwidth, decode.under_bandwidth:
        case False, True:
            return _tr("Prefill under the compute roof, decode under the bandwidth roof")
        case True, True:
            return _tr("Prefill and decode both under the bandwidth roof")
        case False, False:
            return _tr("Prefill and decode both under the compute roof")
        case _:
            return _tr("Prefill under the bandwidth roof, decode under the compute roof")


def _one_phase(prefill: PhasePlace | None, decode: PhasePlace | None) -> str:
    if prefill is not None:
        if prefill.under_bandwidth:
            return _tr("Prefill under the bandwidth roof")
        return _tr("Prefill under the compute roof")
    if decode is not None and decode.under_bandwidth:
        return _tr("Decode under the bandwidth roof")
    return _tr("Decode under the compute roof")


def shares(prefill: PhasePlace | None, decode: PhasePlace | None) -> str:
    """How near the phases come to their roofs, a line each."""
    sentences = []
    if prefill is not None:
        sentences.append(_share(_tr("Prefill"), prefill))
    if decode is not None:
        sentences.append(_share(_tr("Decode"), decode))
    return "\n".join(sentences)


def _share(name: str, phase: PhasePlace) -> str:
    text = _tr("{phase}, {tokens} a step, reaches {share} % of what matrix products give here.")
    if phase.under_bandwidth:
        text = _tr("{phase}, {tokens} a step, reaches {share} % of what memory gives here.")
    return text.format(
        phase=name, tokens=_tokens(round(phase.tokens)), share=_percent(phase.roof_pct)
    )


def describe(points: StepPoints, index: int) -> tuple[str, str]:
    """One step in two lines: what it did in how long, and how far from its roof that is."""
    done = _tr("{phase}: {tokens} in {time}, {flops} over {bytes}").format(
        phase=_phase(points, index),
        tokens=_tokens(int(points.num_tokens[index])),
        time=milliseconds(1e3 * float(points.step_s[index])).text,
        flops=operations(float(points.flops[index])).text,
        bytes=memory(float(points.bytes[index])).text,
    )
    roof = _tr("{share} % of the compute roof")
    if points.under_bandwidth[index]:
        roof = _tr("{share} % of the bandwidth roof")
    reached = _tr("{rate} at {intensity} FLOP/byte: {roof}").format(
        rate=operation_rate(float(points.rate[index])).text,
        intensity=three_digits(float(points.intensity[index])),
        roof=roof.format(share=_percent(float(points.roof_pct[index]))),
    )
    return done, reached


def _phase(points: StepPoints, index: int) -> str:
    if points.is_mixed[index]:
        return _tr("Prefill and decode together")
    name = _tr("Prefill step") if points.is_prefill[index] else _tr("Decode step")
    chats = int(points.num_seqs[index])
    return name if chats < 2 else _tr("{0} of {1} chats").format(name, count(chats))


def compute_roof(roofs: Roofs) -> tuple[str, str]:
    """The flat roof's figure, and what it is of."""
    dtype = FORMAT_NAMES.get(roofs.matmul_dtype, roofs.matmul_dtype.upper())
    return operation_rate(roofs.matmul_flops).text, _tr("{0} products").format(dtype)


def bandwidth_roof(rate: float, working_set: int) -> tuple[str, str]:
    """The sloped roof's figure, and what it is of."""
    return bandwidth(rate).text, _tr("reading {0}").format(memory(working_set).text)


def ridge(intensity: float) -> str:
    """Where the roofs meet."""
    return _tr("ridge, {0} FLOP/byte").format(three_digits(intensity))


def subtitle(matmul_flops: float) -> tuple[str, str]:
    """The plot's unit in full and in short."""
    _, unit = rate_unit(matmul_flops)
    return _tr("{0} over FLOP/byte, both axes logarithmic").format(unit), unit


def facts(loaded: ModelLoaded) -> str:
    """What ran on what."""
    values = run_values(loaded, loaded.config)
    threads = loaded.threads
    return _tr("{model}, weights {weights}, KV cache {kv}; {device}, {threads}").format(
        model=values.model,
        weights=values.weights,
        kv=values.kv,
        device=loaded.device_name,
        threads=_tr("1 thread") if threads == 1 else _tr("{0} threads").format(threads),
    )


def origin(roofs: Roofs) -> str:
    """Where the roofs are from, and whether to trust them."""
    if roofs.peaks.is_quiet:
        return _tr("roofs measured on this machine")
    return _tr("roofs measured while other programs were busy; reload to measure again")


def rate_unit(matmul_flops: float) -> tuple[float, str]:
    """The rate axis' unit, by the height of its roof: its FLOP/s and its name."""
    return (1e12, "TFLOP/s") if matmul_flops >= 1e13 else (1e9, "GFLOP/s")


def tick_text(value: float) -> str:
    """A round number without zeros behind it."""
    return f"{value:,.0f}" if value >= 1 else f"{value:.6f}".rstrip("0")


def intensity_tick(value: str) -> str:
    """The last tick of the intensity axis, with the unit."""
    return _tr("{0} FLOP/byte").format(value)


def zones() -> tuple[str, str]:
    """What limits a step left of the ridge, and right of it."""
    return _tr("limited by bandwidth"), _tr("limited by compute")


def place_label(is_prefill: bool, phase: PhasePlace) -> str:
    """A phase's share of its roof, beside its dots."""
    text = _tr("prefill, {0} %") if is_prefill else _tr("decode, {0} %")
    return text.format(_percent(phase.roof_pct))


def _tokens(number: int) -> str:
    return _tr("1 token") if number == 1 else _tr("{0} tokens").format(count(number))


def _percent(value: float) -> str:
    """Whole percents: a step's time does not tell more."""
    return f"{value:.0f}" if value >= 1 else three_digits(value)


def _tr(text: str) -> str:
    return QCoreApplication.translate("Roofline", text)
