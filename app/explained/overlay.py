"""Puts the story of the selected answer beside the panels, and keeps it there while they move."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QTimer, Signal, SignalInstance
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.explained.anchors import Anchors
from app.explained.card import StepCard
from app.explained.card_parts import STEP_COLORS
from app.explained.explanation import explain, welcome
from app.explained.pointer import Pointer, leader
from app.explained.reading import Reading, reading_s
from app.explained.story import Step, Story, StoryBook
from app.explained.texts import Language
from app.telemetry.telemetry_model import TelemetryModel
from app.theme import Theme
from engine.events import Event, LoadEvent

# Below this height of what else stands there the card leaves its sentences out, at 100 %.
_LEAST_BESIDE = 200
_MOVES = {
    QEvent.Type.Resize,
    QEvent.Type.Move,
    QEvent.Type.Show,
    QEvent.Type.Hide,
    QEvent.Type.LayoutRequest,
}


class Overlay(QObject):
    """Card and pointer over one window's panels, live or replayed; `close()` takes all away.

    `events` is a signal of lists of engine events. What came before is told from `model`.

    Signals:
        closed(): the person closed the card.
        language_chosen(str): they switched to this language.
    """

    closed = Signal()
    language_chosen = Signal(str)

    def __init__(
        self,
        theme: Theme,
        model: TelemetryModel,
        events: SignalInstance,
        anchors: Anchors,
        language: Language,
    ) -> None:
        super().__init__(anchors.panel)
        self._theme, self._model, self._anchors = theme, model, anchors
        self._language: Language = language
        self._events = events
        self._book = StoryBook(lambda: model.loaded)
        for trace in model.requests:
            self._book.story(trace.request_id, trace)
        self._reading: Reading | None = None
        self.card = StepCard(theme)
        self.pointer = Pointer(theme, anchors.panel.window())
        self._place = QWidget()
        column = QVBoxLayout(self._place)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.card)
        self._was_read = QTimer(self, singleShot=True)
        self._was_read.timeout.connect(self._on_read)
        self._arrange_soon = QTimer(self, singleShot=True, interval=0)
        self._arrange_soon.timeout.connect(self.arrange)
        self._connect()
        self.card.set_language(language)
        self._show()
        self.arrange()

    # --- what others call -----------------------------------------------------------------

    @property
    def reading(self) -> Reading | None:
        """Which step of which story is shown; None before there is an answer."""
        return self._reading

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self.card.set_theme(theme)
        self.pointer.set_theme(theme)
        self._arrange_soon.start()

    def set_language(self, language: Language) -> None:
        """Go on in another language."""
        self._language = language
        self.card.set_language(language)
        self._show()
        self._arrange_soon.start()

    def close(self) -> None:
        """Take card and pointer away and listen to nothing any more."""
        self._events.disconnect(self._on_events)
        self._model.changed.disconnect(self._on_changed)
        if self._anchors.conversation is not None:
            scroll_bar = self._anchors.conversation.verticalScrollBar()
            scroll_bar.valueChanged.disconnect(self._on_scrolled)
        for widget in self._watched:
            widget.removeEventFilter(self)
        self._was_read.stop()
        self._arrange_soon.stop()
        for part in (self._place, self.pointer):
            part.hide()
            part.deleteLater()
        self.deleteLater()

    def arrange(self) -> None:
        """Put the card where there is room, and tie it to what it speaks of."""
        self._anchors.put(self._place, self.card.height_at(self._anchors.width_in_panel))
        self._fit_low_window()
        self.pointer.move_over(self.card.window())
        self._point()

    # --- following ------------------------------------------------------------------------

    def _on_events(self, events: Sequence[Event | LoadEvent]) -> None:
        self._book.handle(events)

    def _on_changed(self) -> None:
        # The model tells of several batches together: often enough to read, and cheap.
        self._show()
        self._point()

    def _story(self) -> Story | None:
        trace = self._model.selected
        return self._book.story(trace.request_id, trace) if trace else None

    def _show(self) -> None:
        story = self._story()
        if story is None:
            self._reading = None
            self._was_read.stop()
            self.card.tell(welcome(self._language))
            return
        if self._reading is None or self._reading.story is not story:
            self._reading = Reading(story)
            self._start_reading()
        if self._reading.advance():
            self._start_reading()
        self._tell(self._reading)

    def _tell(self, reading: Reading) -> None:
        told = [explain(reading.story, step, self._language) for step in Step]
        self.card.tell_step(told, reading, self._language)

    def _turn(self) -> None:
        """The person turned a page."""
        if self._reading is not None:
            self._start_reading()
            self._tell(self._reading)
            self._point()

    def _start_reading(self) -> None:
        if self._reading is not None:
            text = explain(self._reading.story, self._reading.shown, self._language).body
            self._was_read.start(round(1e3 * reading_s(text, self._language)))

    def _on_read(self) -> None:
        if self._reading is not None:
            self._reading.was_read = True
            self._on_changed()

    # --- the person -----------------------------------------------------------------------

    def _on_back(self) -> None:
        if self._reading is not None:
            self._reading.back()
            self._turn()

    def _on_next(self) -> None:
        if self._reading is not None:
            self._reading.next()
            self._turn()

    def _on_follow(self) -> None:
        if self._reading is not None:
            self._reading.follow()
            self._turn()

    def _on_language(self) -> None:
        self.set_language("zh" if self._language == "en" else "en")
        self.language_chosen.emit(self._language)

    def _on_scrolled(self, _value: int) -> None:
        self._arrange_soon.start()

    # --- form -----------------------------------------------------------------------------

    def _point(self) -> None:
        reading, window = self._reading, self.pointer.over
        found = self._anchors.region(reading.shown, reading.story, window) if reading else None
        if reading is None or found is None or not self.card.isVisible():
            self.pointer.hide()
            return
        widget, part = found
        region = QRect(widget.mapTo(window, part.topLeft()), part.size())
        card = QRect(self.card.mapTo(window, QPoint(0, 0)), self.card.size())
        line = leader(card, region, self._anchors.lane(widget, window))
        self.pointer.point(region, line, STEP_COLORS[reading.shown])

    def _fit_low_window(self) -> None:
        host = self._place.parentWidget()
        if host is None:
            return
        margins = self._place.contentsMargins()
        needed = self.card.height_at(host.width() - margins.left() - margins.right())
        beside = _LEAST_BESIDE * self._theme.scale
        in_panel = self._anchors.is_in_panel(self._place)
        self.card.set_compact(not in_panel and host.height() - needed < beside)

    def _connect(self) -> None:
        card = self.card
        card.back_pressed.connect(self._on_back)
        card.next_pressed.connect(self._on_next)
        card.follow_pressed.connect(self._on_follow)
        card.language_pressed.connect(self._on_language)
        card.close_pressed.connect(self.closed)
        self._events.connect(self._on_events)
        self._model.changed.connect(self._on_changed)
        self._watched = [*self._anchors.watched(), self.card]
        for widget in self._watched:
            widget.installEventFilter(self)
        conversation = self._anchors.conversation
        if conversation is not None:
            conversation.verticalScrollBar().valueChanged.connect(self._on_scrolled)

    # Qt overrides

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in _MOVES:
            self._arrange_soon.start()
        return False
