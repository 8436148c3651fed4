"""The planner against published figures, and against what the loader says and does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineConfig, KVGroupSize, kv_bytes
from engine.devices import default_threads
from engine.footprint import Footprint, Workspace, longest_context, most_sequences
from engine.kv_formats import KV_FORMATS
from engine.local_session import LocalSession
from engine.memory import available_bytes
from engine.models.decoder import kv_cache_groups
from engine.planner.facts import planned_model, shape_headers
from engine.planner.plan import (
    Machine,
    PlannedModel,
    Planning,
    Question,
    make_plan,
    nominal_bytes,
)
from engine.planner.shapes import SHAPES, Shape, find_shape
from engine.prediction import DeviceSpeed
from engine.starter import starter_model_path

K, GIB = 1024, 2**30
# Bytes per token in BF16, and what a text of so many thousand (1,024) tokens takes, in GiB with as
# many decimals as the published figure has. Derived from the configs in docs/metrics.md's formulas.
PUBLISHED: tuple[tuple[str, int, dict[int, str]], ...] = (
    ("Llama-2-7B", 524_288, {4: "2.000", 32: "16.0"}),
    ("Llama-2-13B", 819_200, {4: "3.125", 32: "25.0"}),
    ("Llama-2-70B", 327_680, {4: "1.25", 32: "10"}),
    ("Llama-3.1-8B", 131_072, {4: "0.5", 32: "4", 128: "16"}),
    ("Llama-3.1-70B", 327_680, {4: "1.25", 32: "10", 128: "40"}),
    ("Llama-3.1-405B", 516_096, {4: "1.97", 32: "15.75", 128: "63"}),
    ("Mistral-7B-v0.1", 131_072, {4: "0.5", 32: "0.5"}),
    ("Mistral-7B-v0.3", 131_072, {4: "0.5", 32: "4", 128: "16"}),
    ("Qwen2.5-7B", 57_344, {4: "0.219", 32: "1.75", 128: "7"}),
    ("Qwen2.5-0.5B", 12_288, {4: "0.047", 32: "0.375"}),
    ("Qwen3-0.6B", 114_688, {4: "0.4375", 32: "3.5"}),
    ("Qwen3-8B", 147_456, {4: "0.5625", 32: "4.5", 128: "18"}),
    ("SmolLM2-135M", 23_040, {4: "0.088"}),
    ("Gemma-2-9B", 344_064, {4: "1.3125", 8: "1.9688"}),
    ("Gemma-2-2B", 106_496, {}),
    ("Gemma-2-27B", 376_832, {}),
    ("Gemma-3-1B", 26_624, {4: "0.0264", 32: "0.1357", 128: "0.5107"}),
    ("Gemma-3-4B", 139_264, {4: "0.1914", 32: "0.7383", 128: "2.6133"}),
    ("Gemma-3-12B", 393_216, {4: "0.5625", 32: "2.3125", 128: "8.3125"}),
    ("Gemma-3-27B", 507_904, {}),
    ("DeepSeek-V2-Lite", 31_104, {}),
    ("DeepSeek-V3", 70_272, {}),
    ("DeepSeek-V3.2", 85_888, {4: "0.328", 32: "2.62", 128: "10.48"}),
)
# As their makers and model hubs state them; of Gemma 3 the text model alone.
PARAMETERS = {
    "Llama-2-7B": 6_738_415_616,
    "Llama-2-13B": 13_015_864_320,
    "Llama-2-70B": 68_976_648_192,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-405B": 405_853_388_800,
    "Mistral-7B-v0.1": 7_241_732_096,
    "Mistral-7B-v0.3": 7_248_023_552,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-8B": 8_190_735_360,
    "SmolLM2-135M": 134_515_008,
    "Gemma-2-2B": 2_614_341_888,
    "Gemma-2-9B": 9_241_705_984,
    "Gemma-2-27B": 27_227_128_320,
    "Gemma-3-1B": 999_885_952,
    # Hugging Face's embedding has 64 rows more than the 262,144 of the tokenizer.
    "Gemma-3-4B": 3_880_099_328 + 64 * 2_560,
    "Gemma-3-12B": 11_765_788_416 + 64 * 3_840,
    "Gemma-3-27B": 27_009_002_240 + 64 * 5_376,
}
ROOMY = Machine("CPU", 2, 10**15)


@pytest.mark.parametrize(("name", "per_token", "totals"), PUBLISHED, ids=[p[0] for p in PUBLISHED])
def test_the_cache_is_the_published_one(name: str, per_token: int, totals: dict[int, str]) -> None:
    """Every figure of the reference table, to the byte and to the digits that are printed."""
    groups = planned_model(name).footprint.kv_groups["bf16"]
    assert kv_bytes(groups, 1) == per_token
    for thousands, printed in totals.items():
        decimals = len(printed.partition(".")[2])
        assert f"{kv_bytes(groups, thousands * K) / GIB:.{decimals}f}" == printed


def test_every_built_in_shape_is_checked() -> None:
    """A shape added later gets its published figures here too."""
    assert [shape.name for shape in SHAPES] == sorted(
        (name for name, *_ in PUBLISHED), key=[shape.name for shape in SHAPES].index
    )


def test_fp8_ds_mla_is_the_published_size() -> None:
    """DeepSeek-V3.2 in the packed format: 656 bytes of latent and 132 of index a layer."""
    groups = planned_model("DeepSeek-V3.2").footprint.kv_groups
    assert kv_bytes(groups["fp8_ds_mla"], 1) == 61 * (656 + 132) == 48_068


@pytest.mark.parametrize("shape", [s for s in SHAPES if isinstance(s, Shape)], ids=lambda s: s.name)
def test_parameters_are_the_published_ones(shape: Shape) -> None:
    """A wrong width, vocabulary or tie would show in the count."""
    assert planned_model(shape.name).parameters == PARAMETERS[shape.name]


def latent_parameters(
    hidden: int, layers: int, dense: int, inner: int, expert: int, experts: int, shared: int,
    heads: int, q_rank: int, vocab: int, has_bias: bool, index_heads: int = 0,
) -> int:  # fmt: skip
    """DeepSeek's parameters from its config.json: arXiv 2405.04434 and 2412.19437."""
    queries = hidden * heads * 192
    if q_rank:
        queries = hidden * q_rank + q_rank + q_rank * heads * 192
    latent = hidden * 576 + 512 + 512 * heads * 256
    index = (q_rank * index_heads * 128 + hidden * (128 + index_heads) + 256) * bool(index_heads)
    attention = queries + latent + heads * 128 * hidden + index + 2 * hidden
    sparse = experts * (hidden + has_bias) + (experts + shared) * 3 * hidden * expert
    mlps = dense * 3 * hidden * inner + (layers - dense) * sparse
    return layers * attention + mlps + 2 * vocab * hidden + hidden


