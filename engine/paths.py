"""Where the engine keeps what it has measured."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path, user_data_path


def cache_folder() -> Path:
    """The platform's cache folder, or a folder under PHASESCOPE_HOME where that is set."""
    home = os.environ.get("PHASESCOPE_HOME")
    return Path(home) / "cache" if home else user_cache_path("phasescope", appauthor=False)


def quality_file() -> Path:
    """What weight formats cost each model in quality, under PHASESCOPE_HOME where that is set."""
    home = os.environ.get("PHASESCOPE_HOME")
    folder = Path(home) / "data" if home else user_data_path("phasescope", appauthor=False)
    return folder / "model-quality.json"
