"""Engine tests: one thread, device figures that need no measuring, a tiny model with its text."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig
from engine.events import ModelLoaded
from engine.local_session import LocalSession
from engine.peaks import DevicePeaks
from tests.engine.rig import GOLDEN

PEAKS = DevicePeaks({"fp32": 1e11, "bf16": 1e10}, ((1 << 20, 4e10), (1 << 29, 2e10)))


@pytest.fixture(autouse=True)
def fixed_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny models are fastest on one thread, and measuring the machine is not their subject."""
    torch.set_num_threads(1)
    monkeypatch.setattr("engine.model_loader.stored_peaks", lambda device, threads: PEAKS)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny GQA checkpoint and its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    shutil.copytree(GOLDEN / "tiny" / "gqa", folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(GOLDEN / "tiny" / name, folder)
    return folder


@pytest.fixture
def open_session(tiny_model: Path) -> Iterator[Callable[..., LocalSession]]:
    """Open sessions on the tiny model; they are closed at the end."""
    sessions: list[LocalSession] = []

    def open_(**options: object) -> LocalSession:
        session = LocalSession()
        sessions.append(session)
        settings: dict[str, object] = {"weight_format": "fp32", "threads": 1, **options}
        config = EngineConfig(model_path=str(tiny_model), **settings)  # type: ignore[arg-type]
        *_, last = session.load(config)
        assert isinstance(last, ModelLoaded), last
        return session

    yield open_
    for session in sessions:
        session.close()
