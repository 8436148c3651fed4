"""Word, dot and block of the cache: each leads to the other two."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.telemetry.block_map_panel import BlockMapPanel
from app.telemetry.dock import TelemetryPanel
from app.telemetry.request_trace import RequestTrace
from app.telemetry.telemetry_model import TelemetryModel
from app.telemetry.token_places import block_of, rows_in, token_places
from app.theme import Theme
from engine.events import BlockGroupMap, BlockMap, BlockOwner, ContextCut, TokenEvent
from tests.app.telemetry.story import BLOCK_TOKENS, Clock, Story, loaded

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")


def pool(num_blocks: int, tables: tuple[tuple[int, ...], ...], running: bool = True) -> BlockMap:
    """A pool of which the story's request has these blocks, as the engine tells it."""
    groups = []
    for table in tables:
        held = [int(number in table) for number in range(1, num_blocks + 1)]
        zeros = (0,) * num_blocks
        used, cached = (tuple(held), zeros) if running else (zeros, tuple(held))
        tokens = tuple(16 * each for each in held)
        groups.append(BlockGroupMap(None, num_blocks, 1, used, zeros, cached, tokens, tuple(held)))
    owner = BlockOwner("r1", running, (0,) * len(tables), tables if running else ())
    return BlockMap(0, BLOCK_TOKENS, tuple(groups), (owner,), 0, 0, 0)


def told(model: TelemetryModel, story: Story, blocks: BlockMap) -> RequestTrace:
    """The answer in the model, and where its tokens lie."""
    model.handle_events([replace(loaded(), blocks=replace(blocks, owners=()))])
    story.tell(model, Clock())
    model.handle_events([blocks])
    trace = model.request(story.request_id)
    assert trace is not None
    return trace


def test_places_follow_the_prompt(model: TelemetryModel) -> None:
    """The first token of the answer has the place after the prompt's last, and so on."""
    story = Story(prompt_tokens=40, num_tokens=12)
    trace = told(model, story, pool(4, ((1, 2, 3, 4),)))
    assert token_places(trace).tolist() == list(range(40, 52))


def test_places_before_a_slide_are_unknown(model: TelemetryModel) -> None:
    """What was moved or dropped has none; what came later counts from what was kept."""
    story = Story(prompt_tokens=40, num_tokens=12)
    blocks = pool(4, ((1, 2, 3, 4),))
    model.handle_events([replace(loaded(), blocks=blocks)])
    model.request_sent("r1", story.t_send_ns)
    for event in story.events():
        if isinstance(event, TokenEvent) and event.index == 7:
            model.handle_events([ContextCut("r1", event.t_ns, 0, 24, 16, 8)])
        model.handle_events([event])
    trace = model.request("r1")
    assert trace is not None
    assert token_places(trace).tolist() == [-1] * 7 + list(range(47, 52))


