"""What a checkpoint brings for its tokenizer, before it is made into one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """The `tokenizer.ggml.*` tables. `add_bos` None: the file is silent, the model kind decides.

    `token_types` are `gguf.TokenType` values; ids index `tokens`, `token_types` and `scores`.
    """

    model: str
    pre_tokenizer: str
    tokens: tuple[str, ...]
    token_types: tuple[int, ...]
    scores: tuple[float, ...]
    merges: tuple[str, ...]
    bos_token_id: int | None
    eos_token_id: int | None
    unknown_token_id: int | None
    add_bos: bool | None
    add_eos: bool
    add_space_prefix: bool


@dataclass(frozen=True, slots=True)
class TokenizerFolder:
    """A folder with a tokenizer.json; `bos_token`, `eos_token` as tokenizer_config.json has them.

    `add_bos`, `add_eos` are the config's explicit choice, None when it makes none.
    """

    folder: Path
    bos_token: str | None
    eos_token: str | None
    add_bos: bool | None
    add_eos: bool | None


TokenizerSource: TypeAlias = GgufVocabulary | TokenizerFolder
