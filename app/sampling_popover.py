"""The popover behind the Sampling button: how the next token is chosen, and the system prompt."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import (
    QFormLayout,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.sampling import SAMPLING_SETTINGS, limits, parse
from app.settings.schema import MAX_TOKENS, SEED, Setting
from app.settings.store import Settings
from engine.config import SamplingParams

MIN_WIDTH = 320
PROMPT_HEIGHT = 72


class SamplingPopover(QFrame):
    """Edits the sampling settings in place; an empty field means the model's own value.

    Signals:
        system_prompt_edited(str): the person changed the chat's system prompt.
    """

    system_prompt_edited = Signal(str)

    def __init__(self, settings: Settings, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        self.setObjectName("popover")
        self._settings = settings
        self._fields: dict[str, QLineEdit] = {}
        form = QFormLayout()
        form.setHorizontalSpacing(16)
        form.setVerticalSpacing(8)
        titles = {
            "temperature": self.tr("Temperature"),
            "top_k": self.tr("Top-k"),
            "top_p": self.tr("Top-p"),
            "min_p": self.tr("Min-p"),
            "repetition_penalty": self.tr("Repetition penalty"),
            "seed": self.tr("Seed"),
            "max_tokens": self.tr("Longest answer"),
        }
        for setting in SAMPLING_SETTINGS:
            form.addRow(self._caption(titles[setting.key]), self._field(setting, titles))
        self._prompt = QPlainTextEdit(self)
        self._prompt.setAccessibleName(self.tr("System prompt"))
        self._prompt.setPlaceholderText(self.tr("None"))
        self._prompt.setTabChangesFocus(True)
        self._prompt.setFixedHeight(PROMPT_HEIGHT)
        self._prompt.textChanged.connect(self._on_prompt_changed)
        reset = QPushButton(self.tr("Back to the model's own"), self)
        reset.clicked.connect(self._reset)
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 16, 16, 16)
        column.setSpacing(8)
        column.addLayout(form)
        column.addSpacing(4)
        column.addWidget(self._caption(self.tr("System prompt, for this chat and new ones")))
        column.addWidget(self._prompt)
        buttons = QHBoxLayout()
        buttons.addWidget(reset)
        buttons.addStretch(1)
        column.addLayout(buttons)
        self.setMinimumWidth(MIN_WIDTH)

    def set_defaults(self, default: SamplingParams) -> None:
        """Show what an empty field stands for with the present model."""
        for key, field in self._fields.items():
            if key == MAX_TOKENS.key:
                field.setPlaceholderText(self.tr("up to the context"))
            elif key == SEED.key:
                field.setPlaceholderText(self.tr("a fresh one"))
            else:
                value = getattr(default, key)
                field.setPlaceholderText(self.tr("{0} (model)").format(f"{value:g}"))

    def set_system_prompt(self, text: str) -> None:
        """Show the prompt of the chat that is open now."""
        if text != self._prompt.toPlainText():
            self._prompt.blockSignals(True)
            self._prompt.setPlainText(text)
            self._prompt.blockSignals(False)

    def open_under(self, anchor: QWidget) -> None:
        """Show the popover below a button, inside the screen."""
        self.adjustSize()
        corner = anchor.mapToGlobal(QPoint(0, anchor.height() + 4))
        right = anchor.screen().availableGeometry().right() - self.width()
        self.move(min(corner.x(), right), corner.y())
        self.show()
        next(iter(self._fields.values())).setFocus()

    def field(self, setting: Setting[Any]) -> QLineEdit:
        """The line in which `setting` is typed."""
        return self._fields[setting.key]

    def _field(self, setting: Setting[Any], titles: dict[str, str]) -> QLineEdit:
        field = QLineEdit(self)
        field.setAccessibleName(titles[setting.key])
        value = self._settings.get(setting)
        field.setText(
            "" if value is None else f"{value:g}" if setting.type is float else str(value)
        )
        field.textEdited.connect(lambda _text, each=setting: self._on_edited(each))
        self._fields[setting.key] = field
        return field

    def _caption(self, text: str) -> QLabel:
        label = QLabel(text, self)
        label.setProperty("tone", "muted")
        return label

    def _on_edited(self, setting: Setting[Any]) -> None:
        field = self._fields[setting.key]
        try:
            value = parse(setting, field.text())
        except ValueError:
            field.setToolTip(self.tr("Possible: {0}").format(limits(setting)))
            field.setProperty("wrong", True)
        else:
            field.setToolTip("")
            field.setProperty("wrong", False)
            self._settings.set(setting, value)
        field.style().unpolish(field)
        field.style().polish(field)

    def _on_prompt_changed(self) -> None:
        self.system_prompt_edited.emit(self._prompt.toPlainText())

    def _reset(self) -> None:
        for setting in SAMPLING_SETTINGS:
            self._fields[setting.key].clear()
            self._on_edited(setting)
