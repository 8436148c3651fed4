"""Menus made of what is known at run time: formats, context lengths, devices, recent models."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QLabel, QMenu, QWidget, QWidgetAction

from app.engine_link.worker import EngineProblem
from app.model_library.quality_texts import change_text, quality_tip
from app.telemetry.format import count, memory
from engine.config import (
    EngineConfig,
    MemoryEstimate,
    ModelInfo,
    WeightFormatInfo,
    kv_group_size,
    kv_pool_bytes,
)
from engine.events import ModelLoaded
from engine.kv_formats import kv_format_bytes
from engine.paths import quality_file
from engine.quality.kept import kept_qualities

SMALLEST_CONTEXT = 512
FORMAT_NAMES = {
    "fp32": "FP32",
    "bf16": "BF16",
    "fp16": "FP16",
    "int8": "INT8",
    "int4": "INT4",
    "k8v4": "K8V4",
}


class ModelMenus(QObject):
    """Fills the Weights, Cache, Device, Threads and recent menus for the loaded model.

    Hovering over a choice asks for its memory; the answer stands in the menu's last line, before
    anything is loaded. `policy`, what happens when the context is full, stands under the lengths.

    Signals:
        change_requested(dict): EngineConfig fields to load the present model with.
        custom_context_requested()
        quality_requested(): what the weight formats cost is to be measured.
        recent_requested(str path)
        estimate_requested(dict): fields whose memory is asked for.
    """

    change_requested = Signal(object)
    custom_context_requested = Signal()
    quality_requested = Signal()
    recent_requested = Signal(str)
    estimate_requested = Signal(object)

    def __init__(self, policy: QMenu, parent: QWidget) -> None:
        super().__init__(parent)
        self._policy = policy
        self._window = parent
        self._model: ModelLoaded | None = None
        self._wanted: EngineConfig | None = None
        self._recent: list[str] = []
        self._memory_lines: list[QLabel] = []
        self._groups: list[QActionGroup] = []
        self._fills: list[tuple[QMenu, Callable[[QMenu], None]]] = []

    def set_model(self, model: ModelLoaded | None, wanted: EngineConfig | None) -> None:
        """Offer what this model can be loaded as; `wanted` is the choice in force."""
        self._model, self._wanted = model, wanted
        self._refill()

    def set_recent(self, paths: list[str]) -> None:
        """Offer these models again, newest first."""
        self._recent = paths
        self._refill()

    def show_estimate(self, answer: MemoryEstimate | EngineProblem) -> None:
        """Put the memory of the hovered choice into the last line."""
        text = answer.what if isinstance(answer, EngineProblem) else self._memory_text(answer)
        for line in self._memory_lines:
            line.setText(text)

    # --- places to fill -------------------------------------------------------------------

    def weights(self, menu: QMenu) -> None:
        """Make `menu` offer the weight formats."""
        self._keep_filled(menu, self._fill_weights)
        menu.aboutToShow.connect(lambda: self._show_weights(menu))

    def kv(self, menu: QMenu) -> None:
        """Make `menu` offer the KV cache formats."""
        self._keep_filled(menu, self._fill_kv)

    def context(self, menu: QMenu) -> None:
        """Make `menu` offer the context lengths."""
        self._keep_filled(menu, self._fill_context)

    def cache(self, menu: QMenu) -> None:
        """Make `menu` offer formats and context lengths under each other."""
        self._keep_filled(menu, self._fill_cache)

    def device(self, menu: QMenu) -> None:
        """Add a Device submenu to `menu`."""
        self._keep_filled(menu.addMenu(self.tr("&Device")), self._fill_device)

    def threads(self, menu: QMenu) -> None:
        """Add a Threads submenu to `menu`."""
        self._keep_filled(menu.addMenu(self.tr("&Threads")), self._fill_threads)

    def recent(self, menu: QMenu) -> None:
        """Add a submenu of recent models to `menu`."""
        self._keep_filled(menu.addMenu(self.tr("Re&cent models")), self._fill_recent)

    # --- filling --------------------------------------------------------------------------

    def _keep_filled(self, menu: QMenu, fill: Callable[[QMenu], None]) -> None:
        menu.setToolTipsVisible(True)
        self._fills.append((menu, fill))
        menu.aboutToShow.connect(lambda: self.estimate_requested.emit({}))
        menu.hovered.connect(self._on_hovered)
        fill(menu)

    def _refill(self) -> None:
        self._memory_lines.clear()
        for group in self._groups:
            group.deleteLater()
        self._groups.clear()
        for menu, fill in self._fills:
            menu.clear()
            fill(menu)

    def _fill_weights(self, menu: QMenu) -> None:
        if self._model is None or self._wanted is None:
            self._say_no_model(menu)
            return
        group = self._group(menu)
        for each in self._model.model.weight_formats:
            action = self._choice(menu, group, {"weight_format": each.name})
            action.setChecked(each.name == self._wanted.weight_format)
        self._show_weights(menu)
        menu.addSeparator()
        menu.addAction(self.tr("Measure quality…")).triggered.connect(self.quality_requested)
        self._add_memory_line(menu)

    def _show_weights(self, menu: QMenu) -> None:
        """Write what each format takes and, where that has been measured by now, costs."""
        model = self._model.model if self._model else None
        kept = kept_qualities(quality_file(), model.path) if model else {}
        formats = {each.name: each for each in model.weight_formats} if model else {}
        for action in menu.actions():
            change = action.data()
            if isinstance(change, dict) and change.get("weight_format") in formats:
                each = formats[change["weight_format"]]
                quality = kept.get(each.name)
                words = f"   {change_text(quality)}" if quality else ""
                action.setText(f"{each.label}{words}\t{memory(each.weight_bytes).text}")
                tips = [self._bits(each), *([quality_tip(quality)] if quality else [])]
                action.setToolTip("\n".join(tips))

    def _fill_kv(self, menu: QMenu) -> None:
        if self._model is None or self._wanted is None:
            self._say_no_model(menu)
            return
        self._add_kv(menu, self._model, self._wanted)
        self._add_memory_line(menu)

    def _fill_context(self, menu: QMenu) -> None:
        if self._model is None:
            self._say_no_model(menu)
            return
        self._add_contexts(menu, self._model)
        self._add_memory_line(menu)

    def _fill_cache(self, menu: QMenu) -> None:
        if self._model is None or self._wanted is None:
            self._say_no_model(menu)
            return
        self._add_heading(menu, self.tr("Format"))
        self._add_kv(menu, self._model, self._wanted)
        menu.addSeparator()
        self._add_heading(menu, self.tr("Context length"))
        self._add_contexts(menu, self._model)
        self._add_memory_line(menu)

    def _fill_device(self, menu: QMenu) -> None:
        if self._model is None or self._wanted is None:
            self._say_no_model(menu)
            return
        group = self._group(menu)
        for name in ("auto", *self._model.capabilities.devices):
            action = self._choice(menu, group, {"device": name})
            action.setText(self.tr("Automatic") if name == "auto" else name.upper())
            action.setChecked(name == self._wanted.device)

    def _fill_threads(self, menu: QMenu) -> None:
        if self._wanted is None:
            self._say_no_model(menu)
            return
        group = self._group(menu)
        present = self._wanted.threads
        for number in (None, *thread_choices(os.cpu_count() or 1, present)):
            action = self._choice(menu, group, {"threads": number})
            action.setText(self.tr("Automatic") if number is None else count(number))
            action.setChecked(number == present)

    def _fill_recent(self, menu: QMenu) -> None:
        menu.menuAction().setVisible(bool(self._recent))
        for path in self._recent:
            action = menu.addAction(Path(path).name)
            action.setToolTip(path)
            action.triggered.connect(lambda _=False, p=path: self.recent_requested.emit(p))

    def _add_kv(self, menu: QMenu, model: ModelLoaded, wanted: EngineConfig) -> None:
        group = self._group(menu)
        context = model.config.context_length or 0
        automatic = "fp32" if wanted.weight_format == "fp32" else "bf16"
        for name in dict.fromkeys(("auto", *model.model.kv_formats)):
            format_name = automatic if name == "auto" else name
            action = self._choice(menu, group, {"kv_format": name})
            label = FORMAT_NAMES.get(format_name, format_name.upper())
            if name == "auto":
                label = self.tr("Automatic ({0})").format(label)
            size = kv_pool_size(model, format_name, context)
            action.setText(f"{label}\t{memory(size).text}")
            tip = self.tr("{0}, for {1} tokens of context")
            action.setToolTip(tip.format(self._kv_parts(format_name), count(context)))
            action.setChecked(name == wanted.kv_format)

    def _kv_parts(self, kv_format: str) -> str:
        """What a format's name stands for."""
        texts = {
            "fp32": self.tr("Keys and values in 32 bits"),
            "bf16": self.tr("Keys and values in 16 bits"),
            "int8": self.tr("Keys and values in 8 bits"),
            "k8v4": self.tr("Keys in 8 bits, values in 4"),
            "int4": self.tr("Keys and values in 4 bits"),
        }
        return texts[kv_format]

    def _add_contexts(self, menu: QMenu, model: ModelLoaded) -> None:
        group = self._group(menu)
        present = model.config.context_length or 0
        for tokens in context_choices(model.model, present):
            action = self._choice(menu, group, {"context_length": tokens})
            label = self.tr("{0} tokens").format(count(tokens))
            size = kv_pool_size(model, model.config.kv_format, tokens)
            action.setText(f"{label}\t{memory(size).text}")
            action.setChecked(tokens == present)
        custom = menu.addAction(self.tr("Custom…"))
        custom.triggered.connect(self.custom_context_requested)
        menu.addSeparator()
        menu.addMenu(self._policy)

    def _group(self, menu: QMenu) -> QActionGroup:
        group = QActionGroup(menu)
        self._groups.append(group)
        return group

    def _choice(self, menu: QMenu, group: QActionGroup, change: dict[str, Any]) -> QAction:
        action = menu.addAction("")
        action.setCheckable(True)
        action.setData(change)
        group.addAction(action)
        action.triggered.connect(lambda _=False, c=change: self.change_requested.emit(c))
        return action

    def _add_heading(self, menu: QMenu, text: str) -> None:
        self._add_label(menu, text, "label")

    def _add_memory_line(self, menu: QMenu) -> None:
        menu.addSeparator()
        text = self._memory_text(self._model.memory) if self._model else ""
        self._memory_lines.append(self._add_label(menu, text, "faint"))

    def _add_label(self, menu: QMenu, text: str, tone: str) -> QLabel:
        label = QLabel(text, menu)
        label.setProperty("tone", tone)
        label.setContentsMargins(12, 6, 12, 6)
        label.setTextFormat(Qt.TextFormat.PlainText)
        holder = QWidgetAction(menu)
        holder.setDefaultWidget(label)
        holder.setEnabled(False)
        menu.addAction(holder)
        return label

    def _say_no_model(self, menu: QMenu) -> None:
        menu.addAction(self.tr("Load a model first")).setEnabled(False)

    def _on_hovered(self, action: QAction) -> None:
        change = action.data()
        if isinstance(change, dict):
            self.estimate_requested.emit(change)

    def _bits(self, info: WeightFormatInfo) -> str:
        text = self.tr("{nominal} bits a weight, {real} with scales")
        return text.format(nominal=f"{info.nominal_bits:.3g}", real=f"{info.bits_per_weight:.3g}")

    def _memory_text(self, estimate: MemoryEstimate) -> str:
        parts = self.tr("Weights {weights}, KV cache {kv}, workspace {workspace}").format(
            weights=memory(estimate.weight_bytes).text,
            kv=memory(estimate.kv_bytes).text,
            workspace=memory(estimate.workspace_bytes).text,
        )
        there = self.tr("{available} available, {freed} freed by unloading").format(
            available=memory(estimate.available_bytes).text,
            freed=memory(estimate.freed_by_unload_bytes).text,
        )
        verdict = "" if estimate.fits else self.tr("\nDoes not fit")
        return f"{parts}\n{there}{verdict}"


def context_choices(model: ModelInfo, present: int) -> list[int]:
    """Context lengths worth offering: powers of two up to the model's own, and the present one."""
    choices = {model.context_length, present} - {0}
    length = SMALLEST_CONTEXT
    while length < model.context_length:
        choices.add(length)
        length *= 2
    return sorted(choices)


def thread_choices(cores: int, present: int | None) -> list[int]:
    """Thread counts worth offering: powers of two up to the cores, the cores, the present one."""
    choices = {cores, *([present] if present else [])}
    number = 1
    while number < cores:
        choices.add(number)
        number *= 2
    return sorted(choices)


def kv_pool_size(model: ModelLoaded, kv_format: str, context: int) -> int:
    """Bytes of the pool that a context takes in another KV format."""
    config, heads, dim = model.config, model.model.num_kv_heads, model.model.head_dim
    layer_bytes = kv_format_bytes(config.kv_format, heads, dim, config.block_size)
    groups = tuple(
        kv_group_size(
            kv_format,
            group.bytes_per_token // layer_bytes,
            heads,
            dim,
            config.block_size,
            group.window,
        )
        for group in model.kv_groups
    )
    return kv_pool_bytes(groups, config, context)
