"""What the makers of golden files share: versions, margins, JSON with a row a line."""

from __future__ import annotations

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

LIBRARIES = ("torch", "transformers", "tokenizers", "gguf", "safetensors", "numpy")


def library_versions() -> dict[str, str]:
    """Exact versions of everything that had a part in the numbers."""
    return {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES}


def top2_margins(logits: torch.Tensor) -> torch.Tensor:
    """Largest minus second largest logit; `[..., vocab]` -> `[...]`."""
    best = logits.topk(2, dim=-1).values
    return best[..., 0] - best[..., 1]


def rounded(values: torch.Tensor, digits: int = 6) -> list[float]:
    """A 1-d tensor as short decimals for JSON."""
    return [round(value, digits) for value in values.tolist()]


def write_rows(
    path: Path, header: dict[str, Any], rows_key: str, rows: list[dict[str, Any]]
) -> None:
    """A JSON object whose list `rows_key` has one line a row, so that diffs stay readable."""
    lines = [json.dumps(key) + ": " + json.dumps(value) + "," for key, value in header.items()]
    body = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    text = "{\n" + "\n".join(lines) + f"\n{json.dumps(rows_key)}: [\n{body}\n]\n}}\n"
    path.write_text(text, encoding="utf-8")
    print(f"  {path.name}: {path.stat().st_size:,} bytes")
