"""How fast models really ran on this machine, kept in a small file from one start to the next."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.config import EngineConfig
from engine.events import RequestMetrics
from engine.model_library.kept_rows import ModelFiles, read_rows, write_rows

# Fewer tokens say more about noise than about the model.
MIN_DECODED = 32
MIN_PREFILLED = 128
MAX_ENTRIES = 500


@dataclass(frozen=True, slots=True)
class SpeedKey:
    """What a measured speed belongs to: these very files, in a format, on a device."""

    path: str
    size: int
    mtime_ns: int
    weight_format: str
    device: str
    threads: int

    @classmethod
    def of(cls, config: EngineConfig, device: str, threads: int) -> SpeedKey:
        """The key of a model loaded as `config`. Raises OSError when its file is not there."""
        files = ModelFiles.of(config.model_path)
        return cls(*files, config.weight_format, device, threads)


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """Tokens a second of the last long enough answer, None for what was never long enough."""

    prefill_tok_s: float | None = None
    decode_tok_s: float | None = None

    def after(self, metrics: RequestMetrics) -> MeasuredSpeed:
        """With what an answer adds; figures of too few tokens leave the earlier ones."""
        computed = metrics.prompt_tokens - metrics.cached_tokens
        prefill = metrics.prefill_tok_s if computed >= MIN_PREFILLED else None
        decodes = metrics.use_cache and metrics.completion_tokens >= MIN_DECODED
        decode = metrics.decode_tok_s if decodes else None
        return MeasuredSpeed(prefill or self.prefill_tok_s, decode or self.decode_tok_s)


class MeasuredSpeeds:
    """Speeds by key, in one JSON file; the oldest leave when there are MAX_ENTRIES."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._speeds = dict(read_rows(file, _parsed))

    def get(self, key: SpeedKey) -> MeasuredSpeed:
        """What was measured, both figures None when nothing was."""
        return self._speeds.get(key, MeasuredSpeed())

    def add(self, key: SpeedKey, metrics: RequestMetrics) -> None:
        """Keep what an answer that ran alone has shown."""
        before = self.get(key)
        speed = before.after(metrics)
        if speed == before:
            return
        self._speeds.pop(key, None)
        self._speeds[key] = speed
        while len(self._speeds) > MAX_ENTRIES:
            del self._speeds[next(iter(self._speeds))]
        rows = [{**asdict(key), **asdict(each)} for key, each in self._speeds.items()]
        write_rows(self._file, rows)


def _parsed(row: dict[str, Any]) -> tuple[SpeedKey, MeasuredSpeed]:
    key = SpeedKey(
        str(row["path"]),
        int(row["size"]),
        int(row["mtime_ns"]),
        str(row["weight_format"]),
        str(row["device"]),
        int(row["threads"]),
    )
    rates = [row["prefill_tok_s"], row["decode_tok_s"]]
    prefill, decode = (None if rate is None else float(rate) for rate in rates)
    return key, MeasuredSpeed(prefill, decode)
