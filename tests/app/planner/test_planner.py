"""The memory planner in the window: live figures, the plot's lines, loading what was planned."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.planner.curves import kv_curves
from app.planner.dialog import MemoryPlanner
from app.planner.figures import figures, origin, verdict
from app.planner.parts import context_stops
from app.planner.plot import apart
from app.theme import load_theme
from engine.kv_formats import KV_FORMATS
from engine.planner.plan import Planning, Question, make_plan
from engine.planner.shapes import SHAPES
from engine.session import EngineError
from tests.app.conftest import MakeProgram
from tests.fakes.fake_session import Script
from tests.fakes.figures import planning
from tests.fakes.window import FakeProgram, wait_until

LLAMA, GEMMA, LATENT = "Llama-3.1-8B", "Gemma-3-12B", "DeepSeek-V3.2"


def of(model: str, available: int = 21_600_000_000, *, is_measured: bool = True) -> Planning:
    return planning(model, 2, available, 0, is_measured=is_measured)


def opened(program: FakeProgram, model: str | None = None) -> MemoryPlanner:
    planner = program.window.planner.open_planner()
    if model:
        planner.choose(model)
    wait_until(lambda: planner.shown_model == (model or planner.model.itemData(0)))
    return planner


def pick(planner: MemoryPlanner, weights: str, kv: str, context: int) -> None:
    planner.weights.setCurrentIndex(planner.weights.findData(weights))
    planner.kv.setCurrentIndex(planner.kv.findData(kv))
    planner.context.spin.setValue(context)


def shown(planner: MemoryPlanner) -> list[str]:
    return [card.text for card in planner.cards]


# --- the dialog ---------------------------------------------------------------------------


def test_it_begins_with_the_loaded_model_as_it_is_loaded(make_program: MakeProgram) -> None:
    """Model, formats and context are those in force; the figures are there at once."""
    program = make_program()
    program.load()
    program.window.loading.change({"weight_format": "int8", "context_length": 2048})
    wait_until(lambda: program.session.loads[-1].weight_format == "int8")
    wait_until(lambda: program.controller.loading is None)
    planner = opened(program)
    assert planner.model.currentText() == "SmolLM2-135M-Instruct"
    assert (planner.weights.currentData(), planner.kv.currentData()) == ("int8", "auto")
    assert planner.kv.currentText() == "Automatic (BF16)"
    assert planner.context.tokens == 2048
    assert shown(planner)[:3] == ["23.0 KB", "47.2 MB", "8,192 tokens"]


def test_it_waits_for_the_engine(qapp: QApplication) -> None:
    """Opened while torch is still being imported: nothing is asked, then all of it is shown."""
    program = FakeProgram(qapp, Script())
    program.window.show()
    planner = program.window.planner.open_planner()
    assert planner.verdict.accessibleName() == "Waiting for the engine…"
    assert shown(planner) == ["–"] * 6
    program.controller.start()
    wait_until(lambda: planner.plan is not None)
    program.close()
    qapp.setStyleSheet("")


def test_every_built_in_shape_is_offered(make_program: MakeProgram) -> None:
    """Below the models of this machine, in the table's order."""
    planner = opened(make_program(), LLAMA)
    names = [planner.model.itemText(i) for i in range(planner.model.count())]
    assert names[-len(SHAPES) :] == [shape.name for shape in SHAPES]


def test_a_change_is_answered_at_once(make_program: MakeProgram) -> None:
    """Formats and context change readings, tables, plot and verdict; nothing is read again."""
    program = make_program(Script(available_bytes=21_600_000_000))
    planner = opened(program, LLAMA)
    asked = len(program.session.planned)
    pick(planner, "int4", "fp32", 32_768)
    plan = planner.plan
    assert plan is not None
    assert plan.kv_bytes == 32_768 * 32 * 2 * 8 * 128 * 4
    assert shown(planner)[1] == "8.59 GB"
    assert planner.verdict.accessibleName().startswith("Fits: weights 5.02 GB, KV cache 8.59 GB")
    assert ("FP32", "262,144 B", "8.59 GB") in planner.kv_levels.rows
    assert planner.levels.rows[-1] == ("INT4", "4.02 GB", "5.02 GB", "fits")
    assert len(program.session.planned) == asked
    planner.weights.setCurrentIndex(planner.weights.findData("fp32"))
    assert planner.verdict.accessibleName().startswith("Does not fit")
    assert shown(planner)[2] == "–"


