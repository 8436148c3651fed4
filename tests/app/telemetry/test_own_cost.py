"""Telemetry's own processor time is counted once, by part, and told as a share of a core."""

from __future__ import annotations

import time

import pytest
from pytestqt.qtbot import QtBot

from app.telemetry.machine_tip import own_cost_text
from app.telemetry.own_cost import OWN_COST, PARTS, OwnCost
from tests.app.conftest import MakeProgram

MS = 1_000_000


class Clocks:
    """Wall and thread time, which pass when a test says so."""

    def __init__(self) -> None:
        self.wall_ns = self.thread_ns = 0

    def work(self, ms: int) -> None:
        """The thread computes."""
        self.wall_ns += ms * MS
        self.thread_ns += ms * MS

    def wait(self, ms: int) -> None:
        """Only the wall clock goes on."""
        self.wall_ns += ms * MS


@pytest.fixture
def clocks() -> Clocks:
    """At zero."""
    return Clocks()


@pytest.fixture
def cost(clocks: Clocks) -> OwnCost:
    """With the fake clocks."""
    return OwnCost(lambda: clocks.wall_ns, lambda: clocks.thread_ns)


def test_each_part_is_a_share_of_what_passed(cost: OwnCost, clocks: Clocks) -> None:
    """5 ms of 1 s recording and 20 ms of panels; waiting and other code count for nothing."""
    cost.mark()
    with cost.spending("recording"):
        clocks.work(5)
        clocks.wait(100)
    with cost.spending("panels"):
        clocks.work(20)
    clocks.work(400)
    cost.add("sensors", 2.5)
    clocks.wait(475)
    cost.mark()
    assert cost.shares() == {"sensors": 0.0025, "recording": 0.005, "panels": 0.02}


def test_a_part_within_another_is_counted_once(cost: OwnCost, clocks: Clocks) -> None:
    """A redraw that an event causes is the panels', the rest of the event the recording's."""

    @cost.counted("panels")
    def redraw() -> str:
        clocks.work(30)
        return "drawn"

    cost.mark()
    with cost.spending("recording"):
        clocks.work(10)
        assert redraw() == "drawn"
        clocks.work(10)
    clocks.wait(950)
    cost.mark()
    assert cost.shares() == {"sensors": 0.0, "recording": 0.02, "panels": 0.03}


def test_an_error_ends_its_part(cost: OwnCost, clocks: Clocks) -> None:
    """What runs after a failed redraw is not the panels'."""
    cost.mark()
    with pytest.raises(ValueError, match="no"), cost.spending("panels"):
        raise ValueError("no")
    clocks.work(1000)
    cost.mark()
    assert set((cost.shares() or {}).values()) == {0.0}


def test_only_the_last_seconds_count(cost: OwnCost, clocks: Clocks) -> None:
    """An answer's cost is forgotten ten seconds later; in the first one there is no share."""
    assert cost.shares() is None
    cost.mark()
    clocks.wait(900)
    cost.mark()
    assert cost.shares() is None
    with cost.spending("panels"):
        clocks.work(500)
    for _ in range(14):
        clocks.wait(1000)
        cost.mark()
    assert cost.shares() == dict.fromkeys(PARTS, 0.0)


def test_the_shares_in_words(qapp: object) -> None:
    """The sum first; nothing is said before it is known."""
    text = own_cost_text({"sensors": 0.0025, "recording": 0.004, "panels": 0.02})
    assert text == (
        "Telemetry itself: 2.7 % of one core in the last 10 s "
        "(sensors 0.2 %, recording 0.4 %, panels 2.0 %)"
    )
    assert own_cost_text(None) == ""


def test_the_window_counts_its_parts(
    qtbot: QtBot, make_program: MakeProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading sensors, taking in events and painting the plots each leave their time."""
    before = dict(OWN_COST._spent_ns)
    program = make_program()
    program.window.telemetry.start()
    qtbot.waitUntil(lambda: bool(program.window.panel.plots.utilization.header.toolTip()))
    program.window.panel.plots.redraw()
    program.window.panel.plots.grab()
    spent = {part: OWN_COST._spent_ns[part] - before[part] for part in PARTS}
    assert min(spent.values()) > 0
    assert max(spent.values()) < 1e9 * time.process_time()
