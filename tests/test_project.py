"""Promises of the project as a whole: its names, its import arrows, what its files may hold."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAX_FILE_BYTES = 1_000_000

# Written so that this file does not match itself.
MACHINE_PATHS = re.compile(r"(?<![\w.~$}/-])/(?:root|work|home/(?!fresh\b)\w+)/[.\w]")
PACKAGE_HOSTS = re.compile(
    r"pypi[.]org|pythonhosted[.]org|download[.]pytorch|deb[.]debian[.]org|registry[.]npmjs", re.I
)


def tracked_files() -> list[Path]:
    """The files git has in its index; the test that asks is skipped outside of a checkout."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    answer = subprocess.run(
        [git, "-c", "safe.directory=*", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in answer.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def loaded_modules(statement: str) -> set[str]:
    """Top-level names in `sys.modules` of a fresh interpreter after `statement`."""
    code = f"{statement}\nimport sys\nprint(*sorted({{n.split('.')[0] for n in sys.modules}}))"
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(answer.stdout.splitlines()[-1].split())


def test_kernels_is_ours_and_carries_no_version() -> None:
    """PyPI has a package of that name, which transformers recognises by its version."""
    import kernels

    assert kernels.__file__ is not None
    assert Path(kernels.__file__).parent == ROOT / "kernels"
    assert not hasattr(kernels, "__version__")


def test_the_window_comes_before_torch() -> None:
    """Importing the program and the engine's face must not cost the seconds torch takes."""
    loaded = loaded_modules("import app.main, engine.session, engine.events, engine.config")
    assert not loaded & {"torch", "triton", "kernels"}


def test_bench_never_imports_qt() -> None:
    """The benchmark runs where no Qt library does, and measures without its cost."""
    code = "\n".join(
        [
            "import runpy, sys",
            "sys.argv = ['bench', '--help']",
            "try:",
            "    runpy.run_module('engine.bench', run_name='__main__')",
            "except SystemExit as leave:",
            "    assert not leave.code, leave.code",
        ]
    )
    assert not loaded_modules(code) & {"PySide6", "shiboken6", "pyqtgraph", "app"}


def test_tracked_files_are_small() -> None:
    """A checkout stays a download of seconds: no file over 1 MB."""
    large = {
        path.name: size
        for path in tracked_files()
        if (size := path.stat().st_size) > MAX_FILE_BYTES
    }
    assert large == {}


def test_tracked_files_name_no_machine_and_no_package_host() -> None:
    """What is written here must hold on every machine and behind every mirror."""
    found = []
    for path in tracked_files():
        text = path.read_bytes()
        if b"\0" in text:
            continue
        for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), start=1):
            if MACHINE_PATHS.search(line) or PACKAGE_HOSTS.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert found == []


@pytest.mark.parametrize(
    "pieces",
    [
        ("see ", "root", "x"),
        ("'", "work", "main'"),
        ("(", "home", "me", "x)"),
        ("", "root", ".cache"),
        ("PyPI" + ".org", "simple"),
    ],
)
def test_the_search_for_paths_and_hosts_finds_them(pieces: tuple[str, ...]) -> None:
    """The search above is not vacuous; in pieces, so that it does not find this very line."""
    text = "/".join(pieces)
    assert MACHINE_PATHS.search(text) or PACKAGE_HOSTS.search(text)


@pytest.mark.parametrize(
    "pieces",
    [
        ("a", "root", "x"),
        ("framework", ""),
        ("~", "work", "x"),
        ("$HOME", "home", "x"),
        ("", "worked"),
    ],
)
def test_the_search_for_paths_leaves_relative_ones(pieces: tuple[str, ...]) -> None:
    """Relative paths and words that only look alike are allowed."""
    assert not MACHINE_PATHS.search("/".join(pieces))


def test_make_help_names_every_target_of_the_readme() -> None:
    """A command the README shows exists, with a line of help."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    documented = set(re.findall(r"^([a-z-]+):.*## ", makefile, flags=re.M))
    named = set()
    for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"):
        named |= set(re.findall(r"`make ([a-z-]+)", (ROOT / name).read_text(encoding="utf-8")))
    assert {"run", "test"} <= named
    assert named <= documented


def test_links_between_the_documents_lead_somewhere() -> None:
    """Every relative link in the Markdown files names a file that exists."""
    broken = [
        f"{path.relative_to(ROOT)} -> {target}"
        for path in tracked_files()
        if path.suffix == ".md"
        for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8"))
        if not re.match(r"[a-z]+:", target) and not (path.parent / target).exists()
    ]
    assert broken == []
