"""Render every state of the window in four sizes and both themes.

`python -m tests.contact_sheet OUT` writes single pictures as STATE-WxH-THEME.png and one sheet
a theme as sheet-THEME.png.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QCoreApplication, QEvent, QRect, Qt
from PySide6.QtGui import QColor, QPainter, QPixmap
from PySide6.QtWidgets import QApplication, QWidget

from app.appearance import ThemeChoice
from app.theme import load_theme
from tests.contact_sheet.states import STATES, State, open_state
from tests.fakes.window import FakeProgram, settle

SIZES = ((1440, 900), (1280, 720), (1093, 614), (900, 600))
THEMES: tuple[ThemeChoice, ...] = ("dark", "light")
THUMBNAIL_SCALE = 0.5
GAP = 24
CAPTION = 28


def render(state: State, theme: ThemeChoice, app: QApplication) -> dict[tuple[int, int], QPixmap]:
    """The state in every size."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["PHASESCOPE_HOME"] = home
        program = open_state(state, app, theme)
        pictures = {}
        for size in SIZES:
            program.window.resize(*size)
            settle(120)
            program.window.panel.plots.redraw()
            settle(20)
            pictures[size] = _with_dialog(program)
        program.close()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    return pictures


def _with_dialog(program: FakeProgram) -> QPixmap:
    """The window, and over it the dialog or menu that is open, which is a window of its own."""
    picture = program.window.grab()
    menu = QApplication.activePopupWidget()
    if menu is not None:
        painter = QPainter(picture)
        painter.drawPixmap(program.window.mapFromGlobal(menu.pos()), menu.grab())
        painter.end()
    for dialog in program.window.findChildren(QWidget):
        if not dialog.isWindow() or not dialog.isVisible() or dialog is menu:
            continue
        if hasattr(dialog, "fit_into"):
            dialog.fit_into(program.window.size())
            settle(60)
        over = dialog.grab()
        painter = QPainter(picture)
        painter.drawPixmap((picture.rect().center() - over.rect().center()), over)
        painter.end()
    return picture


def compose(theme: ThemeChoice, pictures: dict[str, dict[tuple[int, int], QPixmap]]) -> QPixmap:
    """A row a state, a column a size."""
    tokens = load_theme("light" if theme == "light" else "dark")
    widths = [round(w * THUMBNAIL_SCALE) for w, _ in SIZES]
    height = round(max(h for _, h in SIZES) * THUMBNAIL_SCALE)
    row = height + CAPTION + GAP
    sheet = QPixmap(sum(widths) + GAP * (len(SIZES) + 1), row * len(pictures) + GAP)
    sheet.fill(QColor(tokens.line))
    painter = QPainter(sheet)
    painter.setFont(tokens.font(15, bold=True))
    painter.setPen(QColor(tokens.text))
    for line, (title, sizes) in enumerate(pictures.items()):
        x, y = GAP, GAP + line * row
        painter.drawText(QRect(x, y, 800, CAPTION), Qt.AlignmentFlag.AlignVCenter, title)
        for size, width in zip(SIZES, widths, strict=True):
            small = sizes[size].scaledToWidth(width, Qt.TransformationMode.SmoothTransformation)
            painter.drawPixmap(x, y + CAPTION, small)
            x += width + GAP
    painter.end()
    return sheet


def main() -> int:
    """Render what is asked for; exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.contact_sheet", description=__doc__)
    parser.add_argument("out", type=Path, help="folder for the pictures")
    parser.add_argument("--state", choices=[s.name for s in STATES], help="only this state")
    parser.add_argument("--theme", choices=THEMES, help="only this theme")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    app = QApplication([])
    for theme in [args.theme] if args.theme else THEMES:
        pictures = {}
        for state in STATES:
            if args.state in (None, state.name):
                pictures[state.title] = render(state, theme, app)
                for (width, height), picture in pictures[state.title].items():
                    name = f"{state.name}-{width}x{height}-{theme}.png"
                    picture.save(str(args.out / name))
        compose(theme, pictures).save(str(args.out / f"sheet-{theme}.png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
