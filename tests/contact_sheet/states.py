"""The states of the window that are drawn, looked at and kept good, each from fixed data."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app import folders
from app.appearance import ThemeChoice
from app.chat.store import Chat, ChatMessage, ChatStore, new_id
from app.explained.story import Step
from app.race.dialog import RaceDialog
from app.settings.schema import CONTEXT_POLICY, SHOW_STAGES
from engine.config import ContextPolicy, EngineConfig
from engine.session import EngineError
from tests.contact_sheet import comparing, explained, finding, machine, planning, sweeping
from tests.contact_sheet.explained import at_step
from tests.fakes.fake_session import Script
from tests.fakes.window import MODEL, FakeProgram, settle, wait_until

QUESTION = "Why is the first token slow and the rest fast? Show me the loop."
SECOND_QUESTION = "And what does the cache cost me at 4k?"
REPORT = (
    "Sales rose by four percent, mostly in the north. Two depots were closed and one was opened. "
    "The new warehouse software cost more than planned and saved less. Staff stayed, which the "
    "board thinks the best result of the year. Rents are expected to rise again in spring. "
)
LONG_QUESTION = "Summarise this report in five points.\n\n" + REPORT * 45
SHORT_ANSWER = (
    "For this model every token keeps a key and a value of 3 heads x 64 numbers in each of 30 "
    "layers: 23,040 bytes in BF16. At 4,096 tokens that is 94 MB, about two thirds of the weights "
    "themselves, and every decode step reads all of it. A longer context reserves more; it costs "
    "time only as it fills."
)
UNSUPPORTED = "mamba2-370m.gguf"
PROBLEM = EngineError(
    "The architecture “mamba2” is not supported.",
    "The file holds a state-space model; this program runs Llama models.",
    "Open a Llama model in GGUF or safetensors.",
)
SETTLE_MS = 350
TITLES = (
    ("Quicksort in Python", 0),
    ("法语翻译练习", 0),
    ("INT4 against INT8", 5),
    ("Letter to the landlord", 6),
    ("Long context test, 8k", 6),
)


@dataclass(frozen=True, slots=True)
class State:
    """A name for the file, a title for the sheet, and the steps that lead there."""

    name: str
    title: str
    script: Script
    take_steps: Callable[[FakeProgram], None]
    has_history: bool = True


def open_state(state: State, app: QApplication, theme: ThemeChoice) -> FakeProgram:
    """A window in this state; the caller closes it."""
    if state.has_history:
        _write_old_chats()
    program = FakeProgram(app, replace(state.script), theme)
    try:
        program.show()
        program.window.conversations.library.read()
        state.take_steps(program)
    except BaseException:
        program.close()
        raise
    settle(SETTLE_MS)
    program.window.panel.plots.redraw()
    return program


def _write_old_chats() -> None:
    store = ChatStore(folders.chats_folder())
    now = datetime.now(UTC)
    for index, (title, days) in enumerate(TITLES):
        then = now - timedelta(days=days, minutes=index)
        question, answer = ChatMessage(new_id(), "user", title), ChatMessage(new_id(), "assistant")
        answer.text = SHORT_ANSWER
        store.save(Chat(new_id(), title, then, then, "", [question, answer]))


def _begin_to_load(program: FakeProgram) -> None:
    program.begin_load()
    wait_until(lambda: program.controller.loading is not None)


def _long_prefill(program: FakeProgram) -> None:
    program.load()
    _ask(program, QUESTION)
    program.session.script.hold_prefill_at = 0.35
    program.window.conversations.send(LONG_QUESTION)
    wait_until(lambda: _reading(program))
    program.sample(97.0)


def _decoding(program: FakeProgram) -> None:
    program.load()
    _ask(program, QUESTION)
    script = program.session.script
    script.answer, script.hold_decode_at, script.prefill_tok_s = SHORT_ANSWER, 48, 300.0
    _send(program, SECOND_QUESTION)
    _wait_for_tokens(program, 48)
    program.sample(89.0)


def _finished(program: FakeProgram) -> None:
    program.load()
    _ask(program, QUESTION)
    _wait_for_note(program)


def _error(program: FakeProgram) -> None:
    program.load()
    program.window.conversations.send(QUESTION * 330)
    wait_until(lambda: any(m.role == "error" for m in _messages(program)))
    program.window.composer.clear()
    program.window.loading.load(EngineConfig(UNSUPPORTED))
    wait_until(lambda: program.window.cards.card("load") is not None)


def _step_times(program: FakeProgram) -> None:
    program.settings.set(SHOW_STAGES, True)
    _decoding(program)


def _two_chats(program: FakeProgram) -> None:
    program.load()
    _send(program, QUESTION)
    _wait_for_tokens(program, 30)
    program.session.script.hold_decode_at = 90
    program.window.conversations.new_chat()
    _send(program, SECOND_QUESTION)
    _wait_for_tokens(program, 90)
    program.sample(92.0)


def _sharing(program: FakeProgram) -> None:
    program.window.conversations.set_system_prompt(REPORT * 3)
    _two_chats(program)


def _long_context(program: FakeProgram) -> None:
    program.window.loading.load(EngineConfig(MODEL, context_length=49_152))
    wait_until(lambda: program.controller.model is not None)
    _ask(program, SECOND_QUESTION + LONG_QUESTION * 3)
    program.window.conversations.new_chat()
    program.session.script.hold_decode_at = 30
    _send(program, LONG_QUESTION * 6)
    _wait_for_tokens(program, 30)
    program.session.script.hold_decode_at = 60
    program.window.conversations.new_chat()
    _send(program, REPORT + LONG_QUESTION * 2)
    _wait_for_tokens(program, 60)
    program.sample(92.0)


def _compare(program: FakeProgram) -> None:
    """The comparison of an answer, as far as the script lets it go."""
    program.load()
    _ask(program, QUESTION)
    dialog = program.window.instruments.comparisons.open()
    assert dialog is not None
    dialog.start.click()
    wait_until(lambda: not dialog.run.is_running)


def _compare_half(program: FakeProgram) -> None:
    program.load()
    _ask(program, QUESTION)
    dialog = program.window.instruments.comparisons.open()
    assert dialog is not None
    program.session.script.hold_decode_at = 90
    dialog.start.click()
    wait_until(lambda: len(dialog.run.uncached_ms) == 89)


def _roofline_empty(program: FakeProgram) -> None:
    program.load()
    program.window.instruments.roofline.open()


def _roofline(program: FakeProgram) -> None:
    """An answer to a long prompt, a step of which is read, and an earlier short one."""
    program.load()
    _ask(program, SECOND_QUESTION)
    program.window.conversations.new_chat()
    _ask(program, LONG_QUESTION)
    dialog = program.window.instruments.roofline.open()
    QTest.keyClick(dialog.plot, Qt.Key.Key_End)


def _roofline_live(program: FakeProgram) -> None:
    program.load()
    program.window.instruments.roofline.open()
    program.session.script.hold_decode_at = 48
    _send(program, LONG_QUESTION)
    _wait_for_tokens(program, 48)


def _replay(program: FakeProgram, *, with_text: bool) -> None:
    """A recording of an answer, in the middle of its decoding."""
    program.load()
    _ask(program, SECOND_QUESTION)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.phasescope"
        program.window.telemetry.session.save(path, with_text=with_text)
        window = program.window.instruments.replay.play(path)
    assert window is not None
    player = window.player
    player.pause()
    player.seek(player.start_ns + (player.end_ns - player.start_ns) * 7 // 10)


def _session(program: FakeProgram) -> None:
    """Three answers in two chats, minutes apart, one read; the last one still streaming."""
    program.load()
    _ask(program, SECOND_QUESTION)
    program.clock.now_ns += 200 * S
    _ask(program, QUESTION)
    program.clock.now_ns += 45 * S
    program.window.conversations.new_chat()
    program.session.script.hold_decode_at = 48
    _send(program, LONG_QUESTION)
    _wait_for_tokens(program, 48)
    program.window.panel.show_view("session", by_token=False)
    program.window.panel.plots.read_token(20, program.window.telemetry.model.requests[1])


def _by_token(program: FakeProgram) -> None:
    """A long prompt's answer over its tokens."""
    program.load()
    _ask(program, LONG_QUESTION)
    program.window.panel.show_view("answer", by_token=True)


