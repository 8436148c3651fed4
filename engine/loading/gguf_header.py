"""A walk over a GGUF header that trusts nothing: every count and length against the file's size.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little
endian. The `gguf` library supplies the type tables; its reader is not used, because it makes a
numpy view per vocabulary entry (8 s where this takes 0.3 for the starter model) and believes the
counts it reads.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from engine.loading.files import CheckpointError, bad_file, checked_size, unsupported

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_KEYS = 65_536
_MAX_TENSORS = 262_144
_MAX_DIMS = 4
_MAX_NAME_BYTES = 65_535  # the format's own limit for keys
_MAX_STRINGS = 4 * 2**20  # entries of one array; vocabularies have up to 300,000
_MAX_NUMBERS = 64 * 2**20
_MAX_ALIGNMENT = 2**20
_DEFAULT_ALIGNMENT = 32
_MIN_KEY_BYTES = 13  # empty name, type, one byte of value
_MIN_TENSOR_BYTES = 24  # empty name, no dimensions, type, offset

_SCALARS = {
    GGUFValueType.UINT8: "<u1",
    GGUFValueType.INT8: "<i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT64: "<f8",
    GGUFValueType.BOOL: "?",
}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies: `shape` in torch order, `start` in bytes from the file's begin."""

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    start: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Metadata as plain values (arrays as lists) and the tensors by their GGUF names."""

    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]
    file_bytes: int


def read_gguf_header(path: Path) -> GgufHeader:
    """The checked header of a GGUF file. Raises CheckpointError.

    Takes time and memory in proportion to the header, whatever its counts claim.
    """
    size = checked_size(path)
    try:
        with path.open("rb", buffering=2**20) as file:
            return _HeaderWalk(path, file, size).read()
    except OSError as error:
        raise bad_file(path, f"{error.strerror or error}.") from error


class _HeaderWalk:
    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self._path = path
        self._file = file
        self._size = size
        self._at = 0

    def read(self) -> GgufHeader:
        self._read_version()
        num_tensors, num_keys = self._unpack("<QQ", "the counts")
        self._check_count(num_tensors, _MAX_TENSORS, _MIN_TENSOR_BYTES, "tensors")
        self._check_count(num_keys, _MAX_KEYS, _MIN_KEY_BYTES, "metadata keys")
        metadata = self._read_metadata(num_keys)
        entries = [self._read_tensor_entry() for _ in range(num_tensors)]
        data_start = self._aligned(self._at, self._alignment(metadata))
        tensors = self._place(entries, data_start, self._alignment(metadata))
        return GgufHeader(metadata, tensors, self._size)

    def _read_version(self) -> None:
        if self._take(4, "the magic number") != _MAGIC:
            raise bad_file(self._path, "It is not a GGUF file: it does not begin with GGUF.")
        (version,) = self._unpack("<I", "the version")
        if version & 0xFFFF == 0:
            raise unsupported(
                self._path.name, "It is a big-endian GGUF file.", "Choose a little-endian one."
            )
        if version not in _VERSIONS:
            raise unsupported(
                self._path.name,
                f"It is of GGUF version {version:,}; versions 2 and 3 can be read.",
                "Choose a file made by a present converter.",
            )

    def _read_metadata(self, num_keys: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        for _ in range(num_keys):
            key = self._text(_MAX_NAME_BYTES, "a metadata key")
            if key in metadata:
                raise bad_file(self._path, f"The metadata key {key[:80]!r} comes twice.")
            (value_type,) = self._unpack("<I", f"the type of {key[:80]}")
            metadata[key] = self._value(value_type, key[:80])
        return metadata

    def _value(self, value_type: int, key: str) -> Any:
        if value_type == GGUFValueType.STRING:
            return self._text(self._size, key)
        if value_type == GGUFValueType.ARRAY:
            return self._array(key)
        return self._numbers(self._scalar_type(value_type, key), 1, key)[0]

    def _array(self, key: str) -> list[Any]:
        item_type, length = self._unpack("<IQ", f"the array {key}")
        if item_type == GGUFValueType.STRING:
            self._check_count(length, _MAX_STRINGS, 8, f"entries in {key}")
            return [self._text(self._size, key) for _ in range(length)]
        scalar = self._scalar_type(item_type, key)
        self._check_count(length, _MAX_NUMBERS, scalar.itemsize, f"entries in {key}")
        return self._numbers(scalar, length, key)

    def _scalar_type(self, value_type: int, key: str) -> np.dtype[Any]:
        name = _SCALARS.get(value_type)  # type: ignore[call-overload]
        if name is None:
            raise bad_file(self._path, f"The value of {key} has the unknown type {value_type:,}.")
        scalar: np.dtype[Any] = np.dtype(name)
        return scalar

    def _numbers(self, scalar: np.dtype[Any], count: int, what: str) -> list[Any]:
        data = self._take(scalar.itemsize * count, what)
        values: list[Any] = np.frombuffer(data, scalar).tolist()
        return values

    def _read_tensor_entry(self) -> tuple[str, tuple[int, ...], GGMLQuantizationType, int]:
        name = self._text(_MAX_NAME_BYTES, "a tensor name")
        (num_dims,) = self._unpack("<I", f"the tensor {name[:80]}")
        if not 1 <= num_dims <= _MAX_DIMS:
            raise bad_file(self._path, f"The tensor {name[:80]} has {num_dims:,} dimensions.")
        dims = self._unpack(f"<{num_dims}Q", f"the tensor {name[:80]}")
        raw_type, offset = self._unpack("<IQ", f"the tensor {name[:80]}")
        try:
            tensor_type = GGMLQuantizationType(raw_type)
        except ValueError:
            raise unsupported(
                self._path.name,
                f"The tensor {name[:80]} is of the unknown type {raw_type:,}.",
                "Choose another quantization of the model.",
            ) from None
        return name, tuple(reversed(dims)), tensor_type, offset

    def _place(
        self,
        entries: list[tuple[str, tuple[int, ...], GGMLQuantizationType, int]],
        data_start: int,
        alignment: int,
    ) -> dict[str, GgufTensor]:
        tensors: dict[str, GgufTensor] = {}
        for name, shape, tensor_type, offset in entries:
            if name in tensors:
                raise bad_file(self._path, f"The tensor {name[:80]} comes twice.")
            if offset % alignment:
                raise bad_file(self._path, f"The tensor {name[:80]} is not aligned.")
            num_bytes = self._num_bytes(name[:80], shape, tensor_type)
            tensors[name] = GgufTensor(name, tensor_type, shape, data_start + offset, num_bytes)
        self._check_extents(tensors)
        return tensors

    def _num_bytes(
        self, name: str, shape: tuple[int, ...], tensor_type: GGMLQuantizationType
    ) -> int:
        block_values, block_bytes = GGML_QUANT_SIZES[tensor_type]
        count = math.prod(shape)
        if count == 0 or shape[-1] % block_values:
            raise bad_file(
                self._path,
                f"The tensor {name} has the shape {list(shape)}, which {tensor_type.name} "
                "cannot have.",
            )
        return count // block_values * block_bytes

    def _check_extents(self, tensors: dict[str, GgufTensor]) -> None:
        placed = sorted(tensors.values(), key=lambda tensor: tensor.start)
        for before, after in pairwise(placed):
            if before.start + before.num_bytes > after.start:
                raise bad_file(
                    self._path, f"The tensors {before.name[:80]} and {after.name[:80]} overlap."
                )
        if placed and placed[-1].start + placed[-1].num_bytes > self._size:
            raise self._truncated(placed[-1].start + placed[-1].num_bytes)

    def _alignment(self, metadata: dict[str, Any]) -> int:
        value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        is_power = isinstance(value, int) and value > 0 and value & (value - 1) == 0
        if not is_power or isinstance(value, bool) or value > _MAX_ALIGNMENT:
            raise bad_file(self._path, "Its general.alignment is not a power of two.")
        return int(value)

    @staticmethod
    def _aligned(offset: int, alignment: int) -> int:
        return -(-offset // alignment) * alignment

    def _check_count(self, count: int, limit: int, least_bytes: int, what: str) -> None:
        fitting = (self._size - self._at) // least_bytes
        if count > min(limit, fitting):
            raise bad_file(
                self._path,
                f"Its header claims {count:,} {what}, more than the file can hold.",
            )

    def _text(self, limit: int, what: str) -> str:
        (length,) = self._unpack("<Q", what)
        if length > min(limit, self._size - self._at):
            raise bad_file(
                self._path,
                f"The header claims {length:,} bytes for {what}, more than the file can hold.",
            )
        # Vocabularies hold byte sequences that are no UTF-8; such an entry can never be matched.
        return self._take(length, what).decode("utf-8", errors="replace")

    def _unpack(self, layout: str, what: str) -> tuple[int, ...]:
        return struct.unpack(layout, self._take(struct.calcsize(layout), what))

    def _take(self, count: int, what: str) -> bytes:
        data = self._file.read(count)
        if len(data) < count:
            raise bad_file(
                self._path, f"The file is truncated: it ends after {self._size:,} bytes in {what}."
            )
        self._at += count
        return data

    def _truncated(self, promised: int) -> CheckpointError:
        return bad_file(
            self._path,
            f"The file is truncated: its header describes {promised:,} bytes, "
            f"it has {self._size:,}.",
        )
