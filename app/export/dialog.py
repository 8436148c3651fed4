"""Asks what goes into an exported file before it asks where the file goes."""

from __future__ import annotations

from PySide6.QtWidgets import QCheckBox, QDialog, QDialogButtonBox, QLabel, QVBoxLayout, QWidget

MARGIN = 16


class ExportDialog(QDialog):
    """What the file holds, and whether prompts and answers are in it too.

    Attributes:
        with_text: the check box, off until the person sets it.
    """

    def __init__(self, title: str, what: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        label = QLabel(what)
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
