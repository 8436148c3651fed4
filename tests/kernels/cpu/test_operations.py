"""Every native operation at every level this machine can run, against the reference in float64.

Tolerances, relative to the size of the result, with their reasons:
- dense products, norm, rotation, attention, gate: FP32 sums in another order, and an exponential
  within two units in the last place: 1e-5;
- quantized products: activations are rounded to 16 bits in blocks of 32, an error of at most
  1/65534 of a block's largest value each: 1e-4 of the result's scale.
"""

import pytest
import torch

from kernels import reference
from kernels.cpu.kernel_set import cpu_kernels
from kernels.cpu.library import LEVEL_VARIABLE, best_library, open_level, runnable_levels
from kernels.cpu.linear import native_weight
from kernels.cpu.structs import Format
from kernels.cpu.tiles import can_tile, tile, untile
from kernels.reference import PrefillSpan
from kernels.select import KernelSet, select_kernels
from kernels.weights import (
    TILE_BLOCK,
    DenseWeight,
    GroupedWeight,
    TiledWeight,
    Weight,
    dequantize,
    pack_groups,
    quantize_int4,
    quantize_int8,
)

EXACT = 1e-5
QUANTIZED = 1e-4  # activations of 16 bits beside INT8 weights
ROUNDED = 1e-2  # of 8 bits beside INT4 ones
THREADS = 2
WEIGHTS = {
    "fp32": DenseWeight,
    "bf16": lambda w: DenseWeight(w.bfloat16()),
    "fp16": lambda w: DenseWeight(w.half()),
    "int8 by channel": quantize_int8,
    "int8 by group": lambda w: quantize_int8(w, 32),
    "int8 by large group": lambda w: quantize_int8(w, 32 if w.shape[1] % 64 else 64),
    "int4": quantize_int4,
    "int4 by large group": lambda w: quantize_int4(w, 32 if w.shape[1] % 64 else 64),
}
pytestmark = pytest.mark.skipif(not runnable_levels(), reason="no native kernels are compiled")


@pytest.fixture(params=runnable_levels())
def kernels(request: pytest.FixtureRequest) -> KernelSet:
    """The operations of one level."""
    library = open_level(request.param)
    assert library is not None
    return cpu_kernels(library, THREADS, torch.float32)


@pytest.fixture
def rng() -> torch.Generator:
    """A generator with a fixed seed."""
    return torch.Generator().manual_seed(11)


def close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """Within `tolerance` of the expected values' scale."""
    scale = float(expected.abs().max()) or 1.0
    torch.testing.assert_close(
        actual.double(), expected.double(), rtol=tolerance, atol=tolerance * scale
    )


def tolerance(weight: Weight) -> float:
    """How close a product comes to one of unrounded activations."""
    if not isinstance(weight, GroupedWeight):
        return EXACT
    return QUANTIZED if weight.bits == 8 else ROUNDED


def as_seen(x: torch.Tensor, weight: Weight) -> torch.Tensor:
    """The activations in float64, beside INT4 as multiples of a 127th of their block's largest."""
    if not isinstance(weight, GroupedWeight) or weight.bits == 8:
        return x.double()
    blocks = x.unflatten(-1, (-1, TILE_BLOCK))
    largest = blocks.abs().amax(-1, keepdim=True)
    return ((blocks * (127 / largest)).round().double() * largest / 127).flatten(-2)


@pytest.mark.parametrize("hidden", [1, 8, 64, 123, 576])
@pytest.mark.parametrize("rows", [1, 5])
def test_norms(kernels: KernelSet, rng: torch.Generator, hidden: int, rows: int) -> None:
    """Plain and with the sum left in the residual."""
    x, residual = torch.randn(2, rows, hidden, generator=rng)
    weight = torch.randn(hidden, generator=rng)
    close(kernels.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5), EXACT)
    total = x + residual
    out = kernels.fused_add_rms_norm(x, residual, weight, 1e-6)
    assert torch.equal(residual, total)
    close(out, reference.rms_norm(total, weight, 1e-6), EXACT)
    assert kernels.add(x, residual) is residual
    assert torch.equal(residual, total + x)


@pytest.mark.parametrize("head_dim", [3, 8, 20])
def test_norms_of_heads(kernels: KernelSet, rng: torch.Generator, head_dim: int) -> None:
    """Queries are a view into wider rows: each head apart, or all of a token together."""
    q = torch.randn(5, 7, head_dim, generator=rng)[:, :4]
    weight = torch.randn(head_dim, generator=rng)
    close(kernels.rms_norm(q, weight, 1e-5), reference.rms_norm(q, weight, 1e-5), EXACT)
    together, weights = q.flatten(1), torch.randn(4 * head_dim, generator=rng)
    out = kernels.rms_norm(together, weights, 1e-5)
    close(out, reference.rms_norm(together, weights, 1e-5), EXACT)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 8, 11])
