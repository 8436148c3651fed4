"""From a checkpoint to a model that can run: weights, cache, kernels, warm-up, with progress."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from engine import memory
from engine.block_manager import BlockManager, PoolSpec
from engine.chat_template import ChatTemplate
from engine.config import (
    DEFAULT_BLOCK_SIZE,
    EngineConfig,
    GenerationRequest,
    MemoryEstimate,
    ModelInfo,
)
from engine.costs import ModelCosts
from engine.device_peaks import measure_peaks, stored_peaks
from engine.devices import describe_device, resolve_device, unusable_gpu_notice
from engine.events import LoadProgress, LoadStage
from engine.footprint import estimate, resolve_kv_format
from engine.host_blocks import HostBlocks
from engine.kv_cache import KVCache
from engine.kv_formats import possible_kv_formats
from engine.loading.checkpoint import Checkpoint
from engine.loading.weight_source import WeightSource
from engine.metrics import LoadedFacts
from engine.model_runner import ModelRunner
from engine.models.decoder import DecoderModel, StepAborted, kv_cache_groups
from engine.paths import cache_folder
from engine.peaks import DevicePeaks, Roofs
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.session import EngineError
from engine.tokenizer import Tokenizer
from kernels.recording import CancelCell
from kernels.select import select_kernels

log = logging.getLogger("engine.load")

# BF16 products must be this much faster than FP32 ones before large matrices use them.
_FAST_BF16 = 1.3


class LoadStopped(Exception):
    """The person cancelled the load."""


class OutOfMemory(Exception):
    """The configuration does not fit; carries the estimate that says so."""

    def __init__(self, estimate: MemoryEstimate) -> None:
        super().__init__("the model does not fit in memory")
        self.estimate = estimate


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """Everything that belongs to the model in memory; dropping it frees all of it."""

    info: ModelInfo
    config: EngineConfig  # resolved: context_length, kv_format, device and threads are concrete
    estimate: MemoryEstimate
    device: torch.device
    tokenizer: Tokenizer
    template: ChatTemplate
    runner: ModelRunner
    blocks: BlockManager
    scheduler: Scheduler
    costs: ModelCosts
    roofs: Roofs
    facts: LoadedFacts
    load_s: float
    notices: tuple[str, ...]

    @property
    def freed_by_unload(self) -> int:
        """Bytes that dropping the model gives back."""
        return self.facts.weight_bytes + self.facts.kv_bytes_reserved


def model_info(checkpoint: Checkpoint) -> ModelInfo:
    """What the headers say."""
    config = checkpoint.config
    return ModelInfo(
        path=checkpoint.path,
        name=checkpoint.name,
        architecture=config.architecture,
        source=checkpoint.source,
        parameters=memory.num_parameters(checkpoint),
        file_bytes=checkpoint.file_bytes,
        context_length=config.context_length,
        vocab_size=config.vocab_size,
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        stored_format=memory.stored_format(checkpoint),
        weight_formats=memory.weight_format_infos(checkpoint),
        kv_formats=("auto", *possible_kv_formats(config.head_dim, DEFAULT_BLOCK_SIZE)),
        has_chat_template=checkpoint.chat_template is not None,
        default_sampling=checkpoint.default_sampling,
    )


def estimate_memory(
    checkpoint: Checkpoint, config: EngineConfig, freed_by_unload: int
) -> MemoryEstimate:
    """What loading would take on the config's device. Raises EngineError."""
    device = resolve_device(config.device)
    available = memory.available_bytes(device)
    footprint = memory.footprint(checkpoint, config.block_size)
    if config.kv_format not in ("auto", *footprint.kv_groups):
        head_dim = checkpoint.config.head_dim
        raise EngineError(
            f"The KV cache of {checkpoint.name} cannot be kept in {config.kv_format}.",
            f"Its heads of {head_dim} values in blocks of {config.block_size} tokens do not pack "
            "into whole bytes.",
            f"Choose one of {', '.join(footprint.kv_groups)}.",
        )
    return estimate(footprint, config, available, freed_by_unload)


def load_model(
    checkpoint: Checkpoint, config: EngineConfig, threads: int, cancel: CancelCell
) -> Iterator[LoadProgress | LoadedModel]:
    """Load step by step; the last item is the model, which keeps `cancel` to leave a step by.

    `threads` is for a config that names none.

    Raises LoadStopped, OutOfMemory, EngineError; whatever was allocated is then free again.
    """
    load = _Load(checkpoint, config, threads, cancel)
    yield load.progress("reading", 0)
    yield from load.find_peaks()
    yield from load.read_weights()
    load.allocate_cache()
    yield load.progress("reading", load.total_bytes)
    load.read_text()
    yield load.progress("warming up", load.total_bytes)
    yield load.warm_up()


