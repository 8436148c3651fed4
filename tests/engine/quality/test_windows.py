"""Where windows lie and which tokens they score."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.quality.windows import strided_windows

SIZES = st.integers(2, 40).flatmap(
    lambda window: st.tuples(st.integers(0, 200), st.just(window), st.integers(1, window))
)


@given(SIZES)
def test_each_token_is_scored_once(sizes: tuple[int, int, int]) -> None:
    """All but the first of the text, and of each window where windows do not overlap."""
    num_tokens, window, stride = sizes
    scored: list[int] = []
    for at in strided_windows(num_tokens, window, stride):
        assert 0 <= at.begin < at.first_scored < at.end <= num_tokens
        assert at.num_tokens <= window
        scored += range(at.first_scored, at.end)
    starts = set(range(0, num_tokens, window)) if stride == window else {0}
    assert scored == [token for token in range(num_tokens) if token not in starts]


@given(SIZES)
def test_context_is_as_long_as_the_stride_allows(sizes: tuple[int, int, int]) -> None:
    """A token scored after the first window has at least window - stride tokens before it."""
    num_tokens, window, stride = sizes
    for at in strided_windows(num_tokens, window, stride)[1:]:
        assert at.first_scored - at.begin >= max(1, window - stride)


@pytest.mark.parametrize(("window", "stride"), [(1, 1), (8, 0), (8, 9)])
def test_windows_that_would_leave_tokens_out_are_refused(window: int, stride: int) -> None:
    """By name."""
    with pytest.raises(ValueError, match=r"^(window|stride):"):
        strided_windows(100, window, stride)
