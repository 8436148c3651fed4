"""The tokenizer of a GGUF file, built from its `tokenizer.ggml.*` tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import tokenizers
from gguf.constants import TokenType
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from engine.loading.files import CheckpointError, unsupported
from engine.loading.generation_defaults import END_OF_TURN_TOKENS
from engine.tokenizer import Tokenizer, TokenizerTraits, end_of_turn_ids, library_failures

_SPACE = "\u2581"
_MAX_PIECE_LENGTH = 256  # SentencePiece trains pieces of 16; longer ones would cost time squared

# Published with Llama 3 and Qwen2; they differ in how many digits stay together.
_CASELESS_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3_SPLIT = _CASELESS_SPLIT % r"\p{N}{1,3}"
_QWEN2_SPLIT = _CASELESS_SPLIT % r"\p{N}"

# Names of `tokenizer.ggml.pre` that stand for one and the same way to cut a text.
_GPT2_NAMES = frozenset({"default", "gpt-2", "olmo", "mpt", "jais"})
_DIGITS_APART_NAMES = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell"})
_LLAMA3_NAMES = frozenset({"llama-bpe", "llama3", "llama-v3"})
_QWEN2_NAMES = frozenset({"qwen2", "stablelm2", "deepseek-r1-qwen"})


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """The tables of the file. `add_bos` None: the file is silent, the kind of model decides.

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


def tokenizer_from_gguf(vocabulary: GgufVocabulary, eos_token_ids: frozenset[int]) -> Tokenizer:
    """The tokenizer; its end tokens are `eos_token_ids` and the ends of a turn.

    Raises CheckpointError for a kind or a pre-tokenizer that would be encoded wrongly.
    """
    if vocabulary.model == "gpt2":
        backend = _byte_level_bpe(vocabulary)
        add_bos = vocabulary.pre_tokenizer in _LLAMA3_NAMES
    elif vocabulary.model == "llama":
        backend = _sentencepiece_bpe(vocabulary)
        add_bos = True
    else:
        raise unsupported(
            f"The tokenizer {vocabulary.model[:40]!r}",
            "Known kinds: gpt2 (byte-level BPE), llama (SentencePiece).",
            "Choose a model of a known architecture.",
        )
    backend.add_tokens(list(_added_tokens(vocabulary)))
    is_sentencepiece = vocabulary.model == "llama"
    wants_bos = add_bos if vocabulary.add_bos is None else vocabulary.add_bos
    bos_id, eos_id = vocabulary.bos_token_id, vocabulary.eos_token_id
    traits = TokenizerTraits(
        alphabet="sentencepiece" if is_sentencepiece else "byte_level",
        bos_token_id=bos_id,
        eos_token_id=eos_id,
        eos_token_ids=eos_token_ids | end_of_turn_ids(backend, END_OF_TURN_TOKENS),
        prefix_ids=(bos_id,) if wants_bos and bos_id is not None else (),
        suffix_ids=(eos_id,) if vocabulary.add_eos and eos_id is not None else (),
        strips_leading_space=is_sentencepiece and vocabulary.add_space_prefix,
        has_byte_tokens=is_sentencepiece,
    )
    return Tokenizer(backend, traits)


