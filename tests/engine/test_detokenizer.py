"""The stream's pieces make the whole text: any bytes, any split, any stop strings."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.detokenizer import Detokenizer

SPECIAL = 0
UNTIMED = settings(deadline=None)  # the machine may be busy


class Pieces:
    """A vocabulary of given byte strings; id 0 is special."""

    def __init__(self, pieces: list[bytes], strips_leading_space: bool = False) -> None:
        self.pieces = [b"<special>", *pieces]
        self.strips_leading_space = strips_leading_space

    def token_bytes(self, token_id: int) -> bytes:
        """The piece of an id."""
        return self.pieces[token_id]

    def is_special(self, token_id: int) -> bool:
        """Whether it is id 0."""
        return token_id == SPECIAL

    def decode(self, ids: list[int]) -> str:
        """The whole text at once."""
        data = b"".join(self.pieces[i] for i in ids if i != SPECIAL)
        if self.strips_leading_space:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", errors="replace")


def stream(vocabulary: Pieces, ids: list[int], stop: tuple[str, ...] = ()) -> list[str]:
    """What each id and the end released."""
    detokenizer = Detokenizer(vocabulary, stop)
    return [detokenizer.add(token_id) for token_id in ids] + [detokenizer.finish()]


def until_stop(text: str, stop: tuple[str, ...]) -> str:
    """The text before the stop string that is complete first, the longest of such."""
    for end in range(1, len(text) + 1):
        starts = [end - len(s) for s in stop if text[:end].endswith(s)]
        if starts:
            return text[: min(starts)]
    return text


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data` cut at the given places, taken modulo its length."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


CUTS = st.lists(st.integers(0, 2**16), max_size=30)
# Few letters, so that stop strings begin, break off and overlap often.
LETTERS = st.text(alphabet="abé漢", max_size=30)


@UNTIMED
@given(data=st.binary(max_size=60), cuts=CUTS, strip=st.booleans())
def test_any_bytes_in_any_split_make_the_whole(data: bytes, cuts: list[int], strip: bool) -> None:
    """Valid UTF-8 or not, the pieces concatenate to decoding all ids at once."""
    vocabulary = Pieces(split(data, cuts), strip)
    ids = list(range(1, len(vocabulary.pieces)))
    assert "".join(stream(vocabulary, ids)) == vocabulary.decode(ids)


@UNTIMED
@given(text=st.text(max_size=20), cuts=CUTS)
def test_valid_text_never_shows_a_replacement_character(text: str, cuts: list[int]) -> None:
    """No character is released before its last byte."""
    vocabulary = Pieces(split(text.encode(), cuts))
    released = ""
    for piece in stream(vocabulary, list(range(1, len(vocabulary.pieces)))):
        released += piece
        assert text.startswith(released)
    assert released == text


@UNTIMED
@given(
    text=LETTERS,
    cuts=CUTS,
    stop=st.lists(st.text(alphabet="abé漢", min_size=1, max_size=4), max_size=3).map(tuple),
)
def test_stop_strings_cut_whatever_the_split(
    text: str, cuts: list[int], stop: tuple[str, ...]
) -> None:
    """The text ends before the first complete stop string, however the tokens lie across it."""
    vocabulary = Pieces(split(text.encode(), cuts))
    ids = list(range(1, len(vocabulary.pieces)))
    detokenizer = Detokenizer(vocabulary, stop)
    released = "".join(detokenizer.add(token_id) for token_id in ids) + detokenizer.finish()
    expected = until_stop(text, stop)
    assert released == expected
    assert detokenizer.stopped == any(s in text for s in stop)


@UNTIMED
@given(text=LETTERS, stop=st.text(alphabet="abé漢", min_size=1, max_size=4))
def test_no_part_of_a_stop_string_is_ever_shown(text: str, stop: str) -> None:
    """What is released at any moment is a beginning of the final text: nothing is taken back."""
    vocabulary = Pieces([character.encode() for character in text])
    final = until_stop(text, (stop,))
    released = ""
    for piece in stream(vocabulary, list(range(1, len(text) + 1)), (stop,)):
        released += piece
        assert final.startswith(released)


@pytest.mark.parametrize(
    "text",
    [
        "👩‍👩‍👧‍👦 family",
        "안녕하세요 세계",
        "漢字とかな",
        "č ď ř",
        "e\u0301 naïve",
        "العربية",
        "हिन्दी",
    ],
)
def test_every_script_byte_by_byte(text: str) -> None:
    """One byte a token, as byte-level vocabularies fall back to."""
    vocabulary = Pieces([bytes([byte]) for byte in text.encode()])
    pieces = stream(vocabulary, list(range(1, len(vocabulary.pieces))))
    assert "".join(pieces) == text
    assert "\ufffd" not in "".join(pieces)


def test_character_is_held_until_complete() -> None:
    """Two tokens that make one letter show nothing, then the letter."""
    assert stream(Pieces([b"\xc4", b"\x8f"]), [1, 2]) == ["", "ď", ""]


def test_unfinished_character_at_the_end_is_replaced() -> None:
    """A stream cut mid-character says so with one U+FFFD, as decoding the whole does."""
    assert stream(Pieces([b"a\xe6\xbc"]), [1]) == ["a", "\ufffd"]


def test_special_tokens_are_no_text() -> None:
    """A control token shows nothing and does not break what surrounds it."""
    assert stream(Pieces([b"\xc4", b"\x8f"]), [1, SPECIAL, 2]) == ["", "", "ď", ""]


def test_leading_space_is_taken_once() -> None:
    """SentencePiece's own space goes, a real one after it stays."""
    vocabulary = Pieces([b" ", b" Hello", b""], strips_leading_space=True)
    assert "".join(stream(vocabulary, [2, 2])) == "Hello Hello"
    assert "".join(stream(vocabulary, [SPECIAL, 3, 1, 2])) == " Hello"


def test_nothing_comes_after_a_stop() -> None:
    """Once stopped, later ids and the end are silent."""
    detokenizer = Detokenizer(Pieces([b"ab", b"c"]), stop=("b",))
    assert detokenizer.add(1) == "a"
    assert detokenizer.stopped
    assert detokenizer.add(2) == ""
    assert detokenizer.finish() == ""


def test_text_that_only_began_a_stop_string_comes_at_the_end() -> None:
    """What was held back is not lost when the stop string stays unfinished."""
    assert stream(Pieces([b"one <", b"/s"]), [1, 2], ("</stop>",)) == ["one ", "", "</s"]
