"""The card that tells a step: title, a few sentences, where one is, and the way on and back."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, Qt, Signal, SignalInstance
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QVBoxLayout,
)

from app.appearance import icon
from app.explained.card_parts import Paragraphs, StepDots
from app.explained.explanation import Explanation
from app.explained.reading import Reading
from app.explained.story import Step
from app.explained.texts import Language, say
from app.theme import CONTROL_PX, Theme

FOOT_PX = 11.5
_PADDING = (12, 8, 8, 8)
_SPACING, _LINE = 4, 1
_ICON_PX = 12


class StepCard(QFrame):
    """Shows what it is given and says what the person pressed.

    It is as high as the longest of the steps needs, so that nothing moves from step to step, and
    does not get lower while figures change.
    Left, Right and Esc work while the focus is in it.

    Signals:
        back_pressed(), next_pressed(), follow_pressed(), language_pressed(), close_pressed()
    """

    back_pressed = Signal()
    next_pressed = Signal()
    follow_pressed = Signal()
    language_pressed = Signal()
    close_pressed = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setObjectName("stepCard")
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self._theme = theme
        self._bodies: tuple[str, ...] = ()
        self._title = _label()
        self._body = Paragraphs(theme)
        self._dots = StepDots(theme)
        self._place = _label()
        self._language = self._button("icon", self.language_pressed)
        self._close = self._button("icon", self.close_pressed)
        self._follow = self._button("step", self.follow_pressed)
        self._back = self._button("step", self.back_pressed)
        self._next = self._button("step", self.next_pressed)
        self._lay_out()
        self.set_theme(theme)

    # --- what others call -----------------------------------------------------------------

    @property
    def body(self) -> str:
        """What is told now."""
        return self._body.text

    @property
    def title(self) -> str:
        """What it is about."""
        return self._title.text()

    def set_language(self, language: Language) -> None:
        """Name the buttons in this language; the switch names the other one."""
        self._follow.setText(say("follow", language))
        self._back.setText(say("back", language))
        self._next.setText(say("next", language))
        self._language.setText("中文" if language == "en" else "EN")
        self._close.setAccessibleName(say("close", language))
        self._close.setToolTip(say("close", language))
        self.setAccessibleName(say("card", language))
        self._fit_language_button()

    def tell(self, explanation: Explanation) -> None:
        """Say something, beside which there are no steps."""
        self._tell(explanation, (explanation.body,))
        for part in (self._dots, self._place, self._follow, self._back, self._next):
            part.hide()

    def tell_step(
        self, explanations: Sequence[Explanation], reading: Reading, language: Language
    ) -> None:
        """Say the step that is shown; `explanations` are those of all steps."""
        shown = reading.shown
        self._tell(explanations[shown], tuple(each.body for each in explanations))
        self._dots.show_step(shown)
        place = say("place", language, step=str(shown + 1), steps=str(len(Step)))
        self._place.setText(place)
        for part in (self._dots, self._place, self._back, self._next):
            part.show()
        self._follow.setVisible(reading.can_follow)
        self._back.setEnabled(reading.can_go_back)
        self._next.setEnabled(reading.can_go_on)

    def set_compact(self, compact: bool) -> None:
        """Leave the sentences to a tooltip, where there is no room for them."""
        self._body.setVisible(not compact)
        self.setToolTip(self._body.text if compact else "")

    def height_at(self, width: int) -> int:
        """What it takes at this width with its sentences."""
        _, top, _, bottom = _PADDING
        rows = self._title_height() + self._back.sizeHint().height()
        return (
            top
            + rows
            + self._body_height(self._body_width(width))
            + bottom
            + 2 * (_SPACING + _LINE)
        )

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or scale."""
        self._theme = theme
        self._title.setFont(theme.font(CONTROL_PX, bold=True))
        self._body.set_theme(theme)
        self._place.setFont(theme.font(FOOT_PX))
        for button in (self._language, self._follow, self._back, self._next):
            button.setFont(theme.font(FOOT_PX))
        self._dots.set_theme(theme)
        self._close.setIcon(icon("close", theme.muted, _ICON_PX))
        self._close.setFixedSize(theme.px(22), theme.px(22))
        self._fit_language_button()
        self._fit_body()

    # --- private --------------------------------------------------------------------------

    def _lay_out(self) -> None:
        self._place.setProperty("tone", "label")
        head, foot = QHBoxLayout(), QHBoxLayout()
        head.setSpacing(4)
        head.addWidget(self._title, 1)
        head.addWidget(self._language)
        head.addWidget(self._close)
        foot.setSpacing(6)
        foot.addWidget(self._dots)
        foot.addWidget(self._place)
        foot.addStretch(1)
        for button in (self._follow, self._back, self._next):
            foot.addWidget(button)
        column = QVBoxLayout(self)
        column.setContentsMargins(*_PADDING)
        column.setSpacing(_SPACING)
        column.addLayout(head)
        column.addWidget(self._body)
        column.addLayout(foot)

    def _button(self, kind: str, pressed: SignalInstance) -> QPushButton:
        button = QPushButton(self)
        button.setProperty("kind", kind)
        button.clicked.connect(pressed)
        button.installEventFilter(self)
        return button

    def _tell(self, explanation: Explanation, bodies: tuple[str, ...]) -> None:
        self._title.setText(explanation.title)
        self._body.set_text(explanation.body)
        self.setAccessibleDescription(f"{explanation.title}. {explanation.body}")
        if bodies != self._bodies:
            self._bodies = bodies
            self._fit_body(self._body.height())

    def _fit_body(self, least: int = 0) -> None:
        # Its own width: that of the text is set only after this card was resized.
        height = max(least, self._body_height(self._body_width(self.width())))
        if height != self._body.height():
            self._body.setFixedHeight(height)

    def _body_width(self, width: int) -> int:
        left, _, right, _ = _PADDING
        return width - left - right - 2 * _LINE

    def _body_height(self, width: int) -> int:
        heights = (self._body.height_of(body, width) for body in self._bodies)
        return max(heights, default=0) + 2

    def _title_height(self) -> int:
        return max(self._close.height(), self._title.sizeHint().height())

    def _fit_language_button(self) -> None:
        width = self._language.fontMetrics().horizontalAdvance(self._language.text())
        self._language.setFixedSize(width + 14, self._theme.px(22))

    def _act_on(self, key: int) -> bool:
        signals = {
            Qt.Key.Key_Left: self.back_pressed,
            Qt.Key.Key_Right: self.next_pressed,
            Qt.Key.Key_Escape: self.close_pressed,
        }
        signal = signals.get(Qt.Key(key))
        if signal is not None:
            signal.emit()
        return signal is not None

    # Qt overrides

    def event(self, event: QEvent) -> bool:
        # Esc is the window's Stop; within the card it closes the card.
        is_override = event.type() == QEvent.Type.ShortcutOverride
        if is_override and isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not self._act_on(event.key()):
            super().keyPressEvent(event)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        # A button would give the focus away at an arrow key.
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            return self._act_on(event.key())
        return super().eventFilter(watched, event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_body()


def _label() -> QLabel:
    label = QLabel()
    label.setTextFormat(Qt.TextFormat.PlainText)
    return label
