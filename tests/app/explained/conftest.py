"""Fonts as shipped, a standing clock and an empty model, as for the panels."""

from tests.app.telemetry.conftest import bundled_fonts, clock, model, theme

__all__ = ["bundled_fonts", "clock", "model", "theme"]
