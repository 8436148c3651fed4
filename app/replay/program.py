"""The program that only plays a recording: no model, no engine, no chats."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtWidgets import QApplication

from app import folders
from app.appearance import Appearance, theme_choice
from app.program import SignalWatch
from app.replay.recording import RecordingError, read_recording
from app.replay.window import ReplayWindow
from app.settings.schema import FONT_SCALE, THEME
from app.settings.store import Settings


def run_replay(app: QApplication, path: Path) -> str:
    """Show a recording until its window is closed; gives why it could not, else nothing."""
    try:
        recording = read_recording(path)
    except RecordingError as error:
        return f"{path}: {error}"
    app.setApplicationName("Phasescope")
    app.setDesktopFileName("phasescope")
    settings = Settings(folders.config_folder() / "settings.json", read_only=True)
    appearance = Appearance(app, theme_choice(settings.get(THEME)), settings.get(FONT_SCALE))
    window = ReplayWindow(appearance.theme, recording, path.name)
    appearance.theme_changed.connect(window.set_theme)
    watch = SignalWatch(window.close)
    window.show()
    window.player.play()
    app.exec()
    watch.close()
    return ""
