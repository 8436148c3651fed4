"""Every kernel in Triton's interpreter, which runs it in numpy: what it computes, not how fast.

Programs run one after another there, so that races, shared memory and compilation stay untested:
`test_aot` compiles, `test_on_device` runs on a GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.kernels.gpu.cases import CASES

ROOT = Path(__file__).parents[3]
SEED = 7

pytestmark = pytest.mark.skipif(
    find_spec("triton") is None, reason="Triton is not installed; it exists for Linux only"
)


def run_worker(names: list[str], device: str, interpret: bool) -> dict[str, str | None]:
    """What `worker` says of the cases: None, or why one failed."""
    environment = os.environ | {"TRITON_INTERPRET": "1" if interpret else "0"}
    command = [sys.executable, "-m", "tests.kernels.gpu.worker", device, str(SEED), *names]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return results


@pytest.fixture(scope="module")
def results(request: pytest.FixtureRequest) -> dict[str, str | None]:
    """One process for all cases that were selected."""
    here = Path(__file__)
    names = [
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == here and isinstance(item, pytest.Function) and hasattr(item, "callspec")
    ]
    return run_worker(names, "cpu", interpret=True)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_reference(results: dict[str, str | None], name: str) -> None:
    """Within the tolerance that `tolerances` gives for the operation and its dtype."""
    failure = results[name]
    assert failure is None, failure