@pytest.mark.parametrize("shape", [(40, 64), (7, 160), (129, 32), (16, 576), (1, 32)])
def test_few_rows(
    kernels: KernelSet, rng: torch.Generator, kind: str, rows: int, shape: tuple[int, int]
) -> None:
    """The product of a decode step over every format, also into rows that lie apart."""
    weight: Weight = WEIGHTS[kind](torch.randn(shape, generator=rng))
    x = torch.randn(rows, shape[1], generator=rng)
    bias = torch.randn(shape[0], generator=rng)
    prepared = kernels.prepare(weight)
    out = kernels.linear(x, prepared, bias)
    close(out, x.double() @ dequantize(weight).double().t() + bias.double(), tolerance(weight))
    expected = as_seen(x, weight) @ dequantize(weight).double().t() + bias.double()
    close(out, expected, min(tolerance(weight), QUANTIZED))
    wide = torch.full((rows, shape[0] + 3), 7.0)
    kernels.linear(x, prepared, None, out=wide[:, 1 : shape[0] + 1])
    close(wide[:, 1 : shape[0] + 1], expected - bias.double(), min(tolerance(weight), QUANTIZED))
    assert bool((wide[:, 0] == 7).all())
    assert bool((wide[:, shape[0] + 1 :] == 7).all())


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_codes_do_not_overflow(kernels: KernelSet, bits: int, sign: int) -> None:
    """Every code and every activation at its limit, alone and among many rows."""
    codes = torch.full((16, 64), 15 if bits == 4 else 127, dtype=torch.int8)
    scale = torch.ones(16, 2, dtype=torch.float16)
    weight = pack_groups(bits, codes, scale, None)
    for rows in (1, 9):
        out = kernels.linear(torch.full((rows, 64), 3.0 * sign), kernels.prepare(weight))
        close(out, torch.full((rows, 16), 3.0 * sign * 64 * int(codes[0, 0])), EXACT)


@pytest.mark.parametrize("kind", ["int8 by channel", "int8 by group", "int4", "bf16"])
@pytest.mark.parametrize("num_in", [1, 30, 33, 70])
def test_odd_inputs(kernels: KernelSet, rng: torch.Generator, kind: str, num_in: int) -> None:
    """Inputs that are no multiple of a block; quantized by groups only where groups divide."""
    matrix = torch.randn(9, num_in, generator=rng)
    if kind in ("int8 by group", "int4"):
        with pytest.raises(ValueError, match="do not divide"):
            WEIGHTS[kind](matrix)
        return
    weight: Weight = WEIGHTS[kind](matrix)
    x = torch.randn(2, num_in, generator=rng)
    out = kernels.linear(x, kernels.prepare(weight))
    close(out, x.double() @ dequantize(weight).double().t(), QUANTIZED)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_a_row_does_not_depend_on_the_others(
    kernels: KernelSet, rng: torch.Generator, kind: str
) -> None:
    """Bit for bit the same alone and among up to eight."""
    weight = kernels.prepare(WEIGHTS[kind](torch.randn(50, 192, generator=rng)))
    x = torch.randn(8, 192, generator=rng)
    alone = torch.cat([kernels.linear(row[None], weight) for row in x])
    for rows in range(1, 9):
        assert torch.equal(kernels.linear(x[:rows], weight), alone[:rows])


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("dense", [torch.float32, torch.bfloat16])
def test_many_rows(rng: torch.Generator, kind: str, dense: torch.dtype) -> None:
    """A prompt's product: native, and over the expanded weight in the dense dtype."""
    level = open_level(runnable_levels()[0])
    assert level is not None
    kernels = cpu_kernels(level, THREADS, dense)
    weight: Weight = WEIGHTS[kind](torch.randn(35, 192, generator=rng))
    x = torch.randn(67, 192, generator=rng)
    expected = x.double() @ dequantize(weight).double().t()
    prepared = kernels.prepare(weight)
    native = kernels.linear(x, prepared)
    close(native, expected, tolerance(weight))
    kernels.linear._crossover[Format(native_weight(prepared)[0].format)] = 16
    by_gemm = kernels.linear(x, prepared)
    exact = dense is torch.float32 or kind == "fp32"
    close(by_gemm, expected, EXACT if exact else 2e-2)
    # Both add a dense weight's products in the same order, so only codes tell the paths apart.
    assert isinstance(weight, DenseWeight) or not torch.equal(by_gemm, native)


