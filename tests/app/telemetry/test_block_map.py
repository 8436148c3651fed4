"""The block map: figures, words and drawing from maps written by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QHelpEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QToolTip, QWidget
from pytestqt.qtbot import QtBot

from app.telemetry.block_cells import (
    LEVELS,
    CellState,
    ChatOfRequest,
    describe,
    details,
    merge,
    no_chats,
    open_mask,
    summary,
)
from app.telemetry.block_grid import MIN_PITCH, BlockGrid, fit
from app.telemetry.block_map_panel import BlockMapPanel
from app.telemetry.block_tiles import make_tiles, stamp
from app.telemetry.labels import ThemedLabel
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import Theme, load_theme
from engine.events import BlockGroupMap, BlockMap, BlockOwner
from tests.app.telemetry.story import loaded

# The offscreen platform says so of every window that is shown.
pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")

# Blocks 1 and 2 are shared, 3 is a's, 4 is b's last one with 5 of 16 tokens, 5 is cached by the
# ended request c, 6 to 8 are free.
GROUP = BlockGroupMap(
    window=None,
    num_blocks=8,
    blocks_per_cell=1,
    used=(0, 0, 1, 1, 0, 0, 0, 0),
    shared=(1, 1, 0, 0, 0, 0, 0, 0),
    cached=(0, 0, 0, 0, 1, 0, 0, 0),
    tokens=(16, 16, 16, 5, 16, 0, 0, 0),
    owners=(0b011, 0b011, 0b001, 0b010, 0b100, 0, 0, 0),
)
OWNERS = (
    BlockOwner("a", True, (0,)),
    BlockOwner("b", True, (11,)),
    BlockOwner("c", False, (0,)),
)
MAP = BlockMap(0, 16, (GROUP,), OWNERS, evicted_blocks=3, queried_tokens=120, hit_tokens=64)
WINDOWED = replace(
    MAP,
    groups=(GROUP, replace(GROUP, window=512)),
    owners=tuple(replace(owner, unused_tokens=owner.unused_tokens * 2) for owner in OWNERS),
)
CHATS = {"a": ChatOfRequest("Why 100%2?", True), "b": ChatOfRequest("Letter", False)}


@pytest.fixture
def panel(qtbot: QtBot, model: TelemetryModel, theme: Theme) -> BlockMapPanel:
    """A shown panel that knows the chats of `a` and `b`; c's is deleted."""
    panel = BlockMapPanel(theme, model)
    qtbot.addWidget(panel)
    panel.set_chat_lookup(CHATS.get)
    panel.resize(512, 160)
    panel.show()
    return panel


def tell(model: TelemetryModel, blocks: BlockMap) -> None:
    """A model with this pool is loaded."""
    model.handle_events([replace(loaded(), blocks=blocks)])
    model.changed.emit()


def test_states_are_those_of_the_event() -> None:
    """Every block looks like what the engine said of it."""
    cells = merge(GROUP, 100)
    names = [CellState(state).name.lower() for state in cells.states]
    assert names == ["shared"] * 2 + ["used"] * 2 + ["cached"] + ["free"] * 3
    assert cells.levels.tolist() == [LEVELS] * 5 + [0] * 3


def test_a_cell_of_many_looks_like_most_of_what_is_taken() -> None:
    """Eight blocks in three cells of up to three: the free ones only lower the level."""
    cells = merge(GROUP, 3)
    assert cells.blocks_per_cell == 3
    assert cells.sizes.tolist() == [3, 3, 2]
    assert [CellState(s) for s in cells.states] == [
        CellState.SHARED,
        CellState.USED,
        CellState.FREE,
    ]
    assert cells.levels.tolist() == [4, 3, 0]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=200), st.integers(1, 60), st.integers(1, 9))
def test_merging_keeps_the_sums(states: list[int], capacity: int, per_cell: int) -> None:
    """However few cells there is room for, no block is lost and no owner forgotten."""

    def column(state: int) -> tuple[int, ...]:
        return tuple(per_cell * (s == state) for s in states)

    owners = tuple(1 << (i % 62) for i in range(len(states)))
    num_blocks = per_cell * len(states)
    group = BlockGroupMap(
        None, num_blocks, per_cell, column(2), column(3), column(1), column(2), owners
    )
    cells = merge(group, capacity)
    assert len(cells.used) <= capacity
    assert cells.sizes.sum() == num_blocks
    for merged, told in ((cells.used, group.used), (cells.cached, group.cached)):
        assert merged.sum() == sum(told)
    factor = cells.blocks_per_cell // per_cell
    for index, mask in enumerate(cells.owners.tolist()):
        bits = set(owners[index * factor : (index + 1) * factor])
        assert mask == sum(bits)


