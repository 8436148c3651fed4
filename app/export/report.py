"""A session as one HTML file that needs nothing else: figures, tables, settings, machine."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from PySide6.QtCore import QCoreApplication, qVersion

from app.dialogs.pages import definitions, program_version
from app.export.roofline_figure import in_words, roofline
from app.export.session_data import RequestData, SessionData
from app.export.timeline_figure import timeline
from app.resources import read_text
from app.telemetry.format import (
    NO_VALUE,
    bandwidth,
    count,
    memory,
    milliseconds,
    operation_rate,
    three_digits,
)
from engine.events import ModelLoaded, RequestMetrics

TEMPLATE = "report/report.html.jinja"
MOST_FIGURES = 50

Pairs = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Section:
    """A request with its figure: `number` in the table, what was said, what the cache had."""

    number: int
    figure: Markup
    request: RequestData
    cache: str


def write_report(path: Path, session: SessionData, now: datetime) -> None:
    """Write the report, beside `path` first, so that no half file is left. Raises OSError."""
    beside = path.with_name(path.name + ".part")
    try:
        beside.write_text(report(session, now), encoding="utf-8", errors="replace")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def report(session: SessionData, now: datetime) -> str:
    """The page. Prompts and answers are in it if the session's words have them."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["tr"] = _tr
    template = environment.from_string(read_text(TEMPLATE))
    return template.render(
        title=_title(session),
        when=now.strftime("%Y-%m-%d %H:%M"),
        settings=_settings(session),
        machine=_machine(session.loaded),
        headings=_headings(),
        rows=[_row(i, r) for i, r in enumerate(session.requests, 1)],
        sections=_sections(session.requests),
        left_out=max(0, len(session.requests) - MOST_FIGURES),
        roofline=Markup(roofline(session, _tr("Roofline"))),
        roofline_words=in_words(session),
        definitions=definitions(),
    )


def _title(session: SessionData) -> str:
    names = dict.fromkeys(r.metrics.model for r in session.requests if r.metrics)
    return ", ".join(names) or (session.loaded.model.name if session.loaded else NO_VALUE)


def _settings(session: SessionData) -> Pairs:
    """Of the newest request; where earlier ones had others, all of them are named."""
    metrics = [r.metrics for r in session.requests if r.metrics]

    def each(name: str) -> str:
        values = dict.fromkeys(_plain(getattr(m, name)) for m in metrics)
        return ", ".join(values) or NO_VALUE

    return [
        (_tr("Model"), each("model")),
        (_tr("Weights"), each("weight_format")),
        (_tr("KV cache"), each("kv_format")),
        (_tr("Context length"), each("context_length")),
        (_tr("Device"), each("device")),
        (_tr("Threads"), each("threads")),
        (_tr("Kernels"), each("kernels")),
        (_tr("Temperature"), each("temperature")),
        (_tr("Top-p"), each("top_p")),
        (_tr("Top-k"), each("top_k")),
    ]


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return count(value) if isinstance(value, int) else str(value)


def _machine(loaded: ModelLoaded | None) -> Pairs:
    total = memory(psutil.virtual_memory().total).text
    cores = psutil.cpu_count(logical=False)
    result = [
        (_tr("Device"), loaded.device_name if loaded else NO_VALUE),
        (_tr("Processor"), platform.processor() or platform.machine()),
        (_tr("Cores"), _tr("{0} physical").format(count(cores))),
        (_tr("Memory"), total),
        (_tr("System"), platform.platform(terse=True)),
        (_tr("Versions"), _versions()),
    ]
    if loaded and loaded.roofs:
        roofs = loaded.roofs
        products = f"{operation_rate(roofs.matmul_flops).text} ({roofs.matmul_dtype})"
        read = bandwidth(roofs.bandwidth_at(loaded.weight_bytes)).text
        result.append((_tr("Measured matrix-product peak"), products))
        result.append((_tr("Measured read bandwidth"), read))
    return result


def _versions() -> str:
    names = [f"Phasescope {program_version()}", f"Python {platform.python_version()}"]
    with suppress(PackageNotFoundError):
        names.append(f"PyTorch {version('torch')}")
    return ", ".join([*names, f"Qt {qVersion()}"])


def _headings() -> tuple[str, ...]:
    return (
        "#",
        _tr("Prompt tokens"),
        _tr("Cached"),
        _tr("Tokens"),
        _tr("Queue"),
        "TTFT",
        _tr("Prefill, tok/s"),
        _tr("Decode, tok/s"),
        "ITL p50",
        "p90",
        "p95",
        "p99",
        _tr("KV cache"),
        _tr("Ended by"),
        _tr("Verdict"),
    )


def _row(number: int, request: RequestData) -> list[str]:
    metrics = request.metrics
    figures: list[str] = _figures(metrics) if metrics else [NO_VALUE] * 8
    return [
        str(number),
        count(request.prompt_tokens),
        count(request.cached_tokens),
        count(len(request.token_s)),
        *figures,
        memory(metrics.kv_bytes_used).text if metrics else NO_VALUE,
        request.finish_reason,
        request.words.verdict or NO_VALUE,
    ]


def _figures(metrics: RequestMetrics) -> list[str]:
    return [
        milliseconds(metrics.queue_ms).text,
        milliseconds(metrics.ttft_ms).text,
        three_digits(metrics.prefill_tok_s),
        three_digits(metrics.decode_tok_s),
        milliseconds(metrics.itl_p50_ms).text,
        milliseconds(metrics.itl_p90_ms).text,
        milliseconds(metrics.itl_p95_ms).text,
        milliseconds(metrics.itl_p99_ms).text,
    ]


def _sections(requests: Sequence[RequestData]) -> list[_Section]:
    return [
        _Section(i, Markup(timeline(r, _tr("Request {0}").format(i))), r, _cache(r))
        for i, r in enumerate(requests[:MOST_FIGURES], 1)
    ]


def _cache(request: RequestData) -> str:
    """What the cache had of the prompt and what it held at the end, in words."""
    parts = []
    if request.prompt_tokens:
        share = three_digits(100.0 * request.cached_tokens / request.prompt_tokens)
        text = _tr("The cache had {0} of {1} prompt tokens ({2} %).")
        cached, prompt = count(request.cached_tokens), count(request.prompt_tokens)
        parts.append(text.format(cached, prompt, share))
    if len(request.kv_used):
        text = _tr("At the end {0} were used of {1} in whole blocks.")
        used, allocated = float(request.kv_used[-1]), float(request.kv_allocated[-1])
        parts.append(text.format(memory(used).text, memory(allocated).text))
    return " ".join(parts)


def _tr(text: str) -> str:
    return QCoreApplication.translate("Report", text)
