"""Where the card stands and what it points at: the one place that knows the panels' parts."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QPoint, QRect
from PySide6.QtWidgets import QListView, QWidget

from app.chat.model import ChatRole
from app.explained.story import Step, Story
from app.telemetry.dock import TelemetryPanel
from app.telemetry.plot_area import RIGHT_MARGIN
from app.telemetry.strip import TelemetryStrip

_GAP = 4  # px from what is outlined to its outline
_LANE = 5  # px from the panel's edge to where the line may go
_ROW_MARGIN = 10
_STRIP_MARGINS = (28, 8, 28, 8)
_PANEL_MARGINS = (0, 0, RIGHT_MARGIN, 0)


@dataclass(frozen=True, slots=True)
class Anchors:
    """The parts of a window that the card can be tied to.

    `strip` stands for the panels where these are hidden, and the card then stands over it;
    `conversation` lists a ChatModel's messages. A window may have neither.
    """

    panel: TelemetryPanel
    strip: TelemetryStrip | None = None
    conversation: QListView | None = None

    def watched(self) -> list[QWidget]:
        """Whatever moves the outline when it moves."""
        plots = self.panel.plots
        parts = [self.panel, self.panel.ribbon, self.panel.block_map]
        parts += [plots.itl, plots.kv, plots.utilization]
        others: list[QWidget | None] = [self.strip, self.conversation]
        return [*parts, *(part for part in others if part is not None)]

    def put(self, place: QWidget, height_in_panel: int) -> None:
        """Lay `place`, which holds the card, where there is room: in the panel, or by the strip."""
        beside = self.strip.parentWidget() if self.strip is not None else None
        in_panel = beside is None or self._has_room(place, height_in_panel)
        layout = self.panel.layout() if in_panel or beside is None else beside.layout()
        if layout is None or layout.indexOf(place) >= 0:
            return
        place.setContentsMargins(*(_PANEL_MARGINS if in_panel else _STRIP_MARGINS))
        layout.addWidget(place)
        if not in_panel and self.strip is not None:
            layout.addWidget(self.strip)  # it stays the lowest

    @property
    def width_in_panel(self) -> int:
        """How wide the card is in the panel."""
        layout = self.panel.layout()
        if layout is None:
            return self.panel.width()
        margins = layout.contentsMargins()
        return self.panel.width() - margins.left() - margins.right() - RIGHT_MARGIN

    def is_in_panel(self, place: QWidget) -> bool:
        """Whether the card stands in the panel."""
        return self.panel.isAncestorOf(place)

    def region(self, step: Step, story: Story, window: QWidget) -> tuple[QWidget, QRect] | None:
        """What a step speaks of: a widget of `window`, and the part of it in its coordinates."""
        if step == Step.TOKENIZE and (row := self._row("user", window)) is not None:
            return row
        if step == Step.DETOKENIZE and (row := self._row("assistant", window)) is not None:
            return row
        part = self._part(step, story)
        if part is None or not part.isVisible() or part.window() is not window:
            return None
        # The panel's parts end right of what they draw; close below a plot stands the time axis.
        right = _GAP - RIGHT_MARGIN if self.panel.isAncestorOf(part) else _GAP
        bottom = 0 if part.parentWidget() is self.panel.plots else _GAP
        return part, part.rect().adjusted(-_GAP, -_GAP, right, bottom)

    def lane(self, widget: QWidget, window: QWidget) -> int | None:
        """The x of a free way to a region of `widget`, in the window's coordinates.

        Along the panel's edge or the conversation's; None: the card is the region's neighbour.
        """
        view = self.conversation
        if self.panel.isVisible():
            return self.panel.mapTo(window, QPoint(_LANE, 0)).x()
        if view is not None and widget is view.viewport():
            return view.mapTo(window, QPoint(_LANE, 0)).x()
        return None

    def _part(self, step: Step, story: Story) -> QWidget | None:
        if not self.panel.isVisible():
            if self.strip is None:
                return None
            early = step in (Step.TOKENIZE, Step.EMBED)
            return self.strip.ribbon if early else self.strip.cards
        panel = self.panel
        if step == Step.PREFILL and story.cached_tokens and panel.block_map.isVisible():
            return panel.block_map
        return {
            Step.TOKENIZE: panel.ribbon,
            Step.EMBED: panel.ribbon,
            Step.PREFILL: panel.plots.kv,
            Step.FIRST_TOKEN: panel.plots.itl,
            Step.DECODE: panel.plots.utilization,
            Step.DETOKENIZE: panel.plots.itl,
        }[step]

    def _row(self, role: str, window: QWidget) -> tuple[QWidget, QRect] | None:
        """The newest message of the person or the model, as far as it is in view."""
        view = self.conversation
        if view is None or not view.isVisible() or view.window() is not window:
            return None  # nothing can be drawn between two windows, where the panels float
        model = view.model()
        rows = (model.index(row, 0) for row in reversed(range(model.rowCount())))
        index = next((each for each in rows if each.data(ChatRole.ROLE) == role), None)
        if index is None:
            return None
        seen = view.visualRect(index) & view.viewport().rect().adjusted(0, 2, 0, -2)
        if seen.height() < _ROW_MARGIN:
            return None
        return view.viewport(), seen.adjusted(_ROW_MARGIN, 0, -_ROW_MARGIN, 0)

    def _has_room(self, place: QWidget, height: int) -> bool:
        panel, layout = self.panel, self.panel.layout()
        if not panel.isVisible() or layout is None:
            return False
        taken = panel.minimumSizeHint().height()
        if self.is_in_panel(place):
            taken -= place.minimumSizeHint().height() + layout.spacing()
        return taken + layout.spacing() + height <= panel.height()
