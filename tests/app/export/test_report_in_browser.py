"""The report in a real browser: it asks the network for nothing and the console stays empty."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication

from app.export.report import write_report
from tests.app.export.test_report import a_session

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"),
    *("--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--log-level=0"),
)

pytestmark = pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(NAMES)} is installed")


@dataclass(frozen=True, slots=True)
class Visit:
    """What happened when a page was opened."""

    dom: str
    console: list[str]
    requests: set[str]


def visit(page: Path, folder: Path) -> Visit:
    """Open a file in a browser with a profile of its own, logging its network and console."""
    assert BROWSER is not None
    net_log = folder / "net-log.json"
    arguments = (f"--user-data-dir={folder / 'profile'}", f"--log-net-log={net_log}", page.as_uri())
    done = subprocess.run(
        [BROWSER, *FLAGS, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    log = json.loads(net_log.read_text(encoding="utf-8"))
    started = (event["params"] for event in log["events"] if "initiator" in event.get("params", {}))
    # What the browser fetches for itself has no page's origin.
    requests = {each["url"] for each in started if each["initiator"] != "not an origin"}
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Visit(done.stdout, console, requests)


def test_the_report_fetches_nothing(qapp: QApplication, tmp_path: Path) -> None:
    """Opened from the disk it is whole: no request, no line on the console."""
    page = tmp_path / "report.html"
    write_report(page, a_session(), datetime(2026, 12, 3))
    seen = visit(page, tmp_path)
    assert "SmolLM2-135M-Instruct" in seen.dom
    assert (seen.requests, seen.console) == (set(), [])


def test_a_page_that_fetches_is_noticed(tmp_path: Path) -> None:
    """Otherwise the test above would pass whatever the report did."""
    page = tmp_path / "bad.html"
    page.write_text('<img src="http://127.0.0.1:9/pixel.png"><script>console.error("x")</script>')
    seen = visit(page, tmp_path)
    assert "http://127.0.0.1:9/pixel.png" in seen.requests
    assert seen.console
