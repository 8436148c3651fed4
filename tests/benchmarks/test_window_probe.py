"""The probe measures what it says: holds of the GUI thread, and paints after key presses."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, QTimer
from pytestqt.qtbot import QtBot

from app.chat.draft_edit import DraftEdit
from tests.benchmarks.window_probe import BEAT_MS, Heartbeat, Typist

HOLD_MS = 80


def test_heartbeat_tells_a_hold_in_the_phase_it_happened(qtbot: QtBot) -> None:
    """A slot that holds the thread shows up as lateness of the next beat, with its phase."""
    parent = QObject()
    heartbeat = Heartbeat(parent)
    heartbeat.start()
    qtbot.waitUntil(lambda: len(heartbeat.beats["load"]) >= 3)

    def hold() -> None:
        time.sleep(HOLD_MS / 1e3)  # the fault itself, not a wait for something
        heartbeat.phase = "idle"  # what comes after belongs to the next phase

    QTimer.singleShot(0, hold)
    qtbot.waitUntil(lambda: len(heartbeat.beats["idle"]) >= 1)
    parent.deleteLater()
    worst = max(late for _, late in heartbeat.beats["load"])
    assert worst >= HOLD_MS - 2 * BEAT_MS


def test_typist_times_each_key_to_its_paint_and_leaves_the_draft(qtbot: QtBot) -> None:
    """Every press gets one latency, positive, under the phase of its press."""
    edit = DraftEdit()
    qtbot.addWidget(edit)
    edit.resize(300, 40)
    with qtbot.waitExposed(edit):
        edit.show()
    typist = Typist(edit, edit)
    typist.start()
    qtbot.waitUntil(lambda: len(typist.paint_ms["idle"]) >= 4)
    typist.phase = "decode"
    qtbot.waitUntil(lambda: len(typist.paint_ms["decode"]) >= 2)
    typist.stop()
    assert all(latency > 0 for values in typist.paint_ms.values() for latency in values)
    assert edit.text() in ("", "a")