class _Load:
    """One load on its way: what each station makes is what the next ones use."""

    def __init__(
        self, checkpoint: Checkpoint, config: EngineConfig, threads: int, cancel: CancelCell
    ) -> None:
        self._started = time.perf_counter()
        self._checkpoint = checkpoint
        self._cancel = cancel
        self._info = model_info(checkpoint)
        self._estimate = estimate_memory(checkpoint, config, freed_by_unload=0)
        _check_context(self._info, config)
        if not self._estimate.fits:
            raise OutOfMemory(self._estimate)
        self._device = resolve_device(config.device)
        self._threads = config.threads or threads
        self._config = replace(
            config,
            context_length=self._estimate.context_length,
            kv_format=resolve_kv_format(config.weight_format, config.kv_format),
            device=str(self._device),
            threads=self._threads,
            host_cache_bytes=self._host_cache_bytes(config),
        )
        self.total_bytes = sum(tensor.num_bytes for tensor in checkpoint.tensors.values())
        torch.set_num_threads(self._threads)

    def progress(self, stage: LoadStage, done_bytes: int) -> LoadProgress:
        """How far the load is. Raises LoadStopped once it is not wanted any more."""
        if self._cancel:
            raise LoadStopped
        elapsed = time.perf_counter() - self._started
        return LoadProgress(stage, done_bytes, self.total_bytes, elapsed)

    def find_peaks(self) -> Iterator[LoadProgress]:
        """The device's figures, measured if this is the first time."""
        stored = stored_peaks(self._device, self._threads)
        if stored is not None:
            self._peaks = stored
            return
        for part in measure_peaks(self._device, self._threads):
            if isinstance(part, DevicePeaks):
                self._peaks = part
            else:
                yield self.progress("measuring", 0)

    def read_weights(self) -> Iterator[LoadProgress]:
        """Choose the kernels and read every weight into its format."""
        self._dense_dtype = dense_dtype(self._device, self._config.weight_format, self._peaks)
        on_cpu = self._device.type == "cpu"
        try:
            self._kernels = select_kernels(
                self._device,
                torch.float32 if on_cpu else self._dense_dtype,
                self._dense_dtype,
                self._threads,
                cache_folder() / "kernel-tuning",
            )
        except ValueError as error:
            raise EngineError(
                "The CPU kernels asked for cannot be used.",
                f"{error}.",
                "Unset the variable to take the best this machine has.",
            ) from None
        self._source = WeightSource(
            self._checkpoint, self._config.weight_format, self._kernels, self._device
        )
        self._model = DecoderModel(self._checkpoint.config, self._kernels, self._device)
        for _ in self._model.load(self._source, self._estimate.context_length):
            yield self.progress("reading", self._source.bytes_read)
        yield self.progress("reading", self.total_bytes)

    def allocate_cache(self) -> None:
        """The KV pool and those who keep its books."""
        config = self._config
        groups = kv_cache_groups(self._checkpoint.config, config.kv_format)
        size = config.block_size
        tokens = config.kv_pool_tokens or self._estimate.context_length
        num_blocks = [group.size(size).pool_blocks(config, tokens) for group in groups]
        self._cache = KVCache(
            groups,
            num_blocks,
            size,
            self._device,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
        )
        # Of each group the same multiple of its pool, so that none runs out before the others.
        host_bytes, pool_bytes = config.host_cache_bytes or 0, self._cache.reserved_bytes
        num_host_blocks = [blocks * host_bytes // pool_bytes for blocks in num_blocks]
        specs = [
            PoolSpec(blocks, group.spec.window, host_blocks)
            for blocks, group, host_blocks in zip(num_blocks, groups, num_host_blocks, strict=True)
        ]
        root = f"{config.model_path} {config.weight_format} {config.kv_format}"
        self._blocks = BlockManager(specs, size, config.prefix_caching, root)
        self._scheduler = Scheduler(
            self._blocks,
            config.max_num_seqs,
            config.max_num_batched_tokens,
            self._cache.fills_blocks_at_once,
        )
        self._runner = ModelRunner(
            self._model,
            self._cache,
            self._estimate.context_length,
            config.max_num_seqs,
            self._cancel,
            HostBlocks(self._cache, num_host_blocks) if any(num_host_blocks) else None,
        )

    def read_text(self) -> None:
        """Tokenizer and chat template."""
        self._tokenizer = self._checkpoint.tokenizer()
        self._template = ChatTemplate(
            self._checkpoint.chat_template,
            self._tokenizer.token_text(self._tokenizer.bos_token_id),
            self._tokenizer.token_text(self._tokenizer.eos_token_id),
        )

    def warm_up(self) -> LoadedModel:
        """Tune, record, and run a step of either kind, so that no answer pays for it."""
        loaded_at = time.perf_counter()
        for weight in self._model.typical_weights():
            self._kernels.linear.tune(weight)
        try:
            self._runner.warm_up()
            for num_tokens in self._kernels.warm_up_tokens:
                fitting = min(num_tokens, self._estimate.context_length - 1)
                _warm_up(self._scheduler, self._blocks, self._runner, fitting)
        except StepAborted:
            raise LoadStopped from None
        gpu_notice = unusable_gpu_notice()
        return LoadedModel(
            info=self._info,
            config=self._config,
            estimate=self._estimate,
            device=self._device,
            tokenizer=self._tokenizer,
            template=self._template,
            runner=self._runner,
            blocks=self._blocks,
            scheduler=self._scheduler,
            costs=_costs(self._model, self._cache),
            roofs=Roofs(self._peaks, dtype_name(self._dense_dtype)),
            facts=self._facts(warmup_s=time.perf_counter() - loaded_at),
            load_s=loaded_at - self._started,
            notices=(*self._checkpoint.notices, *((gpu_notice,) if gpu_notice else ())),
        )

    def _host_cache_bytes(self, config: EngineConfig) -> int:
        if not config.prefix_caching:
            return 0
        if config.host_cache_bytes is None:
            return memory.host_cache_bytes(self._device, self._estimate.kv_bytes)
        return config.host_cache_bytes

    def _facts(self, warmup_s: float) -> LoadedFacts:
        return LoadedFacts(
            model=self._info.name,
            device=describe_device(self._device),
            weight_format=self._config.weight_format,
            kv_format=self._config.kv_format,
            context_length=self._estimate.context_length,
            kernels=self._kernels.name,
            weight_bytes=self._source.weight_bytes,
            kv_groups=tuple(group.size(self._cache.block_size) for group in self._cache.groups),
            block_size=self._cache.block_size,
            kv_bytes_reserved=self._cache.reserved_bytes,
            threads=self._threads,
            warmup_s=warmup_s,
        )


def _check_context(info: ModelInfo, config: EngineConfig) -> None:
    if config.context_length is not None and config.context_length > info.context_length:
        raise EngineError(
            f"The context of {config.context_length:,} tokens is longer than the model's.",
            f"{info.name} was made for at most {info.context_length:,} tokens.",
            f"Choose a context of {info.context_length:,} tokens or less.",
        )


def dense_dtype(device: torch.device, weight_format: str, peaks: DevicePeaks) -> torch.dtype:
    """The dtype large products run in: exact under FP32, else whatever is fast here."""
    if weight_format == "fp32":
        return torch.float32
    if device.type == "cuda":
        return torch.float16 if weight_format == "fp16" else torch.bfloat16
    fast = peaks.matmul_flops["bf16"] > _FAST_BF16 * peaks.matmul_flops["fp32"]
    return torch.bfloat16 if fast else torch.float32


def dtype_name(dtype: torch.dtype) -> str:
    return {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}[dtype]


def _costs(model: DecoderModel, cache: KVCache) -> ModelCosts:
    linears = [linear for layer in model.layers for linear in layer.linears]
    config = model.config
    return ModelCosts(
        layer_parameters=sum(linear.num_parameters for linear in linears),
        head_parameters=model.head.num_parameters,
        layer_bytes=sum(linear.num_bytes for linear in linears),
        head_bytes=model.head.num_bytes,
        num_heads=config.num_heads,
        head_dim=config.head_dim,
        kv_groups=tuple(
            (len(group.layers), group.size(cache.block_size)) for group in cache.groups
        ),
    )


def _warm_up(
    scheduler: Scheduler,
    blocks: BlockManager,
    runner: ModelRunner,
    num_tokens: int,
) -> None:
    """One prefill and one decode step on a throw-away sequence: scratch, kernels, caches."""
    request = GenerationRequest("warm-up", prompt_ids=(0,) * num_tokens)
    sequence = Sequence(request, list(request.prompt_ids or ()), 2, 0, 0, "")
    scheduler.add(sequence)
    while sequence.num_completion_tokens < 2:
        step = scheduler.schedule()
        result = runner.run(step)
        scheduler.commit(step)
        for sampled, token_id in result.sampled:
            sampled.token_ids.append(token_id)
    scheduler.remove(sequence)
    blocks.forget_prefixes()
    blocks.reset_counts()
