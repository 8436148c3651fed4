"""Toolbar, status bar, cards, menus' figures and sampling, each by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app import folders, resources
from app.answer_errors import longer_contexts
from app.appearance import Appearance, theme_choice
from app.cards import CardAction, CardStack, CardText
from app.engine_link.controller import EngineState
from app.model_menus import context_choices, kv_pool_size, thread_choices
from app.run_bar import RunBar, RunValues, run_values
from app.sampling import SAMPLING_SETTINGS, effective_sampling, parse
from app.sampling_popover import SamplingPopover
from app.settings.schema import MAX_TOKENS, SEED, TEMPERATURE, TOP_P, Setting
from app.settings.store import Settings
from app.status_line import StatusLine
from app.theme import load_theme
from engine.config import EngineConfig, KVGroupSize, SamplingParams
from engine.events import ModelLoaded
from tests.fakes.figures import estimate, loaded_model, model_info, resolve

# The offscreen platform says so whenever a lone widget with a fixed part is shown.
pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")


def loaded(config: EngineConfig | None = None) -> ModelLoaded:
    config = resolve(config or EngineConfig("SmolLM2-135M-Instruct.gguf"))
    info = model_info(config.model_path)
    return loaded_model(config, info, estimate(config, info, 6 * 10**9, None), 1.0, ())


@pytest.fixture
def settings() -> Settings:
    """Empty settings of this test."""
    return Settings(folders.config_folder() / "settings.json")


# --- toolbar ----------------------------------------------------------------------------------


def test_values_of_what_runs() -> None:
    """The toolbar resolves automatic choices once the model is there."""
    model = loaded()
    values = run_values(model, EngineConfig(model.config.model_path))
    assert values == RunValues("SmolLM2-135M-Instruct", "Q4_1", "BF16", "4,096")
    int8 = loaded(replace(model.config, weight_format="int8"))
    assert run_values(int8, int8.config).weights == "INT8"


def test_values_of_what_is_being_loaded() -> None:
    """Another model on its way is named with what was asked for."""
    values = run_values(loaded(), EngineConfig("/models/Other-7B.gguf", "int4"))
    assert values == RunValues("Other-7B", "INT4", "auto", "auto")
    assert run_values(None, None) == RunValues()


def test_toolbar_folds_exactly_when_needed(qtbot: QtBot) -> None:
    """The buttons stand while they fit; one pixel less and they are one."""
    bar = RunBar(load_theme("dark"), QWidget())
    qtbot.addWidget(bar)
    bar.show_values(RunValues("A model", "INT8", "BF16", "4,096"))
    bar.resize(2000, 50)
    bar.show()
    width = next(w for w in range(300, 2000) if not _folds_at(bar, w))
    assert _folds_at(bar, width - 1)
    bar.resize(width, 50)
    QApplication.processEvents()
    buttons = (bar.model, bar.weights, bar.kv, bar.context, bar.sampling)
    assert all(button.width() >= button.sizeHint().width() for button in buttons)


def _folds_at(bar: RunBar, width: int) -> bool:
    bar.resize(width, 50)
    bar.arrange()
    return bar.folded


# --- status bar -------------------------------------------------------------------------------


def test_status_names_what_runs(qtbot: QtBot) -> None:
    """Device, threads, kernels, weights and cache are told with their units."""
    status = StatusLine(load_theme("dark"))
    qtbot.addWidget(status)
    status.resize(1400, 24)
    status.show()
    status.set_model(loaded())
    status.set_kv_used(29_600_000)
    status.set_state(EngineState.DECODING)
    assert status.state.text() == "Decoding"
    assert status.device.text() == "CPU · 2 threads · native AVX512-VNNI"
    assert status.weights.text() == "Weights 96.2 MB"
    assert status.kv.text() == "KV 29.6 / 94.7 MB"
    assert status.process.text().startswith("Process ")


@given(st.integers(0, 1600))
def test_status_never_cuts_a_fact(width: int) -> None:
    """At any width what is shown fits; the state is the last to go."""
    app = QApplication.instance() or QApplication([])
    assert app is not None
    status = StatusLine(load_theme("dark"))
    status.set_model(loaded())
    status.set_recording(True)
    status.resize(width, 24)
    status.arrange()
    facts = (status.state, status.device, status.weights, status.kv, status.process)
    shown = [fact for fact in (*facts, status.recording) if not fact.isHidden()]
    assert sum(fact.sizeHint().width() for fact in shown) <= width
    if width > 300:
        assert status.state in shown


# --- cards ------------------------------------------------------------------------------------


def test_card_button_acts_and_closes(qtbot: QtBot) -> None:
    """Pressing a button does its work once and the card is gone."""
    cards = CardStack(load_theme("dark"))
    qtbot.addWidget(cards)
    done: list[str] = []
    action = CardAction("Mend it", lambda: done.append("mended"))
    card = cards.show_card("topic", "error", CardText("What.", "Why.", "Next."), [action])
    assert card.accessibleName() == "What. Why. Next."
    next(b for b in card.findChildren(QPushButton) if b.text() == "Mend it").click()
    assert done == ["mended"]
    assert cards.card("topic") is None
    assert cards.isHidden()


def test_newer_card_replaces_the_topic(qtbot: QtBot) -> None:
    """Two failures of one kind do not pile up; other topics stay."""
    cards = CardStack(load_theme("dark"))
    qtbot.addWidget(cards)
    cards.show_card("load", "error", CardText("First."))
    other = cards.show_card("chats", "notice", CardText("Other."))
    newer = cards.show_card("load", "error", CardText("Second."))
    assert (cards.card("load"), cards.card("chats")) == (newer, other)


# --- menus and buttons ------------------------------------------------------------------------


def test_context_choices() -> None:
    """Powers of two up to the model's own length, and whatever is loaded now."""
    assert context_choices(model_info("x"), 3000) == [512, 1024, 2048, 3000, 4096, 8192]


