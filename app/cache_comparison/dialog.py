"""The comparison in a window of its own, beside which the chats go on."""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QLabel, QPushButton, QSpinBox, QWidget

from app.cache_comparison.run import ComparisonRun, Stage
from app.latency_overlay import LatencyLine, LatencyOverlay
from app.plot_dialog import PlotDialog
from app.telemetry.format import count, milliseconds, three_digits
from app.theme import Theme
from engine.config import GenerationRequest

SIZE = QSize(760, 560)
FEWEST_TOKENS = 2  # one latency


class ComparisonDialog(PlotDialog):
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
        self.overlay = LatencyOverlay(theme)
        super().__init__(theme, self.tr("With the cache and without"), SIZE, self.overlay, parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.run, self._request, self._facts = run, request, facts
        run.setParent(self)
        self.tokens = QSpinBox()
        self.start = QPushButton(self.tr("Compare"))
        self.stop = QPushButton(self.tr("Stop"))
        proposed, most = tokens
        self.tokens.setRange(FEWEST_TOKENS, max(FEWEST_TOKENS, most))
        self.tokens.setValue(proposed)
        self.tokens.setGroupSeparatorShown(True)
        self.tokens.setSuffix(self.tr(" tokens"))
        self.tokens.lineEdit().setTextMargins(6, 0, 6, 0)
        self._say_what_is_compared()
        self._add_controls()
        self.start.clicked.connect(self._begin)
        self.stop.clicked.connect(run.stop)
        self.finished.connect(run.stop)
        run.changed.connect(self._refresh)
        self._refresh()

    def set_theme(self, theme: Theme) -> None:
        super().set_theme(theme)
        self.overlay.set_theme(theme)

    def _say_what_is_compared(self) -> None:
        self.header.set_title(self.tr("Inter-token latency"))
        self.header.set_subtitle(self.tr("ms, lower is faster"), self.tr("ms"))
        self.header.set_legend([line.legend for line in self._lines()])
        self.reading.setText(
            self.tr(
                "Without the cache every token computes all tokens before it again, so each one "
                "takes longer than the last; with it only the newest is computed."
            )
        )

    def _add_controls(self) -> None:
        label = QLabel(self.tr("&Generate"))
        label.setBuddy(self.tokens)
        self.start.setProperty("kind", "primary")
        for place, widget in enumerate((label, self.tokens, self.start, self.stop)):
            self.buttons.insertWidget(place, widget)
        self.start.setDefault(True)

    def _begin(self) -> None:
        self.run.start(self._request, self.tokens.value())

    def _refresh(self) -> None:
        run = self.run
        self.headline.setText(self._headline())
        self.summary.setText(self._totals_text())
        self.source.setText(self._ran_text())
        shown = run.num_tokens or self.tokens.value()
        self.overlay.set_lines(shown, self._lines())
        self.overlay.setAccessibleName(f"{self.headline.text()} {self.summary.text()}")
        had_focus = self.start.hasFocus() or self.stop.hasFocus()
        self.start.setVisible(not run.is_running)
        self.stop.setVisible(run.is_running)
        if had_focus:
            (self.stop if run.is_running else self.start).setFocus()
        self.tokens.setEnabled(not run.is_running)
        self.offer_copy(run.totals_ms is not None)

    def _lines(self) -> tuple[LatencyLine, LatencyLine]:
        run, on, off = self.run, self.tr("with the cache"), self.tr("without")
        return (
            LatencyLine(on, "decode", run.cached_ms),
            LatencyLine(off, "prefill", run.uncached_ms, is_dashed=True),
        )

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
