"""The comparison in a window of its own, beside which the chats go on."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPoint, QSize, Qt
from PySide6.QtGui import QGuiApplication, QPixmap
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.cache_comparison.overlay import LatencyOverlay
from app.cache_comparison.run import ComparisonRun, Stage
from app.telemetry.format import count, milliseconds, three_digits
from app.telemetry.labels import ThemedLabel
from app.telemetry.plot_header import PlotHeader
from app.theme import CONTROL_PX, LABEL_PX, READING_PX, Theme
from engine.config import GenerationRequest

SIZE = QSize(760, 560)
MARGIN = 24
FEWEST_TOKENS = 2  # one latency
PICTURE_SCALE = 2


class ComparisonDialog(QDialog):
    """Asks for a number of tokens, shows both lines as they come and the speed-up."""

    def __init__(
        self,
        theme: Theme,
        run: ComparisonRun,
        request: GenerationRequest,
        facts: str,
        tokens: tuple[int, int],
        parent: QWidget,
    ) -> None:
        """`facts` names what runs; `tokens` are how many to propose and the most there can be."""
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(self.tr("With the cache and without"))
        self._window, self._theme = parent, theme
        self.run, self._request = run, request
        run.setParent(self)
        self.overlay = LatencyOverlay(theme)
        self.headline = ThemedLabel(theme, READING_PX, "text", bold=True)
        self._totals = ThemedLabel(theme, CONTROL_PX, "muted")
        self._header = PlotHeader(theme)
        self._reason = ThemedLabel(theme, CONTROL_PX, "text")
        self._ran = ThemedLabel(theme, LABEL_PX + 0.5, "faint")
        self._facts = facts
        self.picture = QFrame()
        self.tokens = QSpinBox()
        self.start = QPushButton(self.tr("Compare"))
        self.stop = QPushButton(self.tr("Stop"))
        self.copy = QPushButton(self.tr("Copy as picture"))
        self._close = QPushButton(self.tr("Close"))
        proposed, most = tokens
        self.tokens.setRange(FEWEST_TOKENS, max(FEWEST_TOKENS, most))
        self.tokens.setValue(proposed)
        self.tokens.setGroupSeparatorShown(True)
        self.tokens.setSuffix(self.tr(" tokens"))
        self.tokens.lineEdit().setTextMargins(6, 0, 6, 0)
        self._fill_picture()
        self._lay_out()
        self.start.clicked.connect(self._begin)
        self.stop.clicked.connect(run.stop)
        self.copy.clicked.connect(self._copy_picture)
        self._close.clicked.connect(self.reject)
        self.finished.connect(run.stop)
        run.changed.connect(self._refresh)
        self.fit_into(parent.size())
        self._refresh()

    def fit_into(self, size: QSize) -> None:
        """Leave a margin of a window of this size; larger text takes more room."""
        wanted = SIZE * self._theme.scale
        self.resize(wanted.boundedTo(size - QSize(2 * MARGIN, 2 * MARGIN)))

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._theme = theme
        for part in (self.headline, self._totals, self._header, self._reason, self._ran):
            part.set_theme(theme)
        self.overlay.set_theme(theme)
        self.fit_into(self._window.size())

    def _fill_picture(self) -> None:
        """What is copied as one picture: figures, lines, the reason, and what ran."""
        self.picture.setObjectName("comparison")
        self._header.set_title(self.tr("Inter-token latency"))
        self._header.set_subtitle(self.tr("ms, lower is faster"), self.tr("ms"))
        self._header.set_legend(self.overlay.legend())
        self._reason.setText(
            self.tr(
                "Without the cache every token computes all tokens before it again, so each one "
                "takes longer than the last; with it only the newest is computed."
            )
        )
        for words in (self._totals, self._reason, self._ran):
            words.setWordWrap(True)
        column = QVBoxLayout(self.picture)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(4)
        column.addWidget(self.headline)
        column.addWidget(self._totals)
        column.addSpacing(8)
        column.addWidget(self._header)
        column.addWidget(self.overlay, 1)
        column.addSpacing(8)
        column.addWidget(self._reason)
        column.addWidget(self._ran)

    def _lay_out(self) -> None:
        label = QLabel(self.tr("&Generate"))
        label.setBuddy(self.tokens)
        self.start.setProperty("kind", "primary")
        below = QHBoxLayout()
        below.setSpacing(8)
        for widget in (label, self.tokens, self.start, self.stop):
            below.addWidget(widget)
        below.addStretch(1)
        below.addWidget(self.copy)
        below.addWidget(self._close)
        column = QVBoxLayout(self)
        column.setSizeConstraint(QVBoxLayout.SizeConstraint.SetNoConstraint)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(12)
        column.addWidget(self.picture, 1)
        column.addLayout(below)
        self.start.setDefault(True)

    def _begin(self) -> None:
        self.run.start(self._request, self.tokens.value())

    def _refresh(self) -> None:
        run = self.run
        self.headline.setText(self._headline())
        self._totals.setText(self._totals_text())
        self._ran.setText(self._ran_text())
        shown = run.num_tokens or self.tokens.value()
        self.overlay.set_data(shown, run.cached_ms, run.uncached_ms)
        self.overlay.setAccessibleName(f"{self.headline.text()} {self._totals.text()}")
        had_focus = self.start.hasFocus() or self.stop.hasFocus()
        self.start.setVisible(not run.is_running)
        self.stop.setVisible(run.is_running)
        if had_focus:
            (self.stop if run.is_running else self.start).setFocus()
        self.tokens.setEnabled(not run.is_running)
        self.copy.setEnabled(run.totals_ms is not None)
        self.copy.setText(self.tr("Copy as picture"))

    def _headline(self) -> str:
        run = self.run
        if run.stage is Stage.IDLE:
            return self.tr("The same prompt once more, without the cache")
        if run.stage is Stage.CACHED:
            return self._progress(self.tr("With the cache"), len(run.cached_ms))
        if run.stage is Stage.UNCACHED:
            return self._progress(self.tr("Without the cache"), len(run.uncached_ms))
        totals = run.totals_ms
        if totals is None:
            return run.problem
        return self.tr("The cache makes it {0}x as fast").format(
            three_digits(totals[1] / totals[0])
        )

    def _progress(self, which: str, latencies: int) -> str:
        done, total = count(latencies + 1 if latencies else 0), count(self.run.num_tokens)
        return self.tr("{0}: token {1} of {2}").format(which, done, total)

    def _totals_text(self) -> str:
        run = self.run
        if run.stage is Stage.IDLE:
            return self.tr("The time grows with the square of the number of tokens.")
        totals = run.totals_ms
        if totals is None:
            return ""
        text = self.tr(
            "With the cache {0} from the first token to the last, {1} a token; "
            "without it {2}, the last token {3}."
        )
        if run.is_running:
            text = self.tr(
                "So far {0} with the cache, {1} a token; without it {2}, the newest token {3}."
            )
        typical, newest = float(np.median(run.cached_ms)), float(run.uncached_ms[-1])
        figures = (totals[0], typical, totals[1], newest)
        return f"{text.format(*(milliseconds(ms).text for ms in figures))} {run.problem}".strip()

    def _ran_text(self) -> str:
        prompt = self.run.prompt_tokens
        if prompt is None:
            return self._facts
        return self.tr("{0}; a prompt of {1} tokens").format(self._facts, count(prompt))

    def _copy_picture(self) -> None:
        QGuiApplication.clipboard().setPixmap(self.pixmap())
        self.copy.setText(self.tr("Copied"))

    def pixmap(self) -> QPixmap:
        """Figures and lines as one picture at twice their size."""
        pixmap = QPixmap(self.picture.size() * PICTURE_SCALE)
        pixmap.setDevicePixelRatio(PICTURE_SCALE)
        pixmap.fill(self._theme.color("surface"))
        self.picture.render(pixmap, QPoint())
        return pixmap
