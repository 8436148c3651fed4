"""Window, controller, recorder, CSV: against a clock that stands beside the engine's."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from tests.app.conftest import MakeProgram
from tests.fakes.fake_session import Script
from tests.fakes.window import wait_until


@dataclass
class Stopwatch:
    """Notes the delays that the fake engine is told to take; knows nothing of its events."""

    spent_s: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        self.spent_s.append(seconds)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv_agrees_with_an_independent_clock(
    qtbot: QtBot, make_program: MakeProgram, tmp_path: Path
) -> None:
    """TTFT and every ITL to 1 ms, the percentiles as numpy has them of the known delays."""
    watch = Stopwatch()
    program = make_program(Script(wait=watch.wait))
    program.load()
    watch.spent_s.clear()
    program.window.conversations.send("Why is the first token slow and the rest fast?")
    wait_until(lambda: not program.window.conversations.generating_chats())
    assert program.window.telemetry.export(tmp_path) is None
    tokens = read(tmp_path / "tokens.csv")
    (request,) = read(tmp_path / "requests.csv")
    # One step a prefill chunk and one a further token: the delays of the last are the ITLs.
    itl_ms = np.array(watch.spent_s[-(len(tokens) - 1) :]) * 1e3
    ttft_ms = sum(watch.spent_s[: -len(itl_ms)]) * 1e3
    assert len(tokens) > 40
    assert float(request["ttft_ms"]) == pytest.approx(ttft_ms, abs=1.0)
    assert float(tokens[0]["t_ms"]) == pytest.approx(ttft_ms, abs=1.0)
    written = np.array([float(row["itl_ms"]) for row in tokens[1:]])
    assert np.abs(written - itl_ms).max() < 1.0
    stamps = [float(row["t_ms"]) for row in tokens]
    assert [b - a for a, b in pairwise(stamps)] == pytest.approx(itl_ms.tolist(), abs=1.0)
    for point in (50, 90, 95, 99):
        assert float(request[f"itl_p{point}_ms"]) == pytest.approx(
            float(np.percentile(itl_ms, point)), abs=1e-3
        )
    tpot_ms = float(itl_ms.mean())
    assert float(request["tpot_ms"]) == pytest.approx(tpot_ms, abs=1e-3)
    assert float(request["decode_tok_s"]) == pytest.approx(1e3 / tpot_ms, rel=1e-6)