def test_tuning_measures_a_format_once(kernels: KernelSet, rng: torch.Generator) -> None:
    """And leaves heads out, which never meet many rows."""
    weight = kernels.prepare(quantize_int4(torch.randn(64, 64, generator=rng)))
    kernels.linear.tune(weight)
    kernels.linear.tune(weight)
    kernels.linear.tune(kernels.prepare(quantize_int8(torch.randn(20_000, 32, generator=rng))))
    assert list(kernels.linear._crossover) == [Format.INT4]


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("shape", [(1, 32), (40, 64), (129, 192)])
def test_tiles_keep_every_value(rng: torch.Generator, bits: int, shape: tuple[int, int]) -> None:
    """There and back again."""
    quantize = quantize_int8 if bits == 8 else quantize_int4
    for group in (32, shape[1]):
        weight = quantize(torch.randn(shape, generator=rng), group)
        back = untile(tile(weight))
        assert torch.equal(back.codes, weight.codes)
        assert torch.equal(back.scale, weight.scale)
        assert (back.minimum is None) == (weight.minimum is None)
        assert torch.equal(dequantize(back), dequantize(weight))


def test_groups_that_are_no_blocks_go_to_the_reference(
    kernels: KernelSet, rng: torch.Generator
) -> None:
    """Groups of 16: correct, and a step with them is computed anew instead of replayed."""
    weight = quantize_int8(torch.randn(20, 48, generator=rng), 16)
    assert not can_tile(weight)
    with pytest.raises(ValueError, match="whole blocks"):
        tile(weight)
    prepared = kernels.prepare(weight)
    assert prepared is weight
    x = torch.randn(3, 48, generator=rng)
    (out,), recording = kernels.record(lambda: (kernels.linear(x, prepared),))
    close(out, x.double() @ dequantize(weight).double().t(), EXACT)
    assert isinstance(recording, reference.EagerRecording)


@pytest.mark.parametrize("kind", WEIGHTS)
def test_embedding(kernels: KernelSet, rng: torch.Generator, kind: str) -> None:
    """Rows of the table, exactly."""
    weight: Weight = WEIGHTS[kind](torch.randn(37, 64, generator=rng))
    ids = torch.tensor([0, 36, 17, 17, 15, 16])
    prepared = kernels.prepare(weight)
    out = kernels.embedding(ids, prepared, torch.float32)
    torch.testing.assert_close(out, dequantize(weight)[ids], rtol=1e-6, atol=1e-6)
    scaled = kernels.embedding(ids, prepared, torch.float32, 2.5)
    torch.testing.assert_close(scaled, 2.5 * out)


SEEN = [(0, 0.0), (130, 0.0), (16, 0.7), (0, 0.7)]  # window, soft-cap


