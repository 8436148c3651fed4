"""Tokenizers of both formats against known ids and Hugging Face's own."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from engine.loading.checkpoint import CheckpointError, open_checkpoint
from engine.loading.gguf_tokenizer import GgufVocabulary, tokenizer_from_gguf
from engine.loading.tokenizer_folder import TokenizerFolder, tokenizer_from_folder
from engine.starter import starter_model_path
from engine.tokenizer import Tokenizer, byte_level_bytes

GOLDEN = Path(__file__).parents[1] / "golden"
# SmolLM2 has no tokens for some control characters and for the unassigned planes.
PRINTABLE = st.characters(max_codepoint=0x1FFFF, categories=["L", "M", "N", "P", "S", "Zs"])
UNTIMED = settings(deadline=None)  # the machine may be busy
NORMAL, UNKNOWN, CONTROL, USER, _, BYTE = range(1, 7)


@pytest.fixture(scope="module")
def smollm2() -> Tokenizer:
    """The starter's tokenizer, built from its GGUF."""
    path = starter_model_path()
    assert path is not None
    return open_checkpoint(path).tokenizer()


@pytest.mark.starter
def test_smollm2_ids_are_those_of_hugging_face(smollm2: Tokenizer) -> None:
    """Whitespace runs, digits, emoji, scripts, code and special tokens, id by id."""
    strings = json.loads((GOLDEN / "smollm2_tokenizer.json").read_text("utf-8"))["strings"]
    assert len(strings) >= 30
    for case in strings:
        assert smollm2.encode(case["text"], add_special_tokens=False) == case["ids"], case["text"]


@pytest.mark.starter
def test_smollm2_facts(smollm2: Tokenizer) -> None:
    """End tokens, no BOS, size, and special tokens that are none of the text."""
    assert smollm2.eos_token_ids == {2}
    assert (smollm2.bos_token_id, smollm2.add_bos, smollm2.vocab_size) == (1, False, 49152)
    assert smollm2.token_text(1) == "<|im_start|>"
    ids = smollm2.encode("<|im_start|>user\nHi<|im_end|>", add_special_tokens=True)
    assert (ids[0], ids[-1]) == (1, 2)
    assert smollm2.is_special(2)
    assert smollm2.decode(ids) == "user\nHi"


@pytest.mark.starter
@UNTIMED
@given(text=st.text(PRINTABLE, max_size=60))
def test_smollm2_round_trip(smollm2: Tokenizer, text: str) -> None:
    """Any printable text comes back from its ids."""
    assert smollm2.decode(smollm2.encode(text, add_special_tokens=False)) == text


@pytest.mark.starter
@UNTIMED
@given(ids=st.lists(st.integers(17, 49151), max_size=30))
def test_smollm2_decodes_like_the_library(smollm2: Tokenizer, ids: list[int]) -> None:
    """For any ids, valid text or not, our bytes make what the library's decoder makes."""
    library = smollm2._backend.decode(ids, skip_special_tokens=True)
    assert smollm2.decode(ids) == library


@pytest.mark.starter
def test_long_text_leaves_other_threads_running(smollm2: Tokenizer) -> None:
    """A megabyte encodes in seconds, and without holding the interpreter all the while."""
    beats = 0
    done = threading.Event()

    def beat() -> None:
        nonlocal beats
        while not done.wait(0.005):
            beats += 1

    thread = threading.Thread(target=beat)
    thread.start()
    started = time.perf_counter()
    ids = smollm2.encode("The year 2024 was long. " * 20_000, add_special_tokens=False)
    elapsed = time.perf_counter() - started
    done.set()
    thread.join()
    assert len(ids) > 100_000
    assert elapsed < 10
    assert beats > elapsed / 0.1


