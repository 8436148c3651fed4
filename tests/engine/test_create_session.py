"""Starting the engine leaves a collector that works and has little to walk."""

import subprocess
import sys

CODE = """
import gc
from engine.session import create_session
create_session().close()
assert gc.isenabled()
frozen = gc.get_freeze_count()
assert frozen > 100_000, frozen
assert len(gc.get_objects()) < frozen // 10
create_session().close()
assert gc.get_freeze_count() <= frozen, "only what the import left behind is set aside"
"""


def test_what_the_import_leaves_behind_is_not_collected_again() -> None:
    """In a fresh process: torch's objects are frozen once, the collector is on again."""
    subprocess.run([sys.executable, "-c", CODE], check=True)
