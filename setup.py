"""Compiles the CPU kernels when the package is installed: one library for each instruction level.

Everything else about the project is in pyproject.toml. The libraries have no Python in them; they
are found and opened by kernels/cpu/library.py. Where there is no compiler the installation goes
on without them and the engine computes with torch.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("kernels/cpu/native")
# Named levels, never the building machine's own: a wheel runs on other machines too.
X86_LEVELS = {
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512vnni": [
        *("-mavx2", "-mfma", "-mf16c"),
        *("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512vnni"),
    ],
}
# -ffp-contract=off: the same rounding whatever the number of rows a loop is unrolled for.
FLAGS = ["-std=gnu11", "-O3", "-ffp-contract=off", "-fvisibility=hidden"]
# macOS brings no OpenMP: the kernels run on one thread there.
OPENMP = ["-fopenmp"] if sys.platform == "linux" else []


def levels() -> dict[str, list[str]]:
    """Compiler flags by level, for this machine's kind of processor."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return {"baseline": [], **(X86_LEVELS if x86 else {})}


def extension(level: str, flags: list[str]) -> Extension:
    """One library; a level the compiler does not know is left out."""
    return Extension(
        f"kernels.cpu._{level}",
        sources=[str(NATIVE / f"{level}.c")],
        depends=sorted(str(path) for path in NATIVE.glob("*.h")),
        extra_compile_args=[*FLAGS, *OPENMP, *flags],
        extra_link_args=[*OPENMP, "-lm"],
        optional=True,
    )


class BuildWithoutPython(build_ext):
    """The libraries export C functions, not a Python module."""

    def initialize_options(self) -> None:
        """One compiler for each level at a time."""
        super().initialize_options()
        self.parallel = True

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """What Windows has to be told; elsewhere the source marks it."""
        return ["ps_run", "ps_level", "ps_attention_spans", "ps_top_k_slices"]


setup(
    ext_modules=[extension(level, flags) for level, flags in levels().items()],
    cmdclass={"build_ext": BuildWithoutPython},
)
