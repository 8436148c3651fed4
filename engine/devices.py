"""Which device runs the model, and what to tell the person about it."""

from __future__ import annotations

import functools

import psutil
import torch

from engine.nvml.link import first_gpu_name
from engine.session import EngineError


def resolve_device(name: str) -> torch.device:
    """ "auto" is the first GPU that torch can use, else the CPU. Raises EngineError."""
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    device = torch.device("cuda:0" if name == "cuda" else name)
    if device.type == "cuda" and (
        not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()
    ):
        raise EngineError(
            f"The device {name} cannot be used.",
            unusable_gpu_notice() or "The installed torch sees no such GPU.",
            "Choose the CPU, or install a torch build for this GPU.",
        )
    return device


def device_names() -> tuple[str, ...]:
    """Names that EngineConfig.device accepts on this machine, for a menu."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return ("cpu", *(f"cuda:{index}" for index in range(gpus)))


def describe_device(device: torch.device) -> str:
    """How the window calls the device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def device_uuid(device: torch.device) -> str | None:
    """The GPU's UUID, by which NVML knows it (its indices differ from CUDA's); None on CPU."""
    if device.type != "cuda":
        return None
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def default_threads(spare_core: bool) -> int:
    """The physical cores: a second hyper-thread adds nothing to bandwidth-bound work.

    With `spare_core` one of more than four is left to the window beside.
    """
    cores = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    return cores - 1 if spare_core and cores > 4 else cores


@functools.cache  # NVML is asked in a process of its own, which takes 0.1 s
def unusable_gpu_notice() -> str | None:
    """A sentence with the command that mends it when there is a GPU that torch cannot use."""
    if torch.cuda.is_available():
        return None
    name = first_gpu_name()
    if name is None:
        return None
    return (
        f"{name} is present, but the installed torch {torch.__version__} cannot use it: "
        "run 'make run DEVICE=cuda'."
    )
