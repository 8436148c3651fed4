"""Where settings, chats and logs live: the platform's own folders, or one that is named."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

APP_NAME = "phasescope"
# Keeps a portable copy or a test apart from the person's own files.
HOME_VARIABLE = "PHASESCOPE_HOME"


def config_folder() -> Path:
    """Folder of settings.json."""
    return _folder("config", platformdirs.user_config_path(APP_NAME, appauthor=False))


def chats_folder() -> Path:
    """Folder of the saved chats."""
    return _folder("data", platformdirs.user_data_path(APP_NAME, appauthor=False)) / "chats"


def recordings_folder() -> Path:
    """Folder of continuously recorded metrics, unless the person chose another."""
    return _folder("data", platformdirs.user_data_path(APP_NAME, appauthor=False)) / "metrics"


def speeds_file() -> Path:
    """What was measured of each model."""
    folder = _folder("data", platformdirs.user_data_path(APP_NAME, appauthor=False))
    return folder / "model-speeds.json"


def models_folder() -> Path:
    """Folder of the models that are made here, unless the person has one of their own."""
    return _folder("data", platformdirs.user_data_path(APP_NAME, appauthor=False)) / "models"


def log_folder() -> Path:
    """Folder of the log files."""
    return _folder("log", platformdirs.user_log_path(APP_NAME, appauthor=False))


def _folder(kind: str, default: Path) -> Path:
    home = os.environ.get(HOME_VARIABLE)
    return Path(home) / kind if home else default
