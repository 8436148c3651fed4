"""Style sheets that the widgets of the conversation share, made from the theme's tokens."""

from __future__ import annotations

from app.chat.bubble_layout import SCROLL_BAR_WIDTH
from app.theme import Theme


def button_style(theme: Theme) -> str:
    """A quiet framed button; radius 6, the frame tells hover and keyboard focus."""
    return f"""
    QPushButton {{ color: {theme.text}; background: {theme.raised}; border-radius: 6px;
                   border: 1px solid {theme.line}; padding: 5px 11px; }}
    QPushButton:hover {{ border-color: {theme.faint}; }}
    QPushButton:focus {{ border-color: {theme.muted}; }}
    QPushButton:pressed {{ background: {theme.line}; }}
    QPushButton:disabled {{ color: {theme.faint}; background: transparent; }}
    """


def stop_button_style(theme: Theme) -> str:
    """The one loud button: white on the stop colour."""
    return f"""
    QPushButton {{ color: {theme.on_stop}; background: {theme.stop}; border-radius: 6px;
                   border: 1px solid {theme.stop}; padding: 5px 11px; }}
    QPushButton:hover, QPushButton:focus {{ border-color: {theme.on_stop}; }}
    """


def label_style(color: str) -> str:
    """Plain text in one colour, on whatever it lies."""
    return f"color: {color}; background: transparent;"


def scroll_bar_style(theme: Theme) -> str:
    """A thin bar without arrows that takes no attention."""
    return f"""
    QScrollBar:vertical {{ background: transparent; width: {SCROLL_BAR_WIDTH}px; margin: 0; }}
    QScrollBar::handle:vertical {{ background: {theme.line}; border-radius: 3px;
                                   min-height: 28px; margin: 2px; }}
    QScrollBar::handle:vertical:hover {{ background: {theme.faint}; }}
    QScrollBar::handle:vertical:disabled {{ background: transparent; }}
    QScrollBar::add-line, QScrollBar::sub-line {{ height: 0; }}
    QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
    """


def input_style(theme: Theme) -> str:
    """A field of one line."""
    return f"""
    QLineEdit {{ color: {theme.text}; background: {theme.surface}; border-radius: 6px;
                 border: 1px solid {theme.line}; padding: 5px 7px;
                 placeholder-text-color: {theme.muted}; }}
    QLineEdit:focus {{ border-color: {theme.faint}; }}
    """
