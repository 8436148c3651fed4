"""What happens when the context is full: the menu to choose it by, and the words for it."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QMenu, QWidget

from app.settings.schema import CONTEXT_POLICY
from app.settings.store import Settings
from engine.config import CONTEXT_POLICIES, ContextPolicy


def policy_name(policy: ContextPolicy) -> str:
    """A policy as the menu calls it."""
    return {
        "stop": _tr("Stop at the limit"),
        "drop_turns": _tr("Drop the oldest turns"),
        "slide": _tr("Keep the first tokens and a sliding window"),
    }[policy]


def policy_effect(policy: ContextPolicy) -> str:
    """What a policy does, in a sentence."""
    return {
        "stop": _tr("When it is full the answer ends; nothing is left out."),
        "drop_turns": _tr(
            "When it is full the next message leaves the oldest turns out; the system prompt stays."
        ),
        "slide": _tr(
            "When it is full the first tokens and the latest half are kept and computed again, "
            "and the answer goes on."
        ),
    }[policy]


class ContextPolicyMenu(QMenu):
    """One checked choice, kept in the settings."""

    def __init__(self, settings: Settings, parent: QWidget) -> None:
        super().__init__(_tr("&When the context is full"), parent)
        self._settings = settings
        self.setToolTipsVisible(True)
        group = QActionGroup(self)
        for policy in CONTEXT_POLICIES:
            action = self.addAction(policy_name(policy))
            action.setToolTip(policy_effect(policy))
            action.setCheckable(True)
            action.setData(policy)
            group.addAction(action)
            action.triggered.connect(partial(self._choose, policy))
        settings.changed.connect(self._show_choice)
        self._show_choice(CONTEXT_POLICY.key)

    def _choose(self, policy: ContextPolicy, _checked: bool = False) -> None:
        self._settings.set(CONTEXT_POLICY, policy)

    def _show_choice(self, key: str) -> None:
        if key == CONTEXT_POLICY.key:
            for action in self.actions():
                action.setChecked(action.data() == self._settings.get(CONTEXT_POLICY))


def _tr(text: str) -> str:
    return QCoreApplication.translate("ContextChoice", text)