def _live(program: FakeProgram) -> None:
    """The newest seconds of a long answer."""
    program.load()
    program.session.script.itl_ms, program.session.script.hold_decode_at = 90.0, 190
    _send(program, QUESTION)
    _wait_for_tokens(program, 190)
    program.window.panel.show_view("live", by_token=False)


def _example(program: FakeProgram) -> None:
    """The recording that ships, in its second answer, a word of it read."""
    window = program.window.instruments.replay.play_example()
    player = window.player
    player.pause()
    player.seek(player.start_ns + (player.end_ns - player.start_ns) * 9 // 10)
    settle(100)
    window.panel.block_map.refresh()
    window.panel.plots.read_token(40)


def _race(program: FakeProgram) -> None:
    """INT4 against INT8, as far as the script lets it go."""
    program.window.loading.load(EngineConfig(MODEL, weight_format="int8"))
    wait_until(lambda: program.controller.model is not None)
    _ask(program, QUESTION)
    dialog = program.window.instruments.races.open()
    assert dialog is not None
    dialog.choose({"weight_format": "int4"})
    settle(100)
    program.session.script.hold_decode_at = program.session.script.hold_decode_at or 90
    dialog.start.click()
    race = dialog.race
    wait_until(lambda: race.trace is not None and len(race.trace.tokens) >= 90)


def _raced(program: FakeProgram) -> None:
    _race(program)
    dialog = program.window.findChildren(RaceDialog)[0]
    program.session.release()
    wait_until(lambda: not dialog.race.is_running)


def _export(program: FakeProgram) -> None:
    """What a report holds, and whether prompts and answers are in it."""
    program.load()
    _ask(program, SECOND_QUESTION)
    program.window.instruments.exports.open_report()


def _filled(program: FakeProgram, policy: ContextPolicy, context: int) -> None:
    """Several turns in a context too short for them."""
    program.settings.set(CONTEXT_POLICY, policy)
    program.window.loading.load(EngineConfig(MODEL, context_length=context))
    wait_until(lambda: program.controller.model is not None)
    program.session.script.answer = SHORT_ANSWER
    for question in (QUESTION, SECOND_QUESTION, "Which of the two grows faster?"):
        _ask(program, question)
    program.window.composer.set_text("And how would a longer context change that?")
    settle(100)


def _slow_start(program: FakeProgram) -> None:
    program.load()
    _ask(program, LONG_QUESTION)
    _wait_for_note(program)


def _slow_stream(program: FakeProgram) -> None:
    """FP32 on one thread of a slow machine, its figures shown."""
    config = EngineConfig(MODEL, weight_format="fp32", threads=1)
    program.window.loading.load(config)
    wait_until(lambda: program.controller.model is not None)
    _ask(program, SECOND_QUESTION)
    _wait_for_note(program)
    program.window.conversations.current.toggle_note(_messages(program)[-1].id)


def _apply_cure(program: FakeProgram) -> None:
    _slow_stream(program)
    note = _messages(program)[-1].note
    assert note is not None
    before = program.controller.model
    program.window.chat_view.action_requested.emit(note.actions[0].id)
    wait_until(lambda: program.controller.model not in (None, before))


def _measure_cure(program: FakeProgram) -> None:
    _apply_cure(program)
    program.session.script.itl_ms = 33.0
    _ask(program, "Again, please.")
    _wait_for_note(program)


def _wait_for_note(program: FakeProgram) -> None:
    wait_until(lambda: _messages(program)[-1].note is not None)


def _hover(program: FakeProgram) -> None:
    """The crosshair on a token in the middle of the answer."""
    _finished(program)
    trace = program.window.telemetry.model.selected
    assert trace is not None
    times = trace.tokens["t_s"]
    program.window.panel.plots.redraw()
    program.window.panel.plots.read(float(times[len(times) // 3]))


def _send(program: FakeProgram, text: str) -> None:
    assert program.window.conversations.send(text)
    program.sample(96.0)


def _ask(program: FakeProgram, text: str) -> None:
    """Send and wait for the end of the answer, with a sensor reading in between."""
    _send(program, text)
    wait_until(lambda: not program.controller.active_requests)
    program.sample(88.0)


def _messages(program: FakeProgram) -> list[ChatMessage]:
    return program.window.conversations.current.chat.messages


def _reading(program: FakeProgram) -> bool:
    trace = program.window.telemetry.model.selected
    return trace is not None and trace.tokens_done > 0


def _wait_for_tokens(program: FakeProgram, tokens: int) -> None:
    def there() -> bool:
        trace = program.window.telemetry.model.selected
        return trace is not None and len(trace.tokens) >= tokens

    wait_until(there)


ROOMY = Script(available_bytes=21_600_000_000)
UNMEASURED = Script(is_measured=False, available_bytes=21_600_000_000)
PLAIN = Script(prefill_tok_s=700.0)
SLOW_TO_START = Script(answer=SHORT_ANSWER, prefill_tok_s=396.0, matmul_flops=160e9)
SLOW_TO_STREAM = Script(answer=SHORT_ANSWER, itl_ms=95.0, bandwidth=6e9)
SHORT = Script(answer=SHORT_ANSWER)
S = 10**9
RACING = Script(itl_ms_as={"int8": 9.6, "int4": 6.4})
STATES = (
    State("first-start", "First start", Script(hold_load_at=0.0), _begin_to_load, False),
    State("empty-chat", "Empty chat", Script(), FakeProgram.load),
    State("loading", "Loading", Script(hold_load_at=0.6), _begin_to_load),
    State("long-prefill", "Long prefill", Script(prefill_tok_s=396.0), _long_prefill),
    State("decoding", "Decoding", Script(), _decoding),
    State("finished", "Finished, with code and a table", Script(prefill_tok_s=120.0), _finished),
    State("hover", "Reading a moment of an answer", Script(), _hover),
    State("error", "Error, with an action", Script(bad_paths={UNSUPPORTED: PROBLEM}), _error),
    State("models", "Choosing a model", Script(), finding.filled),
    State("models-empty", "No models", Script(), finding.empty, False),
    State("download", "Choosing a download", Script(), finding.choosing_download),
    State("downloading", "Downloading", Script(), finding.downloading),
    State("quantize", "Choosing how to quantize", Script(), finding.choosing_quantization),
    State("quantizing", "Quantizing", Script(), finding.quantizing),
    State("quantized", "Quantized", Script(), finding.quantized),
    State("quantize-refused", "Not quantized", Script(), finding.requantizing),
    State("weights", "Choosing weights", Script(), finding.weights_menu),
    State("measuring", "Measuring quality", Script(), finding.measuring),
    State("planner", "Planning the loaded model", Script(), planning.loaded),
    State("planner-limit", "Planning a model that nearly fits", ROOMY, planning.near_the_limit),
    State("planner-windows", "Planning windows, too large", Script(), planning.too_large),
    State("planner-shape", "Planning a shape only", UNMEASURED, planning.shape_only),
    State("blocks-shared", "Two chats that share a prefix", Script(hold_decode_at=30), _sharing),
    State("blocks-windows", "A model with windows", Script(windows=(128,)), _decoding),
    State("blocks-many", "Thousands of blocks", Script(), _long_context),
    State("step-times", "Where a step's time goes", Script(times_stages=True), _step_times),
    State("cache-off", "With the cache and without", Script(), _compare),
    State("cache-off-running", "Without the cache, running", Script(), _compare_half),
    State("roofline-empty", "Roofline before any step", Script(), _roofline_empty),
    State("roofline", "Roofline after an answer", Script(), _roofline),
    State("export", "Exporting a report", Script(), _export),
    State("roofline-live", "Roofline while an answer streams", Script(), _roofline_live),
    State("replay", "Replay", SHORT, lambda p: _replay(p, with_text=True)),
    State("replay-blocks", "Replay without text", SHORT, lambda p: _replay(p, with_text=False)),
    State("session", "All answers of the session", Script(), _session),
    State("by-token", "An answer over its tokens", Script(), _by_token),
    State("live", "The newest seconds of an answer", Script(), _live),
    State("replay-example", "The example recording, a word read", Script(), _example),
    State("race-running", "A race, the earlier run behind it", RACING, _race),
    State("race-finished", "A race, finished", RACING, _raced),
    State("sweep-choosing", "Choosing a sweep", Script(), sweeping.choosing),
    State("sweep-running", "A sweep, half way", Script(), sweeping.running),
    State("sweep-finished", "A sweep, finished", Script(), sweeping.finished),
    State("compare-empty", "Nothing pinned", Script(), comparing.empty),
    State("compare-two", "Two pinned runs", comparing.SCRIPT, comparing.two),
    State("compare-six", "Six pinned runs", comparing.SCRIPT, comparing.six),
    State("slow-start", "Slow to start", SLOW_TO_START, _slow_start),
    State("slow-stream", "Slow to stream, in figures", SLOW_TO_STREAM, _slow_stream),
    State("held-up", "Held up by the machine", machine.HELD_UP, machine.held_up),
    State("cure-applied", "A suggestion applied", SLOW_TO_STREAM, _apply_cure),
    State("cure-measured", "Predicted beside measured", SLOW_TO_STREAM, _measure_cure),
    State("context-stop", "Context full: stop", Script(), lambda p: _filled(p, "stop", 240)),
    State(
        "context-drop", "Oldest turns dropped", Script(), lambda p: _filled(p, "drop_turns", 240)
    ),
    State("context-slide", "Sliding window", Script(), lambda p: _filled(p, "slide", 256)),
    State("explained-prefill", "Explained: prefill", PLAIN, at_step(Step.PREFILL, "en")),
    State("explained-decode", "Explained: decode", PLAIN, at_step(Step.DECODE, "en")),
    State("explained-text", "Explained: text", PLAIN, at_step(Step.DETOKENIZE, "en")),
    State("explained-prefill-zh", "讲解：预填充", PLAIN, at_step(Step.PREFILL, "zh")),
    State("explained-decode-zh", "讲解：解码", PLAIN, at_step(Step.DECODE, "zh")),
    State("explained-text-zh", "讲解：还原", PLAIN, at_step(Step.DETOKENIZE, "zh")),
    State("explained-cached", "Explained: a cached prefix", PLAIN, explained.cached),
    State("two-chats", "Two chats generating", Script(hold_decode_at=30), _two_chats),
)
