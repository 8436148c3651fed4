"""One decode step for a number of rows, recorded once and replayed on new buffer contents.

Whatever changes from step to step (ids, positions, block tables, lengths, temperatures) lies in
buffers of fixed places. Rows beyond those in use are padding: they read and write the null block.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

import torch

from engine.kv_cache import NULL_BLOCK, NULL_TAIL, KVCache
from engine.layers.attention_metadata import DecodeMetadata
from engine.models.decoder import DecoderModel, StepAborted
from engine.sampler import Ranking
from engine.sequence import Sequence
from kernels import reference
from kernels.recording import CancelCell
from kernels.stages import Stage

# Logits ranked in the step itself: enough for a greedy row; for the usual top-k; for top-p.
RANKED = (1, 64, 256)


class DecodeStep:
    """`num_rows` rows over tables of `table_width` blocks, with the `num_ranked` best logits."""

    def __init__(
        self,
        model: DecoderModel,
        cache: KVCache,
        num_rows: int,
        table_width: int,
        num_ranked: int,
        cancel: CancelCell,
    ) -> None:
        self._model = model
        self._cache = cache
        self._num_ranked = min(num_ranked, model.config.vocab_size)
        self._cancel = cancel
        num_groups = len(cache.groups)
        self._ids = _Buffer((num_rows,), torch.int64, model.device)
        self._positions = _Buffer((num_rows,), torch.int64, model.device)
        self._context_lens = _Buffer((num_rows,), torch.int64, model.device)
        self._slots = _Buffer((num_groups, num_rows), torch.int64, model.device)
        self._tables = _Buffer((num_groups, num_rows, table_width), torch.int64, model.device)
        self._tails = _Buffer((num_rows,), torch.int64, model.device)
        self._inverse_temperature = _Buffer((num_rows,), torch.float32, model.device)
        self._fill([])
        self._upload()
        # Which experts run is known only while a step runs: such a step is computed anew.
        record = reference.record if model.config.experts else model.kernels.record
        (self._logits, *self._ranked), self._recording = record(self._pass)
        on_host = model.device.type == "cpu"
        self._on_host = Ranking(*(part.numpy() for part in self._ranked)) if on_host else None

    def run(self, sequences: Items[Sequence]) -> tuple[torch.Tensor, Ranking]:
        """Logits FP32 [num_rows, vocab] and their ranking; the first n rows are the sequences'.

        They are overwritten by the next run. Raises StepAborted when it was cancelled midway.
        """
        self._fill(sequences)
        self._upload()
        if not self._recording.replay(self._cancel):
            raise StepAborted
        if self._on_host is None:
            return self._logits, Ranking(*(part.cpu().numpy() for part in self._ranked))
        return self._logits, self._on_host

    def _pass(self) -> tuple[torch.Tensor, ...]:
        metadata = tuple(
            DecodeMetadata(slots, tables, self._context_lens.device, self._tails.device)
            for slots, tables in zip(self._slots.device, self._tables.device, strict=True)
        )
        hidden = self._model.forward(
            self._ids.device, self._positions.device, self._cache, metadata, self._cancel
        )
        logits = self._model.logits(hidden)
        kernels = self._model.kernels
        kernels.clock.begin(Stage.SAMPLE)
        ranked = kernels.top_k(logits, self._inverse_temperature.device, self._num_ranked)
        kernels.clock.end()
        return (logits, *ranked)

    def _fill(self, sequences: Items[Sequence]) -> None:
        size = self._cache.block_size
        for row, sequence in enumerate(sequences):
            position = len(sequence.token_ids) - 1
            temperature = sequence.request.sampling.temperature
            self._ids.host[row] = sequence.token_ids[-1]
            self._positions.host[row] = position
            self._context_lens.host[row] = position + 1
            self._tails.host[row] = sequence.tail
            self._inverse_temperature.host[row] = _inverse(temperature)
            for group, table in enumerate(sequence.block_tables):
                self._tables.host[group, row, : len(table)] = table
                self._slots.host[group, row] = table[position // size] * size + position % size
        padding = slice(len(sequences), None)
        self._ids.host[padding] = self._positions.host[padding] = 0
        self._context_lens.host[padding] = 1
        self._tails.host[padding] = NULL_TAIL
        self._inverse_temperature.host[padding] = 0.0
        self._tables.host[:, padding] = NULL_BLOCK
        self._slots.host[:, padding] = NULL_BLOCK * size

    def _upload(self) -> None:
        buffers = (self._ids, self._positions, self._context_lens, self._slots, self._tables)
        for buffer in (*buffers, self._tails, self._inverse_temperature):
            buffer.upload()


def _inverse(temperature: float) -> float:
    """1 / temperature within FP32, 0 for greedy rows."""
    return min(1.0 / temperature, 1e30) if temperature else 0.0


class _Buffer:
    """A tensor on the device and the array that the host writes; on a CPU they are one."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self._staging = torch.zeros(shape, dtype=dtype, pin_memory=device.type == "cuda")
        self.host = self._staging.numpy()
        self.device = self._staging.to(device)

    def upload(self) -> None:
        """Make the device see what the host wrote."""
        if self.device is not self._staging:
            self.device.copy_(self._staging, non_blocking=True)
