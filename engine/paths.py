"""The platform's folders, or ones under PHASESCOPE_HOME where that is set."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path, user_data_path

APP_NAME = "phasescope"
# Keeps a portable copy or a test apart from the person's own files.
HOME_VARIABLE = "PHASESCOPE_HOME"


def cache_folder() -> Path:
    """Folder of what can be made again."""
    return own_folder("cache", user_cache_path(APP_NAME, appauthor=False))


def data_folder() -> Path:
    """Folder of what the person would miss."""
    return own_folder("data", user_data_path(APP_NAME, appauthor=False))


def quality_file() -> Path:
    """What weight formats cost each model in quality."""
    return data_folder() / "model-quality.json"


def own_folder(kind: str, default: Path) -> Path:
    """`default`, or the folder of this kind under PHASESCOPE_HOME."""
    home = os.environ.get(HOME_VARIABLE)
    return Path(home) / kind if home else default
