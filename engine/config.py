"""What a caller may ask of the engine: plain frozen dataclasses, validated at the door.

Units: bytes, tokens, milliseconds and seconds, always named in the field. No torch here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.kv_formats import KV_FORMATS, kv_format_bytes, kv_tail_bytes

WEIGHT_FORMATS = ("as-stored", "fp32", "bf16", "fp16", "int8", "int4")
DEFAULT_CONTEXT_LENGTH = 4096
DEFAULT_BLOCK_SIZE = 16

Role = Literal["system", "user", "assistant", "tool"]
ContextPolicy = Literal["stop", "drop_turns", "slide"]
CONTEXT_POLICIES: tuple[ContextPolicy, ...] = ("stop", "drop_turns", "slide")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen. `temperature` 0 is greedy; `seed` None draws a fresh seed.

    Raises ValueError naming the field when a value is out of range.
    """

    temperature: float = 0.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0  # 1: off
    min_p: float = 0.0  # 0: off
    repetition_penalty: float = 1.0  # CTRL, arXiv 1909.05858; 1: off
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require(0.0 <= self.temperature <= 100.0, "temperature must lie between 0 and 100")
        _require(self.top_k >= 0, "top_k must be 0 (off) or a positive number")
        _require(0.0 < self.top_p <= 1.0, "top_p must be above 0 and at most 1")
        _require(0.0 <= self.min_p <= 1.0, "min_p must lie between 0 and 1")
        _require(self.repetition_penalty > 0.0, "repetition_penalty must be above 0")
        _require(abs(self.presence_penalty) <= 2.0, "presence_penalty must lie within -2 and 2")
        _require(abs(self.frequency_penalty) <= 2.0, "frequency_penalty must lie within -2 and 2")
        _require(
            self.seed is None or 0 <= self.seed < 2**63, "seed must lie between 0 and 2^63 - 1"
        )
        _require(all(self.stop), "a stop string must not be empty")


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat.

    `token_ids` of an assistant turn are the ids the engine sampled: with them the next turn
    re-uses the cache exactly, without re-encoding the text.
    """

    role: Role
    content: str
    token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One answer to generate: either `messages` (through the chat template) or a raw `prompt`.

    `max_tokens` None means up to the context limit. `ignore_eos` is for measuring.
    `prompt_ids` gives the prompt as token ids instead of text. `use_cache` False is for showing
    what the KV cache saves: every step computes the whole sequence from its first token, and no
    prefix is shared.

    `on_context_full` says what happens when conversation and answer outgrow the context:
    "stop" refuses the prompt or ends the answer. "drop_turns" leaves the oldest turns of
    `messages` out of the prompt, never the system prompt nor the last question; an answer that
    meets the end stops. "slide" keeps the first tokens and the latest half of the context and
    goes on, without end where `max_tokens` is None. What was left out is told by ContextCut.
    """

    request_id: str
    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    prompt_ids: tuple[int, ...] | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    ignore_eos: bool = False
    use_cache: bool = True
    on_context_full: ContextPolicy = "stop"

    def __post_init__(self) -> None:
        _require(bool(self.request_id), "request_id must not be empty")
        given = [bool(self.messages), self.prompt is not None, self.prompt_ids is not None]
        _require(sum(given) == 1, "give exactly one of messages, prompt, prompt_ids")
        _require(self.max_tokens is None or self.max_tokens >= 1, "max_tokens must be at least 1")
        _require(
            self.on_context_full in CONTEXT_POLICIES,
            f"on_context_full: not one of {', '.join(CONTEXT_POLICIES)}",
        )


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything that decides what is loaded and how much memory it takes.

    `context_length` None: the smallest of 4,096, the model's own and what fits in memory.
    `kv_pool_tokens` None: one context. `threads` None: the physical cores.
    `max_num_batched_tokens` is the token budget of one step, hence the prefill chunk size.
    `host_cache_bytes`, 0 for off, is host memory for blocks of idle chats that the pool needs, and
    is in no estimate. None: on a GPU what engine.memory.host_cache_bytes says; on a CPU 0, because
    the pool is host memory already and a larger `kv_pool_tokens` keeps more without any copy.
    """

    model_path: str
    weight_format: str = "as-stored"
    kv_format: str = "auto"
    context_length: int | None = None
    device: str = "auto"  # auto, cpu, cuda, cuda:N
    threads: int | None = None
    kv_pool_tokens: int | None = None
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 512
    block_size: int = DEFAULT_BLOCK_SIZE
    prefix_caching: bool = True
    host_cache_bytes: int | None = None

    def __post_init__(self) -> None:
        _require(
            self.weight_format in WEIGHT_FORMATS,
            f"weights: {self.weight_format!r} is not one of {', '.join(WEIGHT_FORMATS)}",
        )
        _require(
            self.kv_format in KV_FORMATS,
            f"kv: {self.kv_format!r} is not one of {', '.join(KV_FORMATS)}",
        )
        _require(
            self.context_length is None or self.context_length >= 16,
            "context: at least 16 tokens",
        )
        _require(self.threads is None or 1 <= self.threads <= 1024, "threads: between 1 and 1,024")
        _require(
            self.device in ("auto", "cpu", "cuda")
            or (self.device.startswith("cuda:") and self.device[5:].isdigit()),
            f"device: {self.device!r} is not auto, cpu, cuda or cuda:N",
        )
        _require(
            self.kv_pool_tokens is None or self.kv_pool_tokens >= self.block_size,
            "kv_pool_tokens: at least one block",
        )
        _require(self.max_num_seqs >= 1, "max_num_seqs: at least 1")
        _require(
            self.max_num_batched_tokens >= self.max_num_seqs,
            "max_num_batched_tokens: at least max_num_seqs, so that every chat gets its token",
        )
        _require(self.block_size >= 1, "block_size: at least 1")
        _require(
            self.kv_format != "int4"
            or self.max_num_batched_tokens >= self.max_num_seqs + self.block_size,
            "max_num_batched_tokens: INT4 keys take prompts block by block, so at least "
            "max_num_seqs + block_size",
        )
        _require(
            self.host_cache_bytes is None or self.host_cache_bytes >= 0,
            "host_cache_bytes: 0 (off) or a positive number",
        )


@dataclass(frozen=True, slots=True)
class WeightFormatInfo:
    """A choice of the weights menu: what the model's weights take in this format."""

    name: str  # one of WEIGHT_FORMATS
    label: str  # for the menu, e.g. "As stored (Q4_1, head Q8_0)"
    weight_bytes: int  # scales included
    nominal_bits: float  # bits per weight without scales
    bits_per_weight: float  # scales included


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the headers of a checkpoint say, read without its weights."""

    path: str
    name: str
    architecture: str
    source: Literal["gguf", "safetensors"]
    parameters: int
    file_bytes: int
    context_length: int
    vocab_size: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    stored_format: str  # e.g. "Q4_1, head Q8_0"
    weight_formats: tuple[WeightFormatInfo, ...]
    kv_formats: tuple[str, ...]
    has_chat_template: bool
    default_sampling: SamplingParams


@dataclass(frozen=True, slots=True)
class KVGroupSize:
    """What layers that look equally far keep; `window` is in tokens, None: everything.

    Keys quantized by block have besides: in BF16 the newest block of each sequence, and the tokens
    of the step under way, which layers share.
    """

    bytes_per_token: int  # all layers of the group
    window: int | None = None
    tail_bytes: int = 0  # a sequence, all layers
    step_bytes_per_token: int = 0

    def bytes(self, num_tokens: int) -> int:
        """What a text of `num_tokens` tokens takes, those left behind not counted."""
        seen = num_tokens if self.window is None else min(num_tokens, self.window)
        return self.bytes_per_token * seen

    def pool_blocks(self, config: EngineConfig, num_tokens: int) -> int:
        """Blocks of the pool when groups that look at everything hold `num_tokens` tokens.

        A sequence never holds more of a windowed group than its window, the chunk that is being
        computed, and a block for the ends of those.
        """
        whole = -(-num_tokens // config.block_size)
        if self.window is None:
            return whole
        most = -(-(self.window + config.max_num_batched_tokens) // config.block_size) + 1
        return min(whole, most * config.max_num_seqs)

    def pool_bytes(self, config: EngineConfig, num_tokens: int) -> int:
        """Bytes of all tensors of the group's pool: its blocks and the null block, and tails."""
        blocks = self.pool_blocks(config, num_tokens) + 1
        tails = self.tail_bytes * (config.max_num_seqs + 1)
        step = self.step_bytes_per_token * config.max_num_batched_tokens
        return blocks * config.block_size * self.bytes_per_token + tails + step


