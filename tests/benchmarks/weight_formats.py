"""How the starter answers in each weight format: the first greedy tokens beside FP32's.

For every golden prompt the first 16 tokens are compared with those transformers gives in FP32
(tests/golden/smollm2.json). A report, not a target: quantizing changes a model.

    python -m tests.benchmarks.weight_formats [--tokens 16]
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from engine.config import WEIGHT_FORMATS, EngineConfig, GenerationRequest
from engine.events import GenerationFinished
from engine.load_blocking import load_or_raise
from engine.session import create_session
from engine.starter import starter_model_path
from tests.engine.rig import GOLDEN


def main() -> None:
    """Print a table and one JSON line."""
    parser = argparse.ArgumentParser(description="Compare weight formats on golden prompts.")
    parser.add_argument("--tokens", type=int, default=16)
    num_tokens = parser.parse_args().tokens
    prompts = json.loads((GOLDEN / "smollm2.json").read_text(encoding="utf-8"))["prompts"]
    report: dict[str, Any] = {"tokens": num_tokens, "prompts": len(prompts), "agree": {}}
    for weight_format in WEIGHT_FORMATS:
        whole, tokens, weight_bytes = compare(weight_format, prompts, num_tokens)
        report["agree"][weight_format] = {"prompts": whole, "tokens": tokens}
        print(
            f"{weight_format:10} {weight_bytes / 1e6:6.1f} MB   {whole:2} of {len(prompts)} prompts"
            f"   {100 * tokens / (num_tokens * len(prompts)):5.1f} % of tokens before they part"
        )
    print(json.dumps(report))


def compare(
    weight_format: str, prompts: list[dict[str, Any]], num_tokens: int
) -> tuple[int, int, int]:
    """Prompts that agree throughout, tokens before the first difference, bytes of the weights."""
    path = starter_model_path()
    assert path is not None, "the starter model is not installed"
    session = create_session()
    loaded = load_or_raise(session, EngineConfig(path, weight_format=weight_format))
    whole = tokens = 0
    for prompt in prompts:
        request = GenerationRequest(
            prompt["name"],
            prompt_ids=tuple(prompt["prompt_ids"]),
            max_tokens=num_tokens,
            ignore_eos=True,
        )
        [end] = [e for e in session.generate(request) if isinstance(e, GenerationFinished)]
        expected = prompt["token_ids"][:num_tokens]
        pairs = enumerate(zip(end.token_ids, expected, strict=True))
        agreed = next((i for i, (got, want) in pairs if got != want), num_tokens)
        whole += agreed == num_tokens
        tokens += agreed
    session.close()
    return whole, tokens, loaded.weight_bytes


if __name__ == "__main__":
    main()
