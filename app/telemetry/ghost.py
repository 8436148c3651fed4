"""An earlier run behind the one that is shown: a dashed line, both aligned at Send."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, Qt

from app.telemetry.pixel_items import Line, make_pen
from app.telemetry.plot_header import LegendEntry
from app.telemetry.request_trace import RequestTrace
from app.telemetry.scales import thin_by_mean
from app.telemetry.series import Array
from app.theme import Theme

# Enough to see its course; every dot of it would hide the present run.
MOST_POINTS = 160
LINE_PX = 1.2


class GhostLine(Line):
    """Drawn behind the data. `trace`: the earlier run, None where there is none."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self.setZValue(-4)
        self._token = token
        self.trace: RequestTrace | None = None

    def set_course(self, x: Array, y: Array) -> None:
        """The points of the earlier run, shape [n] each."""
        self.set_data(*thin_by_mean(x, y, MOST_POINTS))

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set."""
        self.pen = make_pen(theme.color(self._token), LINE_PX, Qt.PenStyle.DashLine)
        self.update()

    def legend(self) -> tuple[LegendEntry, ...]:
        """Its entry, where it is drawn."""
        if self.trace is None:
            return ()
        before = QCoreApplication.translate("GhostLine", "before")
        return (LegendEntry("dash", self._token, before, before),)