def test_the_slider_moves_the_context(make_program: MakeProgram) -> None:
    """Each stop is a round length, the last one the model's own; the field takes any other."""
    planner = opened(make_program(), LLAMA)
    slider = planner.context.slider
    slider.setValue(slider.maximum())
    assert planner.context.tokens == 131_072
    assert planner.plan is not None
    assert planner.plan.choice.context == 131_072
    planner.context.spin.setValue(5_000)
    assert planner.plan.choice.context == 5_000
    assert slider.value() == context_stops(131_072).index(5_120)


def test_another_model_brings_its_own_formats(make_program: MakeProgram) -> None:
    """A shape without our formats offers those it has, and says that it cannot run."""
    planner = opened(make_program(), LLAMA)
    planner.weights.setCurrentIndex(planner.weights.findData("int4"))
    planner.choose(LATENT)
    wait_until(lambda: planner.shown_model == LATENT)
    offered = [planner.kv.itemText(i) for i in range(planner.kv.count())]
    assert offered == ["Automatic (BF16)", "FP32", "BF16", "fp8_ds_mla"]
    assert shown(planner)[4:] == ["–", "–"]
    assert planner.origin.accessibleName().startswith("Shape only: this program cannot run it yet")
    assert planner.levels.rows[-1] == ("INT4", "336 GB", "–", "")


def test_loading_takes_the_planned_choice(make_program: MakeProgram, qtbot: QtBot) -> None:
    """The loaded model is loaded anew with the formats and context shown, device as before."""
    program = make_program()
    program.load()
    planner = opened(program)
    pick(planner, "int4", "fp32", 1_024)
    assert planner.load.isEnabled()
    qtbot.mouseClick(planner.load, Qt.MouseButton.LeftButton)
    wait_until(lambda: program.session.loads[-1].weight_format == "int4")
    last = program.session.loads[-1]
    assert (last.kv_format, last.context_length) == ("fp32", 1_024)
    assert last.model_path == program.session.loads[0].model_path
    wait_until(lambda: program.controller.loading is None)


@pytest.mark.parametrize(
    ("model", "weights", "kv", "why"),
    [
        (LLAMA, "int4", "bf16", "Only its shape is here"),
        (None, "fp32", "fp32", "It does not fit"),
    ],
)
def test_what_cannot_be_loaded_says_why(
    make_program: MakeProgram, model: str | None, weights: str, kv: str, why: str
) -> None:
    """A shape has no weights here; a plan that does not fit would only fail."""
    program = make_program(Script(available_bytes=400_000_000))
    program.load()
    planner = opened(program, model)
    pick(planner, weights, kv, 8_192)
    assert not planner.load.isEnabled()
    assert why in planner.load.toolTip()


def test_free_memory_is_read_again_when_the_model_changes(make_program: MakeProgram) -> None:
    """What a load or an unload changes shows in an open planner; the choice stays."""
    program = make_program()
    planner = opened(program, LLAMA)
    pick(planner, "int8", "bf16", 4_096)
    assert planner.plan is not None
    before = planner.plan.budget_bytes
    program.load()
    wait_until(lambda: planner.plan is not None and planner.plan.budget_bytes > before)
    assert planner.model.currentText() == LLAMA
    assert planner.weights.currentData() == "int8"


def test_a_model_that_cannot_be_read_is_told(make_program: MakeProgram) -> None:
    """What and why take the verdict's place, and no figure of another model stays."""
    problem = EngineError("It is broken.", "Bytes are missing.", "Download it again.")
    planner = opened(make_program(Script(bad_paths={GEMMA: problem})), LLAMA)
    planner.choose(GEMMA)
    wait_until(lambda: planner.verdict.accessibleName() == "It is broken.")
    assert planner.origin.accessibleName() == "Bytes are missing. Download it again."
    assert shown(planner) == ["–"] * 6
    assert not planner.load.isEnabled()


def test_an_old_answer_changes_nothing(make_program: MakeProgram) -> None:
    """Whoever chooses quickly does not see the model before the last one."""
    planner = opened(make_program(), LLAMA)
    planner.show_answer(GEMMA, of(GEMMA))
    assert planner.shown_model == LLAMA