def byte_level(**changes: Any) -> Tokenizer:
    """A byte-level tokenizer of letters, digits, one merge, a control and a user token."""
    tokens = [
        "<|bos|>",
        "<|im_end|>",
        "<tool call>",
        *"abc123",
        "ab",
        "12",
        "\u0120",
        "\u00c4",
        "\u0131",
    ]
    types = [CONTROL, CONTROL, USER] + [NORMAL] * (len(tokens) - 3)
    values: dict[str, Any] = {
        "model": "gpt2",
        "pre_tokenizer": "gpt-2",
        "tokens": tuple(tokens),
        "token_types": tuple(types),
        "scores": (0.0,) * len(tokens),
        "merges": ("a b", "1 2"),
        "bos_token_id": 0,
        "eos_token_id": None,
        "unknown_token_id": None,
        "add_bos": None,
        "add_eos": False,
        "add_space_prefix": True,
    }
    return tokenizer_from_gguf(GgufVocabulary(**values | changes), frozenset())


def texts(tokenizer: Tokenizer, text: str) -> list[str]:
    """The tokens of a text as the vocabulary writes them."""
    return [tokenizer.token_text(i) for i in tokenizer.encode(text, add_special_tokens=False)]


@pytest.mark.parametrize(
    ("pre_tokenizer", "expected"),
    [
        ("gpt-2", ["12", "3"]),
        ("default", ["12", "3"]),
        ("smollm", ["1", "2", "3"]),
        ("llama-bpe", ["12", "3"]),
        ("qwen2", ["1", "2", "3"]),
    ],
)
def test_pre_tokenizers_cut_digits_as_they_should(pre_tokenizer: str, expected: list[str]) -> None:
    """Where digits stay apart no merge can join them."""
    assert texts(byte_level(pre_tokenizer=pre_tokenizer), "123") == expected


def test_llama3_digits_go_by_three() -> None:
    """Groups of up to three digits: the fourth begins anew."""
    assert texts(byte_level(pre_tokenizer="llama-bpe"), "11212") == ["1", "12", "12"]
    assert texts(byte_level(pre_tokenizer="gpt-2"), "11212") == ["1", "12", "12"]
    assert texts(byte_level(pre_tokenizer="llama-bpe"), "33312") == ["3", "3", "3", "12"]
    assert texts(byte_level(pre_tokenizer="llama-bpe"), "3312") == ["3", "3", "1", "2"]


def test_unknown_pre_tokenizer_is_refused_by_name() -> None:
    """Cutting text another way than in training gives wrong tokens without a sign of it."""
    with pytest.raises(CheckpointError, match=r"'klingon'.*Known: .*llama-bpe"):
        byte_level(pre_tokenizer="klingon")


def test_unknown_model_is_refused_by_name() -> None:
    """WordPiece and others are not guessed at."""
    with pytest.raises(CheckpointError, match="'bert'"):
        byte_level(model="bert")


@pytest.mark.parametrize("merges", [(), ("ab",), ("a zz",)])
def test_broken_merges_are_refused(merges: tuple[str, ...]) -> None:
    """No merges, one without a space, one of unknown halves."""
    with pytest.raises(Exception, match="broken"):
        byte_level(merges=merges)


def test_user_defined_tokens_are_whole_and_part_of_the_text() -> None:
    """They are found in the text and, unlike control tokens, come back from it."""
    tokenizer = byte_level()
    assert texts(tokenizer, "a<tool call>b") == ["a", "<tool call>", "b"]
    ids = tokenizer.encode("a<tool call>b<|im_end|>", add_special_tokens=False)
    assert tokenizer.decode(ids) == "a<tool call>b"


def test_end_of_turn_token_ends_answers() -> None:
    """<|im_end|> as a control token is an end token though no field says so."""
    assert byte_level().eos_token_ids == {1}


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({}, 3),
        ({"add_bos": True}, 0),
        ({"pre_tokenizer": "llama-bpe"}, 0),
        ({"pre_tokenizer": "llama-bpe", "add_bos": False}, 3),
    ],
)
def test_bos_is_added_as_the_file_or_the_kind_says(changes: dict[str, Any], first: int) -> None:
    """The flag decides; without one, Llama 3's kind wants a BOS and GPT-2's none."""
    tokenizer = byte_level(**changes)
    assert tokenizer.encode("a", add_special_tokens=True)[0] == first
    assert tokenizer.add_bos == (first == 0)