@given(
    prompt=st.integers(1, 60),
    num_tokens=st.integers(1, 40),
    order=st.permutations(range(1, 8)),
    lost=st.integers(0, 3),
)
def test_blocks_and_rows_agree(prompt: int, num_tokens: int, order: list[int], lost: int) -> None:
    """Every token is in the rows of its own block and of no other; lost blocks have no rows."""
    num_blocks = -(-(prompt + num_tokens) // BLOCK_TOKENS)
    lost = min(lost, num_blocks)
    table = (0,) * lost + tuple(order[lost:num_blocks])
    trace = RequestTrace("r1", 0)
    trace.block_tables = (table,)
    for row in range(num_tokens):
        trace.tokens.append(float(row), None, row)
        trace.kv.append(float(row), 0.0, 0.0, prompt + row + 1)
    blocks = pool(7, (table,))
    found = {b: rows_in(trace, blocks, 0, range(b, b + 1)) for b in range(1, 8)}
    for row, place in enumerate(token_places(trace).astype(int).tolist()):
        own = [block for block, rows in found.items() if row in rows]
        assert own == ([block_of(trace, blocks, 0, place)] if place // 16 >= lost else [])
    assert sorted(chain.from_iterable(found.values())) == rows_in(trace, blocks, 0, range(1, 8))


@pytest.fixture
def panel(qtbot: QtBot, model: TelemetryModel, theme: Theme) -> TelemetryPanel:
    """A shown panel high enough for the block map."""
    panel = TelemetryPanel(theme, model)
    qtbot.addWidget(panel)
    panel.resize(512, 860)
    with qtbot.waitExposed(panel):
        panel.show()
    return panel


def test_a_dot_lights_its_block(panel: TelemetryPanel, model: TelemetryModel) -> None:
    """Under the crosshair is a token, and the block that has it stands out in every group."""
    story = Story(prompt_tokens=40, num_tokens=30)
    trace = told(model, story, pool(9, ((1, 2, 9, 4, 5), (0, 0, 7, 8, 6))))
    panel.plots.redraw()
    panel.block_map.refresh()
    panel.plots.read_token(0)
    assert [grid.marked for grid in panel.block_map.grids] == [8, 6]
    panel.plots.read_token(29)
    assert [grid.marked for grid in panel.block_map.grids] == [4, 5]
    panel.plots.read(float(trace.ttft_s or 0.0) / 2)  # while the prompt is read
    assert panel.plots.reading[0][0] == "Before the first token"
    panel.plots.read(None)
    assert [grid.marked for grid in panel.block_map.grids] == [None, None]


def test_a_block_lights_its_words(
    qtbot: QtBot, panel: TelemetryPanel, model: TelemetryModel
) -> None:
    """Pointing at a block reads its first token and tells all of them; leaving ends both."""
    told(model, Story(prompt_tokens=40, num_tokens=30), pool(9, ((1, 2, 9, 4, 5),)))
    panel.plots.redraw()
    panel.block_map.refresh()
    (grid,) = panel.block_map.grids
    qtbot.waitUntil(grid.isVisible)
    read: list[list[int]] = []
    panel.tokens_read.connect(read.append)
    QTest.mouseMove(grid, grid.cell_rect(8).center().toPoint())
    assert read[-1] == list(range(8))
    assert panel.plots.reading[0][0] == "Token 1"
    QTest.mouseMove(grid, grid.cell_rect(3).center().toPoint())
    assert read[-1] == list(range(8, 24))
    assert grid.marked == 3
    QTest.mouseMove(grid, grid.cell_rect(6).center().toPoint())  # free
    assert read[-1] == []
    assert not panel.plots.reading
    grid.setFocus()
    QTest.keyClick(grid, Qt.Key.Key_End)
    for _ in range(4):
        QTest.keyClick(grid, Qt.Key.Key_Left)
    assert read[-1] == list(range(24, 30))


@pytest.mark.parametrize("kept", [True, False])
def test_an_ended_answer_keeps_its_blocks_until_others_have_them(
    panel: TelemetryPanel, model: TelemetryModel, kept: bool
) -> None:
    """Its last tables are known; a block that another request took is not its any more."""
    story = Story(prompt_tokens=40, num_tokens=30)
    table = (1, 2, 9, 4, 5)
    told(model, story, pool(9, (table,)))
    ended = pool(9, (table,), running=False)
    if not kept:
        other = BlockOwner("r2", True, (0,), (table,))
        ended = replace(ended, owners=(other, *ended.owners))
    model.handle_events([ended])
    panel.plots.redraw()
    panel.block_map.refresh()
    panel.plots.read_token(0)
    assert panel.block_map.grids[0].marked == (8 if kept else None)


def test_a_mark_beyond_the_pool_is_none(qtbot: QtBot, model: TelemetryModel, theme: Theme) -> None:
    """Recordings come from anywhere: a table may name blocks that there are not."""
    panel = BlockMapPanel(theme, model)
    qtbot.addWidget(panel)
    panel.resize(400, 120)
    panel.show()
    told(model, Story(prompt_tokens=40, num_tokens=3), pool(9, ((1, 2, 900),)))
    panel.refresh()
    panel.mark(40)
    assert panel.grids[0].marked is None
    panel.mark(3)
    assert panel.grids[0].marked == 0
    assert panel.grids[0].cell_at(QPoint(1, 1)) == 0
    assert np.isfinite(panel.grids[0].cell_rect(0).width())
