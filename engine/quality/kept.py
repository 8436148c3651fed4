"""What weight formats cost models in quality, kept in a small file from one start to the next."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.config import EngineConfig
from engine.model_library.kept_rows import ModelFiles, read_rows, write_rows
from engine.quality.report import Quality

MAX_ROWS = 500


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under what was measured: only figures of the same conditions are compared."""

    text: str  # its file's name
    text_sha256: str
    tokens: int
    window: int
    stride: int
    path: str
    reference_model: str
    reference_weights: str


@dataclass(frozen=True, slots=True)
class KeptQuality:
    """A weight format's perplexity, and the reference's under the same conditions."""

    conditions: Conditions
    perplexity: float
    reference_perplexity: float

    @property
    def change(self) -> float:
        """By what share of the reference's the perplexity is higher; below 0: lower."""
        return self.perplexity / self.reference_perplexity - 1


@dataclass(frozen=True, slots=True)
class _Row:
    model: ModelFiles
    weight_format: str
    quality: KeptQuality


def keep_quality(
    file: Path, config: EngineConfig, result: Quality, text_name: str, text: str
) -> None:
    """Keep what a run with a reference has shown; of others there is nothing to compare.

    The newest counts, the oldest leave when there are MAX_ROWS.
    """
    if (
        result.reference_model is None
        or result.reference_weights is None
        or result.reference_perplexity is None
    ):
        return
    conditions = Conditions(
        text=text_name,
        text_sha256=hashlib.sha256(text.encode()).hexdigest(),
        tokens=result.tokens,
        window=result.window,
        stride=result.stride,
        path=result.path,
        reference_model=result.reference_model,
        reference_weights=result.reference_weights,
    )
    quality = KeptQuality(conditions, result.perplexity, result.reference_perplexity)
    new = _Row(ModelFiles.of(config.model_path), config.weight_format, quality)
    others = [row for row in read_rows(file, _parsed) if _place(row) != _place(new)]
    write_rows(file, [_plain(row) for row in [*others, new][-MAX_ROWS:]])


def kept_qualities(file: Path, model_path: str) -> dict[str, KeptQuality]:
    """What was measured of a model, by weight format, all under the newest run's conditions."""
    try:
        model = ModelFiles.of(model_path)
    except OSError:
        return {}
    rows = [row for row in read_rows(file, _parsed) if row.model == model]
    newest = rows[-1].quality.conditions if rows else None
    return {row.weight_format: row.quality for row in rows if row.quality.conditions == newest}


def _place(row: _Row) -> tuple[object, ...]:
    """Two rows of the same place are one figure, measured twice."""
    return row.model, row.weight_format, row.quality.conditions


def _plain(row: _Row) -> dict[str, Any]:
    return {
        "model": row.model._asdict(),
        "weight_format": row.weight_format,
        **asdict(row.quality),
    }


def _parsed(row: dict[str, Any]) -> _Row:
    model, under = row["model"], row["conditions"]
    conditions = Conditions(
        text=str(under["text"]),
        text_sha256=str(under["text_sha256"]),
        tokens=int(under["tokens"]),
        window=int(under["window"]),
        stride=int(under["stride"]),
        path=str(under["path"]),
        reference_model=str(under["reference_model"]),
        reference_weights=str(under["reference_weights"]),
    )
    perplexity, reference = float(row["perplexity"]), float(row["reference_perplexity"])
    if not (perplexity > 0 and reference > 0):
        raise ValueError("a perplexity is above 0")
    files = ModelFiles(str(model["path"]), int(model["size"]), int(model["mtime_ns"]))
    return _Row(files, str(row["weight_format"]), KeptQuality(conditions, perplexity, reference))
