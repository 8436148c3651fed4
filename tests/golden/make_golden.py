"""Make the golden files with Hugging Face transformers, in an environment of its own.

    python tests/golden/make_golden.py [--gguf FILE] [PART ...]

README.md in this folder says how to make that environment and what each file holds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from make_families import write_families
from make_perplexity import write_perplexity
from make_sampler import write_sampler
from make_smollm2 import write_smollm2
from make_tiny import write_tiny
from make_tokenizer import write_tokenizer
from transformers.utils import logging
from write_safetensors import find_starter_gguf

PARTS = ("smollm2", "tokenizer", "tiny", "families", "sampler", "perplexity")


def main() -> None:
    """Command line: make all parts, or those named."""
    parser = argparse.ArgumentParser(description="Make the golden files with transformers.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--gguf", type=Path, help="default: the starter model's file")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    args = parser.parse_args()
    parts = args.parts or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}")
    logging.disable_progress_bar()
    torch.set_num_threads(1)  # one summation order, whatever machine makes the files
    for part in parts:
        print(f"{part}:")
        _make(part, args.gguf, args.out)


def _make(part: str, gguf_path: Path | None, out: Path) -> None:
    if part == "tiny":
        write_tiny(out / "tiny")
    elif part == "families":
        write_families(out / "families")
    elif part == "sampler":
        write_sampler(out)
    elif part == "perplexity":
        write_perplexity(out)
    elif part == "tokenizer":
        write_tokenizer(gguf_path or find_starter_gguf(), out)
    else:
        write_smollm2(gguf_path or find_starter_gguf(), out)


if __name__ == "__main__":
    main()
