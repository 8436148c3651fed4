"""What the engine says: frozen dataclasses of plain values, safe to send across threads.

`t_ns` is `time.perf_counter_ns` at the moment the host knew the fact. No torch, no Qt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.config import EngineConfig, KVGroupSize, MemoryEstimate, ModelInfo
from engine.peaks import Roofs

FinishReason = Literal["stop", "length", "context_full", "cancelled", "failed"]
Phase = Literal["prefill", "decode", "mixed"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the loaded session can do; a remote engine will offer less."""

    weight_formats: tuple[str, ...]
    kv_formats: tuple[str, ...]
    devices: tuple[str, ...]
    supports_cancel: bool = True
    reports_kv_cache: bool = True
    reports_steps: bool = True


@dataclass(frozen=True, slots=True)
class BlockOwner:
    """A request in the block map. It runs and holds blocks, or it took a cached one last.

    `unused_tokens`: places of its last block that no token has, by cache group; 0 once it ended.
    `block_tables`: by cache group the block of each `block_size` tokens in a row, numbered from 1,
    0 where it was given back because the layers look no further; empty unless it runs.
    """

    request_id: str
    is_running: bool
    unused_tokens: tuple[int, ...]
    block_tables: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class BlockGroupMap:
    """The pool of a cache group, cell by cell: `blocks_per_cell` blocks each, block 1 first.

    `used` (by one request), `shared` (by several) and `cached` (nobody's, found by its tokens)
    count a cell's blocks, the others are free; `tokens` counts what they hold. Bit i of `owners`
    stands for `BlockMap.owners[i]`; of cells of many blocks it is told by samples.
    """

    window: int | None  # tokens that its layers look back; None: all
    num_blocks: int
    blocks_per_cell: int
    used: tuple[int, ...]
    shared: tuple[int, ...]
    cached: tuple[int, ...]
    tokens: tuple[int, ...]
    owners: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BlockMap:
    """Who has which block of the KV cache now, and totals since the load.

    `evicted_blocks`: prefixes that had to go because their block was needed. `queried_tokens` were
    looked up when requests were admitted, `hit_tokens` of them found, of which `restored_tokens`
    came back from host memory, where evicted blocks may be kept.
    """

    t_ns: int
    block_size: int
    groups: tuple[BlockGroupMap, ...]
    owners: tuple[BlockOwner, ...]
    evicted_blocks: int
    queried_tokens: int
    hit_tokens: int
    restored_tokens: int = 0


LoadStage = Literal["reading", "measuring", "warming up"]


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """`stage` is what is being done now."""

    stage: LoadStage
    done_bytes: int
    total_bytes: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """The model is ready. `config` is the resolved one: no None, no auto, no as-stored alias."""

    model: ModelInfo
    config: EngineConfig
    capabilities: Capabilities
    memory: MemoryEstimate
    load_s: float
    warmup_s: float
    weight_bytes: int
    kv_bytes_reserved: int
    kv_groups: tuple[KVGroupSize, ...]
    kernels: str  # e.g. "torch", "native AVX512-VNNI"
    device_name: str  # e.g. "CPU", "NVIDIA H200"
    threads: int
    notices: tuple[str, ...] = ()  # e.g. a GPU that the installed torch cannot use
    device_uuid: str | None = None  # as torch gives it; sensors find the GPU by it. None: CPU
    blocks: BlockMap | None = None  # the empty pool
    roofs: Roofs | None = None  # what MFU and MBU are shares of. None: not measured


LoadFailureKind = Literal["cancelled", "not_found", "bad_file", "unsupported", "memory", "internal"]


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """Loading did not succeed: `what` happened, `why`, and what to do `next`, a sentence each.

    `estimate` is given when memory is the reason, so that a caller can offer what fits.
    """

    kind: LoadFailureKind
    what: str
    why: str
    next: str
    estimate: MemoryEstimate | None = None


