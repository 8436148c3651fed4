"""What held the machine back, in words: for the headline, with its figures, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QCoreApplication

from app.slowdown import reason_text
from app.telemetry.format import NO_VALUE
from engine.diagnosis.machine import OFTEN, Hindrance, MachineState


def held_up_by(hindrance: Hindrance) -> str:
    """The end of a headline, after "Slow to stream:"."""
    match hindrance:
        case "gpu":
            return _tr("the GPU lowered its clocks")
        case "others":
            return _tr("other programs took the processor")
        case "clock":
            return _tr("the processor ran below its base clock")
        case "power saving":
            return _tr("the machine saves power")
        case "battery":
            return _tr("the machine runs on battery")


def held_up_words(hindrances: Sequence[Hindrance], machine: MachineState) -> str:
    """All of them with their figures, as parts of a sentence; "" for none."""
    return ", ".join(_words(each, machine) for each in hindrances)


def remedy(hindrance: Hindrance) -> str:
    """A sentence that says what to do about it."""
    match hindrance:
        case "gpu":
            return _tr("Let it cool, or raise its power limit.")
        case "others":
            return _tr("Close what else is running and ask again.")
        case "clock":
            return _tr("Let the machine cool, and look at its power settings.")
        case "power saving":
            return _tr("Switch power saving off, or plug in.")
        case "battery":
            return _tr("Plug in and ask again.")


def _words(hindrance: Hindrance, machine: MachineState) -> str:
    match hindrance:
        case "gpu":
            # The share of the most frequent; the others were there often enough to be named.
            reasons = [words for words, share in machine.gpu_slowed if share >= OFTEN]
            share_pct = 100 * machine.gpu_slowed[0][1]
            return _tr("the GPU lowered its clocks in {0} of the readings ({1})").format(
                f"{share_pct:.0f} %", ", ".join(reason_text(each) for each in reasons)
            )
        case "others":
            share = machine.others_cpu_pct or 0.0
            return _tr("other programs used {0} of the processor").format(f"{share:.0f} %")
        case "clock":
            return _tr("the processor ran at {0} GHz, its base clock is {1} GHz").format(
                _ghz(machine.cpu_clock_mhz), _ghz(machine.cpu_base_mhz)
            )
        case "power saving":
            return _tr("power saving was on")
        case "battery":
            return _tr("the machine ran on battery")


def _ghz(mhz: float | None) -> str:
    return NO_VALUE if mhz is None else f"{mhz / 1e3:.1f}"


def _tr(text: str) -> str:
    return QCoreApplication.translate("Diagnosis", text)
