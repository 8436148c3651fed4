"""The program's entry: the window, or the commands that need none. Qt is imported only for it."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cli_options import add_common_options, given_options
from engine.nvml import reader as nvml_reader

if TYPE_CHECKING:
    from engine.session import Session

COMMANDS = ("bench", "generate", "perplexity", "plan", "quantize")
DONE, FAILED, WRONG_ARGUMENTS = 0, 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; gives its exit code: 0 done, 1 failed, 2 wrong arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in COMMANDS:
        from engine.cli import main as command

        return command(arguments)
    if arguments and arguments[0] == nvml_reader.COMMAND:
        return nvml_reader.main(arguments[1:])
    args = parser().parse_args(arguments)
    try:
        return run_window(args)
    except Exception as error:
        if args.debug:
            raise
        return _fail(f"{type(error).__name__}: {error}")


def parser() -> argparse.ArgumentParser:
    """The options of the window; the commands without one have their own `--help`."""
    result = argparse.ArgumentParser(
        prog="phasescope",
        description="Chat with a language model and watch prefill turn into decode.",
        epilog=f"Commands without a window, each with its own --help: {', '.join(COMMANDS)}.",
    )
    result.add_argument("--version", action="version", version=f"phasescope {_version()}")
    add_common_options(result)
    once = result.add_argument_group("unattended")
    once.add_argument("--prompt", metavar="TEXT", help="ask this once the model is loaded")
    once.add_argument("--max-tokens", type=_positive, metavar="N", help="end the answer after N")
    once.add_argument("--export", type=Path, metavar="DIR", help="write the CSV tables into DIR")
    once.add_argument("--report", type=Path, metavar="FILE", help="write an HTML report")
    once.add_argument("--screenshot", type=Path, metavar="FILE", help="save a picture (PNG)")
    once.add_argument("--exit-when-done", action="store_true", help="exit after the answer")
    result.add_argument(
        "--replay", type=Path, metavar="FILE", help="play a recorded session; loads no model"
    )
    result.add_argument("--debug", action="store_true", help="log to stderr, show tracebacks")
    return result


def run_window(args: argparse.Namespace, factory: Callable[[], Session] | None = None) -> int:
    """Open the window and run until it is closed; `factory` makes the session in its thread."""
    problem = _problem(args)
    if problem:
        return _fail(problem)
    try:
        from PySide6.QtWidgets import QApplication
    except ImportError as error:
        from app.startup_checks import missing_library_sentence

        return _fail(missing_library_sentence(str(error)) or str(error))
    app = QApplication.instance() or QApplication([sys.argv[0]])
    assert isinstance(app, QApplication)
    if args.replay:
        from app.replay.program import run_replay

        reason = run_replay(app, args.replay)
        return _fail(reason) if reason else DONE
    from app.program import Program

    with tempfile.TemporaryDirectory(prefix="phasescope-") as passing:
        # An unattended run leaves no chat among the person's own.
        chats = Path(passing) if args.exit_when_done else None
        program = Program(app, args, _given(args), chats, factory)
        code, reason = program.run()
    return _fail(reason) if reason else code


def _problem(args: argparse.Namespace) -> str | None:
    if args.prompt is None and any((args.export, args.report, args.screenshot, args.max_tokens)):
        parser().error("--export, --report, --screenshot and --max-tokens need --prompt")
    if args.prompt is None and args.exit_when_done:
        parser().error("--exit-when-done needs --prompt")
    if args.replay and (args.prompt is not None or args.model):
        parser().error("--replay takes neither a model nor --prompt")
    from app.startup_checks import problem_before_qt

    return problem_before_qt(os.environ)


def _given(args: argparse.Namespace) -> dict[str, Any]:
    given = given_options(args)
    if args.model:
        given["model_path"] = str(Path(args.model).absolute())
    return given


def _fail(reason: str) -> int:
    sys.stderr.write(f"phasescope: {' '.join(reason.split())}\n")
    return FAILED


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _version() -> str:
    try:
        return version("phasescope")
    except PackageNotFoundError:
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
