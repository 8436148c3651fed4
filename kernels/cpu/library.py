"""Finds the compiled kernels and opens the best level that this processor can run."""

from __future__ import annotations

import ctypes
import logging
import os
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path

import torch  # before any library here: its OpenMP runtime is the one that they then share

from kernels.cpu.structs import OpPointer

log = logging.getLogger("kernels.cpu")

# Best first, with what torch calls the processor features each one needs.
LEVELS = ("avx512vnni", "avx2", "baseline")
LEVEL_VARIABLE = "PHASESCOPE_CPU_LEVEL"  # one of LEVELS, or "none" for torch's operations
_FOLDER = Path(__file__).parent
_X86_FLAGS = {
    "avx512vnni": {"avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx2", "fma", "f16c"},
    "avx2": {"avx2", "fma", "f16c"},
    "baseline": set[str](),
}


class NativeLibrary:
    """One opened level: `run` walks a list of operations; the other figures size scratch."""

    def __init__(self, level: str, path: Path) -> None:
        library = ctypes.CDLL(str(path))  # CDLL: a call releases the interpreter lock
        library.ps_run.argtypes = [
            POINTER(OpPointer),
            c_int64,
            c_int32,
            c_void_p,
            POINTER(c_int64),
        ]
        library.ps_run.restype = c_int32
        library.ps_level.restype = c_char_p
        library.ps_attention_spans.argtypes = [c_int64]
        library.ps_attention_spans.restype = c_int64
        library.ps_top_k_slices.restype = c_int64
        library.ps_top_k_groups.argtypes = [c_int64]
        library.ps_top_k_groups.restype = c_int64
        self.level = level
        self.run = library.ps_run
        self.attention_spans = library.ps_attention_spans
        self.top_k_slices = int(library.ps_top_k_slices())
        self.top_k_groups = library.ps_top_k_groups
        if library.ps_level().decode() != level:
            raise OSError(f"{path.name} was compiled for {library.ps_level().decode()}")


def runnable_levels() -> tuple[str, ...]:
    """Levels that are compiled here and that this processor has, best first."""
    flags = _processor_flags()
    return tuple(level for level in LEVELS if _X86_FLAGS[level] <= flags and _path(level))


def best_library() -> NativeLibrary | None:
    """The best level, or the one that PHASESCOPE_CPU_LEVEL names; None: use torch.

    Raises ValueError when the variable names a level that cannot run here.
    """
    wanted, levels = os.environ.get(LEVEL_VARIABLE, ""), runnable_levels()
    if wanted == "none":
        return None
    if wanted and wanted not in levels:
        raise ValueError(
            f"{LEVEL_VARIABLE}={wanted}: this machine can run {', '.join((*levels, 'none'))}"
        )
    for level in (wanted,) if wanted else levels:
        library = open_level(level)
        if library is not None:
            return library
    return None


@lru_cache
def open_level(level: str) -> NativeLibrary | None:
    """The library of a runnable level; None, with a line in the log, if it is broken."""
    path = _path(level)
    if path is None:
        return None
    try:
        return NativeLibrary(level, path)
    except (OSError, AttributeError) as error:
        log.warning("the CPU kernels for %s cannot be used: %s", level, error)
        return None


def _path(level: str) -> Path | None:
    found = sorted(
        path
        for path in _FOLDER.glob(f"_{level}.*")
        if path.suffix in (".so", ".pyd", ".dylib", ".dll")
    )
    return found[0] if found else None


def _processor_flags() -> set[str]:
    """Feature names as Linux spells them; what torch knows where there is no /proc/cpuinfo."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("flags"):
                return set(line.partition(":")[2].split())
        return set()
    capability = torch.backends.cpu.get_cpu_capability()
    return _X86_FLAGS["avx2"] if capability in ("AVX2", "AVX512") else set()
