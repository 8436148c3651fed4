"""The header of a safetensors file, checked in full before the library maps the file.

The format: https://huggingface.co/docs/safetensors, eight bytes of header length, a JSON object of
`{name: {dtype, shape, data_offsets}}`, then the tensors' bytes back to back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.loading.files import bad_file, checked_size, parse_json_object

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 32 * 2**20  # the largest shards known take 2 MB
_MAX_DIMS = 8
_ITEM_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E5M2": 1,
    "F8_E4M3": 1,
    "F8_E8M0": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
}


@dataclass(frozen=True, slots=True)
class SafetensorsEntry:
    """One tensor of a file: dtype as the format spells it, bytes [begin, end) of the data."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read_safetensors_header(path: Path) -> dict[str, SafetensorsEntry]:
    """The tensors of one file. Raises CheckpointError for anything that does not add up."""
    size = checked_size(path)
    header = _header_object(path, size)
    header.pop("__metadata__", None)
    entries = {name: _entry(path, name, value) for name, value in header.items()}
    _check_extents(path, entries, size)
    return entries


def _header_object(path: Path, size: int) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            prefix = file.read(_LENGTH_BYTES)
            length = int.from_bytes(prefix, "little")
            if len(prefix) < _LENGTH_BYTES or length > size - _LENGTH_BYTES:
                raise bad_file(
                    path,
                    f"The file is truncated or no safetensors file: its header would take "
                    f"{length:,} bytes, the file has {size:,}.",
                )
            if length > _MAX_HEADER_BYTES:
                raise bad_file(path, f"Its header claims {length:,} bytes, too many to be one.")
            return parse_json_object(file.read(length))
    except OSError as error:
        raise bad_file(path, f"{error.strerror or error}.") from error
    except ValueError as error:
        raise bad_file(path, f"Its header is not valid JSON: {error}.") from error


def _entry(path: Path, name: str, value: object) -> SafetensorsEntry:
    def broken(why: str) -> Exception:
        return bad_file(path, f"The header entry of {name[:80]} {why}.")

    if not isinstance(value, dict):
        raise broken("is not an object")
    dtype: Any = value.get("dtype")
    shape: Any = value.get("shape")
    offsets: Any = value.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _ITEM_BYTES:
        raise broken(f"has the unknown dtype {str(dtype)[:40]!r}")
    if not _is_naturals(shape) or len(shape) > _MAX_DIMS:
        raise broken("has no valid shape")
    if not _is_naturals(offsets) or len(offsets) != 2:
        raise broken("has no valid data_offsets")
    begin, end = offsets
    if end - begin != math.prod(shape) * _ITEM_BYTES[dtype]:
        raise broken(f"covers {end - begin:,} bytes, which do not fit {dtype} {shape}")
    return SafetensorsEntry(dtype, tuple(shape), begin, end)


def _is_naturals(values: Any) -> bool:
    """A list of whole numbers of at most 64 bits."""
    return isinstance(values, list) and all(
        isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 2**63
        for item in values
    )


def _check_extents(path: Path, entries: dict[str, SafetensorsEntry], size: int) -> None:
    """The tensors must lie back to back and end with the file."""
    with path.open("rb") as file:
        data_start = _LENGTH_BYTES + int.from_bytes(file.read(_LENGTH_BYTES), "little")
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            relation = "overlaps another" if entry.begin < end else "leaves a gap before it"
            raise bad_file(path, f"The tensor {name[:80]} {relation}.")
        end = entry.end
    if data_start + end > size:
        raise bad_file(
            path,
            f"The file is truncated: its header describes {data_start + end:,} bytes, "
            f"it has {size:,}.",
        )
    if data_start + end < size:
        raise bad_file(path, f"It has {size - data_start - end:,} bytes that belong to no tensor.")
