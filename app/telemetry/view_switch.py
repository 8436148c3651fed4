"""The row over the plots that chooses what they show, and in which unit their axis counts."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QFrame, QHBoxLayout, QPushButton, QWidget

from app.telemetry.plot_area import RIGHT_MARGIN, axis_width
from app.telemetry.timeline import VIEWS, View
from app.theme import LABEL_PX, Theme


class Segments(QFrame):
    """Buttons side by side of which one is down; arrow keys go from one to the next.

    Signals:
        chosen(int): the person clicked this one, also when it was down already.
    """

    chosen = Signal(int)

    def __init__(self, name: str, texts: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.setObjectName("segments")
        self.setAccessibleName(name)
        self._group = QButtonGroup(self)
        row = QHBoxLayout(self)
        row.setContentsMargins(1, 1, 1, 1)
        row.setSpacing(0)
        for number, (text, tip) in enumerate(texts):
            button = QPushButton(text)
            button.setProperty("kind", "segment")
            button.setCheckable(True)
            button.setToolTip(tip)
            button.setCursor(Qt.CursorShape.PointingHandCursor)
            self._group.addButton(button, number)
            row.addWidget(button)
        self._group.idClicked.connect(self.chosen)

    @property
    def current(self) -> int:
        """The one that is down."""
        return self._group.checkedId()

    def buttons(self) -> list[QPushButton]:
        """All of them, from left to right."""
        return [b for b in self._group.buttons() if isinstance(b, QPushButton)]

    def show_current(self, number: int) -> None:
        """Let another one be down, without telling anyone."""
        self._group.button(number).setChecked(True)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        for button in self.buttons():
            button.setFont(theme.font(LABEL_PX))


class ViewSwitch(QWidget):
    """Newest seconds, this answer or the session; of an answer in seconds or in tokens.

    Signals:
        chosen(str view, bool by_token): the person wants to see this.
    """

    chosen = Signal(str, bool)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.views = Segments(
            self.tr("What the plots show"),
            [
                (self.tr("Live"), self.tr("The newest seconds of the answer")),
                (self.tr("Answer"), self.tr("The whole answer, from Send on")),
                (self.tr("Session"), self.tr("All answers, idle times left out")),
            ],
        )
        self.units = Segments(
            self.tr("Unit of the axis"),
            [
                (self.tr("Time"), self.tr("Seconds from Send")),
                (self.tr("Tokens"), self.tr("Tokens in the context")),
            ],
        )
        self._row = QHBoxLayout(self)
        self._row.setSpacing(8)
        self._row.addWidget(self.views)
        self._row.addStretch(1)
        self._row.addWidget(self.units)
        self.views.chosen.connect(self._on_chosen)
        self.units.chosen.connect(self._on_chosen)
        self.show_view("answer", by_token=False)
        self.set_theme(theme)

    @property
    def view(self) -> View:
        """What is chosen."""
        return VIEWS[self.views.current]

    @property
    def by_token(self) -> bool:
        """Whether the axis of an answer counts tokens."""
        return self.units.current == 1

    def show_view(self, view: View, *, by_token: bool) -> None:
        """Show another choice; the session has one unit only."""
        self.views.show_current(VIEWS.index(view))
        self.units.show_current(int(by_token))
        self.units.setEnabled(view != "session")

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self.views.set_theme(theme)
        self.units.set_theme(theme)
        self._row.setContentsMargins(axis_width(theme), 0, RIGHT_MARGIN, 0)

    def _on_chosen(self, _number: int) -> None:
        self.show_view(self.view, by_token=self.by_token)
        self.chosen.emit(self.view, self.by_token)
