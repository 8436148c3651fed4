"""The four CSV tables of a session: their columns, how a value is written, how a file grows.

The columns are a contract with scripts: they are only ever appended to.
"""

from __future__ import annotations

import csv
import io
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO

SCHEMA_VERSION = 1

REQUESTS = "requests"
TOKENS = "tokens"
SAMPLES = "samples"
STEPS = "steps"

COLUMNS: dict[str, tuple[str, ...]] = {
    REQUESTS: (
        "schema_version",
        "session_id",
        "request_id",
        "started_at",
        "model",
        "device",
        "weight_format",
        "kv_format",
        "context_length",
        "kernels",
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
        "finish_reason",
        "queue_ms",
        "ttft_ms",
        "prefill_ms",
        "prefill_tok_s",
        "decode_tok_s",
        "tpot_ms",
        "itl_p50_ms",
        "itl_p90_ms",
        "itl_p95_ms",
        "itl_p99_ms",
        "e2el_ms",
        "kv_bytes_used",
        "kv_bytes_allocated",
        "weight_bytes",
        "peak_memory_bytes",
        "temperature",
        "top_p",
        "top_k",
        "seed",
        "kv_bytes_reserved",
        "threads",
        "warmup_s",
        "use_cache",
    ),
    TOKENS: (
        "request_id",
        "index",
        "phase",
        "t_ms",
        "itl_ms",
        "token_id",
        "context_tokens",
        "kv_bytes_used",
        "paint_ms",
        "session_id",
        "t_session_ms",
        "step_id",
    ),
    SAMPLES: (
        "t_ms",
        "request_id",
        "phase",
        "gpu_util_pct",
        "gpu_mem_used_bytes",
        "gpu_power_w",
        "cpu_util_pct",
        "process_rss_bytes",
        "kv_bytes_used",
        "session_id",
        "t_session_ms",
        "device_index",
        "gpu_process_mem_bytes",
        "gpu_sm_clock_mhz",
        "gpu_mem_clock_mhz",
        "gpu_temperature_c",
        "gpu_slowed_by",
        "gpu_sm_active_pct",
        "gpu_dram_active_pct",
        "on_battery",
        "power_saving",
    ),
    STEPS: (
        "session_id",
        "step_id",
        "t_session_ms",
        "phase",
        "num_seqs",
        "num_tokens",
        "step_ms",
        "flops",
        "bytes",
        "mfu_pct",
        "mbu_pct",
    ),
}

Value = str | int | float | None


def cell(value: Value) -> str:
    """A value as it stands in a table: "." decimal, no exponent, one line, blank for no value."""
    if value is None:
        return ""
    if isinstance(value, float):
        if not math.isfinite(value):
            return ""
        return f"{value:.6f}".rstrip("0").rstrip(".")
    return str(value).replace("\r", " ").replace("\n", " ")


def lines(rows: Sequence[Sequence[Value]]) -> bytes:
    """Rows as UTF-8 CSV lines; what a file name holds that is no text becomes "?"."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([cell(value) for value in row] for row in rows)
    return text.getvalue().encode("utf-8", "replace")


def header(table: str) -> bytes:
    """The header line of a table."""
    return lines([COLUMNS[table]])


def file_of(folder: Path, table: str) -> Path:
    """Where a table lies in a folder."""
    return folder / f"{table}.csv"


def set_aside_if_foreign(path: Path, table: str) -> bool:
    """Whether `path` holds this table; a file with another header is renamed. Raises OSError."""
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as existing:
        first = existing.readline()
    if first.rstrip(b"\r\n") == header(table).rstrip(b"\n"):
        return True
    path.rename(_free_name(path))
    return False


def append(path: Path, table: str, source: IO[bytes]) -> None:
    """Add the rest of `source` to a table's file, under a header if it is new. Raises OSError.

    A last line without its end, as a crash leaves it, is ended first. All or nothing: when the
    disk is full the file is cut back to what it was.
    """
    with path.open("a+b") as file:
        size = file.seek(0, io.SEEK_END)
        try:
            file.write(_opening(file, table, size))
            shutil.copyfileobj(source, file)
            file.flush()
        except OSError:
            file.truncate(size)
            raise


def _opening(file: IO[bytes], table: str, size: int) -> bytes:
    if size == 0:
        return header(table)
    file.seek(size - 1)
    return b"" if file.read(1) == b"\n" else b"\n"


def _free_name(path: Path) -> Path:
    number = 1
    while (candidate := path.with_name(f"{path.stem}.other-{number}{path.suffix}")).exists():
        number += 1
    return candidate
