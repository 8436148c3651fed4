"""Asks what goes into an exported file before it asks where the file goes."""

from __future__ import annotations

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QCheckBox, QDialog, QDialogButtonBox, QLabel, QVBoxLayout, QWidget

WIDTH, MARGIN = 440, 16


class ExportDialog(QDialog):
    """What the file holds, and whether prompts and answers are in it too.

    Attributes:
        with_text: the check box, off until the person sets it.
    """

    def __init__(self, title: str, what: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self.setMinimumWidth(WIDTH)
        self._what = label = QLabel(what)
        label.setWordWrap(True)
        self.with_text = QCheckBox(self.tr("Include prompts and answers"))
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel)
        go_on = buttons.addButton(self.tr("Save as…"), QDialogButtonBox.ButtonRole.AcceptRole)
        go_on.setDefault(True)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        column = QVBoxLayout(self)
        column.setContentsMargins(MARGIN, MARGIN, MARGIN, MARGIN)
        column.setSpacing(12)
        column.addWidget(label)
        column.addWidget(self.with_text)
        column.addWidget(buttons)

    # Qt overrides

    def event(self, event: QEvent) -> bool:
        # A window does not follow the height of words that wrap, and larger text takes more.
        if event.type() in (QEvent.Type.Show, QEvent.Type.LayoutRequest):
            self._what.setMinimumHeight(self._what.heightForWidth(WIDTH - 2 * MARGIN))
        return super().event(event)
