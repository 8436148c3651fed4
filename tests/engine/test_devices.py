"""How many threads a load takes by itself."""

import psutil
import pytest

from engine.devices import default_threads


@pytest.mark.parametrize(
    ("cores", "spare_core", "threads"),
    [(1, True, 1), (4, True, 4), (5, True, 4), (16, True, 15), (16, False, 16), (None, True, 1)],
)
def test_a_window_keeps_one_of_more_than_four_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, spare_core: bool, threads: int
) -> None:
    """The physical cores, one fewer beside a window; one where the system does not tell."""
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: cores)
    assert default_threads(spare_core) == threads
