"""The reference operations against float64 formulas written another way."""

import math

import pytest
import torch

from kernels import reference
from kernels.reference import LinearKernel, PrefillSpan
from kernels.weights import DenseWeight, Weight, dequantize, quantize_int4, quantize_int8

RNG_SEED = 7
WEIGHTS = {
    "fp32": DenseWeight,
    "bf16": lambda w: DenseWeight(w.bfloat16()),
    "fp16": lambda w: DenseWeight(w.half()),
    "int8 by channel": quantize_int8,
    "int8 by group": lambda w: quantize_int8(w, 32),
    "int4": quantize_int4,
}


@pytest.fixture
def rng() -> torch.Generator:
    """A generator with a fixed seed."""
    return torch.Generator().manual_seed(RNG_SEED)


@pytest.mark.parametrize("hidden", [1, 64, 123])
def test_rms_norm(rng: torch.Generator, hidden: int) -> None:
    """x / sqrt(mean(x^2) + eps) * w."""
    x, w = torch.randn(5, hidden, generator=rng), torch.randn(hidden, generator=rng)
    x64 = x.double()
    expected = x64 / (x64.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * w.double()
    torch.testing.assert_close(
        reference.rms_norm(x, w, 1e-5).double(), expected, rtol=1e-5, atol=1e-6
    )


def test_fused_add_rms_norm_updates_the_residual(rng: torch.Generator) -> None:
    """The sum is left in the residual, the norm of the sum is returned."""
    x, residual = torch.randn(2, 3, 64, generator=rng)
    w, total = torch.randn(64, generator=rng), x + residual
    out = reference.fused_add_rms_norm(x, residual, w, 1e-6)
    torch.testing.assert_close(residual, total)
    torch.testing.assert_close(out, reference.rms_norm(total, w, 1e-6))


def test_rotary_embedding_is_a_complex_rotation(rng: torch.Generator) -> None:
    """Pairs (i, i + R/2) times e^(i angle); dims past R stay."""
    x = torch.randn(4, 3, 10, generator=rng)
    angles = torch.randn(9, 4, generator=rng)
    positions = torch.tensor([3, 0, 8, 3])
    out = reference.rotary_embedding(x, positions, angles.cos(), angles.sin())
    pairs = torch.complex(x[..., :4].double(), x[..., 4:8].double())
    turned = pairs * torch.exp(1j * angles.double())[positions, None]
    expected = torch.cat((turned.real, turned.imag, x[..., 8:].double()), -1)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 17])
@pytest.mark.parametrize("shape", [(40, 64), (7, 160), (129, 32)])
def test_linear(rng: torch.Generator, kind: str, rows: int, shape: tuple[int, int]) -> None:
    """Small-M and large-M paths equal the product over the dequantized weight."""
    weight: Weight = WEIGHTS[kind](torch.randn(shape, generator=rng))
    x = torch.randn(rows, shape[1], generator=rng)
    bias = torch.randn(shape[0], generator=rng)
    linear = LinearKernel(torch.float32)
    expected = x.double() @ dequantize(weight).double().t() + bias.double()
    # Dense half-precision weights take their input in the same precision for few rows.
    half_input = kind in ("bf16", "fp16") and rows <= reference.SMALL_M
    tolerance = 3e-2 if half_input else 1e-5
    scale = math.sqrt(shape[1])
    torch.testing.assert_close(
        linear(x, weight, bias).double(), expected, rtol=tolerance, atol=tolerance * scale
    )


def test_linear_reuses_its_scratch(rng: torch.Generator) -> None:
    """A second call, smaller or equal, allocates no more memory."""
    linear = LinearKernel(torch.float32)
    weight = quantize_int4(torch.randn(64, 64, generator=rng))
    linear(torch.randn(9, 64, generator=rng), weight)
    held = linear.scratch_bytes
    assert held > 0
    linear(torch.randn(2, 64, generator=rng), weight)
    assert linear.scratch_bytes == held


