"""A tokenizer built from a GGUF file, written as tokenizer.json and read again, is the same one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers

from engine.loading.checkpoint import open_checkpoint
from engine.loading.tokenizer_export import tokenizer_json
from engine.loading.tokenizer_folder import TokenizerFolder, tokenizer_from_folder
from engine.starter import starter_model_path
from engine.tokenizer import Tokenizer
from tests.engine.rig import GOLDEN
from tests.engine.test_tokenizer import byte_level, sentencepiece

TEXTS = ("", "a", "  two  spaces ", "Grüße, 東京 🙂\n\tx1234", "<|im_start|>user\nhi<|im_end|>")


def read_again(tokenizer: Tokenizer, folder: Path) -> Tokenizer:
    """Through the file, as a safetensors folder brings it."""
    (folder / "tokenizer.json").write_text(tokenizer_json(tokenizer), encoding="utf-8")
    bos, eos = (
        tokenizer.token_text(token_id) or None
        for token_id in (tokenizer.bos_token_id, tokenizer.eos_token_id)
    )
    source = TokenizerFolder(folder, bos, eos, tokenizer.add_bos, None)
    return tokenizer_from_folder(source, tokenizer.eos_token_ids)


def starter() -> Tokenizer:
    """SmolLM2's."""
    path = starter_model_path()
    assert path is not None, "the starter model is not installed"
    return open_checkpoint(path).tokenizer()


@pytest.mark.parametrize(
    "make",
    [
        starter,
        byte_level,
        lambda: byte_level(add_bos=True, add_eos=True, eos_token_id=1),
        sentencepiece,
        lambda: sentencepiece(add_bos=False),
        lambda: sentencepiece(add_space_prefix=False),
    ],
    ids=["starter", "byte level", "framed", "sentencepiece", "no bos", "no space"],
)
def test_the_file_gives_the_same_tokenizer(make: Callable[[], Tokenizer], tmp_path: Path) -> None:
    """Ids with and without the frame, texts, and every fact that decides how it is used."""
    tokenizer = make()
    again = read_again(tokenizer, tmp_path)
    assert again.traits == tokenizer.traits
    for text in TEXTS:
        for framed in (False, True):
            ids = tokenizer.encode(text, add_special_tokens=framed)
            assert again.encode(text, add_special_tokens=framed) == ids
            assert again.decode(ids) == tokenizer.decode(ids)


def test_the_library_itself_frames_and_decodes() -> None:
    """Without our help: what other programs will do with the file."""
    tokenizer = sentencepiece()
    library = tokenizers.Tokenizer.from_str(tokenizer_json(tokenizer))
    ids = library.encode("hello é hell").ids
    assert ids == tokenizer.encode("hello é hell", add_special_tokens=True)
    assert library.decode(ids) == "hello é hell"


def test_the_starter_s_file_gives_hugging_face_s_ids() -> None:
    """The strings that transformers encoded once."""
    library = tokenizers.Tokenizer.from_str(tokenizer_json(starter()))
    stored = json.loads((GOLDEN / "smollm2_tokenizer.json").read_text(encoding="utf-8"))
    for string in stored["strings"]:
        assert library.encode(string["text"], add_special_tokens=False).ids == string["ids"]
