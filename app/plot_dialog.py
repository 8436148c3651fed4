"""A plot and what it shows in words, in a window of its own beside which the chats go on."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QGuiApplication, QPixmap
from PySide6.QtWidgets import (
    QDialog,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QMessageBox,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.picture import pixmap_of, save_picture
from app.telemetry.labels import ThemedLabel
from app.telemetry.plot_header import PlotHeader
from app.theme import CONTROL_PX, LABEL_PX, READING_PX, Theme

MARGIN = 24


class PlotDialog(QDialog):
    """A card that is copied or saved as one picture, and buttons below it. Made around its `plot`.

    Attributes:
        headline, summary: what is seen, over the plot. header: the plot's title and legend.
        reading: what is said below the plot. source: what ran, the card's last line.
        save, copy, close_button: on the right of `buttons`, which has room for others before them.
        body: the row the card stands in, which has room for others before it.
    """

    def __init__(
        self, theme: Theme, title: str, size: QSize, plot: QWidget, parent: QWidget
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self._window, self._theme, self._size = parent, theme, size
        self.headline = ThemedLabel(theme, READING_PX, "text", bold=True)
        self.summary = ThemedLabel(theme, CONTROL_PX, "muted")
        self.header = PlotHeader(theme)
        self.reading = ThemedLabel(theme, CONTROL_PX, "text")
        self.source = ThemedLabel(theme, LABEL_PX + 0.5, "faint")
        self.picture = QFrame()
        self.body = QHBoxLayout()
        self.save = QPushButton(self.tr("Save picture…"))
        self.copy = QPushButton()
        self.close_button = QPushButton(self.tr("Close"))
        self.buttons = QHBoxLayout()
        self._fill_card(plot)
        self._lay_out()
        self.save.clicked.connect(self._ask_where)
        self.copy.clicked.connect(self._copy_picture)
        self.close_button.clicked.connect(self.reject)
        self.fit_into(parent.size())

    def fit_into(self, size: QSize) -> None:
        """Leave a margin of a window of this size; larger text takes more room."""
        wanted = self._size * self._theme.scale
        self.resize(wanted.boundedTo(size - QSize(2 * MARGIN, 2 * MARGIN)))

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._theme = theme
        for part in (self.headline, self.summary, self.header, self.reading, self.source):
            part.set_theme(theme)
        self.fit_into(self._window.size())

    def offer_copy(self, there_is_one: bool) -> None:
        """Let the picture be copied and saved as it is now, or not."""
        self.copy.setText(self.tr("Copy as picture"))
        self.copy.setEnabled(there_is_one)
        self.save.setEnabled(there_is_one)

    def pixmap(self) -> QPixmap:
        """The card at twice its size."""
        return pixmap_of(self.picture, self._theme.color("surface"))

    def tell_not_saved(self, what: str, error: OSError) -> None:
        """Say that a file could not be written, and why."""
        box = QMessageBox(QMessageBox.Icon.Warning, self.windowTitle(), what, parent=self)
        box.setInformativeText(f"{error}. {self.tr('Choose another folder.')}")
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.open()

    def _copy_picture(self) -> None:
        QGuiApplication.clipboard().setPixmap(self.pixmap())
        self.copy.setText(self.tr("Copied"))

    def _ask_where(self) -> None:
        dialog = QFileDialog(self, self.tr("Save picture"))
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilters([self.tr("Picture (*.png)"), self.tr("Vector drawing (*.svg)")])
        dialog.setDefaultSuffix("png")
        dialog.selectFile("phasescope.png")
        dialog.fileSelected.connect(self._save_picture_as)
        dialog.finished.connect(dialog.deleteLater)
        dialog.open()

    def _save_picture_as(self, file: str) -> None:
        try:
            background = self._theme.color("surface")
            save_picture(self.picture, Path(file), background, self.windowTitle())
        except OSError as error:
            self.tell_not_saved(self.tr("The picture could not be saved."), error)

    def _fill_card(self, plot: QWidget) -> None:
        self.picture.setObjectName("plotCard")
        for label in (self.headline, self.summary, self.reading, self.source):
            label.setWordWrap(True)
        column = QVBoxLayout(self.picture)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(4)
        column.addWidget(self.headline)
        column.addWidget(self.summary)
        column.addSpacing(8)
        column.addWidget(self.header)
        column.addWidget(plot, 1)
        column.addSpacing(8)
        column.addWidget(self.reading)
        column.addWidget(self.source)

    def _lay_out(self) -> None:
        self.buttons.setSpacing(8)
        self.buttons.addStretch(1)
        self.buttons.addWidget(self.save)
        self.buttons.addWidget(self.copy)
        self.buttons.addWidget(self.close_button)
        column = QVBoxLayout(self)
        column.setSizeConstraint(QVBoxLayout.SizeConstraint.SetNoConstraint)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        self.body.setSpacing(12)
        self.body.addWidget(self.picture, 1)
        column.addLayout(self.body, 1)
        column.addLayout(self.buttons)