@pytest.mark.parametrize("kind", WEIGHTS)
def test_embedding_picks_rows(rng: torch.Generator, kind: str) -> None:
    """Rows of the dequantized table, repeated ids included."""
    weight: Weight = WEIGHTS[kind](torch.randn(50, 64, generator=rng))
    ids = torch.tensor([3, 49, 3, 0])
    out = reference.embedding(ids, weight, torch.float32)
    torch.testing.assert_close(out, dequantize(weight)[ids], rtol=0, atol=0)


def test_silu_and_mul(rng: torch.Generator) -> None:
    """silu(first half) * second half."""
    x = torch.randn(3, 14, generator=rng)
    gate, up = x.double().split(7, -1)
    expected = gate / (1 + torch.exp(-gate)) * up
    torch.testing.assert_close(reference.silu_and_mul(x).double(), expected, rtol=1e-5, atol=1e-6)


def test_gelu_and_mul(rng: torch.Generator) -> None:
    """GELU of the first half, by its approximation with tanh, times the second."""
    x = torch.randn(3, 14, generator=rng)
    gate, up = x.double().split(7, -1)
    inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
    expected = gate / 2 * (1 + inner.tanh()) * up
    torch.testing.assert_close(reference.gelu_and_mul(x).double(), expected, rtol=1e-5, atol=1e-6)


