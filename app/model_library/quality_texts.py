"""How a weight format's measured quality is put into words."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from app.telemetry.format import count
from engine.quality.kept import KeptQuality


def change_text(quality: KeptQuality) -> str:
    """By how much the perplexity is higher: "perplexity +0.1 %"."""
    return _tr("perplexity {0} %").format(f"{100 * quality.change:+,.1f}")


def quality_tip(quality: KeptQuality) -> str:
    """Both figures, and how they were measured."""
    under = quality.conditions
    text = _tr(
        "Perplexity {value} against {reference} of {model} in {weights}, over {tokens} tokens of "
        "{text} in windows of {window}, a new one every {stride}"
    )
    return text.format(
        value=f"{quality.perplexity:,.2f}",
        reference=f"{quality.reference_perplexity:,.2f}",
        model=under.reference_model,
        weights=under.reference_weights.upper(),
        tokens=count(under.tokens),
        text=under.text,
        window=count(under.window),
        stride=count(under.stride),
    )


def _tr(text: str) -> str:
    return QCoreApplication.translate("ModelLibrary", text)
