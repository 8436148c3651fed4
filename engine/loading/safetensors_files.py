"""A Hugging Face folder as a Checkpoint: one safetensors file, or shards behind an index."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open

from engine.loading.files import (
    MAX_JSON_BYTES,
    CheckpointError,
    bad_file,
    checked_size,
    read_json,
    read_json_if_present,
    unsupported,
)
from engine.loading.generation_defaults import default_sampling, token_ids
from engine.loading.hf_config import require_config
from engine.loading.hf_names import canonical_name, is_of_other_senses, text_part
from engine.loading.model_config import expected_tensors
from engine.loading.packed.door import join_parts, packed_format
from engine.loading.safetensors_header import read_safetensors_header
from engine.loading.tensors import QuantizedBlocks, TensorInfo, used_tensors
from engine.loading.tokenizer_folder import TokenizerFolder, tokenizer_from_folder
from engine.models.registry import read_hf_config
from engine.tokenizer import Tokenizer

_SINGLE_FILE = "model.safetensors"
_INDEX_FILE = "model.safetensors.index.json"
_SHARD_NAME = re.compile(r".+-\d{5}-of-\d{5}\.safetensors")
_PICKLE_SUFFIXES = {".bin", ".pt", ".pth", ".ckpt", ".pkl"}
_WEIGHT_DTYPES = ("F32", "F16", "BF16")
_MAX_TEMPLATE_BYTES = 2**20
# Buffers that old converters saved and that follow from the config.
_BUFFER_NAMES = ("rotary_emb.inv_freq", "masked_bias", "attn.bias")


class SafetensorsCheckpoint:
    """Owns the map from tensor to file and the mapped files; satisfies `Checkpoint`.

    Parts for other senses than text (a vision tower) are left out, with a notice.
    """

    source: Literal["safetensors"] = "safetensors"

    def __init__(self, folder: Path, file: Path | None = None) -> None:
        """Open `folder`; with `file`, take the weights from that one file of it."""
        config_path = require_config(folder)
        config = read_json(config_path)
        architecture, self.config = read_hf_config(config, config_path)
        packing = packed_format(text_part(config), config_path)
        stored, files = _locate([file] if file else weight_files(folder), folder)
        other = {name for name in stored if is_of_other_senses(name)}
        self.notices = _notices(len(other))
        # By canonical name: what the tensor is called in its file, and the file.
        self._sources = {
            canonical_name(name, architecture.hf_tensors): (name, files[name])
            for name in stored
            if name not in other
        }
        found = {name: replace(stored[raw], name=name) for name, (raw, _) in self._sources.items()}
        self._handles: dict[Path, Any] = {}
        shapes = expected_tensors(self.config)
        joined = join_parts(found, shapes, packing, folder, self._read)
        self._packed = joined.matrices
        self.tensors: Mapping[str, TensorInfo] = used_tensors(
            self.config,
            joined.infos,
            _ignorable(joined.infos, self.config.tie_word_embeddings),
            folder,
            {name: path for name, (_, path) in self._sources.items()},
        )
        for info in self.tensors.values():
            if info.name not in self._packed:
                _require_weight_dtype(info, self._sources[info.name][1])
        self.name = display_name(folder)
        self.path = str(file or folder)
        self.file_bytes = sum(path.stat().st_size for path in set(files.values()))
        tokenizer_config = read_json_if_present(folder / "tokenizer_config.json")
        generation_config = read_json_if_present(folder / "generation_config.json")
        self.chat_template = _chat_template(folder, tokenizer_config)
        self.default_sampling = default_sampling(generation_config)
        self._tokenizer_folder = _tokenizer_folder(folder, tokenizer_config)
        self._eos_token_ids = token_ids(config.get("eos_token_id")) | token_ids(
            generation_config.get("eos_token_id")
        )

    def stored_name(self, name: str) -> str:
        """What a tensor is called in its file; families spell some parts in their own way."""
        return self._sources[name][0]

    def dense(self, name: str) -> torch.Tensor:
        """The tensor as stored, in the mapped file itself; packed ones as float32.

        Raises CheckpointError.
        """
        packed = self._packed.get(name)
        return self._read(name) if packed is None else packed.dense(self._read)

    def quantized(self, name: str) -> QuantizedBlocks | None:
        """The payload of a packed matrix, None for other tensors and formats without groups."""
        packed = self._packed.get(name)
        return None if packed is None else packed.quantized(self._read)

    def _read(self, name: str) -> torch.Tensor:
        stored_name, path = self._sources[name]
        try:
            tensor: torch.Tensor = self._handle(path).get_tensor(stored_name)
        except (OSError, SafetensorError, RuntimeError) as error:
            raise bad_file(path, f"{error}.") from error
        return tensor

    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the folder's tokenizer.json. Raises EngineError."""
        return tokenizer_from_folder(self._tokenizer_folder, self._eos_token_ids)

    def close(self) -> None:
        """Let go of the mapped files."""
        self._handles.clear()

    def _handle(self, path: Path) -> Any:
        if path not in self._handles:
            self._handles[path] = safe_open(path, framework="pt", device="cpu")
        return self._handles[path]


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up the folder's model. Raises CheckpointError.

    An index decides, whatever else lies beside its shards. One whose shards are all absent is
    stale, and a single model.safetensors stands in for it.
    """
    index_path, single = folder / _INDEX_FILE, folder / _SINGLE_FILE
    if index_path.exists():
        shards = sorted({folder / name for name in index_weight_map(index_path).values()})
        missing = [shard for shard in shards if not shard.exists()]
        if not missing:
            return shards
        if len(missing) < len(shards) or not single.exists():
            raise _missing_shard(index_path, missing)
    if single.exists():
        return [single]
    others = sorted(folder.glob("*.safetensors"))
    if len(others) == 1 and not _SHARD_NAME.fullmatch(others[0].name):
        return others
    raise _no_weights(folder, others)


def index_weight_map(index_path: Path) -> dict[str, str]:
    """The index's map from tensor to file name in the same folder. Raises CheckpointError."""
    weight_map = read_json(index_path, MAX_JSON_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise bad_file(index_path, "It has no weight_map.")
    for file_name in set(map(str, weight_map.values())):
        plain = file_name.endswith(".safetensors") and "\0" not in file_name
        if not plain or re.search(r"[/\\:]", file_name):
            raise bad_file(index_path, f"It names {file_name[:80]!r}, no file of its folder.")
    return {str(name): str(file_name) for name, file_name in weight_map.items()}


def is_shard(path: Path) -> bool:
    """Whether a file is named as one of several shards."""
    return _SHARD_NAME.fullmatch(path.name) is not None


def display_name(folder: Path) -> str:
    """The folder's name; in the Hugging Face cache, where that is a commit, the repository's."""
    resolved = folder.absolute()
    repository = resolved.parent.parent.name
    if resolved.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.split("--")[-1]
    return resolved.name


def no_pickle_error(path: Path) -> CheckpointError:
    """The refusal of weights that are pickled Python objects."""
    return unsupported(
        path.name,
        "Its weights are pickled (.bin, .pt), and opening a pickle can run any code.",
        "Choose the model's safetensors or GGUF version.",
    )


def is_pickle(path: Path) -> bool:
    """Whether the name is that of pickled weights."""
    return path.suffix.lower() in _PICKLE_SUFFIXES


def _locate(files: list[Path], folder: Path) -> tuple[dict[str, TensorInfo], dict[str, Path]]:
    """Every tensor of the files, each from the file that the index (if several) names for it."""
    headers = {path: read_safetensors_header(path) for path in files}
    owners: dict[str, Path] = {}
    if len(files) > 1 or is_shard(files[0]):
        for name, file_name in index_weight_map(folder / _INDEX_FILE).items():
            path = folder / file_name
            if name not in headers.get(path, {}):
                raise bad_file(
                    folder / _INDEX_FILE,
                    f"It says that {name[:80]} lies in {file_name}, which does not hold it.",
                    "Download the index and the shards again, from one version of the model.",
                )
            owners[name] = path
    for path, header in headers.items():
        for name in header:
            owners.setdefault(name, path)
    infos = {}
    for name, path in owners.items():
        entry = headers[path][name]
        infos[name] = TensorInfo(name, entry.shape, entry.dtype, entry.end - entry.begin)
    return infos, owners


def _notices(num_others: int) -> tuple[str, ...]:
    if not num_others:
        return ()
    return (
        f"{num_others:,} tensors of the checkpoint are for images or sound and are left out: "
        "the model is used for text only.",
    )


def _ignorable(found: Mapping[str, TensorInfo], tied: bool) -> frozenset[str]:
    names = {name for name in found if name.endswith(_BUFFER_NAMES)}
    if tied:
        names.add("lm_head.weight")  # the config decides, as in Hugging Face's own loading
    return frozenset(names)


def _require_weight_dtype(info: TensorInfo, path: Path) -> None:
    if info.format not in _WEIGHT_DTYPES:
        raise unsupported(
            path.name,
            f"The tensor {info.name} is stored as {info.format}; known: F32, F16, BF16.",
            "Choose an unquantized version of the model.",
        )


def _missing_shard(index_path: Path, missing: list[Path]) -> CheckpointError:
    more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
    return CheckpointError(
        "not_found",
        f"{missing[0].name}{more} was not found.",
        f"{index_path.name} says that a part of the model's weights lies there.",
        "Download the missing files into the folder.",
    )


def _no_weights(folder: Path, others: list[Path]) -> CheckpointError:
    if others:
        return bad_file(
            folder,
            f"It holds {len(others):,} safetensors files and no {_INDEX_FILE} to say which "
            "belong together.",
            "Download the index into the folder, or choose one of the files.",
        )
    if any(is_pickle(path) for path in folder.iterdir()):
        return no_pickle_error(folder)
    return bad_file(
        folder,
        "It holds no weights: no safetensors and no GGUF file.",
        "Choose a folder downloaded as a whole, or a GGUF file.",
    )


def _tokenizer_folder(folder: Path, config: Mapping[str, Any]) -> TokenizerFolder:
    special = read_json_if_present(folder / "special_tokens_map.json")

    def token(name: str) -> str | None:
        value = config.get(name) or special.get(name)
        content = value.get("content") if isinstance(value, dict) else value
        return content if isinstance(content, str) and content else None

    def choice(name: str) -> bool | None:
        value = config.get(name)
        return value if isinstance(value, bool) else None

    return TokenizerFolder(
        folder,
        token("bos_token"),
        token("eos_token"),
        choice("add_bos_token"),
        choice("add_eos_token"),
    )


def _chat_template(folder: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """From chat_template.jinja, else chat_template.json, else tokenizer_config.json."""
    path = folder / "chat_template.jinja"
    if path.exists():
        if checked_size(path) > _MAX_TEMPLATE_BYTES:
            raise bad_file(path, "It is too large for a chat template.")
        return path.read_text(encoding="utf-8", errors="replace")
    own = read_json_if_present(folder / "chat_template.json").get("chat_template")
    template = own or tokenizer_config.get("chat_template")
    if isinstance(template, list):  # several, by name
        named = {item.get("name"): item for item in template if isinstance(item, dict)}
        template = named.get("default", {}).get("template")
    return template if isinstance(template, str) and template else None