def test_thread_choices() -> None:
    """Powers of two up to the cores, the cores, and the present number."""
    assert thread_choices(6, None) == [1, 2, 4, 6]
    assert thread_choices(2, 5) == [1, 2, 5]


def test_kv_bytes_follow_the_format() -> None:
    """Of this model a token takes 23,040 bytes in BF16; the null block has 16 tokens more."""
    assert kv_pool_size(loaded(), "bf16", 1600) == 1616 * 23_040
    assert kv_pool_size(loaded(), "fp32", 1600) == 1616 * 46_080
    assert kv_pool_size(loaded(), "int8", 1600) == 1616 * 30 * 3 * 2 * (64 + 4)


def test_windowed_layers_take_no_more_than_their_windows() -> None:
    """Ten layers keep all, twenty 1,024 tokens and a chunk for each chat; a layer's token 768."""
    config = replace(loaded().config, max_num_seqs=2, max_num_batched_tokens=512)
    groups = (KVGroupSize(10 * 768), KVGroupSize(20 * 768, 1024))
    model = replace(loaded(), config=config, kv_groups=groups)
    kept = (2 * ((1024 + 512) // 16 + 1) + 1) * 16
    assert kv_pool_size(model, "bf16", 160_000) == 7_680 * 160_016 + 15_360 * kept
    assert kv_pool_size(model, "bf16", 1600) == 23_040 * 1616


@pytest.mark.parametrize(
    ("tokens", "expected"), [(4096, ["context:8192"]), (8191, ["context:8192"]), (8192, [])]
)
def test_longer_contexts(tokens: int, expected: list[str]) -> None:
    """Only a context that is longer, long enough and within the model's own is offered."""
    assert [action.id for action in longer_contexts(loaded(), tokens)] == expected


# --- sampling ---------------------------------------------------------------------------------


def test_sampling_prefers_the_person(settings: Settings) -> None:
    """A set value wins, an unset one is the model's own."""
    settings.set(TEMPERATURE, 0.0)
    settings.set(SEED, 7)
    default = SamplingParams(temperature=0.7, top_p=0.9)
    expected = SamplingParams(temperature=0.0, top_p=0.9, seed=7)
    assert effective_sampling(settings, default) == expected


@given(st.sampled_from(SAMPLING_SETTINGS), st.text(max_size=12))
def test_typed_values_are_checked(setting: Setting[object], text: str) -> None:
    """Whatever is typed gives an acceptable value or a ValueError, nothing else."""
    try:
        value = parse(setting, text)
    except ValueError:
        return
    assert setting.accepts(value)


def test_popover_stores_and_refuses(qtbot: QtBot, settings: Settings) -> None:
    """A possible value is stored as it is typed; an impossible one is marked and not stored."""
    popover = SamplingPopover(settings)
    qtbot.addWidget(popover)
    popover.set_defaults(SamplingParams(temperature=0.7))
    assert popover.field(TEMPERATURE).placeholderText() == "0.7 (model)"
    qtbot.keyClicks(popover.field(TOP_P), "0,5")
    assert settings.get(TOP_P) == 0.5
    popover.field(MAX_TOKENS).setFocus()
    qtbot.keyClicks(popover.field(MAX_TOKENS), "0")
    assert settings.get(MAX_TOKENS) is None
    assert popover.field(MAX_TOKENS).property("wrong")


# --- appearance -------------------------------------------------------------------------------


def test_theme_follows_the_system(qtbot: QtBot, qapp: QApplication) -> None:
    """With the choice "system" the window changes with the desktop, and not otherwise."""
    hints = qapp.styleHints()
    appearance = Appearance(qapp, "system")
    with qtbot.waitSignal(appearance.theme_changed, raising=False, timeout=50):
        hints.setColorScheme(Qt.ColorScheme.Dark)
    hints.colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    dark = hints.colorScheme() == Qt.ColorScheme.Dark
    assert appearance.theme.name == ("dark" if dark else "light")
    appearance.choose("light", 1.0)
    hints.colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    assert appearance.theme.name == "light"
    hints.unsetColorScheme()
    appearance.deleteLater()
    qapp.setStyleSheet("")
    assert theme_choice("pink") == "system"


def test_resources_stay_inside() -> None:
    """A name cannot lead out of the resources; listing finds the style sheets in order."""
    for name in ("/etc/passwd", "../pyproject.toml", "themes/../../x"):
        with pytest.raises(ValueError, match="not a resource name"):
            resources.read_bytes(name)
    assert resources.names("styles", ".qss")[0] == "styles/00_base.qss"
    assert all(len(resources.read_bytes(n)) < 1_000_000 for n in resources.names("fonts", "tf"))
