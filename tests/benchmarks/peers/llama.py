"""llama.cpp for `bench_peers`: its environment, its files of the starter model, one timed run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.measuring import ROOT, Workload, run_checked, run_for_json
from tests.golden.write_safetensors import find_starter_gguf

ENVIRONMENT = ROOT / "build" / "llama-venv"
REQUIREMENTS = Path(__file__).with_name("requirements-llama.txt")
WORKER = Path(__file__).with_name("llama_worker.py")
# Never the building machine's own instructions: a virtual machine may trap some of them. AVX2, FMA
# and F16C are on by themselves; these are added where the processor has all of the features.
FLAGS = {
    "-DGGML_AVX512=ON": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "-DGGML_AVX512_VNNI=ON": {"avx512_vnni"},
    "-DGGML_AVX512_VBMI=ON": {"avx512vbmi"},
    "-DGGML_AVX512_BF16=ON": {"avx512_bf16"},
}
# What /proc/cpuinfo and llama_print_system_info call the same thing.
SYSTEM_NAMES = {
    "avx2": "AVX2",
    "fma": "FMA",
    "f16c": "F16C",
    "avx512f": "AVX512",
    "avx512vbmi": "AVX512_VBMI",
    "avx512_vnni": "AVX512_VNNI",
    "avx512_bf16": "AVX512_BF16",
}


def python_with_llama() -> Path:
    """The interpreter of an environment with llama-cpp-python, built on first use."""
    python = ENVIRONMENT / "bin" / "python"
    if not _has_llama(python):
        print(f"Building llama.cpp in {ENVIRONMENT.relative_to(ROOT)}: about 8 minutes on 2 cores.")
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        # From source and without pip's cache, which may hold a build for other instructions.
        install = [str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
        install += ["--no-binary", "llama-cpp-python", "-r", str(REQUIREMENTS)]
        subprocess.run(install, check=True, env=os.environ | {"CMAKE_ARGS": cmake_flags()})
    return python


def cmake_flags() -> str:
    """How GGML is to be compiled for this processor, by named levels."""
    features = _processor_features()
    flags = [flag for flag, needed in FLAGS.items() if needed <= features]
    return " ".join(["-DGGML_NATIVE=OFF", *flags])


def unused_features(system: str) -> list[str]:
    """Features that the processor has and the built library, by its own account, does not use."""
    features = _processor_features()
    used = {part.partition("=")[0].split(":")[-1].strip() for part in system.split("|")}
    wanted = [name for feature, name in SYSTEM_NAMES.items() if feature in features]
    return [name for name in wanted if name not in used]


def model_file(python: Path, folder: Path, file_type: str) -> Path:
    """The starter model in one of llama.cpp's types, made once by its own function."""
    file = folder / f"starter-{file_type}.gguf"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")  # so that a broken one is never taken for the file
        source = str(find_starter_gguf())
        run_checked([str(python), str(WORKER), "--model", str(part), "--make", file_type, source])
        part.replace(file)
    return file


def run_llama(python: Path, work: Workload, flash_attention: str) -> dict[str, Any]:
    """One process of the worker on `work.model`."""
    command = [str(python), str(WORKER), "--model", str(work.model)]
    command += ["--threads", str(work.threads), "--prompt-tokens", str(work.prompt_tokens)]
    command += ["--generate", str(work.generate), "--flash-attention", flash_attention]
    return run_for_json(command, {"OMP_NUM_THREADS": str(work.threads)})


def _has_llama(python: Path) -> bool:
    if not python.exists():
        return False
    find = [str(python), "-c", "import llama_cpp"]
    return subprocess.run(find, check=False, capture_output=True).returncode == 0


def _processor_features() -> set[str]:
    info = Path("/proc/cpuinfo")
    return set(info.read_text(encoding="utf-8").split()) if info.exists() else set()
