"""What can be done with a row, in words: the entries of its context menu."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from app.chat.bubble_layout import Hit, Target
from app.chat.delegate import Index, can_regenerate, message_of
from app.chat.row_content import RowContent, control_label, note_buttons

translate = QCoreApplication.translate


def row_entries(index: Index, content: RowContent, hit: Hit | None) -> list[tuple[str, Hit]]:
    """Labels and targets, all that the mouse can reach; `hit` is what the mouse is on, if it is."""
    actions, note = message_of(index).actions, message_of(index).note
    entries = [(action.label, Hit(Target.ACTION, n)) for n, action in enumerate(actions)]
    if note is not None:
        entries += [(label, button) for button, label in note_buttons(note)]
    entries.append((control_label(Target.COPY), Hit(Target.COPY)))
    for number, block in enumerate(content.blocks):
        if block.code and (hit is None or hit.number == number):
            name = block.code.language or translate("ChatDelegate", "text")
            label = translate("ChatDelegate", "Copy code (%1)").replace("%1", name)
            entries.append((label, Hit(Target.COPY_CODE, number)))
    if can_regenerate(index):
        entries.append((control_label(Target.REGENERATE), Hit(Target.REGENERATE)))
    if message_of(index).stats is not None:
        entries.append((control_label(Target.COMPARE), Hit(Target.COMPARE)))
        entries.append((control_label(Target.RACE), Hit(Target.RACE)))
        entries.append((control_label(Target.PIN), Hit(Target.PIN)))
    return entries