def _byte_level_bpe(vocabulary: GgufVocabulary) -> tokenizers.Tokenizer:
    if not vocabulary.merges:
        raise _broken("it has no merges")
    merges = [_split_merge(merge) for merge in vocabulary.merges]
    # Llama 3 takes a word that is an entry as that entry, even where merges lead elsewhere.
    ignore_merges = vocabulary.pre_tokenizer in _LLAMA3_NAMES
    backend = _bpe(_ids(vocabulary), merges, ignore_merges=ignore_merges)
    backend.pre_tokenizer = _pre_tokenizer(vocabulary.pre_tokenizer)
    backend.decoder = decoders.ByteLevel()
    if vocabulary.pre_tokenizer in _QWEN2_NAMES:
        backend.normalizer = normalizers.NFC()
    return backend


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    if name in _GPT2_NAMES:
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if name in _DIGITS_APART_NAMES:
        first: pre_tokenizers.PreTokenizer = pre_tokenizers.Digits(individual_digits=True)
        second = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        return pre_tokenizers.Sequence([first, second])
    if name in _LLAMA3_NAMES or name in _QWEN2_NAMES:
        pattern = _LLAMA3_SPLIT if name in _LLAMA3_NAMES else _QWEN2_SPLIT
        first = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        second = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre_tokenizers.Sequence([first, second])
    known = sorted(_GPT2_NAMES | _DIGITS_APART_NAMES | _LLAMA3_NAMES | _QWEN2_NAMES)
    raise unsupported(
        f"The pre-tokenizer {name[:40]!r}",
        f"Text would be cut into the wrong tokens. Known: {', '.join(known)}.",
        "Choose the model's safetensors version, which brings its tokenizer along.",
    )


def _sentencepiece_bpe(vocabulary: GgufVocabulary) -> tokenizers.Tokenizer:
    ids = _ids(vocabulary)
    unknown = vocabulary.unknown_token_id
    backend = _bpe(
        ids,
        list(_merges_by_score(vocabulary, ids)),
        unk_token=None if unknown is None else vocabulary.tokens[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", _SPACE)]
    if vocabulary.add_space_prefix:
        steps.insert(0, normalizers.Prepend(_SPACE))
    backend.normalizer = normalizers.Sequence(steps)
    return backend


def _merges_by_score(vocabulary: GgufVocabulary, ids: dict[str, int]) -> Iterator[tuple[str, str]]:
    """The merges SentencePiece's scores amount to: every way to make a piece, best piece first."""
    pieces = [
        (score, piece)
        for piece, kind, score in zip(
            vocabulary.tokens, vocabulary.token_types, vocabulary.scores, strict=True
        )
        if kind == TokenType.NORMAL and 1 < len(piece) <= _MAX_PIECE_LENGTH
    ]
    for _, piece in sorted(pieces, key=lambda item: -item[0]):
        halves = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        known = [
            (ids[left], ids[right], left, right)
            for left, right in halves
            if left in ids and right in ids
        ]
        yield from ((left, right) for _, _, left, right in sorted(known))


def _bpe(
    ids: dict[str, int],
    merges: list[tuple[str, str]],
    *,
    unk_token: str | None = None,
    fuse_unk: bool = False,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
) -> tokenizers.Tokenizer:
    with library_failures():
        model = models.BPE(
            vocab=ids,
            merges=merges,
            unk_token=unk_token,
            fuse_unk=fuse_unk,
            byte_fallback=byte_fallback,
            ignore_merges=ignore_merges,
        )
        return tokenizers.Tokenizer(model)


def _ids(vocabulary: GgufVocabulary) -> dict[str, int]:
    """Token to id, the first of entries spelled alike."""
    return {token: id_ for id_, token in reversed(list(enumerate(vocabulary.tokens)))}


def _split_merge(merge: str) -> tuple[str, str]:
    """A merge's two halves; the space between is the first one after a first character."""
    cut = merge.find(" ", 1)
    if cut < 0:
        raise _broken(f"the merge {merge[:40]!r} has no space")
    return merge[:cut], merge[cut + 1 :]


def _added_tokens(vocabulary: GgufVocabulary) -> Iterator[AddedToken]:
    """Control tokens (special) and user-defined ones, recognised in the text as they are."""
    for token, kind in zip(vocabulary.tokens, vocabulary.token_types, strict=True):
        is_special = kind in (TokenType.CONTROL, TokenType.UNKNOWN)
        if token and (is_special or kind == TokenType.USER_DEFINED):
            yield AddedToken(token, special=is_special, normalized=False)


def _broken(why: str) -> CheckpointError:
    return CheckpointError(
        "bad_file",
        "The tokenizer in the GGUF file cannot be built.",
        f"Its tables are broken: {why}.",
        "Download the file again.",
    )
