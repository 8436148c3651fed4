"""`phasescope quantize`: a model's matrices in 4 or 8 bits, as a folder that others read too.

rtn rounds to nearest; gptq makes up for each column's rounding error in the columns after it; awq
gives the inputs that are large finer weights. rtn and gptq write GPTQ's format, awq AutoAWQ's gemm
format: Hugging Face transformers and vLLM load both. The embedding and the output head stay as they
are, in FP16, or BF16 where the source has that.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from engine.cli_options import add_model_option, add_threads_option, model_path_from
from engine.json_lines import JsonLines, add_progress_option
from engine.progress_line import ProgressLine
from engine.quantization.plan import (
    BITS,
    GROUP_SIZES,
    METHODS,
    GridSpec,
    Quantized,
    QuantizePlan,
    QuantizeProgress,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `quantize`."""
    group = parser.add_argument_group("model")
    add_model_option(group, positional_model=True)
    add_threads_option(group)
    group = parser.add_argument_group("quantizing")
    group.add_argument("--method", choices=METHODS, default="gptq", help="(default: gptq)")
    group.add_argument(
        "--bits",
        type=int,
        choices=BITS,
        default=4,
        help="4 asymmetric, or 8 symmetric, not for awq (default: 4)",
    )
    group.add_argument(
        "--group-size",
        type=int,
        choices=GROUP_SIZES,
        default=128,
        help="inputs that share a scale; must divide every matrix (default: 128)",
    )
    group.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="a UTF-8 text that gptq and awq look at (default: one that comes along)",
    )
    group.add_argument(
        "--samples", type=int, default=128, metavar="N", help="pieces of the text (default: 128)"
    )
    group.add_argument(
        "--sample-tokens", type=int, default=512, metavar="N", help="their length (default: 512)"
    )
    group.add_argument(
        "--act-order",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="gptq: columns with large inputs first; the groups stay where they are (default: yes)",
    )
    group.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="a folder that is not there yet"
    )
    add_progress_option(group)


def run(args: argparse.Namespace) -> None:
    """Quantize and say what came of it. Raises EngineError, OSError, ValueError."""
    plan = plan_from(args)
    from engine.quantization.job import QuantizeJob  # imports torch: not for --help

    steps = QuantizeJob(plan).run()
    if args.progress == "json":
        with JsonLines() as lines:
            for step in steps:
                lines.write("progress" if isinstance(step, QuantizeProgress) else "result", step)
        return
    with ProgressLine() as line:
        for step in steps:
            if isinstance(step, QuantizeProgress):
                line.show(_progress(step))
            else:
                result = step
    sys.stdout.write(_summary(result))


def plan_from(args: argparse.Namespace) -> QuantizePlan:
    """The job these options ask for. Raises EngineError, ValueError."""
    return QuantizePlan(
        model_path=model_path_from(args),
        out=args.out,
        method=args.method,
        grid=GridSpec(args.bits, args.group_size),
        calibration=args.calibration,
        act_order=args.act_order,
        num_samples=args.samples,
        sample_tokens=args.sample_tokens,
        threads=args.threads,
    )


def arguments_of(plan: QuantizePlan) -> list[str]:
    """The command line that asks for `plan`: what `plan_from` reads, "quantize" first."""
    optional = {"--calibration": plan.calibration, "--threads": plan.threads}
    return [
        *("quantize", "--model", plan.model_path, "--out", str(plan.out)),
        *("--method", plan.method, "--bits", str(plan.grid.bits)),
        *("--group-size", str(plan.grid.group_size)),
        "--act-order" if plan.act_order else "--no-act-order",
        *("--samples", str(plan.num_samples), "--sample-tokens", str(plan.sample_tokens)),
        *(
            word
            for name, value in optional.items()
            if value is not None
            for word in (name, str(value))
        ),
    ]


def _progress(step: QuantizeProgress) -> str:
    left = "" if step.remaining_s is None else f", {_duration(step.remaining_s)} left"
    return f"layer {step.layer} of {step.num_layers}, {100 * step.fraction:.0f} %{left}"


def _summary(result: Quantized) -> str:
    lines = [
        f"{result.out}: {result.file_bytes / 1e6:,.1f} MB, {result.num_quantized} matrices at "
        f"{result.bits_per_weight:.2f} bits a weight, in {_duration(result.elapsed_s)}"
    ]
    if result.calibration_tokens:
        lines.append(f"calibrated on {result.calibration_tokens:,} tokens")
    return "\n".join([*lines, *result.notices]) + "\n"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
