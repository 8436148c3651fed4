"""What the window shows at which size: a pure decision, so that it can be tested without one."""

from __future__ import annotations

from dataclasses import dataclass

CONVERSATION_MIN = 480
CHATS_WIDTH = 210
DOCK_WIDTH = 512
DOCK_MIN = 360
# Below this height three plots under each other say less than the strip does.
PANELS_MIN_HEIGHT = 660


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What is shown. `dock_width` is None where the strip stands for the panels."""

    chats: bool
    dock_width: int | None

    @property
    def strip(self) -> bool:
        """Whether the strip under the conversation is shown: always when the dock is not."""
        return self.dock_width is None


def arrange(
    width: int,
    height: int,
    *,
    wants_chats: bool = True,
    wants_panels: bool = True,
    insists_on_panels: bool = False,
    dock_width: int = DOCK_WIDTH,
) -> Arrangement:
    """Decide for a window of this size, in px.

    First the chats list folds, then the dock shrinks to `DOCK_MIN`, then the strip takes its
    place; the conversation keeps `CONVERSATION_MIN`. `dock_width` is what the person gave the
    dock; `insists_on_panels` when they asked for the panels in a low window.
    """
    beside = width - CONVERSATION_MIN
    panels = wants_panels and (height >= PANELS_MIN_HEIGHT or insists_on_panels)
    if not panels or beside < DOCK_MIN:
        # The chats had folded before the panels gave way; without panels they have their room.
        return Arrangement(wants_chats and not wants_panels and beside >= CHATS_WIDTH, None)
    wanted = max(DOCK_MIN, dock_width)
    if wants_chats and beside >= wanted + CHATS_WIDTH:
        return Arrangement(True, wanted)
    return Arrangement(False, min(wanted, beside))