@given(st.integers(1, 2048), st.integers(1, 900), st.integers(1, 200))
def test_cells_stay_inside(num_cells: int, width: int, height: int) -> None:
    """The cells that are drawn have room, and larger ones would not have had it."""
    chosen = fit(num_cells, width, height, 6, 13)
    assert 6 <= chosen.pitch <= 13
    if chosen.capacity >= num_cells and width >= 13 and height >= 13:
        assert chosen.columns * chosen.pitch <= width
        assert -(-num_cells // chosen.columns) * chosen.pitch <= height
    if chosen.pitch < 13:
        assert (width // (chosen.pitch + 1)) * (height // (chosen.pitch + 1)) < num_cells


def test_a_block_is_described() -> None:
    """Number, state, whose and how full; a title is taken as it is, a deleted chat named so."""
    cells = merge(GROUP, 100)
    texts = [describe(MAP, cells, cell, CHATS.get) for cell in (0, 3, 4, 7)]
    assert texts == [
        "Block 1: shared (a common prefix)\n“Why 100%2?”, “Letter”\n16 of 16 tokens",
        "Block 4: used\n“Letter”\n5 of 16 tokens",
        "Block 5: cached (kept for a prompt that begins alike)\n"
        "a deleted chat or a comparison\n16 of 16 tokens",
        "Block 8: free\n0 of 16 tokens",
    ]


def test_many_blocks_are_described() -> None:
    """A cell of several says how many there are of each."""
    text = describe(MAP, merge(GROUP, 3), 1, CHATS.get)
    assert text.startswith("Blocks 4 to 6: 1 used, 1 cached (")
    assert "1 free\n“Letter”, a deleted chat or a comparison\n21 of 48 tokens" in text


def test_the_line_says_what_is_wasted() -> None:
    """The pool in words with their unit; where there is less room, in fewer."""
    wordings = summary(MAP, 0)
    assert wordings[0] == "4 of 8 in use · 2 shared · 1 cached · 11 tokens unused in last blocks"
    assert wordings[-1] == "4 of 8 in use"
    assert sorted(wordings, key=len, reverse=True) == wordings


def test_waste_is_told_by_chat() -> None:
    """Who leaves how much of its last block unused, and what the cache was good for."""
    assert details(MAP, 0, CHATS.get).splitlines() == [
        "“Why 100%2?”: 0 of 16 tokens unused in its last block",
        "“Letter”: 11 of 16 tokens unused in its last block",
        "Found in the cache since the load: 64 of 120 prompt tokens",
        "Cached blocks given up for others: 3",
    ]


def test_open_chat_is_found_by_its_requests() -> None:
    """Bits of the open chat only; nobody's where no chat is known."""
    assert open_mask(MAP, CHATS.get) == 0b001
    assert open_mask(MAP, no_chats) == 0


@pytest.mark.parametrize("name", ["dark", "light"])
def test_looks_differ_without_colour(name: str) -> None:
    """In shades of grey, at the smallest size, every look of the legend differs from the others."""
    theme = load_theme("light" if name == "light" else "dark")
    tiles = make_tiles(theme, MIN_PITCH, 1.0)
    pixels = tiles[..., None].view(np.uint8).astype(float)  # blue, green, red, opacity
    back = theme.color("surface")
    opacity = pixels[..., 3:] / 255
    ground = np.array([back.blue(), back.green(), back.red()]) * (1 - opacity)
    grey = (pixels[..., :3] + ground) @ np.array([0.07, 0.72, 0.21])
    used, shared, cached, free = (grey[state, 1, LEVELS] for state in (2, 3, 1, 0))
    looks = [used, grey[CellState.USED, 0, LEVELS], shared, cached, free]
    for first, second in combinations(looks, 2):
        assert np.abs(first - second).max() > 24


def test_tiles_are_stamped_in_reading_order() -> None:
    """Left to right, then down; what is left of the last row is empty."""
    tiles = np.arange(1, 6, dtype=np.uint32)[:, None, None].repeat(2, 1).repeat(2, 2)
    assert stamp(tiles, 3)[::2, ::2].tolist() == [[1, 2, 3], [4, 5, 0]]


def test_the_open_chat_stands_out(
    panel: BlockMapPanel, model: TelemetryModel, theme: Theme
) -> None:
    """The open chat's blocks have the full colour, those of others less, free ones none."""
    tell(model, MAP)
    (grid,) = panel.grids
    image = grid.grab().toImage()

    def colour(cell: int) -> str:
        return image.pixelColor(grid.cell_rect(cell).center().toPoint()).name()

    assert colour(2) == theme.kv
    assert colour(7) == theme.line
    assert len({colour(2), colour(3), colour(7)}) == 3


def test_tooltip_says_what_is_under_the_mouse(panel: BlockMapPanel, model: TelemetryModel) -> None:
    """Pointing at a cell tells of it; beside the cells there is nothing to tell."""
    tell(model, MAP)
    (grid,) = panel.grids
    where = grid.cell_rect(3).center().toPoint()
    grid.event(QHelpEvent(QHelpEvent.Type.ToolTip, where, grid.mapToGlobal(where)))
    assert QToolTip.text() == grid.describe(3)
    QToolTip.hideText()
    assert grid.cell_at(QPoint(grid.width() - 1, grid.height() - 1)) is None


def test_cells_are_reached_by_keys(
    qtbot: QtBot, panel: BlockMapPanel, model: TelemetryModel
) -> None:
    """Tab enters the grid; arrows, Home and End tell of the cell they come to, aloud too."""
    tell(model, MAP)
    (grid,) = panel.grids
    grid.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.waitUntil(grid.hasFocus)
    assert grid.focusPolicy() & Qt.FocusPolicy.TabFocus
    assert grid.accessibleName() == "Map of the cache blocks"
    assert grid.accessibleDescription().startswith("Block 1:")
    for key, block in (("Right", 2), ("End", 8), ("Left", 7), ("Home", 1), ("Up", 1)):
        QTest.keyClick(grid, getattr(Qt.Key, f"Key_{key}"))
        assert grid.accessibleDescription().startswith(f"Block {block}:"), key
    QToolTip.hideText()


def test_every_group_has_a_grid(panel: BlockMapPanel, model: TelemetryModel) -> None:
    """A model with windows has a pool for each way of looking, named so."""
    tell(model, WINDOWED)
    assert [line.accessibleName().partition(":")[0] for line in panel.lines] == [
        "Full attention",
        "Window of 512",
    ]
    assert panel.grids[1].accessibleName() == "Map of the cache blocks Window of 512"


def test_a_large_pool_is_aggregated(panel: BlockMapPanel, model: TelemetryModel) -> None:
    """Thousands of blocks stay cells that can be seen, and the subtitle says how many in one."""
    cells = 2000
    empty = (0,) * cells
    used = (4,) * 500 + (0,) * 1500
    group = BlockGroupMap(None, 4 * cells, 4, used, empty, empty, empty, empty)
    tell(model, replace(MAP, groups=(group,)))
    (grid,) = panel.grids
    assert grid.cells is not None
    per_cell = grid.cells.blocks_per_cell
    assert per_cell > 4
    assert grid.cells.used.sum() == 2000
    subtitles = [label.text() for label in panel.header.findChildren(ThemedLabel)]
    assert f"of 16 tokens, up to {per_cell} in a cell" in subtitles
    last = len(grid.cells.used) - 1
    assert grid.rect().contains(grid.cell_rect(last).toRect())


@pytest.mark.parametrize("width", [512, 360, 240])
def test_the_line_fits(panel: BlockMapPanel, model: TelemetryModel, width: int) -> None:
    """In a narrow dock the line is said in fewer words, whole for screen readers all the same."""
    tell(model, WINDOWED)
    panel.resize(width, 160)
    for line in panel.lines:
        assert line.fontMetrics().horizontalAdvance(line.text()) <= line.width()
        assert "11 tokens unused in last blocks" in line.accessibleName()


def test_unloading_empties_the_map(
    qtbot: QtBot, panel: BlockMapPanel, model: TelemetryModel
) -> None:
    """Without a model there is no pool: a sentence stands there, before a load and after it."""

    def shown() -> list[str]:
        labels = panel.findChildren(ThemedLabel)
        return [label.text() for label in labels if label.isVisible() and label.text()]

    empty = ["Cache blocks", "Reserved when a model is loaded."]
    assert shown() == empty
    tell(model, MAP)
    qtbot.waitUntil(lambda: {"this chat", "free", panel.lines[0].text()} <= set(shown()))
    assert empty[1] not in shown()
    model.model_dropped()
    with qtbot.waitSignal(model.changed):
        pass
    assert shown() == empty
    assert panel.grids == []


def test_a_hidden_map_is_not_drawn(panel: BlockMapPanel, model: TelemetryModel) -> None:
    """What nobody sees costs nothing; when it is shown again it is up to date."""
    tell(model, MAP)
    panel.hide()
    more = replace(GROUP, used=(0, 0, 1, 1, 0, 1, 0, 0))
    model.handle_events([replace(MAP, groups=(more,))])
    model.changed.emit()
    assert panel.lines[0].text().startswith("4 of 8")
    panel.show()
    assert panel.lines[0].text().startswith("5 of 8")


def test_same_map_is_drawn_once(
    panel: BlockMapPanel, model: TelemetryModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other facts of the telemetry do not draw the grid again."""
    tell(model, MAP)
    updates: list[QWidget] = []
    monkeypatch.setattr(BlockGrid, "update", lambda grid: updates.append(grid))
    model.changed.emit()
    assert updates == []
    model.handle_events([replace(MAP, t_ns=1)])
    model.changed.emit()
    assert updates == panel.grids
