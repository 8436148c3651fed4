"""`phasescope perplexity`: how well a model in a given format predicts a text.

Hugging Face's strided perplexity: windows of --window tokens begin every --stride tokens, and each
token is scored once, in the first window that holds it. The first token of the text has nothing
before it and is not scored (nor is that of each window where stride and window are equal). Special
tokens are those that the tokenizer puts around the whole text. With --reference-weights a second
run in that format comes first, and the KL divergence from it is told.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from pathlib import Path

from engine.cli_options import add_common_options, checked, config_from, positive
from engine.config import WEIGHT_FORMATS
from engine.json_lines import JsonLines, add_progress_option
from engine.paths import quality_file
from engine.progress_line import ProgressLine
from engine.quality.kept import keep_quality
from engine.quality.report import Quality, QualityProgress, QualitySettings
from engine.session import EngineError

DEFAULT_TEXT = "evaluation.txt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `perplexity`."""
    add_common_options(parser, positional_model=True)
    group = parser.add_argument_group("measuring")
    group.add_argument(
        "--text", type=Path, metavar="FILE", help="a UTF-8 text (default: one that comes along)"
    )
    group.add_argument(
        "--path",
        choices=("prefill", "decode"),
        default="prefill",
        help="through the products of prompts, many tokens at once, or through the recorded step "
        "of answers, token by token (default: prefill)",
    )
    group.add_argument(
        "--window",
        dest="context",
        type=checked("context_length"),
        default=argparse.SUPPRESS,
        metavar="TOKENS",
        help="tokens a window holds, the same as --context (default: the smallest of 1,024, the "
        "model's context and the text)",
    )
    group.add_argument(
        "--stride",
        type=positive,
        metavar="TOKENS",
        help="from one window to the next (default: half a window)",
    )
    group.add_argument(
        "--reference-weights",
        choices=WEIGHT_FORMATS,
        metavar="FORMAT",
        help="tell the KL divergence from a run in this format, e.g. fp32; it goes the path of "
        "prompts and keeps its probabilities on disk meanwhile",
    )
    group.add_argument(
        "--reference-model",
        metavar="MODEL",
        help="the reference's file or folder, where it is not MODEL: what MODEL was quantized from "
        "(default of --reference-weights then: fp32)",
    )
    group.add_argument("--json", action="store_true", help="print the JSON line only")
    add_progress_option(group)


def run(args: argparse.Namespace) -> None:
    """Measure and print. Raises EngineError, and ValueError for options that cannot be."""
    reference = args.reference_weights or ("fp32" if args.reference_model else None)
    settings = QualitySettings(
        args.path, args.context, args.stride, reference, args.reference_model
    )
    text = _text(args.text)
    config = config_from(args)
    from engine.quality.perplexity import measure_quality  # imports torch: not for --help

    name = args.text.name if args.text else DEFAULT_TEXT
    if args.progress == "json":
        with JsonLines() as lines:
            result = measure_quality(config, settings, text, partial(lines.write, "progress"))
            keep_quality(quality_file(), config, result, name, text)
            lines.write("result", result)
        return
    with ProgressLine() as line:
        result = measure_quality(config, settings, text, lambda at: line.show(_progress(at)))
    keep_quality(quality_file(), config, result, name, text)
    if not args.json:
        sys.stdout.write(_table(result))
    sys.stdout.write(json.dumps(asdict(result)) + "\n")


def _text(path: Path | None) -> str:
    if path is None:
        source = files("resources").joinpath("calibration", DEFAULT_TEXT)
        return source.read_text(encoding="utf-8")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise EngineError(
            f"{path.name} is not a UTF-8 text.",
            f"Byte {error.start:,} begins no character.",
            "Convert it to UTF-8, or name another file.",
        ) from None


def _progress(at: QualityProgress) -> str:
    speed = at.done_tokens / at.elapsed_s if at.elapsed_s else 0.0
    return f"{at.run}: {at.done_tokens:,} of {at.total_tokens:,} tokens, {speed:,.0f} tok/s"


def _table(result: Quality) -> str:
    lines = [
        f"{result.model}, weights {result.weights}, KV {result.kv}, {result.path} path, "
        f"{result.device}, {result.threads} threads, kernels {result.kernels}",
        f"weights     {result.weight_bytes / 1e6:,.1f} MB in memory, scales included",
        f"perplexity  {result.perplexity:,.4f}   ({result.nll:.5f} nats a token over "
        f"{result.scored_tokens:,} of {result.tokens:,} tokens; windows of {result.window:,}, "
        f"stride {result.stride:,}, {'one BOS first' if result.starts_with_bos else 'no BOS'})",
    ]
    if result.kl_divergence is not None and result.top1_agreement is not None:
        lines.append(
            f"against {result.reference_model}, {result.reference_weights}: "
            f"perplexity {result.reference_perplexity:,.4f}, "
            f"KL {result.kl_divergence:.3e} nats, same first token "
            f"{100 * result.top1_agreement:.2f} %"
        )
    return "\n".join(lines) + "\n"
