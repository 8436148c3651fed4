"""`phasescope generate`: one reply, streamed in the terminal."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from engine.cli_options import add_common_options, config_from
from engine.config import GenerationRequest, Message, SamplingParams
from engine.events import GenerationFailed, GenerationFinished, TokenEvent
from engine.load_blocking import load_or_raise
from engine.session import EngineError, create_session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `generate`."""
    add_common_options(parser)
    group = parser.add_argument_group("reply")
    group.add_argument("--prompt", required=True, metavar="TEXT")
    group.add_argument("--system", metavar="TEXT", help="system prompt")
    group.add_argument(
        "--raw", action="store_true", help="no chat template: the text as it is, continued"
    )
    group.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0: greedy")
    group.add_argument("--seed", type=int, default=0, metavar="N")
    group.add_argument("--max-tokens", type=int, default=64, metavar="N")
    group.add_argument(
        "--json",
        action="store_true",
        help="end with one JSON line: prompt_ids, token_ids, text, finish_reason, metrics",
    )


def run(args: argparse.Namespace) -> None:
    """Generate and print. Raises EngineError, and ValueError for options out of range."""
    request = _request(args)
    session = create_session()
    try:
        load_or_raise(session, config_from(args))
        text, finished = "", None
        for event in session.generate(request):
            if isinstance(event, TokenEvent):
                text += _show(event.text)
            elif isinstance(event, GenerationFinished):
                text += _show(event.text_tail)
                finished = event
            elif isinstance(event, GenerationFailed):
                raise EngineError(event.what, event.why, event.next)
        if finished is None:
            raise RuntimeError("the session ended a request without saying so")
    finally:
        session.close()
    sys.stdout.write("\n")
    if args.json:
        sys.stdout.write(json.dumps(_result(finished, text)) + "\n")


def _request(args: argparse.Namespace) -> GenerationRequest:
    sampling = SamplingParams(temperature=args.temperature, seed=args.seed)
    if args.raw:
        return GenerationRequest(
            "generate", prompt=args.prompt, sampling=sampling, max_tokens=args.max_tokens
        )
    system = (Message("system", args.system),) if args.system else ()
    return GenerationRequest(
        "generate",
        messages=(*system, Message("user", args.prompt)),
        sampling=sampling,
        max_tokens=args.max_tokens,
    )


def _show(text: str) -> str:
    sys.stdout.write(text)
    sys.stdout.flush()
    return text


def _result(finished: GenerationFinished, text: str) -> dict[str, Any]:
    return {
        "prompt_ids": list(finished.prompt_ids),
        "token_ids": list(finished.token_ids),
        "text": text,
        "finish_reason": finished.finish_reason,
        "metrics": asdict(finished.metrics),
    }
