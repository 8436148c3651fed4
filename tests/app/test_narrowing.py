"""What the window shows at which size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.narrowing import CHATS_WIDTH, CONVERSATION_MIN, DOCK_MIN, DOCK_WIDTH, arrange


@pytest.mark.parametrize(
    ("size", "chats", "dock"),
    [
        ((1440, 900), True, DOCK_WIDTH),
        ((1280, 720), True, DOCK_WIDTH),
        ((1100, 900), False, DOCK_WIDTH),
        ((900, 900), False, 420),
        ((840, 900), False, DOCK_MIN),
        ((800, 900), False, None),
        ((1093, 614), False, None),
        ((900, 600), False, None),
    ],
)
def test_order_of_giving_way(size: tuple[int, int], chats: bool, dock: int | None) -> None:
    """First the chats fold, then the dock shrinks to 360, then the strip takes over."""
    plan = arrange(*size)
    assert (plan.chats, plan.dock_width, plan.strip) == (chats, dock, dock is None)


@given(st.integers(480, 4000), st.integers(400, 2000), st.booleans(), st.booleans())
def test_conversation_keeps_its_width(width: int, height: int, chats: bool, panels: bool) -> None:
    """Whatever is wanted, 480 px are left to the conversation and some telemetry is shown."""
    plan = arrange(width, height, wants_chats=chats, wants_panels=panels)
    taken = (CHATS_WIDTH if plan.chats else 0) + (plan.dock_width or 0)
    assert width - taken >= CONVERSATION_MIN
    assert plan.strip or (plan.dock_width or 0) >= DOCK_MIN


def test_wishes_are_kept() -> None:
    """Panels switched off leave the chats; panels asked for come in a low window too."""
    assert arrange(1093, 614, wants_panels=False).chats
    assert arrange(1093, 614, insists_on_panels=True).dock_width == DOCK_WIDTH
    assert not arrange(1440, 900, wants_chats=False).chats