def test_half_a_character_is_bytes() -> None:
    """A byte-level entry of one byte of two has that byte and no text of its own."""
    tokenizer = byte_level()
    first, second = tokenizer.token_id("\u00c4"), tokenizer.token_id("\u0131")
    assert first is not None
    assert second is not None
    assert tokenizer.token_bytes(first) == b"\xc4"
    assert tokenizer.token_bytes(second) == b"\x8f"
    assert tokenizer.decode([first]) == "\ufffd"
    assert tokenizer.decode([first, second]) == "ď"


def test_ids_without_a_token_are_silent() -> None:
    """Models pad their vocabulary; such an id, if ever sampled, prints nothing."""
    assert byte_level().decode([3, 10_000, 4]) == "ab"
    assert byte_level().token_text(None) == ""


def test_lone_surrogates_are_replaced() -> None:
    """Half of a UTF-16 pair, as a text field can hand over, does not stop the encoder."""
    assert byte_level().encode("a\ud83d", add_special_tokens=False)[0] == 3
    assert byte_level().encode("\ud83d\ude00a", add_special_tokens=False)[-1] == 3


def test_byte_alphabet_is_the_library_s() -> None:
    """Each of tokenizers' 256 characters stands for a byte, ASCII for what it spells there."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    assert {byte_level_bytes(character) for character in alphabet} == {
        bytes([byte]) for byte in range(256)
    }
    byte_level_split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    for byte in range(128):
        [(spelled, _)] = byte_level_split.pre_tokenize_str(chr(byte))
        assert byte_level_bytes(spelled) == bytes([byte])


SP_TOKENS = [
    ("<unk>", UNKNOWN, 0.0), ("<s>", CONTROL, 0.0), ("</s>", CONTROL, 0.0),
    *((f"<0x{byte:02X}>", BYTE, 0.0) for byte in range(256)),
    ("▁he", NORMAL, -1.0), ("▁hell", NORMAL, -2.0), ("he", NORMAL, -3.0), ("ll", NORMAL, -4.0),
    ("▁hello", NORMAL, -5.0), ("lo", NORMAL, -6.0),
    *((letter, NORMAL, -50.0 - i) for i, letter in enumerate("▁helo")),
]  # fmt: skip


def sentencepiece(**changes: Any) -> Tokenizer:
    """A SentencePiece tokenizer with byte fallback."""
    values: dict[str, Any] = {
        "model": "llama",
        "pre_tokenizer": "default",
        "tokens": tuple(token for token, _, _ in SP_TOKENS),
        "token_types": tuple(kind for _, kind, _ in SP_TOKENS),
        "scores": tuple(score for _, _, score in SP_TOKENS),
        "merges": (),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "add_bos": None,
        "add_eos": False,
        "add_space_prefix": True,
    }
    return tokenizer_from_gguf(GgufVocabulary(**values | changes), frozenset({2}))


def test_sentencepiece_takes_the_best_score_first() -> None:
    """Merges follow the scores: ▁he before ll and lo, then ▁hell, then ▁hello."""
    assert texts(sentencepiece(), "hello") == ["▁hello"]
    assert texts(sentencepiece(), "hello hell") == ["▁hello", "▁hell"]
    assert texts(sentencepiece(add_space_prefix=False), "hello") == ["he", "ll", "o"]


def test_sentencepiece_falls_back_to_bytes() -> None:
    """A character without a piece is its UTF-8 bytes, and comes back from them."""
    tokenizer = sentencepiece()
    assert texts(tokenizer, "é")[-2:] == ["<0xC3>", "<0xA9>"]
    for text in ("hello é 漢", " hello", "  hello ", "\nhe"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=True)) == text


def test_sentencepiece_frame_and_continuation() -> None:
    """BOS is wanted; a continuation gets no space before it."""
    tokenizer = sentencepiece()
    assert tokenizer.add_bos
    assert tokenizer.encode("hello", add_special_tokens=True)[0] == 1
    continued = [tokenizer.token_text(i) for i in tokenizer.encode_continuation("hello hello")]
    assert continued == ["he", "ll", "o", "▁hello"]
    assert byte_level().encode_continuation("ab") == byte_level().encode("ab", False)


def write_tokenizer(folder: Path, backend: tokenizers.Tokenizer) -> TokenizerFolder:
    """A folder with the tokenizer and BOS and EOS in its config."""
    backend.save(str(folder / "tokenizer.json"))
    return TokenizerFolder(folder, "<s>", "</s>", None, None)


def llama2_backend() -> tokenizers.Tokenizer:
    """The layout of Llama 2's tokenizer.json, with the test's SentencePiece vocabulary."""
    vocabulary = {token: i for i, (token, _, _) in enumerate(SP_TOKENS)}
    merges = [("h", "e"), ("l", "l"), ("▁", "he"), ("▁he", "ll"), ("▁hell", "o")]
    backend = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)]
    )  # fmt: skip
    backend.add_special_tokens([AddedToken(t, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return backend


def test_folder_tokenizer_is_framed_by_its_post_processor(tmp_path: Path) -> None:
    """BOS comes from tokenizer.json, and the config's explicit choice wins over it."""
    source = write_tokenizer(tmp_path, llama2_backend())
    tokenizer = tokenizer_from_folder(source, frozenset({9}))
    assert tokenizer.encode("hello", add_special_tokens=True) == [1, tokenizer.token_id("▁hello")]
    assert tokenizer.add_bos
    assert tokenizer.eos_token_ids == {2, 9}
    without = TokenizerFolder(tmp_path, "<s>", "</s>", add_bos=False, add_eos=None)
    assert not tokenizer_from_folder(without, frozenset()).add_bos


