"""Every kernel against the reference, over random and odd shapes: one function a case.

The same cases run in Triton's interpreter (`test_interpreted`) and on a GPU (`gpu_check`,
`test_on_device`). A case makes its inputs on the CPU, gets the reference's answer there in FP32
(products: FP64), and raises AssertionError when the operations under test, on the rig's device,
differ by more than `tolerances` allows. No Triton is imported: what is tested comes in a `Rig`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from kernels import reference
from kernels.weights import GroupedWeight, dequantize, quantize_int4, quantize_int8
from tests.kernels.gpu import kv_cases, tolerances
from tests.kernels.gpu.rig import ALL, Heads, Rig, Seen, check, make_spans
from tests.kernels.gpu.tolerances import BF16, FP16, FP32

DTYPES = {"fp32": FP32, "fp16": FP16, "bf16": BF16}
EPS = 1e-5


def rows_apart(x: torch.Tensor) -> torch.Tensor:
    """The same rows as a view into wider ones, as slices of a fused product are."""
    wide = torch.full((x.shape[0], x.shape[1] + 16), float("nan"), dtype=x.dtype, device=x.device)
    wide[:, : x.shape[1]] = x
    return wide[:, : x.shape[1]]


def rms_norm(rig: Rig, dtype: torch.dtype, rows: int, hidden: int) -> None:
    """Norm over rows that lie apart."""
    x, weight = rig.randn(rows, hidden, dtype=dtype), rig.randn(hidden)
    expected = reference.rms_norm(x.float(), weight, EPS)
    device_x, device_weight = rig.put(x, weight)
    actual = rig.ops.rms_norm(rows_apart(device_x), device_weight, EPS)
    assert actual.dtype == dtype
    check(actual, expected, tolerances.elementwise(dtype))
    transposed = device_x.t().contiguous().t()
    torch.testing.assert_close(
        rig.ops.rms_norm(transposed, device_weight, EPS), actual, rtol=0, atol=0
    )


def fused_add_rms_norm(rig: Rig, dtype: torch.dtype, rows: int, hidden: int) -> None:
    """The sum stays in the residual, the norm of the sum comes back."""
    x, residual = rig.randn(rows, hidden, dtype=dtype), rig.randn(rows, hidden, dtype=dtype)
    weight = rig.randn(hidden)
    total = x.float() + residual.float()
    expected = reference.rms_norm(total, weight, EPS)
    device_x, device_residual, device_weight = rig.put(x, residual, weight)
    actual = rig.ops.fused_add_rms_norm(device_x, device_residual, device_weight, EPS)
    check(device_residual, total, tolerances.elementwise(dtype))
    check(actual, expected, tolerances.added(dtype))


def norm_of_heads(rig: Rig, dtype: torch.dtype, heads: int, head_dim: int) -> None:
    """Each head's norm, the heads a view into wider rows."""
    x, weight = rig.randn(3, heads + 2, head_dim, dtype=dtype), rig.randn(head_dim)
    expected = reference.rms_norm(x[:, :heads].float(), weight, EPS)
    device_x, device_weight = rig.put(x, weight)
    actual = rig.ops.rms_norm(device_x[:, :heads], device_weight, EPS)
    check(actual, expected, tolerances.elementwise(dtype))


def silu_and_mul(rig: Rig, dtype: torch.dtype, rows: int, width: int) -> None:
    """Gate and up halves of one row."""
    x = 3 * rig.randn(rows, 2 * width, dtype=dtype)
    expected = reference.silu_and_mul(x.float())
    actual = rig.ops.silu_and_mul(*rig.put(x))
    assert actual.dtype == dtype
    # torch rounds silu(gate) before it multiplies: one more rounding, where it is under test.
    check(actual, expected, tolerances.added(dtype))


def gelu_and_mul(rig: Rig, dtype: torch.dtype, rows: int, width: int) -> None:
    """The same with GELU."""
    x = 3 * rig.randn(rows, 2 * width, dtype=dtype)
    actual = rig.ops.gelu_and_mul(*rig.put(x))
    check(actual, reference.gelu_and_mul(x.float()), tolerances.added(dtype))