def test_the_plot_draws_every_format(make_program: MakeProgram) -> None:
    """A line a format, ends at the model's own context; themes can change while it is open."""
    planner = opened(make_program(), LLAMA)
    curves = planner.plot.curves()
    assert set(curves) == {*KV_FORMATS[1:], "room"}
    tokens, size = curves["bf16"]
    assert (tokens[-1], size[-1]) == (131_072, 16 * 2**30)
    planner.set_theme(load_theme("light", 1.25))
    assert planner.plot.curves() == curves


def test_the_menu_opens_one_planner(make_program: MakeProgram) -> None:
    """The action shows it; a second time the same one comes to the front."""
    program = make_program()
    program.window.actions_table["model.plan"].trigger()
    first = program.window.findChildren(MemoryPlanner)
    program.window.actions_table["model.plan"].trigger()
    assert program.window.findChildren(MemoryPlanner) == first
    assert len(first) == 1
    assert not first[0].isModal()


# --- what it shows ------------------------------------------------------------------------


def test_the_line_meets_the_room_at_the_longest_context() -> None:
    """The plot and the reading tell the same limit, also where windows keep a pool of their own."""
    for model, available in ((LLAMA, 21_600_000_000), (GEMMA, 24_000_000_000)):
        told = of(model, available)
        plan = make_plan(told, Question("int8" if model == LLAMA else "int4", "bf16", 4_096))
        curves = kv_curves(told, plan.choice)
        assert plan.longest_context is not None
        fits = curves.by_format["bf16"] <= curves.room
        assert np.array_equal(fits, curves.contexts <= plan.longest_context)


def test_windows_bend_the_line_where_they_end() -> None:
    """Past the window only the layers that see everything go on growing."""
    told = of(GEMMA)
    curves = kv_curves(told, make_plan(told, Question(context=4_096)).choice)
    assert 1_024 in curves.contexts
    slopes = np.diff(curves.by_format["bf16"]) / np.diff(curves.contexts)
    layer_bytes = 2 * 8 * 256 * 2
    assert {round(slope) for slope in slopes} == {48 * layer_bytes, 8 * layer_bytes}


def test_a_machine_that_was_not_measured_predicts_nothing() -> None:
    """En dashes, and how to come to a figure."""
    told = of(LLAMA, is_measured=False)
    plan = make_plan(told, Question())
    first, decode = figures(told, plan)[4:]
    assert (first.quantity.value, decode.quantity.value) == ("–", "–")
    assert "the first load does it" in first.tip
    assert origin(told).startswith("Known once this machine has been measured")


def test_the_verdict_of_a_shape_has_no_workspace() -> None:
    """What the engine would need for it is not known."""
    told = of(LATENT)
    assert "workspace" not in verdict(told, make_plan(told, Question()))


@given(st.integers(1, 2**20))
def test_stops_rise_to_the_models_own_context(longest: int) -> None:
    """Every stop once, in order, none beyond the model's own."""
    stops = context_stops(longest)
    assert stops == sorted(set(stops))
    assert stops[-1] == longest


@given(st.lists(st.floats(0, 500), max_size=6), st.floats(8, 20))
def test_labels_do_not_overlap(middles: list[float], height: float) -> None:
    """From the lowest up, each at least a line above the one below it, none moved down."""
    wanted = sorted(middles, reverse=True)
    placed = apart(wanted, height)
    assert all(above <= below - height for below, above in pairwise(placed))
    assert all(at <= where for at, where in zip(placed, wanted, strict=True))


def test_a_narrow_planner_keeps_readings_and_plot(make_program: MakeProgram) -> None:
    """Readings in two rows, no tables beside the plot; wide again, all of it comes back."""
    planner = opened(make_program(), LLAMA)
    planner.resize(560, 560)
    wait_until(lambda: not planner.levels.isVisible())
    wait_until(lambda: planner.cards[3].y() > planner.cards[0].y())
    assert planner.plot.isVisible()
    planner.resize(1_000, 600)
    wait_until(lambda: planner.levels.isVisible())
    wait_until(lambda: planner.cards[3].y() == planner.cards[0].y())
