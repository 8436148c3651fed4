"""Makes the recording that ships with the program: two answers of the starter model.

Run: python -m tests.example_recording

It records the real program on this machine, so that what is played has happened. Look at the
result with `phasescope --replay resources/recordings/first-answer.phasescope` before it ships.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QApplication

from app.main import parser
from app.program import Program
from app.replay.recording import read_recording
from engine.config import SamplingParams
from engine.starter import starter_model_path

TARGET = Path(__file__).parent.parent / "resources" / "recordings" / "first-answer.phasescope"
CONTEXT, MAX_TOKENS = 2048, 150
PAUSE_MS = 1500
PASSAGE = """This is the beginning of a story for children.

At the end of a narrow bay, where the fishing boats turn for home, there was a lighthouse with a \
green door. Its keeper was called Marta. Every evening she climbed the hundred and twelve steps, \
wiped the salt from the glass, and lit the lamp. Every morning she put it out, drank a cup of tea \
on the lowest step, and wrote into a blue book how many ships had passed.

One autumn a young gull with a bent wing fell on the gallery. Marta carried it inside in her \
woollen hat. She gave it water from a thimble and small pieces of herring, and at night it slept \
in a drawer beside the stove. She named it Admiral, because it looked at everybody as if they \
should have polished their shoes.

Admiral could not fly, but it learned to climb the stairs, one hop after the other. It sat beside \
the lamp and watched the sea with its head on one side. Soon Marta noticed something strange. \
Whenever a ship was about to come round the cape, long before she saw its lights, the gull stamped \
its left foot twice. At first she thought that it was hungry. Then she began to write the stamps \
into the blue book, in a column of their own, and after a month she counted. The gull had never \
been wrong.

In the first week of December the fog came. It was so thick that Marta could not see her own hand \
on the rail. The lamp made a white room around the tower, and beyond it there was nothing. She \
rang the bell every two minutes, as the rules said, and listened. A little after midnight Admiral \
woke up, hopped to the very edge of the gallery, and stamped its left foot. Not twice, but again \
and again, and it would not stop.
"""
QUESTIONS = (
    f"{PASSAGE}\nWrite the next part of the story.",
    "Which title would fit this story?",
)


class Conversation(QObject):
    """Asks one question after the other, then saves the recording and closes the window."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._window = program.window
        self._left = list(QUESTIONS)
        self._pause = QTimer(self, interval=PAUSE_MS, singleShot=True)
        self._pause.timeout.connect(self._go_on)
        program.controller.model_loaded.connect(self._pause.start)
        self._window.conversations.activity_changed.connect(self._on_activity)

    def _on_activity(self) -> None:
        if not self._window.conversations.generating_chats():
            self._pause.start()

    def _go_on(self) -> None:
        if self._left:
            assert self._window.conversations.send(self._left.pop(0))
        else:
            self._window.telemetry.session.save(TARGET, with_text=True)
            self._window.close_at_once()


def main() -> int:
    """Record, and say what came of it."""
    model = starter_model_path()
    assert model is not None, "the starter model is not installed"
    app = QApplication(sys.argv[:1])
    with tempfile.TemporaryDirectory() as home:
        os.environ["PHASESCOPE_HOME"] = home
        args = parser().parse_args([])
        given = {"model_path": model, "context_length": CONTEXT}
        program = Program(app, args, given, Path(home), None)
        program.window.resize(1440, 900)
        sampling = SamplingParams(0.6, top_p=0.9, repetition_penalty=1.15, seed=8)
        program.window.conversations.set_base(sampling, MAX_TOKENS)
        conversation = Conversation(program)
        code, reason = program.run()
        conversation.deleteLater()
    if code or reason:
        sys.stderr.write(f"{reason}\n")
        return code
    recording = read_recording(TARGET)
    seconds = (recording.end_ns - recording.t0_ns) / 1e9
    size = TARGET.stat().st_size
    sys.stdout.write(f"{len(recording.items)} items, {seconds:.1f} s, {size:,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
