"""The block map beside chats: whose blocks are whose, and when the map is there at all."""

from __future__ import annotations

from pytestqt.qtbot import QtBot

from app.settings.schema import CONTEXT_POLICY, SHOW_BLOCKS
from app.telemetry.block_grid import BlockGrid
from engine.config import EngineConfig
from engine.events import BlockMap, Event, LoadFailed
from tests.app.conftest import MakeProgram
from tests.fakes.fake_session import Script
from tests.fakes.window import MODEL, FakeProgram, wait_until

SYSTEM = "Answer in a few plain words and say when you do not know. " * 6


def ask(program: FakeProgram, text: str) -> None:
    """Send and wait until the answer is held."""
    assert program.window.conversations.send(text)
    request_id = program.window.conversations.current_request
    script = program.session.script

    def held() -> bool:
        trace = program.window.telemetry.model.request(request_id or "")
        return trace is not None and len(trace.tokens) == script.hold_decode_at

    wait_until(held)


def grid(program: FakeProgram) -> BlockGrid:
    """The map of the only group, up to date."""
    program.window.panel.block_map.refresh()
    (grid,) = program.window.panel.block_map.grids
    return grid


def cells(program: FakeProgram) -> list[str]:
    """What is told of each cell that is not free."""
    drawn = grid(program)
    assert drawn.cells is not None
    texts = map(drawn.describe, range(len(drawn.cells.used)))
    return [text for text in texts if ": free" not in text]


def test_two_chats_share_a_prefix(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Blocks are named by their chat: by both where they begin alike; another name is taken up."""
    program = make_program(Script(hold_decode_at=30))
    program.load()
    chats = program.window.conversations
    chats.set_system_prompt(SYSTEM)
    ask(program, "First?")
    chats.new_chat()
    ask(program, "Second?")
    program.session.script.hold_decode_at = 200  # the next event brings the newest map
    wait_until(lambda: len(cells(program)) > 20)
    told = cells(program)
    assert "shared" in told[0]
    assert "“First?”, “Second?”" in told[0]
    assert any("“Second?”" in text and "“First?”" not in text for text in told)
    assert any("“First?”" in text and "“Second?”" not in text for text in told)
    chats.library.rename(chats.current.chat.id, "Another name")
    assert "“Another name”" in cells(program)[0]
    chats.delete(chats.current.chat.id)
    assert any("a deleted chat" in text for text in cells(program))


def test_open_chat_decides_what_stands_out(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Its blocks are strong; with another chat open they are quiet."""
    program = make_program(Script())
    program.load()
    chats = program.window.conversations
    chats.send("First?")
    wait_until(lambda: not program.controller.active_requests)
    first = grid(program).grab().toImage()
    chats.new_chat()
    wait_until(lambda: grid(program).grab().toImage() != first)
    chats.select(chats.library.chats[0].id)
    wait_until(lambda: grid(program).grab().toImage() == first)


def test_a_sliding_answer_gives_blocks_back(qtbot: QtBot, make_program: MakeProgram) -> None:
    """A context of 32 blocks keeps 20 of them when it slides, and the map says so."""
    program = make_program(Script(answer="word " * 560))
    program.settings.set(CONTEXT_POLICY, "slide")
    program.window.loading.load(EngineConfig(MODEL, context_length=512))
    wait_until(lambda: program.controller.model is not None)
    used: list[int] = []

    def note(events: list[Event]) -> None:
        maps = [event for event in events if isinstance(event, BlockMap)]
        used.extend(sum(each.groups[0].used) for each in maps)

    program.controller.events_received.connect(note)
    assert program.window.conversations.send("why?")
    wait_until(lambda: not program.controller.active_requests)
    assert max(used) > 28
    fullest = used.index(max(used))
    assert 20 <= used[fullest + 1] < 24
    assert used[-1] == 0, "it has ended"


def test_map_is_switched_from_the_menu(qtbot: QtBot, make_program: MakeProgram) -> None:
    """View, Block map: hidden or shown at once, and the same in the next window."""
    program = make_program()
    action = program.window.actions_table["view.blocks"]
    panel = program.window.panel.block_map
    assert action.isChecked()
    assert panel.isVisible()
    action.trigger()
    assert not panel.isVisible()
    assert not program.settings.get(SHOW_BLOCKS)
    later = make_program()
    assert not later.window.panel.block_map.isVisible()
    assert not later.window.actions_table["view.blocks"].isChecked()
    later.window.actions_table["view.blocks"].trigger()
    assert later.window.panel.block_map.isVisible()


def test_map_goes_with_the_model(qtbot: QtBot, make_program: MakeProgram) -> None:
    """Unloaded or not loaded after all: there is no pool, and none is shown."""
    program = make_program()
    program.load()
    blocks = program.window.telemetry.model
    assert blocks.blocks is not None
    program.window.actions_table["model.unload"].trigger()
    wait_until(lambda: blocks.blocks is None)
    program.load()
    assert blocks.blocks is not None
    failure = LoadFailed("bad_file", "It broke.", "It is cut off.", "Fetch it again.")
    program.session.script.load_failure = failure
    program.window.loading.load(EngineConfig("broken.gguf"))
    wait_until(lambda: blocks.blocks is None)
