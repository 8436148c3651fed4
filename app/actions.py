"""Every action of the menus in one table: menus, shortcuts and the shortcuts page come from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMainWindow, QMenu

CONTEXT = "Actions"


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """One action. `text` and `tip` are English and translated when the menu is built.

    `shortcuts`: portable key names, the first one is shown. `checkable`: a switch.
    """

    id: str
    text: str
    shortcuts: tuple[str, ...] = ()
    checkable: bool = False
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Submenu:
    """A place in a menu that is filled from what is known at run time, by its name."""

    name: str


def QT_TRANSLATE_NOOP(_context: str, text: str) -> str:
    """Mark a text for translation where it stands in the table; the binding's own is untyped."""
    return text


SEPARATOR = None
MenuEntry = ActionSpec | Submenu | None


MENUS: tuple[tuple[str, tuple[MenuEntry, ...]], ...] = (
    (
        QT_TRANSLATE_NOOP("Actions", "&File"),
        (
            ActionSpec("file.new_chat", QT_TRANSLATE_NOOP("Actions", "&New chat"), ("Ctrl+N",)),
            SEPARATOR,
            ActionSpec(
                "file.export",
                QT_TRANSLATE_NOOP("Actions", "&Export session metrics (CSV)…"),
                ("Ctrl+E",),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "Write everything measured since the start as four CSV tables"
                ),
            ),
            ActionSpec(
                "file.record",
                QT_TRANSLATE_NOOP("Actions", "&Record metrics continuously"),
                checkable=True,
                tip=QT_TRANSLATE_NOOP("Actions", "Append to the CSV tables as each answer ends"),
            ),
            ActionSpec(
                "file.export_report",
                QT_TRANSLATE_NOOP("Actions", "Export report (&HTML)…"),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "Figures, tables, settings and this machine in one file"
                ),
            ),
            ActionSpec(
                "file.export_vllm",
                QT_TRANSLATE_NOOP("Actions", "Export for &vLLM tools (JSON)…"),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "For scripts that read what vLLM's serving benchmark saves"
                ),
            ),
            ActionSpec(
                "file.open_recording",
                QT_TRANSLATE_NOOP("Actions", "&Open recording…"),
                tip=QT_TRANSLATE_NOOP("Actions", "Play a recorded session, without a model"),
            ),
            ActionSpec(
                "file.save_recording",
                QT_TRANSLATE_NOOP("Actions", "&Save recording…"),
                tip=QT_TRANSLATE_NOOP("Actions", "Everything the panels saw, to be played again"),
            ),
            ActionSpec(
                "file.save_picture",
                QT_TRANSLATE_NOOP("Actions", "Save panels as &picture…"),
                ("Ctrl+Shift+S",),
            ),
            SEPARATOR,
            ActionSpec("file.quit", QT_TRANSLATE_NOOP("Actions", "&Quit"), ("Ctrl+Q",)),
        ),
    ),
    (
        QT_TRANSLATE_NOOP("Actions", "&Chat"),
        (
            ActionSpec("chat.send", QT_TRANSLATE_NOOP("Actions", "&Send"), ("Ctrl+Return",)),
            ActionSpec("chat.stop", QT_TRANSLATE_NOOP("Actions", "S&top"), ("Esc",)),
            ActionSpec("chat.regenerate", QT_TRANSLATE_NOOP("Actions", "Re&generate"), ("Ctrl+R",)),
            ActionSpec(
                "chat.copy_answer",
                QT_TRANSLATE_NOOP("Actions", "&Copy answer"),
                ("Ctrl+Shift+C",),
            ),
            ActionSpec(
                "chat.compare_cache",
                QT_TRANSLATE_NOOP("Actions", "Compare with the cache &off…"),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "The same prompt again without the KV cache, beside the answer's run"
                ),
            ),
            ActionSpec(
                "chat.race",
                QT_TRANSLATE_NOOP("Actions", "R&ace…"),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "The same prompt again with another format, beside the answer's run"
                ),
            ),
            ActionSpec(
                "chat.pin",
                QT_TRANSLATE_NOOP("Actions", "&Pin this run"),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "Keep the newest answer's figures, to be compared with others"
                ),
            ),
            ActionSpec(
                "chat.compare_runs",
                QT_TRANSLATE_NOOP("Actions", "Compare r&uns…"),
                ("Ctrl+Shift+P",),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "Pinned runs side by side: latencies, figures and their ratios"
                ),
            ),
            SEPARATOR,
            ActionSpec("chat.rename", QT_TRANSLATE_NOOP("Actions", "Re&name"), ("Ctrl+Shift+R",)),
            ActionSpec(
                "chat.delete", QT_TRANSLATE_NOOP("Actions", "&Delete"), ("Ctrl+Shift+Backspace",)
            ),
        ),
    ),
    (
        QT_TRANSLATE_NOOP("Actions", "&Model"),
        (
            ActionSpec(
                "model.starter",
                QT_TRANSLATE_NOOP("Actions", "&Starter model"),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "SmolLM2-135M-Instruct, a small model for learning the panels"
                ),
            ),
            ActionSpec(
                "model.choose",
                QT_TRANSLATE_NOOP("Actions", "&Choose model…"),
                ("Ctrl+M",),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "Every model on this machine, with what it takes and reaches"
                ),
            ),
            ActionSpec(
                "model.download",
                QT_TRANSLATE_NOOP("Actions", "&Download model…"),
                ("Ctrl+Shift+D",),
                tip=QT_TRANSLATE_NOOP("Actions", "From the Hugging Face Hub"),
            ),
            ActionSpec(
                "model.plan",
                QT_TRANSLATE_NOOP("Actions", "Memory &planner…"),
                ("Ctrl+Shift+M",),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "What a model would take and reach, also before it is downloaded"
                ),
            ),
            ActionSpec(
                "model.open_file", QT_TRANSLATE_NOOP("Actions", "&Open model file…"), ("Ctrl+O",)
            ),
            ActionSpec(
                "model.open_folder",
                QT_TRANSLATE_NOOP("Actions", "Open model &folder…"),
                ("Ctrl+Shift+O",),
            ),
            Submenu("recent"),
            SEPARATOR,
            ActionSpec(
                "model.quantize",
                QT_TRANSLATE_NOOP("Actions", "&Quantize…"),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "Write the loaded model in 4 or 8 bits into a new folder"
                ),
            ),
            ActionSpec(
                "model.sweep",
                QT_TRANSLATE_NOOP("Actions", "S&weep…"),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "Measure weight formats, cache formats and contexts after each other"
                ),
            ),
            SEPARATOR,
            Submenu("device"),
            Submenu("threads"),
            SEPARATOR,
            ActionSpec("model.reload", QT_TRANSLATE_NOOP("Actions", "&Reload"), ("Ctrl+L",)),
            ActionSpec("model.unload", QT_TRANSLATE_NOOP("Actions", "&Unload"), ("Ctrl+U",)),
        ),
    ),
    (QT_TRANSLATE_NOOP("Actions", "&Weights"), (Submenu("weights"),)),
    (QT_TRANSLATE_NOOP("Actions", "C&ache"), (Submenu("cache"),)),
    (
        QT_TRANSLATE_NOOP("Actions", "&View"),
        (
            ActionSpec(
                "view.chats",
                QT_TRANSLATE_NOOP("Actions", "&Chats list"),
                ("Ctrl+B",),
                checkable=True,
            ),
            ActionSpec(
                "view.telemetry",
                QT_TRANSLATE_NOOP("Actions", "&Telemetry panels"),
                ("Ctrl+T",),
                checkable=True,
            ),
            ActionSpec(
                "view.blocks",
                QT_TRANSLATE_NOOP("Actions", "&Block map"),
                checkable=True,
                tip=QT_TRANSLATE_NOOP("Actions", "Who has which block of the KV cache"),
            ),
            ActionSpec(
                "view.explain",
                QT_TRANSLATE_NOOP("Actions", "&Explain what happens"),
                checkable=True,
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "Tell each step of an answer beside the panels, with its figures"
                ),
            ),
            ActionSpec(
                "view.stages",
                QT_TRANSLATE_NOOP("Actions", "Step ti&mes"),
                checkable=True,
                tip=QT_TRANSLATE_NOOP("Actions", "Where the time of this answer's steps went"),
            ),
            ActionSpec(
                "view.roofline",
                QT_TRANSLATE_NOOP("Actions", "R&oofline…"),
                ("Ctrl+Shift+L",),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "Each step under the compute and bandwidth roofs of this machine"
                ),
            ),
            SEPARATOR,
            ActionSpec(
                "view.live",
                QT_TRANSLATE_NOOP("Actions", "&Newest seconds"),
                ("Ctrl+1",),
                tip=QT_TRANSLATE_NOOP("Actions", "The plots move on with the answer"),
            ),
            ActionSpec(
                "view.answer",
                QT_TRANSLATE_NOOP("Actions", "This &answer"),
                ("Ctrl+2",),
                tip=QT_TRANSLATE_NOOP("Actions", "The plots show the whole answer, from Send on"),
            ),
            ActionSpec(
                "view.session",
                QT_TRANSLATE_NOOP("Actions", "&Whole session"),
                ("Ctrl+3",),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "The plots show every answer, idle times left out"
                ),
            ),
            ActionSpec(
                "view.tokens",
                QT_TRANSLATE_NOOP("Actions", "To&ken axis"),
                ("Ctrl+4",),
                checkable=True,
                tip=QT_TRANSLATE_NOOP("Actions", "Plot an answer over its tokens, not its seconds"),
            ),
            ActionSpec(
                "view.follow",
                QT_TRANSLATE_NOOP("Actions", "&Follow live"),
                ("Ctrl+Shift+F",),
                tip=QT_TRANSLATE_NOOP("Actions", "Let the plots show the newest data again"),
            ),
            SEPARATOR,
            Submenu("theme"),
            ActionSpec(
                "view.larger",
                QT_TRANSLATE_NOOP("Actions", "&Larger text"),
                ("Ctrl++", "Ctrl+="),
            ),
            ActionSpec("view.smaller", QT_TRANSLATE_NOOP("Actions", "&Smaller text"), ("Ctrl+-",)),
            ActionSpec(
                "view.reset_text", QT_TRANSLATE_NOOP("Actions", "&Reset text size"), ("Ctrl+0",)
            ),
        ),
    ),
    (
        QT_TRANSLATE_NOOP("Actions", "&Help"),
        (
            ActionSpec(
                "help.example",
                QT_TRANSLATE_NOOP("Actions", "Play the &example recording"),
                tip=QT_TRANSLATE_NOOP(
                    "Actions", "Two answers of the starter model as another machine gave them"
                ),
            ),
            SEPARATOR,
            ActionSpec(
                "help.metrics", QT_TRANSLATE_NOOP("Actions", "&Metric definitions"), ("F1",)
            ),
            ActionSpec(
                "help.shortcuts", QT_TRANSLATE_NOOP("Actions", "&Keyboard shortcuts"), ("Ctrl+/",)
            ),
            ActionSpec("help.about", QT_TRANSLATE_NOOP("Actions", "&About Phasescope")),
        ),
    ),
)


