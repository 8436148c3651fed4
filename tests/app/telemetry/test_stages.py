"""Where a step's time goes: sums from steps written by hand, and a table that fits its room."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from PySide6.QtGui import QFontMetricsF
from pytestqt.qtbot import QtBot

from app.settings.schema import SHOW_STAGES
from app.telemetry.dock import MINIMUM_WIDTH, TelemetryPanel
from app.telemetry.labels import ThemedLabel
from app.telemetry.stages_panel import StagesPanel, StageTable, share_text, stage_names
from app.telemetry.stages_sums import AnswerStages, PhaseStages, StageLog
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import LABEL_PX, Theme, load_theme
from engine.events import Phase, PrefillDone, StageTimes, StepStats, TokenEvent
from tests.app.conftest import MakeProgram
from tests.app.telemetry.story import MS, Clock, loaded

# The offscreen platform says so of every window that is shown.
pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")

PREFILL = StageTimes(20.0, 60.0, 10.0, 1.0, 0.0, 9.0)
DECODE = StageTimes(2.0, 5.0, 2.0, 0.5, 0.1, 0.4)


def step(t_ms: int, phase: Phase, stages: StageTimes | None, number: int = 1) -> StepStats:
    """A step that ended `t_ms` after the clock's zero."""
    return StepStats(number, t_ms * MS, phase, 1, 1, 10.0, 1, 1, None, None, stages)


def test_sums_are_those_of_the_steps_within() -> None:
    """Only timed steps that ended within the span count, a mixed one as prefill."""
    log = StageLog()
    told: list[tuple[float, Phase, StageTimes | None]] = [
        (1.0, "prefill", PREFILL),
        (2.0, "prefill", PREFILL),
        (3.0, "mixed", DECODE),
        (4.0, "decode", DECODE),
        (5.0, "decode", None),
        (6.0, "decode", DECODE),
        (7.0, "decode", DECODE),
    ]
    for t_s, phase, stages in told:
        log.note(step(0, phase, stages), t_s)
    found = log.of("", 1.0, 6.0)
    assert found.prefill is not None
    assert found.decode is not None
    assert found.prefill.num_steps == 2
    np.testing.assert_allclose(found.prefill.sums_ms, (22.0, 65.0, 12.0, 1.5, 0.1, 9.4))
    np.testing.assert_allclose(found.decode.step_ms, (2.0, 5.0, 2.0, 0.5, 0.1, 0.4))
    assert sum(found.decode.shares_pct) == pytest.approx(100.0)
    assert found.decode.shares_pct[1] == pytest.approx(50.0)


def test_only_steps_that_served_an_answer_are_its() -> None:
    """A step that two answers share counts for both, one that served the other does not."""
    log = StageLog()
    for number, (phase, stages, served) in enumerate(
        [
            ("prefill", PREFILL, ("a",)),
            ("mixed", PREFILL, ("a", "b")),
            ("decode", DECODE, ("a", "b")),
            ("decode", DECODE, ("b",)),
            ("decode", None, ("a",)),
        ]
    ):
        log.note(replace(step(0, "decode", stages), phase=phase, request_ids=served), number)

    def counts(request_id: str) -> list[int]:
        found = log.of(request_id, 0.0, np.inf)
        return [part.num_steps if part else 0 for part in (found.prefill, found.decode)]

    assert counts("a") == [2, 1]
    assert counts("b") == [1, 2]


def test_nothing_timed_is_none() -> None:
    """No step, steps of a GPU and steps of no time: no shares, and nothing is divided by zero."""
    log = StageLog()
    assert log.of("", 0.0, np.inf) == AnswerStages()
    log.note(step(0, "decode", None), 1.0)
    log.note(step(0, "prefill", StageTimes(0, 0, 0, 0, 0, 0)), 1.0)
    assert log.of("", 0.0, np.inf) == AnswerStages()


