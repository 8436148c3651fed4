"""A run that is kept: its figures and latencies; of its prompt a digest, no word."""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.replay.encoding import decode, encode
from app.safe_files import set_aside, write_whole
from engine.events import RequestMetrics


@dataclass(frozen=True, slots=True)
class PinnedRun:
    """`itl_ms` has the latency of every token after the first, in ms.

    Two runs had the same prompt where model and `prompt_sha256`, that of its ids, are the same.
    `model_path` is where its quality would be looked up.
    """

    metrics: RequestMetrics
    model_path: str
    prompt_sha256: str
    itl_ms: tuple[float, ...]

    @classmethod
    def of(
        cls,
        metrics: RequestMetrics,
        model_path: str,
        prompt_ids: array[int],
        itl_ms: Sequence[float],
    ) -> PinnedRun:
        """Keep a run that has ended. A latency that is NaN is left out."""
        kept = tuple(round(float(ms), 3) for ms in itl_ms if math.isfinite(ms))
        return cls(metrics, model_path, hashlib.sha256(prompt_ids.tobytes()).hexdigest(), kept)

    @property
    def age_key(self) -> tuple[str, int]:
        """Greater for a newer run; within a second by the clock of its start of the program."""
        return self.metrics.started_at, self.metrics.t_send_ns

    @property
    def id(self) -> str:
        """That of its request, unique everywhere."""
        return self.metrics.request_id


class PinnedRunStore:
    """The pinned runs of one folder, a file each. Every method raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load_all(self) -> tuple[list[PinnedRun], list[Path]]:
        """Every run, and the files set aside because they are damaged."""
        runs: list[PinnedRun] = []
        damaged: list[Path] = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                run: PinnedRun = decode(PinnedRun, json.loads(path.read_bytes()))
                if run.id != path.stem:
                    raise ValueError(f"{path.name} holds the run {run.id!r}")
                runs.append(run)
            except (ValueError, RecursionError):
                damaged.append(set_aside(path))
        return runs, damaged

    def save(self, run: PinnedRun) -> None:
        """Write a run so that its file is whole or not there."""
        write_whole(self._path(run.id), json.dumps(encode(run)).encode())

    def delete(self, run_id: str) -> None:
        """Remove a run's file; to undo, save the run again."""
        self._path(run_id).unlink(missing_ok=True)

    def _path(self, run_id: str) -> Path:
        if not run_id.isalnum():
            raise ValueError(f"not a request id: {run_id!r}")
        return self._folder / f"{run_id}.json"
