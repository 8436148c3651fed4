"""Lets the reader's process, or this one, find the fake pynvml."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "fakes" / "nvml"


def use_fake_nvml(monkeypatch: pytest.MonkeyPatch, mode: str = "") -> None:
    """Processes that are started from now on get a pynvml that misbehaves so."""
    monkeypatch.setenv("PYTHONPATH", str(FOLDER))
    monkeypatch.setenv("FAKE_NVML", mode)


def load_fake_nvml(monkeypatch: pytest.MonkeyPatch, mode: str = "") -> ModuleType:
    """A fresh one for this process."""
    monkeypatch.setenv("FAKE_NVML", mode)
    spec = importlib.util.spec_from_file_location("pynvml", FOLDER / "pynvml.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