def test_soft_cap_in_place() -> None:
    """Nearly the value itself near 0, nearly the cap far away."""
    x = torch.tensor([[0.01, 3.0, -3.0, 1e4]])
    assert reference.soft_cap(x, 3.0) is x
    expected = [0.01, 3 * math.tanh(1), -3 * math.tanh(1), 3.0]
    torch.testing.assert_close(x[0], torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_embedding_scale(rng: torch.Generator) -> None:
    """Rows come multiplied."""
    weight = DenseWeight(torch.randn(9, 8, generator=rng).bfloat16())
    out = reference.embedding(torch.tensor([4, 0]), weight, torch.float32, 2.5)
    torch.testing.assert_close(out, weight.data[[4, 0]].float() * 2.5)


@pytest.mark.parametrize("normalize", [True, False])
def test_mix_experts(rng: torch.Generator, normalize: bool) -> None:
    """Token by token in float64: each of the chosen experts, weighted by its probability."""
    x, logits = torch.randn(6, 5, generator=rng), torch.randn(6, 4, generator=rng)
    maps = torch.randn(4, 5, 5, generator=rng)
    experts = [lambda rows, map_=map_: rows @ map_ for map_ in maps]
    out = reference.mix_experts(x, logits, experts, 2, normalize)
    for token in range(6):
        probability = logits[token].double().softmax(-1)
        chosen = probability.argsort(descending=True)[:2]
        total = probability[chosen].sum() if normalize else 1.0
        shares = (probability / total)[chosen]
        outputs = torch.stack([x[token].double() @ maps[e].double() for e in chosen])
        expected = (shares[:, None] * outputs).sum(0)
        torch.testing.assert_close(out[token].double(), expected, rtol=1e-5, atol=1e-5)


def naive_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> torch.Tensor:
    """Causal attention head by head in float64; the queries are the last of the context."""
    num_queries, num_heads, _ = q.shape
    share = num_heads // k.shape[1]
    start = k.shape[0] - num_queries
    out = torch.zeros(q.shape, dtype=torch.float64)
    for t in range(num_queries):
        first = max(0, start + t + 1 - window) if window else 0
        for head in range(num_heads):
            keys = k[first : start + t + 1, head // share].double()
            values = v[first : start + t + 1, head // share].double()
            scores = keys @ q[t, head].double() * scale
            scores = softcap * (scores / softcap).tanh() if softcap else scores
            out[t, head] = scores.softmax(-1) @ values
    return out


def paged(
    rng: torch.Generator, lengths: list[int], num_kv_heads: int, head_dim: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor], list[tuple[torch.Tensor, torch.Tensor]]]:
    """Caches with sequences scattered over shuffled blocks of 4, and the same keys and values."""
    size = 4
    needed = [-(-length // size) for length in lengths]
    order = (torch.randperm(sum(needed), generator=rng) + 1).tolist()
    shape = (len(order) + 1, size, num_kv_heads, head_dim)
    k_cache, v_cache = (torch.zeros(shape, dtype=dtype) for _ in range(2))
    tables, plain = [], []
    for length, count in zip(lengths, needed, strict=True):
        table = torch.tensor([order.pop() for _ in range(count)])
        k, v = torch.randn(2, length, num_kv_heads, head_dim, generator=rng).to(dtype)
        slots = table[torch.arange(length) // size] * size + torch.arange(length) % size
        reference.store_kv(k, v, k_cache, v_cache, slots)
        tables.append(table)
        plain.append((k, v))
    return k_cache, v_cache, tables, plain


SEEN = [(0, 0.0), (3, 0.0), (9, 0.5), (0, 0.5)]  # window, soft-cap


@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (5, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seen", SEEN)
def test_attention_prefill(
    rng: torch.Generator, heads: tuple[int, int], dtype: torch.dtype, seen: tuple[int, float]
) -> None:
    """Spans that are whole prompts, chunks after a prefix, and single tokens, in one batch."""
    lengths, counts = [9, 13, 5], [9, 6, 1]
    k_cache, v_cache, tables, plain = paged(rng, lengths, heads[1], 8, dtype)
    q = torch.randn(sum(counts), heads[0], 8, generator=rng)
    spans = [PrefillSpan(c, n, t) for c, n, t in zip(counts, lengths, tables, strict=True)]
    out = reference.attention_prefill(q, k_cache, v_cache, spans, 0.3, *seen)
    expected = [
        naive_attention(part, k, v, 0.3, *seen)
        for part, (k, v) in zip(q.split(counts), plain, strict=True)
    ]
    torch.testing.assert_close(out.double(), torch.cat(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (5, 1)])
@pytest.mark.parametrize("lengths", [[1], [17], [3, 16, 4, 9]])
@pytest.mark.parametrize("seen", SEEN)
def test_attention_decode(
    rng: torch.Generator, heads: tuple[int, int], lengths: list[int], seen: tuple[int, float]
) -> None:
    """One query a sequence; rows of unequal length are padded with the null block."""
    k_cache, v_cache, tables, plain = paged(rng, lengths, heads[1], 8, torch.float32)
    k_cache[0] = v_cache[0] = 1e4  # whatever the null block holds must not matter
    width = max(len(table) for table in tables)
    padded = torch.stack([torch.nn.functional.pad(t, (0, width - len(t))) for t in tables])
    q = torch.randn(len(lengths), heads[0], 8, generator=rng)
    lens = torch.tensor(lengths)
    out = reference.attention_decode(q, k_cache, v_cache, padded, lens, 0.3, *seen)
    expected = [
        naive_attention(row[None], k, v, 0.3, *seen) for row, (k, v) in zip(q, plain, strict=True)
    ]
    torch.testing.assert_close(out.double(), torch.cat(expected), rtol=1e-5, atol=1e-5)


def test_rope_and_store_kv_is_the_three_operations(rng: torch.Generator) -> None:
    """Rotated keys and plain values land in their slots; rotated queries come back."""
    q, kv = torch.randn(3, 4, 8, generator=rng), torch.randn(2, 3, 2, 8, generator=rng)
    angles = torch.randn(7, 4, generator=rng)
    rotation = (torch.tensor([6, 1, 1]), angles.cos(), angles.sin())
    k_cache, v_cache = torch.zeros(2, 4, 4, 2, 8)
    slots = torch.tensor([5, 2, 9])
    out = reference.rope_and_store_kv(q, kv[0], kv[1], *rotation, k_cache, v_cache, slots)
    torch.testing.assert_close(out, reference.rotary_embedding(q, *rotation))
    rotated = reference.rotary_embedding(kv[0], *rotation)
    torch.testing.assert_close(k_cache.flatten(0, 1)[slots], rotated)
    torch.testing.assert_close(v_cache.flatten(0, 1)[slots], kv[1])
