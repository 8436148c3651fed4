"""The toolbar: what is running, as drop-down buttons, and the phase badge at the right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QLayout, QMenu, QPushButton, QSizePolicy, QWidget

from app.appearance import icon
from app.model_menus import FORMAT_NAMES
from app.telemetry.format import NO_VALUE, count
from app.theme import CONTROL_PX, LABEL_PX, Theme
from engine.config import EngineConfig
from engine.events import ModelLoaded

GAP = 8
MARGIN = 14
MODEL_WIDTH_MAX = 260
FOLDED_EXTRA = 60  # chevron, paddings and a little air
CHEVRON_PX = 14
CHATS_PX = 30
CHATS_ICON_PX = 18


@dataclass(frozen=True, slots=True)
class RunValues:
    """The words on the buttons."""

    model: str = ""
    weights: str = NO_VALUE
    kv: str = NO_VALUE
    context: str = NO_VALUE


def run_values(loaded: ModelLoaded | None, wanted: EngineConfig | None) -> RunValues:
    """What runs; while another model is loaded, or none is there yet, what was asked for."""
    if wanted is None:
        return RunValues()
    if loaded is not None and loaded.config.model_path == wanted.model_path:
        config, model = loaded.config, loaded.model.name
        stored = loaded.model.stored_format.split(",")[0]
    else:
        config, model, stored = wanted, Path(wanted.model_path).stem, ""
    automatic = QCoreApplication.translate("RunBar", "auto")
    stored = stored or QCoreApplication.translate("RunBar", "as stored")
    return RunValues(
        model,
        FORMAT_NAMES.get(config.weight_format, stored),
        FORMAT_NAMES.get(config.kv_format, automatic),
        count(config.context_length) if config.context_length else automatic,
    )


class ValueButton(QPushButton):
    """A drop-down that says what it is about, quietly, and its value: "Weights INT8"."""

    def __init__(self, theme: Theme, label: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "value")
        self._name = label
        self._full = ""
        self._width_max = MODEL_WIDTH_MAX
        self._label = QLabel(label, self)
        self._label.setProperty("tone", "label")
        self._label.setVisible(bool(label))
        self._value = QLabel(self)
        self._chevron = QLabel(self)
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(9, 0, 6, 0)
        self._row.setSpacing(6)
        for each in (self._label, self._value, self._chevron):
            each.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
            self._row.addWidget(each)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.set_theme(theme)
        self.set_value(NO_VALUE)

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or text size."""
        self._label.setFont(theme.font(LABEL_PX + 0.5))
        self._value.setFont(theme.font(CONTROL_PX, bold=bool(self._name)))
        self._chevron.setPixmap(icon("chevron", theme.muted, CHEVRON_PX).pixmap(CHEVRON_PX))
        self._elide()

    def set_value(self, value: str) -> None:
        """Show a value; one too long for the toolbar is cut in its middle and told in full."""
        self._full = value
        self.setAccessibleName(f"{self._name} {value}".strip())
        self._elide()

    def set_width_max(self, width: int) -> None:
        """Cut values wider than this."""
        self._width_max = max(0, width)
        self._elide()

    def value(self) -> str:
        """The value, whole."""
        return self._full

    def _elide(self) -> None:
        metrics = self._value.fontMetrics()
        shown = metrics.elidedText(self._full, Qt.TextElideMode.ElideMiddle, self._width_max)
        self._value.setText(shown)
        self.setToolTip(self._full if shown != self._full else "")
        self.updateGeometry()

    # Qt overrides

    def sizeHint(self) -> QSize:
        height = self._value.fontMetrics().height() + 14
        return self._row.sizeHint().expandedTo(QSize(0, height))

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()


