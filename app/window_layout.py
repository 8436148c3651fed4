"""Places the parts of the window and rearranges them as it gets narrower or wider."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QEvent, QObject, QRect, Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QApplication,
    QDockWidget,
    QHBoxLayout,
    QLabel,
    QLayout,
    QMainWindow,
    QPushButton,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from app.appearance import icon
from app.narrowing import CHATS_WIDTH, CONVERSATION_MIN, DOCK_MIN, DOCK_WIDTH, arrange
from app.theme import Theme

WINDOW_MIN_WIDTH = 500
WINDOW_MIN_HEIGHT = 420
TITLE_ICON_PX = 14


class DockTitle(QWidget):
    """The slim title row of the telemetry dock: drag it, float the dock, close it."""

    def __init__(self, theme: Theme, dock: QDockWidget) -> None:
        super().__init__(dock)
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setObjectName("dockTitle")
        self._label = QLabel(dock.windowTitle(), self)
        self._label.setProperty("tone", "label")
        self.float_button = QPushButton(self)
        self.close_button = QPushButton(self)
        row = QHBoxLayout(self)
        row.setContentsMargins(14, 4, 8, 0)
        row.setSpacing(2)
        row.addWidget(self._label)
        row.addStretch(1)
        texts = (
            (self.float_button, self.tr("Float or dock the panels")),
            (self.close_button, self.tr("Close the panels")),
        )
        for button, text in texts:
            button.setProperty("kind", "icon")
            button.setAccessibleName(text)
            button.setToolTip(text)
            button.setFixedSize(22, 20)
            row.addWidget(button)
        self.set_theme(theme)

    def set_theme(self, theme: Theme) -> None:
        """Take the colours of another theme."""
        self.float_button.setIcon(icon("float", theme.muted, TITLE_ICON_PX))
        self.close_button.setIcon(icon("close", theme.muted, TITLE_ICON_PX))


class WindowLayout(QObject):
    """Owns the splitter and the dock, and what the person wants of them.

    Signals:
        arranged(): which parts are shown may have changed.
        panels_wanted(bool), chats_wanted(bool): the person switched a part.
    """

    arranged = Signal()
    panels_wanted = Signal(bool)
    chats_wanted = Signal(bool)

    def __init__(
        self,
        window: QMainWindow,
        theme: Theme,
        chats: QWidget,
        conversation: QWidget,
        panel: QWidget,
        strip: QWidget,
    ) -> None:
        super().__init__(window)
        self._window = window
        self._chats = chats
        self._strip = strip
        self._wants_chats = True
        self._wants_panels = True
        self._insists = False
        self._dock_width = DOCK_WIDTH
        self._arranging = False
        self.drawer_open = False
        conversation.setMinimumWidth(CONVERSATION_MIN)
        chats.setMinimumWidth(CHATS_WIDTH - 30)
        self._splitter = QSplitter(Qt.Orientation.Horizontal)
        self._splitter.setHandleWidth(1)
        self._splitter.setChildrenCollapsible(False)
        self._splitter.addWidget(chats)
        self._splitter.addWidget(conversation)
        self._splitter.setStretchFactor(1, 1)
        self._splitter.setSizes([CHATS_WIDTH, 10_000])
        central = QWidget(window)
        column = QVBoxLayout(central)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self._splitter, 1)
        column.addWidget(strip)
        window.setCentralWidget(central)
        self.dock = self._make_dock(theme, panel)
        # The window may get narrower than its parts: they give way in `rearrange`.
        window_layout = window.layout()
        if window_layout is not None:
            window_layout.setSizeConstraint(QLayout.SizeConstraint.SetNoConstraint)
        window.setMinimumSize(WINDOW_MIN_WIDTH, WINDOW_MIN_HEIGHT)

    # --- what is --------------------------------------------------------------------------

    @property
    def chats_shown(self) -> bool:
        """Whether the chats list stands beside the conversation."""
        return not self._chats.isHidden() and not self.drawer_open

    @property
    def panels_shown(self) -> bool:
        """Whether the panels are shown, docked or floating."""
        return not self.dock.isHidden()

    # --- what the person wants ------------------------------------------------------------

    def want_chats(self, wanted: bool) -> None:
        """Show or hide the chats list; where it does not fit it opens as a drawer."""
        self._wants_chats = wanted
        self._close_drawer()
        self.rearrange()
        if wanted and not self.chats_shown:
            self.open_drawer()
        self.chats_wanted.emit(wanted)

    def want_panels(self, wanted: bool) -> None:
        """Show or hide the panels; asked for in a low or narrow window they come all the same."""
        self._wants_panels = wanted
        self._insists = wanted
        if not wanted and self.dock.isFloating():
            self.dock.setFloating(False)
        self.rearrange()
        if wanted and not self.panels_shown:
            self._float()
        self.panels_wanted.emit(wanted)

    def open_drawer(self) -> None:
        """Lay the chats list over the conversation until a chat is chosen."""
        if self.chats_shown:
            return
        self._set_drawer(True)
        self._chats.setParent(self._splitter.parentWidget())
        self._place_drawer()
        self._chats.show()
        self._chats.raise_()
        self._chats.setFocus()

    def close_drawer(self) -> None:
        """Put the list away again."""
        self._close_drawer()
        self.rearrange()

    def set_theme(self, theme: Theme) -> None:
        """Take the colours of another theme."""
        self._title.set_theme(theme)

    # --- arranging ------------------------------------------------------------------------

    def rearrange(self) -> None:
        """Show what fits the window's present size."""
        if self._arranging:
            return
        self._arranging = True
        floating = self.dock.isFloating() and self._wants_panels
        plan = arrange(
            self._window.width(),
            self._window.height(),
            wants_chats=self._wants_chats,
            wants_panels=self._wants_panels and not floating,
            insists_on_panels=self._insists,
            dock_width=self._dock_width,
        )
        if plan.chats:
            self._close_drawer()
        if not self.drawer_open:
            self._chats.setVisible(plan.chats)
        self._strip.setVisible(plan.strip)
        if not floating:
            self.dock.setVisible(plan.dock_width is not None)
        if plan.dock_width is not None:
            self._window.resizeDocks([self.dock], [plan.dock_width], Qt.Orientation.Horizontal)
        if self.drawer_open:
            self._place_drawer()
        self._arranging = False
        self.arranged.emit()

    def save(self) -> tuple[str, str]:
        """Geometry and state of window and dock, as text for the settings."""
        return _encoded(self._window.saveGeometry()), _encoded(self._window.saveState())

    def restore(self, geometry: str, state: str) -> None:
        """Take up what `save` gave; anything else is ignored by Qt."""
        if geometry:
            self._window.restoreGeometry(_decoded(geometry))
        if state and self._window.restoreState(_decoded(state)):
            self._dock_width = max(DOCK_MIN, self.dock.width())

    # --- private --------------------------------------------------------------------------

    def _make_dock(self, theme: Theme, panel: QWidget) -> QDockWidget:
        dock = QDockWidget(self.tr("Telemetry"), self._window)
        dock.setObjectName("telemetry")
        dock.setAllowedAreas(
            Qt.DockWidgetArea.RightDockWidgetArea | Qt.DockWidgetArea.LeftDockWidgetArea
        )
        dock.setWidget(panel)
        self._title = DockTitle(theme, dock)
        dock.setTitleBarWidget(self._title)
        self._title.float_button.clicked.connect(lambda: dock.setFloating(not dock.isFloating()))
        self._title.close_button.clicked.connect(lambda: self.want_panels(False))
        dock.topLevelChanged.connect(lambda _: self.rearrange())
        dock.installEventFilter(self)
        self._window.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, dock)
        return dock

    def _float(self) -> None:
        corner = self._window.geometry().topRight()
        self.dock.setFloating(True)
        self.dock.setGeometry(QRect(corner.x() - DOCK_MIN, corner.y() + 40, DOCK_MIN, 640))
        self.dock.show()

    def _set_drawer(self, is_open: bool) -> None:
        self.drawer_open = is_open
        self._chats.setProperty("drawer", is_open)
        self._chats.style().unpolish(self._chats)
        self._chats.style().polish(self._chats)
        app = QApplication.instance()
        if app is not None:
            # A click anywhere else puts the drawer away.
            (app.installEventFilter if is_open else app.removeEventFilter)(self)

    def _place_drawer(self) -> None:
        self._chats.setGeometry(0, 0, CHATS_WIDTH + 30, self._splitter.height())

    def _close_drawer(self) -> None:
        if self.drawer_open:
            self._set_drawer(False)
            self._chats.hide()
            self._splitter.insertWidget(0, self._chats)
            self._splitter.setSizes([CHATS_WIDTH, 10_000])

    # Qt overrides

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.dock:
            if event.type() == QEvent.Type.Close and self._window.isVisible():
                # A floating dock closed by its frame, not with the whole window.
                self.want_panels(False)
            elif event.type() == QEvent.Type.Resize and self._person_resizes():
                self._dock_width = self.dock.width()
        elif event.type() == QEvent.Type.MouseButtonPress and self._is_outside(watched):
            self.close_drawer()
        return super().eventFilter(watched, event)

    def _is_outside(self, watched: QObject) -> bool:
        inside = watched is self._chats or (
            isinstance(watched, QWidget) and self._chats.isAncestorOf(watched)
        )
        return isinstance(watched, QWidget) and watched.window() is self._window and not inside

    def _person_resizes(self) -> bool:
        """Whether a resize of the dock comes from its separator, not from the window."""
        dragging = bool(QGuiApplication.mouseButtons() & Qt.MouseButton.LeftButton)
        return dragging and not self._arranging and not self.dock.isFloating()


def _encoded(data: QByteArray) -> str:
    return bytes(data.toBase64().data()).decode("ascii")


def _decoded(text: str) -> QByteArray:
    return QByteArray.fromBase64(QByteArray(text.encode("ascii", "ignore")))
