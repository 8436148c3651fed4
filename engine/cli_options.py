"""The options every command shares, declared once: what to load and how."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from engine.config import WEIGHT_FORMATS, EngineConfig
from engine.kv_formats import KV_FORMATS
from engine.session import EngineError
from engine.starter import STARTER_NAME, starter_model_path


def add_common_options(parser: argparse.ArgumentParser, positional_model: bool = False) -> None:
    """Add `--model --weights --kv --context --device --threads`; `config_from` reads them.

    With `positional_model` the model may also be named without `--model`.
    """
    group = parser.add_argument_group("model")
    add_model_option(group, positional_model)
    group.add_argument(
        "--weights", choices=WEIGHT_FORMATS, help="weight format (default: as-stored)"
    )
    group.add_argument(
        "--kv", choices=KV_FORMATS, help="KV cache format (default: auto, follows the weights)"
    )
    group.add_argument(
        "--context",
        type=checked("context_length"),
        metavar="TOKENS",
        help="context length (default: the smallest of 4,096, the model's own and what fits)",
    )
    add_device_option(group)
    add_threads_option(group)


def add_device_option(group: argparse._ActionsContainer) -> None:
    """Add `--device`, None where it is not given."""
    group.add_argument(
        "--device",
        type=checked("device", str),
        metavar="DEVICE",
        help="auto, cpu, cuda or cuda:N (default: auto)",
    )


def add_threads_option(group: argparse._ActionsContainer) -> None:
    """Add `--threads`, None where it is not given."""
    group.add_argument(
        "--threads",
        type=checked("threads"),
        metavar="N",
        help="CPU threads (default: the physical cores)",
    )


def add_model_option(group: argparse._ArgumentGroup, positional_model: bool = False) -> None:
    """Add `--model`; `model_path_from` reads it."""
    summary = f"a .gguf file or a safetensors folder (default: the starter, {STARTER_NAME})"
    group.add_argument("--model", metavar="PATH", help=summary)
    if positional_model:
        group.add_argument(
            "positional_model", nargs="?", metavar="MODEL", help="the same as --model"
        )


def config_from(args: argparse.Namespace) -> EngineConfig:
    """The config these options ask for; options not given keep the engine's defaults.

    Raises EngineError when no model is named and the starter is not installed.
    """
    return EngineConfig(model_path=model_path_from(args), **given_options(args))


def model_path_from(args: argparse.Namespace) -> str:
    """The model that is named, else the starter. Raises EngineError when there is neither.

    Raises ValueError when it is named in both ways, differently.
    """
    named: str | None = getattr(args, "positional_model", None)
    if named and args.model and named != args.model:
        raise ValueError(f"two models are named: {named} and --model {args.model}")
    path: str | None = named or args.model or starter_model_path()
    if path is None:
        raise EngineError(
            "There is no model to load.",
            "No --model was given and the starter model is not installed.",
            "Name one with --model, or install the starter model as the README says.",
        )
    return path


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The EngineConfig fields that were given on the command line, by field name."""
    options = {
        "weight_format": args.weights,
        "kv_format": args.kv,
        "context_length": args.context,
        "device": args.device,
        "threads": args.threads,
    }
    return {name: value for name, value in options.items() if value is not None}


def checked(field: str, convert: Callable[[str], str | int] = int) -> Callable[[str], str | int]:
    """An argparse type that refuses what EngineConfig would refuse, in its words (exit 2)."""

    def parse(text: str) -> str | int:
        try:
            value = convert(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        try:
            given: dict[str, Any] = {field: value}
            EngineConfig(model_path="", **given)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return value

    return parse


def positive(text: str) -> int:
    """An argparse type: a whole number from 1 up."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value