def rope_and_store_kv(
    rig: Rig,
    dtype: torch.dtype,
    cache_dtype: torch.dtype,
    tokens: int,
    heads: tuple[int, int],
    dims: tuple[int, int],
) -> None:
    """Views of one fused product in; rotated queries out; only the given slots are written."""
    (num_heads, num_kv_heads), (head_dim, rotary_dim) = heads, dims
    fused = rig.randn(tokens, num_heads + 2 * num_kv_heads, head_dim, dtype=dtype)
    angles = 7 * rig.randn(41, rotary_dim // 2)
    positions = torch.randint(41, (tokens,), generator=rig.rng)
    slots = torch.randperm(6 * 4, generator=rig.rng)[:tokens]
    caches = [torch.full((6, 4, num_kv_heads, head_dim), 3.0) for _ in range(2)]
    expected_caches = [cache.clone() for cache in caches]
    split = (num_heads, num_kv_heads, num_kv_heads)
    rotation = (positions, angles.cos(), angles.sin())
    expected = reference.rope_and_store_kv(
        *fused.float().split(split, dim=1), *rotation, *expected_caches, slots
    )
    (device_fused,) = rig.put(fused)
    device_caches = rig.put(*(cache.to(cache_dtype) for cache in caches))
    actual = rig.ops.rope_and_store_kv(
        *device_fused.split(split, dim=1), *rig.put(*rotation), *device_caches, *rig.put(slots)
    )
    assert actual.dtype == dtype
    check(actual, expected, tolerances.elementwise(dtype))
    coarser = max(dtype, cache_dtype, key=lambda kind: torch.finfo(kind).eps)
    for cache, expected_cache in zip(device_caches, expected_caches, strict=True):
        check(cache, expected_cache, tolerances.elementwise(coarser))


def embedding(rig: Rig, kind: str, dtype: torch.dtype) -> None:
    """Rows of a quantized table, each in one piece."""
    make, shapes = WEIGHTS[kind]
    weight = make(rig.randn(*shapes[0]))
    ids = torch.tensor([3, shapes[0][0] - 1, 3])
    actual = rig.ops.embedding(*rig.put(ids), place(weight, rig), dtype)
    assert actual.is_contiguous()
    check(actual, dequantize(weight)[ids], tolerances.elementwise(dtype))


WEIGHTS: dict[str, tuple[Callable[[torch.Tensor], GroupedWeight], list[tuple[int, int]]]] = {
    "int8 by channel": (quantize_int8, [(40, 123), (129, 64), (7, 300)]),
    "int8 groups of 32": (partial(quantize_int8, group_size=32), [(40, 64), (129, 160)]),
    "int8 groups of 128": (partial(quantize_int8, group_size=128), [(40, 256)]),
    "int8 groups of 20": (partial(quantize_int8, group_size=20), [(9, 60)]),
    "int4 groups of 32": (quantize_int4, [(40, 64), (129, 160)]),
    "int4 groups of 128": (partial(quantize_int4, group_size=128), [(40, 384)]),
    "int4 groups of 24": (partial(quantize_int4, group_size=24), [(9, 72)]),
    "int4 by channel": (lambda w: quantize_int4(w, w.shape[1]), [(40, 96)]),
    "int4 without minima": (lambda w: _without_minima(quantize_int4(w)), [(40, 96)]),
    "int8 with minima": (lambda w: _with_minima(quantize_int8(w, 32)), [(40, 96)]),
}
EXPANDED = ("int8 groups of 20", "int4 groups of 24", "int8 with minima")


def _without_minima(weight: GroupedWeight) -> GroupedWeight:
    return GroupedWeight(weight.bits, weight.codes, weight.scale, None)


def _with_minima(weight: GroupedWeight) -> GroupedWeight:
    """As weights are that another tool quantized asymmetrically."""
    return GroupedWeight(weight.bits, weight.codes, weight.scale, weight.scale * -3)


def place(weight: GroupedWeight, rig: Rig) -> GroupedWeight:
    """The weight on the device under test."""
    codes, scale = rig.put(weight.codes, weight.scale)
    minimum = None if weight.minimum is None else rig.put(weight.minimum)[0]
    return GroupedWeight(weight.bits, codes, scale, minimum)


def exact_product(x: torch.Tensor, weight: GroupedWeight) -> torch.Tensor:
    """x @ weight.T in FP64, with the very values that the format defines."""
    return x.double() @ dequantize(weight).double().t()


def linear(rig: Rig, kind: str, dtype: torch.dtype, rows: int, shape: tuple[int, int]) -> None:
    """x @ weight.T + bias into a slice of a wider result; rows of x lie apart."""
    num_out, num_in = shape
    weight = WEIGHTS[kind][0](rig.randn(num_out, num_in))
    x, bias = rig.randn(rows, num_in, dtype=dtype), rig.randn(num_out)
    expected = exact_product(x, weight)
    device_x, device_bias = rig.put(x, bias)
    device_weight = place(weight, rig)
    actual = rig.ops.linear(rows_apart(device_x), device_weight)
    assert actual.dtype == dtype
    # These and many rows go through weights that are expanded to the dense dtype.
    direct = rows <= 16 and kind not in EXPANDED
    tolerance = tolerances.product if direct else tolerances.dense_product
    check(actual, expected, tolerance(dtype, num_in))
    wide = torch.zeros(rows, num_out + 3, dtype=dtype, device=rig.device)
    rig.ops.linear(device_x, device_weight, device_bias, out=wide[:, 1:-2])
    check(wide[:, 1:-2], expected + bias, tolerances.dense_product(dtype, num_in))
    assert not wide[:, 0].any()
    assert not wide[:, -2:].any()


def linear_rows_agree(rig: Rig, kind: str, dtype: torch.dtype) -> None:
    """A row gives the very same result among 2 rows and among 16."""
    make, shapes = WEIGHTS[kind]
    weight = place(make(rig.randn(*shapes[-1])), rig)
    (x,) = rig.put(rig.randn(16, shapes[-1][1], dtype=dtype))
    torch.testing.assert_close(
        rig.ops.linear(x[3:5], weight), rig.ops.linear(x, weight)[3:5], rtol=0, atol=0
    )


def linear_splits(rig: Rig, kind: str, rows: int, splits: int) -> None:
    """K in parts that do not divide it, and in more parts than it has blocks."""
    from kernels.gpu.autotune import LinearConfig
    from kernels.gpu.linear_int4 import linear_int4
    from kernels.gpu.linear_int8 import linear_int8

    make, shapes = WEIGHTS[kind]
    num_out, num_in = shapes[-1]
    weight, x = make(rig.randn(num_out, num_in)), rig.randn(rows, num_in)
    expected = exact_product(x, weight)
    multiply = linear_int4 if weight.bits == 4 else linear_int8
    config = LinearConfig(block_n=64, splits=splits, num_warps=2, stages=2)
    actual = multiply(*rig.put(x), place(weight, rig), config)
    check(actual, expected, tolerances.product(FP32, num_in))


def linear_tuned(rig: Rig, kind: str) -> None:
    """The configuration that took least time is used from then on, and not chosen again."""
    from kernels.gpu.linear import GpuLinear, candidates

    make, shapes = WEIGHTS[kind]
    weight = make(rig.randn(*shapes[-1]))
    device_weight, runs = place(weight, rig), []

    def later_is_faster(run: Callable[[], object]) -> float:
        run()
        runs.append(run)
        return -len(runs)

    linear = GpuLinear(FP32, FP32, timer=later_is_faster)
    linear.tune(device_weight)
    count = len(runs)
    linear.tune(device_weight)
    assert len(runs) == count
    for rows in (1, 3):
        tried = candidates(device_weight, rows)
        assert len(set(tried)) == len(tried) > 1
        assert linear.config(device_weight, rows) == tried[-1] != tried[0]
        x = rig.randn(rows, shapes[-1][1])
        expected = exact_product(x, weight)
        actual = linear(rig.put(x)[0], device_weight)
        check(actual, expected, tolerances.product(FP32, shapes[-1][1]))


@dataclass
class Paged:
    """Caches with sequences scattered over shuffled blocks; block 0 and what no key owns is NaN."""

    k_cache: torch.Tensor
    v_cache: torch.Tensor
    tables: list[torch.Tensor]


def paged(
    rig: Rig, lengths: Sequence[int], block_size: int, num_kv_heads: int, head_dim: int
) -> Paged:
    """Random keys and values of sequences of `lengths`, FP32, exact in BF16 and FP16."""
    needed = [-(-length // block_size) for length in lengths]
    order = (torch.randperm(sum(needed), generator=rig.rng) + 1).tolist()
    shape = (len(order) + 1, block_size, num_kv_heads, head_dim)
    caches = [torch.full(shape, float("nan")) for _ in range(2)]
    tables = []
    for length, count in zip(lengths, needed, strict=True):
        table = torch.tensor([order.pop() for _ in range(count)])
        at = torch.arange(length)
        for cache in caches:
            # 7 bits of mantissa within the range of FP16.
            keys = rig.randn(length, num_kv_heads, head_dim, dtype=BF16).float()
            cache[table[at // block_size], at % block_size] = keys.half().float()
        tables.append(table)
    return Paged(*caches, tables)


def attention_prefill(
    rig: Rig,
    dtype: torch.dtype,
    cache_dtype: torch.dtype,
    heads: Heads,
    block_size: int,
    spans: Sequence[tuple[int, int]],
    seen: Seen = ALL,
) -> None:
    """Spans (queries, context) that are whole prompts, chunks after a prefix and single tokens."""
    num_heads, num_kv_heads, head_dim = heads
    lengths = [context for _, context in spans]
    cache = paged(rig, lengths, block_size, num_kv_heads, head_dim)
    q = rig.randn(sum(count for count, _ in spans), num_heads, head_dim, dtype=dtype)
    scale = head_dim**-0.5
    expected = reference.attention_prefill(
        q.float(), cache.k_cache, cache.v_cache, make_spans(spans, cache.tables), scale, *seen
    )
    device_tables = rig.put(*cache.tables)
    actual = rig.ops.attention_prefill(
        *rig.put(q, cache.k_cache.to(cache_dtype), cache.v_cache.to(cache_dtype)),
        make_spans(spans, device_tables),
        scale,
        *seen,
    )
    assert actual.dtype == dtype
    check(actual, expected, tolerances.attention(dtype))


def attention_decode(
    rig: Rig,
    dtype: torch.dtype,
    cache_dtype: torch.dtype,
    heads: Heads,
    block_size: int,
    lengths: Sequence[int],
    seen: Seen = ALL,
) -> None:
    """Rows of unequal length in a table wider than any; a row alone gives the very same."""
    num_heads, num_kv_heads, head_dim = heads
    cache = paged(rig, lengths, block_size, num_kv_heads, head_dim)
    width = max(len(table) for table in cache.tables)
    tables = torch.zeros(len(lengths), width + 3, dtype=torch.int64)
    for row, table in zip(tables, cache.tables, strict=True):
        row[: len(table)] = table
    context_lens = torch.tensor(lengths)
    q = rig.randn(len(lengths), num_heads, head_dim, dtype=dtype)
    scale = head_dim**-0.5
    # The reference multiplies what lies behind a row's context by zero, hence no NaN for it.
    clean = [torch.nan_to_num(part) for part in (cache.k_cache, cache.v_cache)]
    expected = reference.attention_decode(
        q.float(), *clean, tables[:, :width], context_lens, scale, *seen
    )
    caches = rig.put(cache.k_cache.to(cache_dtype), cache.v_cache.to(cache_dtype))
    device_q, device_tables, device_lens = rig.put(q, tables, context_lens)
    actual = rig.ops.attention_decode(device_q, *caches, device_tables, device_lens, scale, *seen)
    assert actual.dtype == dtype
    check(actual, expected, tolerances.attention(dtype))
    if len(lengths) > 1:
        alone = rig.ops.attention_decode(
            device_q[1:2], *caches, device_tables[1:2], device_lens[1:2], scale, *seen
        )
        torch.testing.assert_close(alone, actual[1:2], rtol=0, atol=0)


Case = Callable[[Rig], None]


def _add(cases: dict[str, Case], function: Callable[..., None], *args: object) -> None:
    words = " ".join(str(arg).removeprefix("torch.") for arg in args)
    names = function.__code__.co_varnames[1 : 1 + len(args)]
    cases[f"{function.__name__}: {words}"] = partial(
        function, **dict(zip(names, args, strict=True))
    )


def _small_cases() -> dict[str, Case]:
    """Odd shapes, few programs each: the interpreter takes a millisecond for one."""
    cases: dict[str, Case] = {}
    add = partial(_add, cases)
    for dtype in DTYPES.values():
        for rows, hidden in ((1, 1), (5, 64), (1, 123), (3, 576), (2, 4096)):
            add(rms_norm, dtype, rows, hidden)
            add(fused_add_rms_norm, dtype, rows, hidden)
        for rows, width in ((1, 1), (3, 64), (1, 123), (2, 1536)):
            add(silu_and_mul, dtype, rows, width)
        add(gelu_and_mul, dtype, 2, 123)
        add(norm_of_heads, dtype, 3, 20)
        for tokens, heads, dims in (
            (1, (4, 4), (8, 8)),
            (3, (10, 2), (10, 4)),
            (2, (5, 1), (64, 64)),
            (4, (9, 3), (80, 80)),
        ):
            add(rope_and_store_kv, dtype, dtype, tokens, heads, dims)
        for kind, (_, shapes) in WEIGHTS.items():
            for rows, shape in zip(itertools.cycle((1, 5)), shapes, strict=False):
                add(linear, kind, dtype, rows, shape)
            add(linear, kind, dtype, 1, shapes[0])
            add(linear, kind, dtype, 16, shapes[-1])
        for heads, size, spans in (
            ((4, 4, 8), 4, ((9, 9), (6, 13), (1, 5))),
            ((5, 1, 64), 16, ((1, 1), (17, 300))),
        ):
            add(attention_prefill, dtype, dtype, heads, size, spans)
        for heads, size, lengths in (
            ((4, 4, 8), 4, (1,)),
            ((5, 1, 64), 16, (300, 17, 1)),
            ((20, 1, 16), 16, (33, 70)),
        ):
            add(attention_decode, dtype, dtype, heads, size, lengths)
        for seen in ((7, 0.0), (40, 1.5), (0, 1.5)):
            add(attention_prefill, dtype, dtype, (4, 2, 16), 4, ((9, 9), (70, 130)), seen)
            add(attention_decode, dtype, dtype, (4, 2, 16), 4, (130, 39, 1), seen)
    for kind in ("int8 by channel", "int4 groups of 32"):
        add(embedding, kind, FP16)
    add(rope_and_store_kv, FP16, BF16, 3, (4, 2), (16, 16))
    add(rope_and_store_kv, FP16, FP32, 3, (4, 2), (16, 16))
    add(attention_prefill, FP16, FP16, (6, 2, 80), 16, ((130, 200),))
    add(attention_decode, FP16, FP16, (6, 2, 80), 16, (64, 65))
    add(attention_prefill, FP16, FP32, (4, 2, 16), 16, ((40, 70),))
    add(attention_decode, FP16, FP32, (4, 2, 16), 16, (70, 3))
    for kind, (_, shapes) in WEIGHTS.items():
        add(linear, kind, FP16, 17, shapes[-1])
    for kind in ("int8 by channel", "int8 groups of 32", "int4 groups of 32"):
        add(linear_rows_agree, kind, FP16)
        add(linear_tuned, kind)
        for rows, splits in ((1, 3), (1, 16), (2, 3), (2, 16)):
            add(linear_splits, kind, rows, splits)
    kv_cases.add_small_cases(add)
    return cases


def _large_cases() -> dict[str, Case]:
    """The shapes of Llama-3.1-8B, for a GPU: programs that run at once, splits, long contexts."""
    cases: dict[str, Case] = {}
    add = partial(_add, cases)
    for dtype in (BF16, FP16):
        for shape in ((6144, 4096), (4096, 14336)):
            for rows in (1, 2, 16, 64):
                add(linear, "int8 by channel", dtype, rows, shape)
                add(linear, "int4 groups of 32", dtype, rows, shape)
        add(attention_prefill, dtype, dtype, (32, 8, 128), 16, ((1000, 1000), (300, 5003)))
        add(attention_decode, dtype, dtype, (32, 8, 128), 16, (16384, 1, 4097))
        add(attention_prefill, dtype, dtype, (8, 4, 256), 16, ((1000, 5003),), (4096, 50.0))
        add(attention_decode, dtype, dtype, (8, 4, 256), 16, (16384, 1, 4097), (4096, 50.0))
        add(fused_add_rms_norm, dtype, 513, 4096)
        add(silu_and_mul, dtype, 513, 14336)
    kv_cases.add_large_cases(add)
    return cases


CASES = _small_cases()
LARGE_CASES = _large_cases()
