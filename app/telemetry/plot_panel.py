"""What the three plots have in common: a header row over a plot area, and the data last drawn."""

from __future__ import annotations

import numpy as np
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.telemetry.plot_area import PlotArea
from app.telemetry.plot_header import PlotHeader
from app.telemetry.request_trace import RequestTrace
from app.telemetry.series import Array
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import Theme

Curves = dict[str, tuple[Array, Array]]
EMPTY: Array = np.empty(0)


class PlotPanel(QWidget):
    """One plot with its header. Subclasses read the model and draw what it says now."""

    def __init__(self, theme: Theme, header: PlotHeader, area: PlotArea) -> None:
        super().__init__()
        self._theme = theme
        self._curves: Curves = {}
        self.header = header
        self.area = area
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        column.addWidget(header)
        column.addWidget(area, 1)

    def refresh(self, model: TelemetryModel) -> None:
        """Draw the model's selected request."""
        raise NotImplementedError

    def curves(self) -> Curves:
        """What is plotted now: name -> (x in s, y in the plot's unit), shape [n] each."""
        return dict(self._curves)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self.header.set_theme(theme)
        self.area.set_theme(theme)

    def _shade(self, trace: RequestTrace | None, now_ns: int) -> None:
        if trace is None:
            self.area.set_shade(None)
            return
        end = trace.ttft_s if trace.ttft_s is not None else trace.elapsed_s(now_ns)
        self.area.set_shade((trace.prefill_start_s, end))
