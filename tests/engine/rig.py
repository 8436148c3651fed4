"""A model on a checkpoint without session, tokenizer or window: the numeric tests' workbench."""

from __future__ import annotations

from pathlib import Path

import torch

from engine.block_manager import BlockManager, PoolSpec
from engine.config import EngineConfig, GenerationRequest, SamplingParams
from engine.host_blocks import HostBlocks
from engine.kv_cache import KVCache
from engine.layers.attention_metadata import PrefillMetadata
from engine.loading.checkpoint import open_checkpoint
from engine.loading.weight_source import WeightSource
from engine.model_runner import ModelRunner
from engine.models.decoder import DecoderModel, kv_cache_groups
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from kernels.recording import CancelCell
from kernels.reference import PrefillSpan
from kernels.select import KernelSet, select_kernels

CPU = torch.device("cpu")
GOLDEN = Path(__file__).parent.parent / "golden"
TINY_CASES = sorted(p.name for p in (GOLDEN / "tiny").iterdir() if p.is_dir())


class Rig:
    """A loaded model with its cache, block manager, scheduler and runner."""

    def __init__(
        self,
        path: Path | str,
        weight_format: str = "fp32",
        *,
        num_blocks: int = 32,
        num_host_blocks: int = 0,
        block_size: int = 16,
        max_num_seqs: int = 8,
        budget: int = 512,
        prefix_caching: bool = True,
        kv_format: str = "fp32",
        kernels: KernelSet | None = None,
        threads: int = 2,
        cancel: CancelCell | None = None,
    ) -> None:
        checkpoint = open_checkpoint(str(path))
        kernels = kernels or select_kernels(CPU, threads=threads)
        source = WeightSource(checkpoint, weight_format, kernels, CPU)
        self.config = checkpoint.config
        self.model = DecoderModel(checkpoint.config, kernels, CPU)
        for _ in self.model.load(source, self.config.context_length):
            pass
        groups = kv_cache_groups(self.config, kv_format)
        self.cache = KVCache(
            groups,
            [num_blocks] * len(groups),
            block_size,
            CPU,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
        )
        limits = EngineConfig(
            "", block_size=block_size, max_num_seqs=max_num_seqs, max_num_batched_tokens=budget
        )
        tokens = num_blocks * block_size
        self.specs = [
            PoolSpec(
                group.size(block_size).pool_blocks(limits, tokens),
                group.spec.window,
                num_host_blocks,
            )
            for group in groups
        ]
        host = HostBlocks(self.cache, [num_host_blocks] * len(groups))
        self.blocks = BlockManager(self.specs, block_size, prefix_caching)
        self.scheduler = Scheduler(
            self.blocks, max_num_seqs, budget, self.cache.fills_blocks_at_once
        )
        self.runner = ModelRunner(self.model, self.cache, tokens, max_num_seqs, cancel, host)

    @torch.inference_mode()
    def teacher_forced(self, ids: list[int], chunk: int) -> torch.Tensor:
        """Logits [n, vocab] of every position, the prompt fed in chunks over shuffled blocks."""
        size = self.cache.block_size
        table = torch.randperm(self.cache.num_blocks[0])[: -(-len(ids) // size)] + 1
        rows = []
        for start in range(0, len(ids), chunk):
            end = min(start + chunk, len(ids))
            positions = torch.arange(start, end)
            slots = table[positions // size] * size + positions % size
            span = PrefillSpan(end - start, end, table[: -(-end // size)])
            hidden = self.model.forward(
                torch.tensor(ids[start:end]),
                positions,
                self.cache,
                (PrefillMetadata(slots, (span,)),) * len(self.cache.groups),
                CancelCell(),
            )
            rows.append(self.model.logits(hidden))
        return torch.cat(rows)

    @torch.inference_mode()
    def decode_forced(self, ids: list[int], num_prefill: int) -> torch.Tensor:
        """Logits [n, vocab] of recorded decode steps, fed the ids behind the first ones."""
        sequence = self.start(ids[:num_prefill], len(ids))
        while not sequence.num_completion_tokens:
            self.step()
        rows = []
        for token in ids[num_prefill:]:
            sequence.token_ids[-1] = token  # whatever was sampled
            step = self.scheduler.schedule()
            assert sequence in step.decode
            row = step.decode.index(sequence)
            logits, _ = self.runner._decode_step(len(step.decode), 1).run(step.decode)
            rows.append(logits[row].clone())
            self.scheduler.commit(step)
            for decoded in step.decode:
                decoded.token_ids.append(0)
        self.scheduler.remove(sequence)
        return torch.stack(rows)

    def start(
        self, prompt: list[int], max_tokens: int, sampling: SamplingParams | None = None
    ) -> Sequence:
        """Queue a prompt."""
        request = GenerationRequest(
            "r", prompt_ids=tuple(prompt), sampling=sampling or SamplingParams()
        )
        sequence = Sequence(request, list(prompt), max_tokens, 0, 0, "")
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> None:
        """One scheduler step; finished sequences are removed."""
        step = self.scheduler.schedule()
        result = self.runner.run(step)
        self.scheduler.commit(step)
        for sequence, token_id in result.sampled:
            sequence.token_ids.append(token_id)
            if sequence.num_completion_tokens >= sequence.max_tokens:
                self.scheduler.remove(sequence)

    def generate(self, prompt: list[int], max_tokens: int) -> list[int]:
        """Greedy tokens of one prompt alone."""
        sequence = self.start(prompt, max_tokens)
        while self.scheduler.sequences:
            self.step()
        return sequence.completion_ids