def test_latent_parameters_follow_from_their_configs() -> None:
    """The stated counts of the MLA models, from their widths."""
    v3 = (7168, 61, 3, 18432, 2048, 256, 1, 128, 1536, 129280, True)
    expected = {
        "DeepSeek-V2-Lite": latent_parameters(
            2048, 27, 1, 10944, 1408, 64, 2, 16, 0, 102400, False
        ),
        "DeepSeek-V3": latent_parameters(*v3),
        "DeepSeek-V3.2": latent_parameters(*v3, index_heads=64),
    }
    assert {name: planned_model(name).parameters for name in expected} == expected


def test_a_13b_model_takes_nearly_a_megabyte_a_token() -> None:
    """The well-known claim "about 1 MB a token, 4 GB at 4K", as what it is exactly."""
    plan = make_plan(Planning(planned_model("llama-2-13b"), ROOMY), Question())
    assert plan.choice.context == 4_096
    assert plan.kv_bytes_per_token == 819_200
    assert plan.kv_bytes == 3.125 * GIB
    assert plan.kv_pool_bytes == 3.125 * GIB + 16 * 819_200  # the null block


def test_7b_weights_are_28_14_7_and_3_5_gb_nominal() -> None:
    """The other claim: seven billion times the bits. Llama-2-7B has 6.74 billion."""
    sizes = {32: 28e9, 16: 14e9, 8: 7e9, 4: 3.5e9}
    assert {bits: nominal_bytes(7_000_000_000, bits) for bits in sizes} == sizes
    levels = {level.name: level for level in planned_model("Llama-2-7B").levels}
    for name, bits in (("fp32", 32), ("bf16", 16), ("int8", 8), ("int4", 4)):
        assert levels[name].nominal_bytes == pytest.approx(sizes[bits], rel=0.04)
        assert levels[name].num_bytes >= levels[name].nominal_bytes