def all_specs() -> Iterator[ActionSpec]:
    """Every action of the table, in menu order."""
    for _, entries in MENUS:
        yield from (entry for entry in entries if isinstance(entry, ActionSpec))


def translated(text: str) -> str:
    """A text of the table in the person's language."""
    return QCoreApplication.translate(CONTEXT, text)


def plain(text: str) -> str:
    """A menu text without its mnemonic and its dots, for buttons and lists."""
    return translated(text).replace("&", "").rstrip("…")


class Actions:
    """The QActions of one window, by id, and its menu bar.

    `handlers` gives each action what it does: slots without arguments, for checkable actions
    slots that take the new state. `submenus` fills the named places. Raises KeyError when an
    action has no handler or a handler no action: no menu entry may do nothing.
    """

    def __init__(
        self,
        window: QMainWindow,
        handlers: Mapping[str, Callable[..., Any]],
        submenus: Mapping[str, Callable[[QMenu], None]],
    ) -> None:
        self._actions: dict[str, QAction] = {}
        unknown = set(handlers) - {spec.id for spec in all_specs()}
        if unknown:
            raise KeyError(f"handlers without action: {sorted(unknown)}")
        for title, entries in MENUS:
            menu = QMenu(translated(title), window)
            menu.setToolTipsVisible(True)
            window.menuBar().addMenu(menu)
            for entry in entries:
                if entry is SEPARATOR:
                    menu.addSeparator()
                elif isinstance(entry, Submenu):
                    submenus[entry.name](menu)
                else:
                    self._add(window, menu, entry, handlers[entry.id])

    def __getitem__(self, action_id: str) -> QAction:
        return self._actions[action_id]

    def enable(self, **enabled: bool) -> None:
        """Set several actions at once; the first underscore of a name stands for the dot."""
        for name, value in enabled.items():
            self._actions[name.replace("_", ".", 1)].setEnabled(value)

    def _add(
        self, window: QMainWindow, menu: QMenu, spec: ActionSpec, handler: Callable[..., Any]
    ) -> None:
        action = QAction(translated(spec.text), window)
        action.setShortcuts([QKeySequence(keys) for keys in spec.shortcuts])
        action.setCheckable(spec.checkable)
        action.setToolTip(translated(spec.tip) if spec.tip else "")
        # Otherwise a platform moves "About" and "Quit" by guessing from their words.
        action.setMenuRole(QAction.MenuRole.NoRole)
        if spec.checkable:
            action.toggled.connect(handler)
        else:
            action.triggered.connect(lambda _checked=False: handler())
        menu.addAction(action)
        self._actions[spec.id] = action
