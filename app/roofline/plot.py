"""The roofline plot: roofs as measured, a dot a step, which mouse and arrow keys read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QFontMetricsF,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.roofline import words
from app.roofline.log_axis import log_ticks
from app.roofline.painting import GAP, RooflinePainter, Shown, pixels_near
from app.roofline.scene import Limits, Scene, make_scene
from app.roofline.words import PhasePlace
from app.telemetry.labels import label_height
from app.telemetry.pixel_items import make_pen
from app.telemetry.plot_area import RIGHT_MARGIN
from app.telemetry.plot_header import LegendEntry
from app.telemetry.step_points import StepPoints
from app.theme import CONTROL_PX, LABEL_PX, Theme
from engine.peaks import Roofs

_REACH_PX = 12.0  # how far from a dot the pointer still means it


class RooflinePlot(QWidget):
    """Log-log: FLOP/s over arithmetic intensity. Shows what `show_steps` gave it.

    With the focus it reads the newest step. Left and right go from step to step in time, up and
    down to the next one of the other phase, Home and End to the oldest and the newest.

    Signals:
        picked_changed(): another step is read, or none.
    """

    picked_changed = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._shown: Shown | None = None
        self._limits: Limits | None = None
        self._empty = ""
        self._picked_id: float | None = None
        self._follows = False  # the newest step is read, and the next one when it comes
        self._has_frame = False
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(280, 160)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(self.tr("Roofline plot"))

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._theme = theme
        self.update()

    def show_nothing(self, why: str) -> None:
        """Say why there are no roofs."""
        self._shown, self._limits, self._empty = None, None, why
        self._pick(None)
        self.update()

    def show_steps(
        self,
        roofs: Roofs,
        limits: Limits,
        points: StepPoints,
        places: tuple[PhasePlace | None, PhasePlace | None],
        *,
        is_live: bool,
    ) -> None:
        """Draw these; `places` are where the selected answer's prefill and decode lie."""
        self._limits = limits
        self._shown = Shown(roofs, points, *places, is_live, None)
        if self._follows and len(points):
            self._pick(len(points) - 1)
        elif self._index() is None:
            self._pick(None)
        self.update()

    @property
    def scene(self) -> Scene | None:
        """Where everything stands at the present size, None without roofs."""
        if self._shown is None or self._limits is None:
            return None
        # The left margin follows the rate axis' labels, and these only its height.
        points, headroom = self._shown.points, label_height(self._theme) + 2 * GAP
        rates = make_scene(self._limits, points, self._area(0.0), headroom).y
        unit, _ = words.rate_unit(self._limits.matmul_flops)
        labels = (words.tick_text(value / unit) for value in log_ticks(rates.low, rates.high))
        metrics = QFontMetricsF(self._theme.font(LABEL_PX))
        widest = max((metrics.horizontalAdvance(label) for label in labels), default=0.0)
        return make_scene(self._limits, points, self._area(widest + GAP), headroom)

    @property
    def has_dots(self) -> bool:
        """Whether there is a step to read."""
        return self._shown is not None and len(self._shown.points) > 0

    @property
    def reading(self) -> tuple[str, str] | None:
        """The picked step in words."""
        index = self._index()
        if self._shown is None or index is None:
            return None
        return words.describe(self._shown.points, index)

    def legend(self) -> tuple[LegendEntry, ...]:
        """Which sign is which."""
        return (
            LegendEntry("diamond", "prefill", self.tr("prefill step"), self.tr("prefill")),
            LegendEntry("dot", "decode", self.tr("decode step"), self.tr("decode")),
            LegendEntry("line", "prefill", self.tr("compute roof"), self.tr("compute")),
            LegendEntry("line", "decode", self.tr("bandwidth roof"), self.tr("bandwidth")),
        )

    # --- reading a step -------------------------------------------------------------------

    def _index(self) -> int | None:
        if self._shown is None or self._picked_id is None:
            return None
        rows = np.flatnonzero(self._shown.points.step_id == self._picked_id)
        return int(rows[-1]) if len(rows) else None

    def _pick(self, index: int | None) -> None:
        shown = self._shown
        step_id = None if index is None or shown is None else float(shown.points.step_id[index])
        if step_id != self._picked_id:
            self._picked_id = step_id
            self.setAccessibleDescription(" ".join(self.reading or ()))
            self.picked_changed.emit()
            self.update()

    def _target(self, key: Qt.Key) -> int | None:
        """The step that a key leads to from the picked one, the newest at the start."""
        if self._shown is None:
            return None
        last = len(self._shown.points) - 1
        now = self._index()
        if now is None:
            return last
        match key:
            case Qt.Key.Key_Left:
                return max(0, now - 1)
            case Qt.Key.Key_Right:
                return min(last, now + 1)
            case Qt.Key.Key_Up:
                return self._other_phase(now, -1)
            case Qt.Key.Key_Down:
                return self._other_phase(now, 1)
            case Qt.Key.Key_Home:
                return 0
            case Qt.Key.Key_End:
                return last
            case _:
                return None

    def _other_phase(self, now: int, step: int) -> int:
        assert self._shown is not None
        phases = self._shown.points.is_prefill
        others = np.flatnonzero(phases != phases[now])
        beyond = others[others < now][-1:] if step < 0 else others[others > now][:1]
        return int(beyond[0]) if len(beyond) else now

    # --- geometry -------------------------------------------------------------------------

    def _area(self, left: float) -> QRectF:
        line = label_height(self._theme)
        return QRectF(self.rect()).adjusted(left, line / 2, -RIGHT_MARGIN, -line - GAP - 1)

    # Qt overrides

    def sizeHint(self) -> QSize:
        return QSize(640, 340)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        scene = self.scene
        if scene is None or self._shown is None:
            return
        pixels = scene.pixels(self._shown.points)
        near = pixels_near(*pixels, event.position(), _REACH_PX * self._theme.scale)
        if near is not None or not self.hasFocus():
            self._follows = False
            self._pick(near)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        if not self.hasFocus():
            self._pick(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys = (
            *(Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_Up, Qt.Key.Key_Down),
            *(Qt.Key.Key_Home, Qt.Key.Key_End),
        )
        if event.key() not in keys or self._shown is None or not len(self._shown.points):
            super().keyPressEvent(event)
            return
        target = self._target(Qt.Key(event.key()))
        self._follows = target == len(self._shown.points) - 1
        self._pick(target)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        by_tab = (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)
        self._has_frame = event.reason() in by_tab
        if event.reason() != Qt.FocusReason.MouseFocusReason and self._index() is None:
            self._follows = True
            if self._shown is not None and len(self._shown.points):
                self._pick(len(self._shown.points) - 1)
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._has_frame = False
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        scene = self.scene
        if scene is None or self._shown is None:
            painter.setFont(self._theme.font(CONTROL_PX))
            painter.setPen(self._theme.color("muted"))
            flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.drawText(self.rect(), flags, self._empty)
        else:
            shown = replace(self._shown, picked=self._index())
            RooflinePainter(painter, self._theme, scene, shown).paint()
        if self._has_frame and self._index() is None:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
            painter.setPen(make_pen(self._theme.color("decode"), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5))
        painter.end()
