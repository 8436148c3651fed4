"""A plot and what it shows in words, in a window of its own beside which the chats go on."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QSize
from PySide6.QtGui import QGuiApplication, QPixmap
from PySide6.QtWidgets import QDialog, QFrame, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.telemetry.labels import ThemedLabel
from app.telemetry.plot_header import PlotHeader
from app.theme import CONTROL_PX, LABEL_PX, READING_PX, Theme

MARGIN = 24
PICTURE_SCALE = 2


class PlotDialog(QDialog):
    """A card that is copied as one picture, and buttons below it. Made around its `plot`.

    Attributes:
        headline, summary: what is seen, over the plot. header: the plot's title and legend.
        reading: what is said below the plot. source: what ran, the card's last line.
        copy, close_button: on the right of `buttons`, which has room for others before them.
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
        self.copy = QPushButton()
        self.close_button = QPushButton(self.tr("Close"))
        self.buttons = QHBoxLayout()
        self._fill_card(plot)
        self._lay_out()
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
        """Let the picture be copied as it is now, or not."""
        self.copy.setText(self.tr("Copy as picture"))
        self.copy.setEnabled(there_is_one)

    def pixmap(self) -> QPixmap:
        """The card at twice its size."""
        pixmap = QPixmap(self.picture.size() * PICTURE_SCALE)
        pixmap.setDevicePixelRatio(PICTURE_SCALE)
        pixmap.fill(self._theme.color("surface"))
        self.picture.render(pixmap, QPoint())
        return pixmap

    def _copy_picture(self) -> None:
        QGuiApplication.clipboard().setPixmap(self.pixmap())
        self.copy.setText(self.tr("Copied"))

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
        self.buttons.addWidget(self.copy)
        self.buttons.addWidget(self.close_button)
        column = QVBoxLayout(self)
        column.setSizeConstraint(QVBoxLayout.SizeConstraint.SetNoConstraint)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        column.addWidget(self.picture, 1)
        column.addLayout(self.buttons)
