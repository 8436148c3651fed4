"""What the dialogs of long work have in common: a problem told inline, progress, their size."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QDialog,
    QHBoxLayout,
    QLabel,
    QLayout,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.chat.elided_label import ElidedLabel
from app.engine_link.worker import EngineProblem

MARGIN = 16
STEPS = 1_000


class JobDialog(QDialog):
    """A dialog beside which the window goes on; closing it leaves the work running.

    Attributes:
        problem: what went wrong, hidden while nothing did. detail: a line on how far it is.
        bar: the same as a bar.
    """

    def __init__(self, title: str, size: QSize, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self._size = size
        self.problem = QLabel(self)
        self.problem.setObjectName("jobProblem")
        self.problem.setWordWrap(True)
        self.problem.setTextFormat(Qt.TextFormat.PlainText)
        self.problem.hide()
        self.detail = ElidedLabel(self)
        self.detail.setProperty("tone", "muted")
        self.bar = QProgressBar(self, textVisible=False)
        self.bar.setRange(0, STEPS)
        self.bar.setFixedHeight(6)
        self.bar.setAccessibleName(title)
        self.column = QVBoxLayout(self)
        self.column.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)
        self.column.setContentsMargins(MARGIN, MARGIN, MARGIN, MARGIN)
        self.column.setSpacing(12)

    def fit_into(self, size: QSize) -> None:
        """Leave a margin of a window of this size."""
        self.resize(self._size.boundedTo(size - QSize(2 * MARGIN, 2 * MARGIN)))

    def tell(self, problem: EngineProblem | None) -> None:
        """Say what went wrong, or that nothing did."""
        self.problem.setVisible(problem is not None)
        if problem:
            self.problem.setText(f"{problem.what}\n{problem.why} {problem.next}")

    def tell_busy(self) -> None:
        """Say that other work must end first."""
        what = self.tr("Other work is under way in the background.")
        why = self.tr("There is one piece of it at a time, so that answers stay fast.")
        self.tell(EngineProblem(what, why, self.tr("Wait for its end or stop it: status bar.")))

    def show_share(self, share: float) -> None:
        """Fill the bar; `share` is 0 to 1."""
        self.bar.setValue(round(STEPS * min(1.0, share)))

    def add_buttons(self, buttons: Sequence[QPushButton]) -> None:
        """The last row of the dialog. Enter presses none that has not the focus."""
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addStretch(1)
        for each in buttons:
            each.setAutoDefault(False)
            row.addWidget(each)
        self.column.addLayout(row)

    # Qt overrides

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.problem.setMaximumWidth(self.width() - 2 * MARGIN)
