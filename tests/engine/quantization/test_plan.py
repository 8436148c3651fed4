"""What can be told of a job before it begins, and how a plan becomes a command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cli import build_parser
from engine.loading.checkpoint import open_checkpoint
from engine.model_loader import model_info
from engine.quantization.command import arguments_of, plan_from
from engine.quantization.job import QuantizeJob
from engine.quantization.plan import (
    BITS,
    GROUP_SIZES,
    METHODS,
    GridSpec,
    Quantized,
    QuantizePlan,
    expected_bytes,
    group_sizes,
)
from tests.engine.quantization.test_job import with_tokenizer
from tests.fakes.figures import model_info as smollm2

PATHS = st.sampled_from(["m.gguf", "a b/-m", "méi 模型"])


@given(
    *(PATHS, PATHS, st.sampled_from(METHODS), st.sampled_from(BITS), st.sampled_from(GROUP_SIZES)),
    *(st.none() | PATHS, st.booleans(), st.integers(1, 200), st.none() | st.integers(1, 64)),
)
def test_a_plan_survives_the_command_line(
    model: str,
    out: str,
    method: str,
    bits: int,
    size: int,
    text: str | None,
    act_order: bool,
    samples: int,
    threads: int | None,
) -> None:
    """Whatever the window asks for is what the command does."""
    plan = QuantizePlan(
        *(model, Path(out), method, GridSpec(4 if method == "awq" else bits, size)),
        *(Path(text) if text else None, act_order, samples, 2 * samples, threads),
    )
    assert plan_from(build_parser().parse_args(arguments_of(plan))) == plan


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (32, 64)),  # SmolLM2-135M has 576 and 1,536 inputs
        ({"hidden_size": 4096, "num_heads": 64, "intermediate_size": 11008}, (32, 64, 128)),
        ({"intermediate_size": 1500}, ()),
        ({"num_heads": 3, "head_dim": 32}, (32,)),
    ],
)
def test_group_sizes_divide_every_matrix(
    changes: dict[str, int], expected: tuple[int, ...]
) -> None:
    """Of the hidden state, of the heads' outputs, and of the MLP."""
    assert group_sizes(replace(smollm2("m"), **changes)) == expected


@pytest.mark.parametrize("bits", BITS)
def test_the_expected_size_is_about_right(tmp_path: Path, bits: int) -> None:
    """It leaves out the index of columns, which matters in tiny matrices only: within 6 %."""
    source = with_tokenizer("rope_llama3", tmp_path)
    checkpoint = open_checkpoint(str(source))
    info = model_info(checkpoint)
    checkpoint.close()
    plan = QuantizePlan(str(source), tmp_path / "out", "rtn", GridSpec(bits, 32), threads=1)
    *_, result = QuantizeJob(plan).run()
    assert isinstance(result, Quantized)
    assert expected_bytes(info, plan.grid) == pytest.approx(result.file_bytes, rel=0.06)