@dataclass(frozen=True, slots=True)
class RequestMetrics:
    """The figures of one request, defined in docs/metrics.md. None: no value.

    `queue_ms`: first scheduled - t_send. `ttft_ms`: first token - t_send. `tpot_ms`:
    (t_N - t_1) / (N - 1). `decode_tok_s`: (N - 1) / (t_N - t_1). Percentiles: numpy's linear.
    """

    request_id: str
    started_at: str  # ISO 8601, UTC
    t_send_ns: int
    model: str
    device: str
    weight_format: str
    kv_format: str
    context_length: int
    kernels: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    finish_reason: FinishReason
    queue_ms: float | None
    ttft_ms: float | None
    prefill_ms: float | None
    prefill_tok_s: float | None
    decode_tok_s: float | None
    tpot_ms: float | None
    itl_p50_ms: float | None
    itl_p90_ms: float | None
    itl_p95_ms: float | None
    itl_p99_ms: float | None
    e2el_ms: float | None
    kv_bytes_used: int
    kv_bytes_allocated: int
    weight_bytes: int
    peak_memory_bytes: int
    temperature: float
    top_p: float
    top_k: int
    seed: int
    kv_bytes_reserved: int
    threads: int
    warmup_s: float
    use_cache: bool = True


@dataclass(frozen=True, slots=True)
class ContextCut:
    """The model no longer sees part of the conversation; told before anything is computed so.

    `dropped_tokens` of prompt and answer are left out by now, all that came before counted:
    they follow the first `kept_first`, and `kept_last` follow them. `dropped_messages` of the
    request's `messages`, the oldest except the system prompt, have left the context, but for
    those first tokens; a message that is seen in part is not counted.
    """

    request_id: str
    t_ns: int
    dropped_messages: int
    dropped_tokens: int
    kept_first: int
    kept_last: int


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """A prefill chunk is in the cache: `tokens_done` of `tokens_total`, cached prefix included."""

    request_id: str
    step_id: int
    t_ns: int
    t_send_ns: int
    tokens_done: int
    tokens_total: int
    cached_tokens: int
    kv_bytes_used: int
    kv_bytes_allocated: int


@dataclass(frozen=True, slots=True)
class PrefillDone:
    """The whole prompt is in the cache; the first token follows in the same step."""

    request_id: str
    step_id: int
    t_ns: int
    t_send_ns: int
    prompt_tokens: int
    cached_tokens: int
    queue_ms: float
    prefill_ms: float
    kv_bytes_used: int
    kv_bytes_allocated: int


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One sampled token. `text` is what became printable by it, possibly empty.

    `itl_ms` is None for the first token. `context_tokens` counts prompt and answer so far, without
    what a ContextCut left out.
    """

    request_id: str
    step_id: int
    index: int
    token_id: int
    text: str
    t_ns: int
    t_send_ns: int
    itl_ms: float | None
    context_tokens: int
    kv_bytes_used: int
    kv_bytes_allocated: int


@dataclass(frozen=True, slots=True)
class GenerationFinished:
    """The answer is complete. `text_tail` is text that was held back until now.

    `prompt_ids` are those the answer began with, after any cut. `token_ids` is the whole answer
    without the end token; give it back as `Message.token_ids` on the next turn. `block_tables` are
    the last ones it had, as in BlockOwner.
    """

    request_id: str
    t_ns: int
    finish_reason: FinishReason
    text_tail: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    metrics: RequestMetrics
    block_tables: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class GenerationFailed:
    """The request could not be served: what, why, and what to do next, a sentence each."""

    request_id: str
    t_ns: int
    what: str
    why: str
    next: str


@dataclass(frozen=True, slots=True)
class StageTimes:
    """Where one step's time went, in ms; their sum is at most the step's time."""

    attention_ms: float
    ffn_ms: float
    head_ms: float
    sample_ms: float
    detokenize_ms: float
    host_ms: float


@dataclass(frozen=True, slots=True)
class StepStats:
    """One engine step. `mfu_pct`, `mbu_pct` are None until the device's peaks are known.

    `flops`: 2 x parameters used x tokens + attention; `bytes`: weights read once + KV read and
    written. `stages` is None on steps that were not profiled. `request_ids` are those it served,
    decode rows first; none where a recording of an older version does not say.
    """

    step_id: int
    t_ns: int
    phase: Phase
    num_seqs: int
    num_tokens: int
    step_ms: float
    flops: int
    bytes: int
    mfu_pct: float | None
    mbu_pct: float | None
    stages: StageTimes | None = None
    request_ids: tuple[str, ...] = ()


Event = (
    LoadProgress
    | ModelLoaded
    | LoadFailed
    | ContextCut
    | PrefillProgress
    | PrefillDone
    | TokenEvent
    | GenerationFinished
    | GenerationFailed
    | StepStats
    | BlockMap
)
LoadEvent = LoadProgress | ModelLoaded | LoadFailed