def kv_group_size(
    kv_format: str,
    num_layers: int,
    num_kv_heads: int,
    head_dim: int,
    block_size: int,
    window: int | None = None,
) -> KVGroupSize:
    """What `num_layers` layers of equal shape keep in a KV format."""
    token = kv_format_bytes(kv_format, num_kv_heads, head_dim, block_size)
    tail_token = kv_tail_bytes(kv_format, num_kv_heads, head_dim)
    return KVGroupSize(
        bytes_per_token=num_layers * token,
        window=window,
        tail_bytes=num_layers * block_size * tail_token,
        step_bytes_per_token=tail_token,
    )


def kv_pool_bytes(groups: tuple[KVGroupSize, ...], config: EngineConfig, num_tokens: int) -> int:
    """Bytes of the pools of all groups."""
    return sum(group.pool_bytes(config, num_tokens) for group in groups)


def kv_bytes(groups: tuple[KVGroupSize, ...], num_tokens: int) -> int:
    """Bytes of all groups for a text of `num_tokens` tokens."""
    return sum(group.bytes(num_tokens) for group in groups)


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What loading a config will take, in bytes, before anything is loaded.

    `available_bytes` is what the device has free now; `freed_by_unload_bytes` is what dropping
    the present model adds to it. `fitting_contexts` are context lengths that would fit,
    largest first, empty when even the smallest does not.
    """

    weight_bytes: int
    kv_bytes: int
    workspace_bytes: int
    freed_by_unload_bytes: int
    available_bytes: int
    context_length: int
    kv_bytes_per_token: int
    fitting_contexts: tuple[int, ...] = ()
    fitting_weight_formats: tuple[str, ...] = ()

    @property
    def required_bytes(self) -> int:
        """Weights, KV pool and workspace together."""
        return self.weight_bytes + self.kv_bytes + self.workspace_bytes

    @property
    def fits(self) -> bool:
        """Whether the load can succeed once the present model is dropped."""
        return self.required_bytes <= self.available_bytes + self.freed_by_unload_bytes
