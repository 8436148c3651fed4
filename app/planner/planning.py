"""Opens the memory planner, keeps it in line with what is loaded, and loads what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.appearance import Appearance
from app.engine_link.controller import EngineController
from app.model_loading import ModelLoading
from app.planner.dialog import MemoryPlanner, PlannedFile
from app.planner.reader import PlanReader
from app.settings.schema import DEVICE, RECENT_MODELS, THREADS
from app.settings.store import Settings
from engine.config import EngineConfig
from engine.starter import STARTER_NAME, starter_model_path


class PlannerLink(QObject):
    """Owns the planner and the thread that reads for it; `close` ends that."""

    def __init__(
        self,
        window: QWidget,
        appearance: Appearance,
        settings: Settings,
        controller: EngineController,
        loading: ModelLoading,
    ) -> None:
        super().__init__(window)
        self._window, self._appearance, self._settings = window, appearance, settings
        self._controller, self._loading = controller, loading
        self._reader = PlanReader(controller, self)
        self._planner: MemoryPlanner | None = None
        self._engine_is_up = False
        controller.engine_started.connect(self._on_engine_started)
        controller.model_loaded.connect(self._on_model_changed)
        controller.model_unloaded.connect(self._on_model_changed)

    def open_planner(self) -> MemoryPlanner:
        """Show the planner with the loaded model, beside which the window goes on."""
        if self._planner is None:
            self._planner = MemoryPlanner(self._appearance.theme, self._files(), self._window)
            self._appearance.theme_changed.connect(self._planner.set_theme)
            self._planner.model_wanted.connect(self._read)
            self._planner.load_requested.connect(self._on_load_requested)
            self._reader.answered.connect(self._planner.show_answer)
        self._planner.show()
        self._planner.activateWindow()
        self._on_model_changed()
        return self._planner

    def close(self) -> None:
        """End the thread."""
        self._reader.close()

    # --- private --------------------------------------------------------------------------

    def _files(self) -> list[PlannedFile]:
        """The loaded model, the starter, and those that were opened before."""
        files: dict[str, str] = {}
        loaded, starter = self._controller.model, starter_model_path()
        if loaded is not None:
            files[loaded.config.model_path] = loaded.model.name
        if starter is not None:
            files.setdefault(starter, STARTER_NAME)
        for path in self._settings.get(RECENT_MODELS):
            if Path(path).exists():
                files.setdefault(path, Path(path).name)
        return [PlannedFile(name, path) for path, name in files.items()]

    def _read(self, model: str) -> None:
        if not self._engine_is_up:
            return  # there is no session to ask yet; the planner says that it waits
        self._reader.ask(model, self._settings.get(DEVICE), self._settings.get(THREADS))

    def _on_engine_started(self) -> None:
        self._engine_is_up = True
        if self._planner is not None and self._planner.isVisible():
            self._planner.ask()

    def _on_model_changed(self) -> None:
        if self._planner is not None and self._planner.isVisible():
            self._planner.start_from(self._loading.wanted)
            self._planner.set_files(self._files())
            self._planner.ask()

    def _on_load_requested(self, planned: EngineConfig) -> None:
        """Change the present model where it is the planned one: device and threads stay."""
        now = self._loading.wanted
        fields = {
            "weight_format": planned.weight_format,
            "kv_format": planned.kv_format,
            "context_length": planned.context_length,
        }
        if now is not None and now.model_path == planned.model_path:
            self._loading.change(fields)
            return
        device, threads = self._settings.get(DEVICE), self._settings.get(THREADS)
        self._loading.load(replace(planned, device=device, threads=threads))