@pytest.mark.parametrize("shape", [s for s in SHAPES if isinstance(s, Shape)], ids=lambda s: s.name)
@pytest.mark.parametrize("name", KV_FORMATS[1:])
def test_sizes_are_those_of_the_cache_itself(shape: Shape, name: str) -> None:
    """What is planned for a format is what the engine's cache groups would hold in it."""
    groups = kv_cache_groups(shape_headers(shape).config, name)
    sizes = tuple(group.size(16) for group in groups)
    assert planned_model(shape.name).footprint.kv_groups[name] == sizes


# --- the same as the loader ---------------------------------------------------------------


@pytest.mark.starter
@pytest.mark.parametrize("weights", ["as-stored", "fp32", "int8", "int4"])
@pytest.mark.parametrize("context", [None, 777, 8_192])
def test_a_file_is_planned_as_the_loader_estimates_it(
    weights: str, context: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every figure of the loader's own estimate, from the same reading of free memory."""
    monkeypatch.setattr("engine.memory.available_bytes", lambda _: 6_000_000_000)
    path = starter_model_path()
    assert path is not None
    session = LocalSession()
    config = EngineConfig(path, weight_format=weights, context_length=context, device="cpu")
    expected = session.estimate_memory(config)
    plan = make_plan(session.planning(path, "cpu", 1), Question(weights, "auto", context))
    session.close()
    assert plan.choice.context == expected.context_length
    assert plan.weight_bytes == expected.weight_bytes
    assert plan.kv_pool_bytes == expected.kv_bytes
    assert plan.workspace_bytes == expected.workspace_bytes
    assert plan.budget_bytes == expected.available_bytes
    assert plan.kv_bytes_per_token == expected.kv_bytes_per_token
    assert plan.fitting_levels == set(expected.fitting_weight_formats)
    assert plan.fits == expected.fits


@pytest.mark.parametrize(("spare", "fits"), [(-1, False), (0, True), (1, True)])
def test_the_verdict_is_what_the_load_does(
    tiny_model: Path, spare: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte too little, just enough, a byte to spare: planned, then really loaded."""
    session = LocalSession()
    asked = Question(context=64)
    need = make_plan(session.planning(str(tiny_model), "cpu", 1), asked).required_bytes
    monkeypatch.setattr("engine.memory.available_bytes", lambda _: need + spare)
    planned = make_plan(session.planning(str(tiny_model), "cpu", 1), asked)
    config = EngineConfig(str(tiny_model), context_length=64, device="cpu", threads=1)
    last = list(session.load(config))[-1]
    session.close()
    assert planned.fits == fits
    assert type(last).__name__ == ("ModelLoaded" if fits else "LoadFailed")


def test_the_limit_of_this_machine_is_found_to_the_token() -> None:
    """With what is free here and now: the longest context fits, its last block is the last one."""
    there = available_bytes(torch.device("cpu"))
    model = planned_model("SmolLM2-135M")
    unlimited = replace(model, footprint=replace(model.footprint, context_length=2**28))
    planning = Planning(unlimited, Machine("CPU", default_threads(False), there))
    longest = make_plan(planning, Question(context=4_096)).longest_context
    assert longest is not None
    sizes = {context: make_plan(planning, Question(context=context)) for context in
             (longest - 1_000, longest, longest + 1)}  # fmt: skip
    assert [plan.fits for plan in sizes.values()] == [True, True, False]
    for context, plan in sizes.items():
        # Worked out anew: matrices, blocks of 16, and the workspace's terms in the context.
        blocks = -(-context // 16)
        base = make_plan(planning, Question(context=16))
        grown = 4 * (4 * 9 * 64 + 64) + 512
        need = base.weight_bytes + base.workspace_bytes + (context - 16) * grown
        assert plan.required_bytes == need + (blocks + 1) * 16 * 23_040
        assert plan.fits == (plan.required_bytes <= there)


# --- arithmetic ---------------------------------------------------------------------------

footprints = st.builds(
    Footprint,
    context_length=st.integers(1, 5_000),
    weight_bytes=st.fixed_dictionaries({"as-stored": st.integers(0, 10_000)}),
    kv_groups=st.fixed_dictionaries(
        {
            "bf16": st.lists(
                st.builds(
                    KVGroupSize,
                    st.integers(1, 9),
                    st.one_of(st.none(), st.integers(1, 900)),
                    st.integers(0, 99),
                    st.integers(0, 9),
                ),
                min_size=1,
                max_size=3,
            ).map(tuple)
        }
    ),
    workspace=st.one_of(st.none(), st.builds(Workspace, *(st.integers(0, 50) for _ in range(4)))),
)


@given(footprints, st.integers(0, 3_000_000))
def test_the_longest_context_is_the_longest(footprint: Footprint, budget: int) -> None:
    """One token more does not fit, unless the model ends there."""
    config = EngineConfig("")
    found = longest_context(footprint, config, "bf16", budget)
    more = (found or 0) + 1
    assert found is None or footprint.required_bytes(config, "bf16", found) <= budget
    if more <= footprint.context_length:
        assert footprint.required_bytes(config, "bf16", more) > budget


@given(footprints, st.integers(0, 3_000_000), st.integers(16, 3_000))
def test_as_many_sequences_as_fit_and_no_more(
    footprint: Footprint, budget: int, context: int
) -> None:
    """Counted one by one, with a pool and a workspace for so many."""
    found = most_sequences(footprint, EngineConfig(""), "bf16", context, budget)

    def need(count: int) -> int:
        rows = max(count, 8)
        config = EngineConfig(
            "",
            max_num_seqs=rows,
            max_num_batched_tokens=max(512, rows + 16),
            kv_pool_tokens=count * (-(-context // 16) * 16),
        )
        return footprint.required_bytes(config, "bf16", context)

    assert found == 0 or need(found) <= budget
    assert need(found + 1) > budget


def test_one_sequence_fits_when_the_load_does() -> None:
    """The count and the verdict never contradict each other, at the limit neither."""
    model = planned_model("Gemma-2-2B")
    need = make_plan(Planning(model, ROOMY), Question(context=8_192)).required_bytes
    for budget, count in ((need - 1, 0), (need, 1)):
        plan = make_plan(Planning(model, replace(ROOMY, available_bytes=budget)),
                         Question(context=8_192))  # fmt: skip
        assert (plan.sequences >= 1) == plan.fits == bool(count)


# --- speed, and what is not planned -------------------------------------------------------


def machine_with_peaks() -> Machine:
    speeds = {name: DeviceSpeed("cpu", 100e9, lambda _: 20e9) for name in ("as-stored", "int8")}
    return replace(ROOMY, speeds=speeds)


def test_a_smaller_cache_format_reads_less() -> None:
    """The chosen KV format is in the predicted pace, not only in the memory."""
    planning = Planning(planned_model("Llama-3.1-8B"), machine_with_peaks())
    paces = []
    for kv in ("fp32", "bf16"):
        speed = make_plan(planning, Question(kv=kv)).speed
        assert speed is not None
        paces.append(speed.decode_tok_s)
    assert paces == sorted(paces)
    assert paces[0] < paces[-1]


def test_nothing_is_predicted_before_the_machine_is_measured() -> None:
    """No peaks, no speed: rather a blank than a guess."""
    assert make_plan(Planning(planned_model("Qwen3-8B"), ROOMY), Question()).speed is None


def test_what_cannot_run_has_a_shape_and_no_speed() -> None:
    """MLA: cache and dense weights are known, quantized ones and speeds are not."""
    model: PlannedModel = planned_model("deepseek-v3")
    plan = make_plan(Planning(model, machine_with_peaks()), Question())
    assert (model.can_run, plan.speed, plan.choice.weights) == (False, None, "bf16")
    assert model.kv_formats == ("fp32", "bf16")
    assert [level.num_bytes is None for level in model.levels] == [False] * 3 + [True] * 2
    with pytest.raises(ValueError, match="int4 is not planned for DeepSeek-V3, but fp32, bf16"):
        make_plan(Planning(model, ROOMY), Question("int4"))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Question(kv="fp8_ds_mla"), "kv: fp8_ds_mla is not planned for Llama-2-7B"),
        (Question(context=4_097), "made for at most 4,096 tokens"),
    ],
)
def test_what_the_model_cannot_have_is_refused(asked: Question, words: str) -> None:
    """In words that name the choices."""
    with pytest.raises(ValueError, match=words):
        make_plan(Planning(planned_model("Llama-2-7B"), ROOMY), asked)


@pytest.mark.parametrize("kv", KV_FORMATS)
def test_every_kv_format_is_planned(kv: str) -> None:
    """Also "auto", which becomes one of the others."""
    plan = make_plan(Planning(planned_model("Qwen2.5-0.5B"), ROOMY), Question(kv=kv))
    assert plan.choice.kv == ("bf16" if kv == "auto" else kv)
    assert [level.name for level in plan.kv_levels] == list(KV_FORMATS[1:])


def test_names_are_found_in_any_case() -> None:
    """As a person types them."""
    assert find_shape("GEMMA-3-4b") is find_shape("gemma-3-4B") is not None
    assert find_shape("gemma") is None
