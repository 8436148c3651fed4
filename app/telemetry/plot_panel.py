"""What the three plots have in common: a header row over a plot area, and the data last drawn."""

from __future__ import annotations

import numpy as np
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.telemetry.plot_area import PlotArea
from app.telemetry.plot_header import PlotHeader
from app.telemetry.series import Array
from app.telemetry.timeline import Timeline
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

    def refresh(self, timeline: Timeline) -> None:
        """Draw this timeline's requests."""
        raise NotImplementedError

    def curves(self) -> Curves:
        """What is plotted now: name -> (place on the axis, y in the plot's unit), [n] each."""
        return dict(self._curves)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self.header.set_theme(theme)
        self.area.set_theme(theme)

    def _mark_times(self, timeline: Timeline) -> None:
        """Shade the prefills and hatch what was left out."""
        gaps = [(gap.start, gap.end) for gap in timeline.scale.gaps]
        self.area.backdrop.set_times(timeline.prefills(), gaps)
