"""The commands that need no window.

Exit: 0 done, 1 failed, 2 usage, 130 interrupted or terminated.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from engine import bench, generate
from engine.planner import command as plan
from engine.quality import command as perplexity
from engine.quantization import command as quantize
from engine.session import EngineError

_COMMANDS = {
    "bench": (bench, "measure the engine without a window"),
    "generate": (generate, "stream one reply in the terminal"),
    "perplexity": (perplexity, "score a text, also against a reference format"),
    "plan": (plan, "what a model would take and reach here, before it is loaded"),
    "quantize": (quantize, "write a model in 4 or 8 bits: RTN, GPTQ, AWQ"),
}


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(prog="phasescope")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (module, summary) in _COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=module.__doc__)
        module.add_arguments(command)
        command.add_argument("--debug", action="store_true", help="show the traceback of a failure")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; a failure is one line on stderr unless --debug."""
    args = build_parser().parse_args(argv)
    module, _ = _COMMANDS[args.command]
    try:
        with _terminated_like_interrupted():
            module.run(args)
    except ValueError as error:
        if args.debug:
            raise
        sys.stderr.write(f"phasescope {args.command}: {error}\n")
        return 2
    except (EngineError, RuntimeError, MemoryError, OSError) as error:
        if args.debug:
            raise
        sys.stderr.write(f"phasescope {args.command}: {' '.join(str(error).split())}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"phasescope {args.command}: interrupted\n")
        return 130
    return 0


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM, as at the end of a desktop session, removes what is half made as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
