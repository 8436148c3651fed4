"""Token ids of the starter model's tokenizer for awkward strings.

Two implementations must agree before anything is written: the `tokenizers` library through
transformers, and the plain BPE below, which follows the published algorithm (Sennrich et al.,
arXiv 1508.07909, over GPT-2's byte alphabet) and shares no code with it.
"""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import gguf
import regex
from make_common import library_versions, write_rows
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode
from write_safetensors import build_tokenizer

# GPT-2's split, applied to text in which each digit is already a piece of its own.
WORD_PATTERN = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
DIGIT_PATTERN = regex.compile(r"\p{N}|\P{N}+")

STRINGS = [
    "",
    " ",
    "  ",
    "\n",
    "\n\n\n",
    "\t\tindented",
    "a  b   c    d",
    "trailing spaces   ",
    "   leading spaces",
    " \n \n mixed \t whitespace\r\nend",
    "non-breaking\u00a0space and ideographic\u3000space",
    "Hello, world!",
    "It's we're they'll I'd you've can't I'M",
    "0",
    "1234567890",
    "In 1999, 3.14159 x 10^-7 cost $1,000.50",
    "a1b2c3 v2.0.1-rc3",
    "½ ² ① Ⅳ ٣ ४",
    "😀",
    "👩‍👩‍👧‍👦 family",
    "👍🏽 skin 🏳️‍🌈 flag 🇫🇷",
    "emoji🙂in🙃words",
    "你好，世界",
    "東京は日本の首都です。",
    "안녕하세요 세계",
    "مرحبا بالعالم",
    "שלום עולם",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "Привет, мир! Ёлка",
    "Il était déjà là, où ça? Œuvre naïve",
    "e\u0301 combining and \u00e9 composed",
    "Zürich straße ĳ ﬁ ď",
    "def f(x):\n    return x ** 2  # square\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] >> 3; }",
    '<div class="a">&amp;</div>',
    "SELECT * FROM t WHERE id='x' -- comment",
    "\\(x^2\\) and \\[y\\] and $5 and $6",
    "<|im_start|>user\nHi<|im_end|>\n",
    "text<|endoftext|>more <|im_start|> spaced <|im_end",
    "<|IM_START|> is not <|im_start|>",
    "<repo_name>x<file_sep>y",
    "zero\u200bwidth\ufeffjoiner\u200d",
    "\x00\x01\x7f control",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
]


def write_tokenizer(gguf_path: Path, out: Path) -> None:
    """Write `smollm2_tokenizer.json`; raises AssertionError where the two disagree."""
    reader = gguf.GGUFReader(gguf_path)
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "tokenizer.json"
        build_tokenizer(reader).save(str(file))
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file))
    plain = PlainBPE(reader)
    rows = []
    for text in STRINGS:
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert ids == plain.encode(text), f"{text!r}: {ids} and {plain.encode(text)} differ"
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        assert decoded == text, f"{text!r} came back as {decoded!r}"
        rows.append({"text": text, "ids": ids})
    header = {"versions": library_versions(), "model_file": gguf_path.name}
    write_rows(out / "smollm2_tokenizer.json", header, "strings", rows)
    print(f"  {len(rows)} strings: the library and the plain BPE agree")


class PlainBPE:
    """Byte-level BPE written for reading, not for speed: the oracle of this file only."""

    def __init__(self, reader: gguf.GGUFReader) -> None:
        def field(name: str) -> list[str]:
            return reader.get_field(f"tokenizer.ggml.{name}").contents()

        tokens = field("tokens")
        self._ids = {token: token_id for token_id, token in enumerate(tokens)}
        self._ranks = {tuple(line.split(" ")): rank for rank, line in enumerate(field("merges"))}
        control = [
            token
            for token, kind in zip(tokens, field("token_type"), strict=True)
            if kind == gguf.TokenType.CONTROL
        ]
        longest_first = sorted(control, key=len, reverse=True)
        self._control = regex.compile("(" + "|".join(map(regex.escape, longest_first)) + ")")
        self._alphabet = bytes_to_unicode()

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, control tokens recognised in it."""
        ids: list[int] = []
        for number, part in enumerate(self._control.split(text)):
            ids += [self._ids[part]] if number % 2 else self._encode_plain(part)
        return ids

    def _encode_plain(self, text: str) -> list[int]:
        return [
            self._ids[symbol]
            for run in DIGIT_PATTERN.findall(text)
            for word in WORD_PATTERN.findall(run)
            for symbol in self._merge([self._alphabet[byte] for byte in word.encode("utf-8")])
        ]

    def _merge(self, symbols: list[str]) -> list[str]:
        while len(symbols) > 1:
            pairs = list(pairwise(symbols))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                return symbols
            place = pairs.index(best)
            symbols = [*symbols[:place], "".join(best), *symbols[place + 2 :]]
        return symbols
