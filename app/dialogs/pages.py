"""The pages behind the Help menu."""

from __future__ import annotations

from html import escape
from importlib.metadata import PackageNotFoundError, version

from PySide6.QtCore import QCoreApplication, qVersion
from PySide6.QtGui import QKeySequence

from app.actions import MENUS, ActionSpec, plain

PROJECT = "phasescope"


def program_version() -> str:
    """The installed version, "unknown" when run from loose files."""
    try:
        return version(PROJECT)
    except PackageNotFoundError:
        return "unknown"


def definitions() -> tuple[tuple[str, str, str], ...]:
    """What each figure means: its name, its formula, its meaning."""
    return (
        (
            _tr("Time to first token (TTFT)"),
            "t1 − t_send",
            _tr("From Send to the first token; felt as the wait. Loading is not part of it."),
        ),
        (
            _tr("Queue"),
            _tr("first scheduled − t_send"),
            _tr("Waiting for other answers before the prompt is read."),
        ),
        (
            _tr("Prefill rate"),
            _tr("computed prompt tokens ÷ prefill time"),
            _tr("How fast the prompt is read; tokens found in the cache do not count."),
        ),
        (
            _tr("Inter-token latency (ITL)"),
            "t_i − t_(i−1)",
            _tr("Time between two tokens; felt as the pace. The first token is not part of it."),
        ),
        ("TPOT", "(t_N − t_1) ÷ (N − 1)", _tr("Mean time per token after the first.")),
        (
            _tr("Decode rate"),
            "(N − 1) ÷ (t_N − t_1)",
            _tr("Tokens a second while the answer streams."),
        ),
        (
            "p50, p95",
            _tr("linear interpolation"),
            _tr("Half, or 95 %, of the inter-token latencies are at most this long."),
        ),
        (
            _tr("KV cache used"),
            _tr("tokens × bytes per token"),
            _tr("What this chat's keys and values take in all layers."),
        ),
        (
            _tr("KV cache allocated"),
            _tr("blocks × bytes per block"),
            _tr("Whole blocks held; what is above used is unused room in the last one."),
        ),
        (
            _tr("KV cache reserved"),
            _tr("the whole pool"),
            _tr("What the context length costs from the start."),
        ),
        (
            _tr("Compute (MFU)"),
            _tr("FLOPs ÷ step time ÷ peak"),
            _tr("Share of this machine's measured matrix-product peak; high in prefill."),
        ),
        (
            _tr("Bandwidth (MBU)"),
            _tr("bytes ÷ step time ÷ peak"),
            _tr("Share of this machine's measured read bandwidth; high in decode."),
        ),
        (
            _tr("Roofline"),
            _tr("FLOPs ÷ step time, over FLOPs ÷ bytes"),
            _tr(
                "A step lies under the compute roof where MFU is the larger one of MFU and MBU, "
                "else under the bandwidth roof; the larger one is its share of that roof."
            ),
        ),
        (
            _tr("Device utilization"),
            _tr("as the driver reports it"),
            _tr("Share of its last sample period in which anything ran; it cannot see a token."),
        ),
    )


def metrics_page() -> str:
    """The definitions as a table."""
    cells = (
        f"<tr><td><span class='term'>{escape(name)}</span><br><code>{escape(formula)}</code></td>"
        f"<td>{escape(meaning)}</td></tr>"
        for name, formula, meaning in definitions()
    )
    clock = _tr("Every time is stamped in the engine, when the token is known; painting is apart.")
    return f"<p class='quiet'>{escape(clock)}</p><table>{''.join(cells)}</table>"


def shortcuts_page() -> str:
    """All shortcuts, by menu."""
    parts = []
    for title, entries in MENUS:
        specs = [e for e in entries if isinstance(e, ActionSpec) and e.shortcuts]
        rows = "".join(_shortcut_row(spec) for spec in specs)
        if rows:
            parts.append(f"<h2>{escape(plain(title))}</h2><table>{rows}</table>")
    enter = _tr("In the composer: Enter sends, Shift+Enter begins a new line.")
    return f"<p class='quiet'>{escape(enter)}</p>{''.join(parts)}"


def about_page() -> str:
    """Version, licences of the program and of what it brings along."""
    what = _tr("A chat window that shows prefill turning into decode while a model answers.")
    licences = (
        ("Phasescope", "Apache-2.0"),
        ("Inter", "SIL Open Font License 1.1"),
        ("JetBrains Mono", "SIL Open Font License 1.1"),
        ("Qt, PySide6", "LGPL-3.0"),
        ("pyqtgraph, markdown-it-py", "MIT"),
        ("PyTorch, Jinja, Pygments, psutil", "BSD"),
        ("tokenizers, safetensors, huggingface_hub, SmolLM2-135M-Instruct", "Apache-2.0"),
    )
    rows = "".join(f"<tr><td>{escape(a)}</td><td>{escape(b)}</td></tr>" for a, b in licences)
    return (
        f"<h2>Phasescope {escape(program_version())}</h2><p>{escape(what)}</p>"
        f"<p class='quiet'>Qt {escape(qVersion())}</p>"
        f"<h2>{escape(_tr('Licences'))}</h2><table>{rows}</table>"
    )


def _shortcut_row(spec: ActionSpec) -> str:
    keys = QKeySequence(spec.shortcuts[0]).toString(QKeySequence.SequenceFormat.NativeText)
    return f"<tr><td><code>{escape(keys)}</code></td><td>{escape(plain(spec.text))}</td></tr>"


def _tr(text: str) -> str:
    return QCoreApplication.translate("HelpPages", text)