class RunBar(QWidget):
    """The buttons in a row; when they do not fit they fold into one before anything clips.

    Signals:
        chats_requested(): the chats button, shown while the list is folded, was pressed.
        sampling_requested(QWidget): the sampling popover is wanted under this button.
    """

    chats_requested = Signal()
    sampling_requested = Signal(object)

    def __init__(self, theme: Theme, badge: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._badge = badge
        self.chats = QPushButton(self)
        self.chats.setProperty("kind", "icon")
        self.chats.setAccessibleName(self.tr("Chats"))
        self.chats.setToolTip(self.tr("Show the chats"))
        self.chats.setFixedSize(CHATS_PX, CHATS_PX)
        self.chats.hide()
        self.chats.clicked.connect(self.chats_requested)
        self.model = ValueButton(theme, "", self)
        self.weights = ValueButton(theme, self.tr("Weights"), self)
        self.kv = ValueButton(theme, self.tr("KV cache"), self)
        self.context = ValueButton(theme, self.tr("Context"), self)
        self.sampling = ValueButton(theme, self.tr("Sampling"), self)
        self.sampling.clicked.connect(lambda: self.sampling_requested.emit(self.sampling))
        self._folded = ValueButton(theme, "", self)
        self._folded.hide()
        self._buttons = (self.model, self.weights, self.kv, self.context, self.sampling)
        row = QHBoxLayout(self)
        row.setContentsMargins(MARGIN, GAP, MARGIN, GAP)
        row.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)
        row.setSpacing(GAP)
        for each in (self.chats, *self._buttons, self._folded):
            row.addWidget(each)
        row.addStretch(1)
        row.addWidget(badge)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.set_theme(theme)

    @property
    def folded(self) -> bool:
        """Whether the buttons stand as one."""
        return not self._folded.isHidden()

    def set_menus(self, model: QMenu, weights: QMenu, kv: QMenu, context: QMenu) -> None:
        """Give each button its menu; the folded button offers all of them."""
        menus = (model, weights, kv, context)
        everything = QMenu(self)
        for button, menu in zip(self._buttons, menus, strict=False):
            button.setMenu(menu)
            everything.addMenu(menu)
        sampling = everything.addAction(self.tr("Sampling…"))
        sampling.triggered.connect(lambda: self.sampling_requested.emit(self._folded))
        self._folded.setMenu(everything)

    def show_values(self, values: RunValues) -> None:
        """Show what runs, or what is being loaded."""
        self.model.set_value(values.model or self.tr("Choose a model"))
        self.weights.set_value(values.weights)
        self.kv.set_value(values.kv)
        self.context.set_value(values.context)
        self.arrange()

    def show_chats_button(self, shown: bool) -> None:
        """Offer the chats here while their list is folded."""
        self.chats.setVisible(shown)
        self.arrange()

    def set_theme(self, theme: Theme) -> None:
        """Take another colour set or text size."""
        self.chats.setIcon(icon("chats", theme.text, CHATS_ICON_PX))
        self.chats.setIconSize(QSize(CHATS_ICON_PX, CHATS_ICON_PX))
        for button in (*self._buttons, self._folded):
            button.set_theme(theme)
        self.arrange()

    def arrange(self) -> None:
        """Fold or unfold for the present width; call after a value changed."""
        values = [button.value() for button in self._buttons]
        self._folded.set_value(" · ".join(values))
        fixed = 2 * MARGIN + self._badge.sizeHint().width() + 2 * GAP
        if not self.chats.isHidden():
            fixed += self.chats.sizeHint().width() + GAP
        self._folded.set_width_max(self.width() - fixed - FOLDED_EXTRA)
        needed = fixed + sum(button.sizeHint().width() + GAP for button in self._buttons)
        fold = needed > self.width()
        for button in self._buttons:
            button.setVisible(not fold)
        self._folded.setVisible(fold)

    # Qt overrides

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.arrange()

    def minimumSizeHint(self) -> QSize:
        return QSize(0, self.sizeHint().height())

    def sizeHint(self) -> QSize:
        return QSize(480, self.model.sizeHint().height() + 2 * GAP)
