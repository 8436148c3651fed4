"""How full the context is: a bar in the cache's colour and the two numbers, draft included."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QWidget

from app.chat.styles import label_style
from app.telemetry.format import count
from app.theme import LABEL_PX, Theme

BAR_WIDTH, BAR_HEIGHT = 130, 5
DRAFT_ALPHA = 0.45


class _Bar(QWidget):
    """The bar alone, `share` of it filled and up to `draft_share` of it lightly."""

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.theme = theme
        self.share = self.draft_share = 0.0
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.setMaximumWidth(BAR_WIDTH)
        self.setMinimumWidth(24)

    # Qt overrides

    def sizeHint(self) -> QSize:
        return QSize(BAR_WIDTH, BAR_HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        groove = QRectF(self.rect())
        radius = groove.height() / 2
        painter.setBrush(self.theme.color("line"))
        painter.drawRoundedRect(groove, radius, radius)
        for share, alpha in ((self.draft_share, DRAFT_ALPHA), (self.share, 1.0)):
            if share > 0:
                part = QRectF(groove)
                part.setWidth(max(groove.height(), groove.width() * share))
                painter.setBrush(self.theme.color("kv", alpha))
                painter.drawRoundedRect(part, radius, radius)
        painter.end()


class ContextGauge(QWidget):
    """ "Context", a bar, and e.g. "1,284 / 4,096"."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._over = False
        self._title = QLabel(self.tr("Context"))
        self._bar = _Bar(theme, self)
        self._numbers = QLabel()
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        layout.addWidget(self._title)
        layout.addWidget(self._bar, 1)
        layout.addWidget(self._numbers)
        self.set_theme(theme)
        self.set_context(None, None)

    def set_context(
        self, used: int | None, limit: int | None, draft: int = 0, when_full: str = ""
    ) -> None:
        """Show `used` of `limit` tokens, the `draft` on top; None where there is no value.

        `when_full` is the sentence that says what happens then.
        """
        total = None if used is None else used + draft
        self._numbers.setText(f"{count(total)} / {count(limit)}")
        self._bar.share = min(1.0, used / limit) if used and limit else 0.0
        self._bar.draft_share = min(1.0, total / limit) if total and limit else 0.0
        self._bar.update()
        self._over = total is not None and limit is not None and total >= limit
        self._show_fonts()
        explanation = "\n".join(filter(None, (self._explain(used, limit, draft), when_full)))
        self.setToolTip(explanation)
        self.setAccessibleName(explanation)

    def _explain(self, used: int | None, limit: int | None, draft: int) -> str:
        known = self.tr("Tokens of this chat in the context, of those it can hold: {0} / {1}.")
        text = known.format(count(used), count(limit))
        if draft:
            text += " " + self.tr("Your draft adds {0}.").format(count(draft))
        if self._over:
            text += " " + self.tr("That is more than fits.")
        return text

    def set_title_shown(self, shown: bool) -> None:
        """Whether there is room for the word before the bar."""
        self._title.setVisible(shown)

    def set_theme(self, theme: Theme) -> None:
        """Draw with other colours or sizes."""
        self._bar.theme = theme
        self._bar.update()
        self._show_fonts()

    def _show_fonts(self) -> None:
        theme = self._bar.theme
        for label, loud in ((self._title, False), (self._numbers, self._over)):
            label.setFont(theme.font(LABEL_PX + 1, bold=loud))
            label.setStyleSheet(label_style(theme.text if loud else theme.muted))