def test_steps_before_the_first_chunk_are_not_the_answers(
    model: TelemetryModel, clock: Clock
) -> None:
    """While a request waits in the queue the engine works for others."""
    model.handle_events([loaded()])
    model.request_sent("a", 1_000 * MS)
    model.handle_events(
        [
            step(1_040, "decode", DECODE),
            PrefillDone("a", 2, 1_150 * MS, 1_000 * MS, 8, 0, 50.0, 100.0, 0, 0),
            step(1_150, "prefill", PREFILL),
            TokenEvent("a", 3, 0, 1, "x", 1_160 * MS, 1_000 * MS, None, 9, 0, 0),
        ]
    )
    assert model.selected is not None
    stages = model.stages_of(model.selected)
    assert stages.decode is None
    assert stages.prefill == PhaseStages(1, (20.0, 60.0, 10.0, 1.0, 0.0, 9.0))


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0"), (0.2, "<1"), (0.6, "1"), (53.5, "54"), (100.0, "100")]
)
def test_share_is_whole(share: float, text: str) -> None:
    """A tenth of a per cent is noise; what is there is never called 0."""
    assert share_text(share) == text


@pytest.mark.parametrize("scale", [1.0, 1.6])
def test_columns_hold_their_words_in_the_narrowest_panel(qtbot: QtBot, scale: float) -> None:
    """No stage's name or time runs into the next one's at the least width, at any text size."""
    theme = load_theme("dark", scale)
    table = StageTable(theme)
    qtbot.addWidget(table)
    table.resize(theme.px(MINIMUM_WIDTH) - 28, table.sizeHint().height())
    metrics = QFontMetricsF(theme.font(LABEL_PX))
    edges = [*table.columns(), float(table.width()) + 1]
    for name, (left, right) in zip(stage_names(), pairwise(edges), strict=True):
        assert left + metrics.horizontalAdvance(name) <= right - 1
        assert left + 6 + metrics.horizontalAdvance("0.888") <= right - 1


def test_table_says_in_words_what_it_draws(qtbot: QtBot, theme: Theme) -> None:
    """Who cannot see the shades reads every stage's share and time, in order."""
    table = StageTable(theme)
    qtbot.addWidget(table)
    table.show_stages(AnswerStages(decode=PhaseStages(4, (8.0, 20.0, 8.0, 2.0, 0.4, 1.6))))
    assert table.accessibleName().splitlines() == [
        "Decode, mean of 4 steps",
        "Attention: 20 %, 2.00 ms",
        "FFN: 50 %, 5.00 ms",
        "Head: 20 %, 2.00 ms",
        "Sampling: 5 %, 0.500 ms",
        "Detokenize: 1 %, 0.100 ms",
        "Host: 4 %, 0.400 ms",
    ]


def test_gpu_is_said_not_to_be_timed(qtbot: QtBot, model: TelemetryModel, theme: Theme) -> None:
    """An empty table says why it is empty."""
    panel = StagesPanel(theme, model)
    qtbot.addWidget(panel)
    panel.resize(512, 200)
    panel.refresh()
    shown = [label.text() for label in panel.findChildren(ThemedLabel)]
    assert "no answer yet" in shown
    model.handle_events([loaded("cuda:0")])
    panel.refresh()
    assert "not timed on a GPU" in [label.text() for label in panel.findChildren(ThemedLabel)]


def test_stages_get_the_room_before_the_map(
    qtbot: QtBot, model: TelemetryModel, theme: Theme
) -> None:
    """Where only one of them fits it is the one that was asked for; the plots keep their height."""
    panel = TelemetryPanel(theme, model)
    qtbot.addWidget(panel)
    model.handle_events([loaded()])
    panel.show()
    panel.resize(512, 900)
    assert not panel.stages.isVisible(), "off until it is asked for"
    panel.want_stages(True)
    qtbot.waitUntil(lambda: panel.stages.isVisible() and panel.block_map.isVisible())
    panel.resize(512, panel.minimumSizeHint().height() + panel.stages.sizeHint().height() + 20)
    qtbot.waitUntil(lambda: not panel.block_map.isVisible())
    assert panel.stages.isVisible()
    panel.resize(512, panel.minimumSizeHint().height() + 20)
    qtbot.waitUntil(lambda: not panel.stages.isVisible())


def test_stages_are_switched_from_the_menu(make_program: MakeProgram) -> None:
    """View, Step times: off at first, kept for the next window."""
    program = make_program()
    program.window.resize(1440, 1000)
    action = program.window.actions_table["view.stages"]
    assert not action.isChecked()
    action.trigger()
    assert program.settings.get(SHOW_STAGES)
    assert program.window.panel.stages.isVisible()
    assert make_program().window.actions_table["view.stages"].isChecked()
