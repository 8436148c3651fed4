"""A GGUF file as a Checkpoint: tensors by Hugging Face name, one read at a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from engine.loading.files import bad_file, unsupported
from engine.loading.generation_defaults import DEFAULT_SAMPLING
from engine.loading.gguf_config import (
    GgufConfig,
    RopeFactors,
    gguf_architecture,
    gguf_eos_token_ids,
    gguf_vocabulary,
)
from engine.loading.gguf_header import GgufTensor, read_gguf_header
from engine.loading.gguf_names import canonical_name, expert_slices
from engine.loading.gguf_tokenizer import tokenizer_from_gguf
from engine.loading.model_config import MAX_HEAD_DIM, require_consistent
from engine.loading.tensors import GROUP_SIZE, Grouping, QuantizedBlocks, TensorInfo, used_tensors
from engine.models.registry import gguf_architecture as known_architecture
from engine.tokenizer import Tokenizer

Bytes = npt.NDArray[np.uint8]

_DENSE_TYPES = (
    GGMLQuantizationType.F32,
    GGMLQuantizationType.F16,
    GGMLQuantizationType.BF16,
)
_ROPE_FACTORS = {
    "plain": "rope_freqs.weight",
    "short": "rope_factors_short.weight",
    "long": "rope_factors_long.weight",
}
# "Model.Q4_K_M", "model-IQ2_XS", "model-f16", "model.UD-Q4_K_XL"
_QUANTIZATION_SUFFIX = re.compile(
    r"[-._](?:UD[-_])?(?:I?Q\d\w*|TQ\d\w*|MXFP\d\w*|B?F(?:16|32)|FP(?:16|32))$", re.IGNORECASE
)


class GgufCheckpoint:
    """Owns the parsed header and reads tensors from the file; satisfies `Checkpoint`.

    Reads into memory of its own rather than mapping the file: a file that shrinks meanwhile is
    then an error, where a mapping would kill the process.
    """

    source: Literal["gguf"] = "gguf"

    def __init__(self, path: Path) -> None:
        header = read_gguf_header(path)
        family = known_architecture(gguf_architecture(header.metadata, path))
        self._file_path = path
        self._interleaved = family.gguf_interleaves_rope
        self._stored: dict[str, GgufTensor] = {}
        for tensor in header.tensors.values():
            name = canonical_name(tensor.name, family.gguf_tensors)
            self._stored.update(expert_slices(name, tensor, path))
        infos = {name: _info(name, tensor) for name, tensor in self._stored.items()}
        self.name = display_name(path)
        self.path = str(path)
        self.file_bytes = header.file_bytes
        self.notices: tuple[str, ...] = ()
        assert family.from_gguf is not None, "the registry finds families that GGUF knows"
        factors = RopeFactors(**{kind: self._factors(name) for kind, name in _ROPE_FACTORS.items()})
        self.config = family.from_gguf(GgufConfig(header.metadata, infos, factors, path))
        require_consistent(self.config, path)
        self.tensors: Mapping[str, TensorInfo] = used_tensors(
            self.config, infos, frozenset(_ROPE_FACTORS.values()), path
        )
        for info in self.tensors.values():
            _require_readable(self._stored[info.name], path)
        self.chat_template = _template(header.metadata, path)
        self.default_sampling = DEFAULT_SAMPLING
        self._vocabulary = gguf_vocabulary(header.metadata, path)
        self._eos_token_ids = gguf_eos_token_ids(header.metadata)

    def dense(self, name: str) -> torch.Tensor:
        """The tensor, F32, F16 and BF16 as stored, any quantized type expanded to float32."""
        stored = self._stored[name]
        rows = self._read_rows(name)
        if stored.type == GGMLQuantizationType.BF16:
            values = torch.from_numpy(rows).view(torch.bfloat16)
        elif stored.type == GGMLQuantizationType.F16:
            values = torch.from_numpy(rows).view(torch.float16)
        else:
            with np.errstate(all="ignore"):  # a scale of infinity is the file's own value
                values = torch.from_numpy(dequantize(rows, stored.type))
        return values.reshape(stored.shape)

    def quantized(self, name: str) -> QuantizedBlocks | None:
        """The payload of a Q4_0, Q4_1 or Q8_0 matrix without loss; None for other types."""
        stored = self._stored[name]
        reader = _BLOCK_READERS.get(stored.type)
        if reader is None or len(stored.shape) != 2:
            return None
        num_rows, num_columns = stored.shape
        blocks = self._read_rows(name).reshape(num_rows, num_columns // GROUP_SIZE, -1)
        return reader(blocks)

    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the metadata's tables. Raises EngineError."""
        return tokenizer_from_gguf(self._vocabulary, self._eos_token_ids)

    def close(self) -> None:
        """Nothing is held open between reads."""

    def _factors(self, name: str) -> tuple[float, ...] | None:
        """A tensor of RoPE factors, None when the file has none."""
        stored = self._stored.get(name)
        if stored is None:
            return None
        valid_shape = len(stored.shape) == 1 and stored.shape[0] <= MAX_HEAD_DIM
        if stored.type == GGMLQuantizationType.F32 and valid_shape:
            factors = self.dense(name)
            if bool((torch.isfinite(factors) & (factors > 0)).all()):
                return tuple(factors.tolist())
        raise bad_file(self._file_path, f"Its tensor {name} makes no sense.")

    def _read_rows(self, name: str) -> Bytes:
        """The tensor's bytes [rows, bytes per row], Q and K rows in Hugging Face's order."""
        stored = self._stored[name]
        data = np.empty(stored.num_bytes, np.uint8)
        try:
            with self._file_path.open("rb", buffering=0) as file:
                file.seek(stored.start)
                count = _read_fully(file, data)
        except OSError as error:
            raise bad_file(self._file_path, f"{error.strerror or error}.") from error
        if count < stored.num_bytes:
            raise bad_file(self._file_path, f"It has become too short to hold {stored.name}.")
        num_rows = stored.shape[0] if self._is_rotated(name) or len(stored.shape) > 1 else 1
        rows = data.reshape(num_rows, -1)
        return rows[self._rotary_order(name)] if self._is_rotated(name) else rows

    def _is_rotated(self, name: str) -> bool:
        return self._interleaved and (".self_attn.q_proj." in name or ".self_attn.k_proj." in name)

    def _rotary_order(self, name: str) -> npt.NDArray[np.int64]:
        """GGUF rotates rows 2i and 2i + 1 together, Hugging Face i and i + head_dim / 2."""
        config = self.config
        num_heads = config.num_heads if ".q_proj." in name else config.num_kv_heads
        rows = np.arange(num_heads * config.head_dim)
        return rows.reshape(num_heads, config.head_dim // 2, 2).swapaxes(1, 2).reshape(-1)


def display_name(path: Path) -> str:
    """The file's stem without its quantization, e.g. `SmolLM2-135M-Instruct`."""
    return _QUANTIZATION_SUFFIX.sub("", path.stem) or path.stem


def _info(name: str, tensor: GgufTensor) -> TensorInfo:
    grouping = _GROUPINGS.get(tensor.type) if len(tensor.shape) == 2 else None
    return TensorInfo(name, tensor.shape, tensor.type.name, tensor.num_bytes, grouping)


def _require_readable(tensor: GgufTensor, path: Path) -> None:
    """Raise for a type that nothing expands, found out on one block of zeros."""
    if tensor.type in _DENSE_TYPES:
        return
    if len(tensor.shape) == 1:
        raise bad_file(path, f"The vector {tensor.name} is quantized as {tensor.type.name}.")
    block = np.zeros((1, GGML_QUANT_SIZES[tensor.type][1]), np.uint8)
    try:
        dequantize(block, tensor.type)
    except NotImplementedError:
        raise unsupported(
            path.name,
            f"The tensor {tensor.name} is of type {tensor.type.name}, which cannot be expanded.",
            "Choose another quantization of the model.",
        ) from None


def _template(metadata: Mapping[str, Any], path: Path) -> str | None:
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise bad_file(path, "Its tokenizer.chat_template is not a text.")
    return template or None


def _read_fully(file: Any, data: Bytes) -> int:
    """Fill `data` from an unbuffered file; returns how much there was."""
    view = data.data
    done = 0
    while done < len(view):
        count = file.readinto(view[done : done + 2**26])
        if not count:
            break
        done += count
    return done


def _half(blocks: Bytes, start: int) -> npt.NDArray[np.float16]:
    """The float16 at byte `start` of each block [N, groups, bytes]."""
    return np.ascontiguousarray(blocks[:, :, start : start + 2]).view(np.float16)[:, :, 0]


def _nibbles(packed: Bytes) -> torch.Tensor:
    """Codes [N, K] of blocks whose 16 bytes hold values 0..15 low and 16..31 high."""
    num_rows, num_groups, _ = packed.shape
    codes = np.empty((num_rows, num_groups, GROUP_SIZE), np.uint8)
    np.bitwise_and(packed, 0x0F, out=codes[:, :, : GROUP_SIZE // 2])
    np.right_shift(packed, 4, out=codes[:, :, GROUP_SIZE // 2 :])
    return torch.from_numpy(codes.reshape(num_rows, -1))


def _q4_1(blocks: Bytes) -> QuantizedBlocks:
    scale, minimum = torch.from_numpy(_half(blocks, 0)), torch.from_numpy(_half(blocks, 2))
    return QuantizedBlocks(4, _nibbles(blocks[:, :, 4:]), scale, minimum)


def _q4_0(blocks: Bytes) -> QuantizedBlocks | None:
    """value = scale * (code - 8): a minimum of -8 scale, exact in float16 short of overflow."""
    scale = torch.from_numpy(_half(blocks, 0))
    minimum = scale * -8
    if bool(torch.isinf(minimum).any()):
        return None
    return QuantizedBlocks(4, _nibbles(blocks[:, :, 2:]), scale, minimum)


def _q8_0(blocks: Bytes) -> QuantizedBlocks:
    codes = np.ascontiguousarray(blocks[:, :, 2:]).view(np.int8).reshape(blocks.shape[0], -1)
    return QuantizedBlocks(8, torch.from_numpy(codes), torch.from_numpy(_half(blocks, 0)), None)


_GROUPINGS = {
    GGMLQuantizationType.Q4_0: Grouping(4, GROUP_SIZE, has_minimum=True),
    GGMLQuantizationType.Q4_1: Grouping(4, GROUP_SIZE, has_minimum=True),
    GGMLQuantizationType.Q8_0: Grouping(8, GROUP_SIZE, has_minimum=False),
}
_BLOCK_READERS = {
    GGMLQuantizationType.Q4_0: _q4_0,
    GGMLQuantizationType.Q4_1: _q4_1,
    GGMLQuantizationType.Q8_0: _q8_0,
}
