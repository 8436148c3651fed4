"""Where settings, chats and logs live: the platform's own folders, or one that is named."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from engine.paths import APP_NAME, data_folder, own_folder


def config_folder() -> Path:
    """Folder of settings.json."""
    return own_folder("config", platformdirs.user_config_path(APP_NAME, appauthor=False))


def chats_folder() -> Path:
    """Folder of the saved chats."""
    return data_folder() / "chats"


def pinned_runs_folder() -> Path:
    """Folder of the runs that were pinned."""
    return data_folder() / "pinned-runs"


def recordings_folder() -> Path:
    """Folder of continuously recorded metrics, unless the person chose another."""
    return data_folder() / "metrics"


def speeds_file() -> Path:
    """What was measured of each model."""
    return data_folder() / "model-speeds.json"


def models_folder() -> Path:
    """Folder of the models that are made here, unless the person has one of their own."""
    return data_folder() / "models"


def log_folder() -> Path:
    """Folder of the log files."""
    return own_folder("log", platformdirs.user_log_path(APP_NAME, appauthor=False))