@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (9, 3), (5, 1), (14, 2)])
@pytest.mark.parametrize("head_dim", [8, 10, 64])
@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_rope_store_and_attention(
    kernels: KernelSet,
    rng: torch.Generator,
    heads: tuple[int, int],
    head_dim: int,
    cache_dtype: torch.dtype,
) -> None:
    """A decode step's attention over scattered blocks, contexts from 1 to several spans."""
    num_heads, num_kv_heads = heads
    lengths = torch.tensor([1, 17, 300, 1100])
    block_size, width = 4, 280
    shape = (4 * width + 1, block_size, num_kv_heads, head_dim)
    caches = [torch.randn(shape, generator=rng).to(cache_dtype) for _ in range(2)]
    expected_caches = [cache.clone() for cache in caches]
    tables = (torch.randperm(4 * width, generator=rng) + 1).view(4, width)
    positions = lengths - 1
    slots = tables[torch.arange(4), positions // block_size] * block_size + positions % block_size
    angles = torch.randn(1100, head_dim // 2 - (head_dim == 10), generator=rng)
    rotation = (positions, angles.cos(), angles.sin())
    qkv = torch.randn(4, num_heads + 2 * num_kv_heads, head_dim, generator=rng)
    q, k, v = qkv.split((num_heads, num_kv_heads, num_kv_heads), dim=1)
    expected_q = reference.rope_and_store_kv(q, k, v, *rotation, *expected_caches, slots)
    rotated = kernels.rope_and_store_kv(q, k, v, *rotation, *caches, slots)
    close(rotated, expected_q, EXACT)
    for cache, expected in zip(caches, expected_caches, strict=True):
        # FP32 sums of two products may differ in the last place, and then round to a neighbour.
        torch.testing.assert_close(cache, expected, rtol=1e-2, atol=1e-2)
    for seen in SEEN:
        out = kernels.attention_decode(rotated, *caches, tables, lengths, 0.3, *seen)
        expected = reference.attention_decode(rotated, *caches, tables, lengths, 0.3, *seen)
        close(out, expected, EXACT)
        for row in range(4):
            alone = slice(row, row + 1)
            single = kernels.attention_decode(
                rotated[alone], *caches, tables[alone], lengths[alone], 0.3, *seen
            )
            assert torch.equal(single, out[alone])


@pytest.mark.parametrize("heads", [(4, 4), (9, 3), (5, 1)])
@pytest.mark.parametrize("head_dim", [16, 24, 64])
@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_attention_prefill(
    kernels: KernelSet,
    rng: torch.Generator,
    heads: tuple[int, int],
    head_dim: int,
    cache_dtype: torch.dtype,
) -> None:
    """Whole prompts and chunks behind a prefix, several sequences at once, queries as views."""
    num_heads, num_kv_heads = heads
    counts, lengths, block_size = [1, 70, 31, 64], [40, 70, 200, 64], 8
    shape = (64, block_size, num_kv_heads, head_dim)
    caches = [torch.randn(shape, generator=rng).to(cache_dtype) for _ in range(2)]
    spans = [
        PrefillSpan(
            count, length, torch.randperm(63, generator=rng)[: -(-length // block_size)] + 1
        )
        for count, length in zip(counts, lengths, strict=True)
    ]
    wide = torch.randn(sum(counts), num_heads + 2, head_dim, generator=rng)
    q = wide[:, 1 : num_heads + 1]
    for seen in SEEN:
        out = kernels.attention_prefill(q, *caches, spans, 0.3, *seen)
        close(out, reference.attention_prefill(q, *caches, spans, 0.3, *seen), EXACT)


@pytest.mark.parametrize("width", [1, 7, 8, 100])
def test_gated_activations(kernels: KernelSet, rng: torch.Generator, width: int) -> None:
    """Also where the exponential leaves the range of FP32."""
    x = torch.randn(3, 2 * width, generator=rng) * 10
    x[0, 0], x[1, 0] = 200.0, -200.0
    close(kernels.silu_and_mul(x), reference.silu_and_mul(x), EXACT)
    close(kernels.gelu_and_mul(x), reference.gelu_and_mul(x), EXACT)


@pytest.mark.parametrize("width", [1, 8, 1003, 2048])
def test_soft_cap(kernels: KernelSet, rng: torch.Generator, width: int) -> None:
    """In place, over more than one chunk, far beyond the cap and close to 0."""
    x = torch.randn(3, width, generator=rng) * 100
    x[0, 0] = 1e-3
    expected = reference.soft_cap(x.clone(), 30.0)
    assert kernels.soft_cap(x, 30.0) is x
    close(x, expected, EXACT)


@pytest.mark.parametrize("k", [1, 3, 64])
@pytest.mark.parametrize("vocab", [64, 1000, 1003])
def test_top_k(kernels: KernelSet, rng: torch.Generator, k: int, vocab: int) -> None:
    """Order, ids and the softmax denominator; equal logits rank by id."""
    logits = torch.randn(4, vocab, generator=rng).mul_(4).round_().div_(4)
    inverse = torch.tensor([0.0, 1.0, 2.5, 1e30])
    best = kernels.top_k(logits, inverse, k)
    expected = reference.top_k(logits, inverse, k)
    assert torch.equal(best.values, expected.values)
    assert torch.equal(best.ids, logits.sort(dim=1, descending=True, stable=True).indices[:, :k])
    close(best.log_sum, expected.log_sum, EXACT)


def test_a_row_of_nan_ranks_tokens_that_exist(kernels: KernelSet) -> None:
    """A model that overflowed must not name a token beyond the vocabulary."""
    logits = torch.full((2, 100), float("nan"))
    logits[1, 7] = 1.0
    best = kernels.top_k(logits, torch.zeros(2), 3)
    assert bool(((best.ids >= 0) & (best.ids < 100)).all())
    assert best.ids[1, 0] == 7


def test_a_level_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, to torch's operations, and refused where it cannot run."""
    for level in runnable_levels():
        monkeypatch.setenv(LEVEL_VARIABLE, level)
        assert select_kernels(torch.device("cpu")).name == f"native {level}"
    monkeypatch.setenv(LEVEL_VARIABLE, "none")
    assert best_library() is None
    assert select_kernels(torch.device("cpu")).name == "torch"
    monkeypatch.setenv(LEVEL_VARIABLE, "sse9")
    with pytest.raises(ValueError, match="sse9"):
        best_library()


def test_a_tiled_weight_takes_what_its_format_says() -> None:
    """5 bits a weight in INT4, 8.5 in INT8 groups of 32."""
    int4, int8 = (
        tile(quantize_int4(torch.randn(64, 96))),
        tile(quantize_int8(torch.randn(64, 96), 32)),
    )
    assert isinstance(int4, TiledWeight)
    assert int4.num_bytes * 8 == 5 * 64 * 96
    assert int8.num_bytes * 16 == 17 * 64 * 96