@pytest.fixture(scope="module")
def llama2(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Llama 2's layout, read from a folder."""
    source = write_tokenizer(tmp_path_factory.mktemp("llama2"), llama2_backend())
    return tokenizer_from_folder(source, frozenset())


@UNTIMED
@given(ids=st.lists(st.integers(259, len(SP_TOKENS) - 1), max_size=12))
def test_folder_sentencepiece_decodes_like_the_library(llama2: Tokenizer, ids: list[int]) -> None:
    """Leading space and ▁ are treated as the file's own decoder treats them."""
    assert llama2.decode(ids) == llama2_backend().decode(ids)


def test_truncation_and_padding_of_the_file_are_off(tmp_path: Path) -> None:
    """Some files cut every text at 512 tokens; a chat must not lose its words to that."""
    backend = llama2_backend()
    backend.enable_truncation(3)
    backend.enable_padding(length=8)
    tokenizer = tokenizer_from_folder(write_tokenizer(tmp_path, backend), frozenset())
    assert len(tokenizer.encode("hello hello hello hello", add_special_tokens=False)) == 4


def test_missing_and_broken_tokenizer_files_are_told(tmp_path: Path) -> None:
    """No file, no JSON, another kind of tokenizer: a sentence each."""
    source = TokenizerFolder(tmp_path, None, None, None, None)
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        tokenizer_from_folder(source, frozenset())
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(Exception, match="description is broken"):
        tokenizer_from_folder(source, frozenset())
    word_piece = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    word_piece.decoder = decoders.WordPiece()
    word_piece.save(str(path))
    with pytest.raises(CheckpointError, match="neither byte-level nor SentencePiece"):
        tokenizer_from_folder(source, frozenset())


def test_token_types_match_the_library() -> None:
    """The numbers used here are the format's own."""
    assert (NORMAL, UNKNOWN, CONTROL, USER, BYTE) == (
        gguf.TokenType.NORMAL, gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL,
        gguf.TokenType.USER_DEFINED, gguf.TokenType.BYTE,
    )  # fmt: skip
