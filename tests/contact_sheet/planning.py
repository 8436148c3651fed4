"""The states of the memory planner: the loaded model, a limit, a model too large, a shape."""

from __future__ import annotations

from app.planner.dialog import MemoryPlanner
from tests.fakes.window import FakeProgram, wait_until


def loaded(program: FakeProgram) -> None:
    """The loaded model, far from any limit."""
    program.load()
    planner = program.window.planner.open_planner()
    wait_until(lambda: planner.plan is not None)


def near_the_limit(program: FakeProgram) -> None:
    """A model whose context, not whose weights, decides."""
    planner = _planned(program, "Llama-3.1-8B")
    planner.weights.setCurrentIndex(planner.weights.findData("int8"))
    planner.context.spin.setValue(65_536)


def too_large(program: FakeProgram) -> None:
    """Windows bend the lines; there is no room beside these weights."""
    planner = _planned(program, "Gemma-3-12B")
    planner.context.spin.setValue(32_768)


def shape_only(program: FakeProgram) -> None:
    """What the engine cannot run, on a machine that was not measured."""
    planner = _planned(program, "DeepSeek-V3.2")
    planner.kv.setCurrentIndex(planner.kv.findData("fp8_ds_mla"))


def _planned(program: FakeProgram, model: str) -> MemoryPlanner:
    program.load()
    planner = program.window.planner.open_planner()
    planner.choose(model)
    wait_until(lambda: planner.shown_model == model)
    return planner
