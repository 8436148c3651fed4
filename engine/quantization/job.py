"""A quantizing job from the source to the finished folder, layer by layer.

In memory are one layer in FP32, the second moments of its inputs and the hidden states of the
calibration text; each quantized layer makes the states that the next one is calibrated on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.resources import files

import torch

from engine.devices import default_threads
from engine.loading.checkpoint import Checkpoint, open_checkpoint
from engine.memory import stored_format
from engine.models.decoder import StepAborted
from engine.quantization.folder import FolderWriter, require_free
from engine.quantization.grid import QuantizedMatrix
from engine.quantization.hf_files import (
    model_config_json,
    stored_name,
    write_json,
    write_text_files,
)
from engine.quantization.layer_pass import EMBEDDING, LayerPass
from engine.quantization.layers import Weights, matrix_names, quantize_layer, require_foldable
from engine.quantization.packing import pack_awq, pack_gptq
from engine.quantization.plan import Quantized, QuantizePlan, QuantizeProgress
from engine.session import EngineError
from kernels.recording import CancelCell
from kernels.select import select_kernels

_DENSE_FORMATS = ("F32", "F16", "BF16")
_CPU = torch.device("cpu")


class QuantizeStopped(Exception):
    """The job was stopped; nothing is left of it."""


class QuantizeJob:
    """One plan on its way. `stop` may be called from any thread, `run` once, from one."""

    def __init__(self, plan: QuantizePlan) -> None:
        self._plan = plan
        self._cancel = CancelCell()

    def stop(self) -> None:
        """Make `run` raise QuantizeStopped, within a layer of one sample or one matrix."""
        self._cancel.set()

    def run(self) -> Iterator[QuantizeProgress | Quantized]:
        """Quantize step by step; the last item is the result.

        Raises QuantizeStopped, EngineError and OSError; whatever was written is then gone.
        """
        require_free(self._plan.out)
        torch.set_num_threads(self._plan.threads or default_threads(False))
        checkpoint = open_checkpoint(self._plan.model_path)
        try:
            with FolderWriter(self._plan.out) as writer:
                yield from _Run(self._plan, checkpoint, writer, self._cancel).steps()
        except StepAborted:
            raise QuantizeStopped from None
        finally:
            checkpoint.close()


class _Run:
    """What a job holds while it works."""

    def __init__(
        self,
        plan: QuantizePlan,
        checkpoint: Checkpoint,
        writer: FolderWriter,
        cancel: CancelCell,
    ) -> None:
        self._started = time.perf_counter()
        self._plan = plan
        self._checkpoint = checkpoint
        self._writer = writer
        self._cancel = cancel
        self._num_layers = checkpoint.config.num_layers
        _require_possible(plan, checkpoint)
        self._config_json = model_config_json(checkpoint)
        embedding = checkpoint.tensors[EMBEDDING].format
        self._stored = torch.bfloat16 if embedding == "BF16" else torch.float16
        self._samples: list[range] = []
        self._hidden = torch.empty(0)
        self._num_quantized = self._packed_bytes = self._num_weights = 0
        self._done_steps = 0

    def steps(self) -> Iterator[QuantizeProgress | Quantized]:
        """See QuantizeJob.run."""
        yield self._progress(0)
        if self._plan.method != "rtn":
            self._read_calibration()
        for name in self._checkpoint.tensors:
            if not name.startswith("model.layers."):
                self._write_plain(name, self._checkpoint.dense(name))
        for layer in range(self._num_layers):
            for _ in self._quantize(layer):
                self._done_steps += 1
                yield self._progress(layer)
        yield self._finish()

    def _read_calibration(self) -> None:
        tokenizer = self._checkpoint.tokenizer()
        prefix = [tokenizer.bos_token_id] if tokenizer.add_bos else []
        ids = tokenizer.encode(_calibration_text(self._plan), add_special_tokens=False)
        length = min(self._plan.sample_tokens, self._checkpoint.config.context_length)
        piece = length - len(prefix)
        pieces = [ids[start : start + piece] for start in range(0, len(ids), piece)]
        rows: list[int] = []
        for part in pieces[: self._plan.num_samples]:
            self._samples.append(range(len(rows), len(rows) + len(prefix) + len(part)))
            rows += [token_id for token_id in prefix if token_id is not None] + part
        if not rows:
            raise EngineError(
                "The calibration text is empty.",
                f"{self._plan.method.upper()} looks at what a text makes of the model's inputs.",
                "Calibrate on a text of some thousand words.",
            )
        table = self._checkpoint.dense(EMBEDDING)
        self._hidden = table[rows].to(self._stored).float()
        self._hidden *= self._checkpoint.config.embedding_scale

    def _quantize(self, layer: int) -> Iterator[None]:
        """One layer; yields after every sample and every matrix."""
        config, weights = self._checkpoint.config, self._read_layer(layer)
        kernels = select_kernels(_CPU, threads=torch.get_num_threads())
        seen = LayerPass(config, layer, weights, kernels, self._cancel)
        if self._samples:
            yield from seen.observe(self._hidden, self._samples)
        quantized = []
        plan = self._plan
        parts = quantize_layer(weights, seen.statistics, plan, self._stored)
        for name, matrix in parts:
            quantized.append(name)
            self._write_matrix(f"model.layers.{layer}.{name}", matrix)
            yield
        for name, tensor in weights.items():
            if name.removesuffix(".weight") not in quantized:
                self._write_plain(f"model.layers.{layer}.{name}", tensor)
        if self._samples and layer + 1 < self._num_layers:
            after = LayerPass(config, layer, weights, kernels, self._cancel)
            yield from after.advance(self._hidden, self._samples)

    def _read_layer(self, layer: int) -> Weights:
        """The layer's tensors in FP32, those that stay unquantized as they will be stored."""
        prefix = f"model.layers.{layer}."
        weights: Weights = {}
        shapes = _layer_shapes(self._checkpoint, layer)
        matrices = {f"{name}.weight" for name in matrix_names(shapes)}
        for name in shapes:
            tensor = self._checkpoint.dense(prefix + name)
            weights[name] = tensor.float() if name in matrices else tensor.to(self._stored).float()
        return weights

    def _write_plain(self, name: str, tensor: torch.Tensor) -> None:
        stored = tensor.to(self._stored)
        if not bool(stored.isfinite().all()):
            raise EngineError(
                f"{name} cannot be stored.",
                f"It holds values that are not finite as {_dtype_name(self._stored)}.",
                "Choose a BF16 version of the model, or check that its file is whole.",
            )
        self._writer.add(stored_name(self._checkpoint, name), stored)

    def _write_matrix(self, name: str, matrix: QuantizedMatrix) -> None:
        if self._plan.method == "awq":
            parts = pack_awq(matrix.codes, matrix.scale, matrix.zero)
        else:
            group_of = torch.arange(matrix.codes.shape[1]) // matrix.spec.group_size
            parts = pack_gptq(matrix.codes, matrix.scale, matrix.zero, group_of, matrix.spec.bits)
        for part, tensor in parts.items():
            stem = stored_name(self._checkpoint, f"{name}.weight").removesuffix(".weight")
            self._writer.add(f"{stem}.{part}", tensor)
            self._packed_bytes += tensor.nbytes
        self._num_quantized += 1
        self._num_weights += matrix.codes.numel()

    def _progress(self, layer: int) -> QuantizeProgress:
        """Raises QuantizeStopped once the job is not wanted any more."""
        if self._cancel:
            raise QuantizeStopped
        matrices = len(matrix_names(_layer_shapes(self._checkpoint, 0)))
        total = self._num_layers * (matrices + 2 * len(self._samples))
        fraction = min(1.0, self._done_steps / total)
        elapsed = time.perf_counter() - self._started
        # The first layer reads what later ones find at hand: only then can the rest be told.
        remaining = elapsed / fraction * (1 - fraction) if layer else None
        return QuantizeProgress(layer + 1, self._num_layers, fraction, elapsed, remaining)

    def _finish(self) -> Quantized:
        config = self._config_json | {
            "torch_dtype": _dtype_name(self._stored),
            "quantization_config": _quantization_config(self._plan),
        }
        config.pop("dtype", None)  # its newer name; every version knows the older one
        write_text_files(self._checkpoint, self._writer.path)
        write_json(self._writer.path / "config.json", config)
        self._writer.finish()
        return Quantized(
            out=self._plan.out,
            file_bytes=self._writer.num_bytes,
            num_quantized=self._num_quantized,
            bits_per_weight=8 * self._packed_bytes / self._num_weights,
            calibration_tokens=len(self._hidden),
            elapsed_s=time.perf_counter() - self._started,
            notices=_notices(self._checkpoint),
        )


def _require_possible(plan: QuantizePlan, checkpoint: Checkpoint) -> None:
    """Raise EngineError, before anything is computed, for what would fail in the middle."""
    if checkpoint.config.experts is not None:
        raise EngineError(
            "A mixture of experts cannot be quantized yet.",
            "Readers of the formats differ in how they are told to leave its router alone.",
            "Choose a dense model, or the weights menu's INT8 and INT4.",
        )
    if plan.method == "awq":
        require_foldable(checkpoint.config)
    shapes = _layer_shapes(checkpoint, 0)
    size, per_word = plan.grid.group_size, 32 // plan.grid.bits
    for name in matrix_names(shapes):
        num_out, num_in = shapes[f"{name}.weight"]
        if num_in % size or num_out % per_word:
            raise EngineError(
                f"{name} cannot be quantized in groups of {size}.",
                f"It has {num_in:,} inputs and {num_out:,} outputs: the inputs must be a multiple "
                f"of {size}, the outputs of {per_word}.",
                "Choose another group size.",
            )


def _layer_shapes(checkpoint: Checkpoint, layer: int) -> dict[str, tuple[int, ...]]:
    prefix = f"model.layers.{layer}."
    return {
        name.removeprefix(prefix): info.shape
        for name, info in checkpoint.tensors.items()
        if name.startswith(prefix)
    }


def _calibration_text(plan: QuantizePlan) -> str:
    if plan.calibration is None:
        source = files("resources").joinpath("calibration", "calibration.txt")
        return source.read_text(encoding="utf-8")
    return plan.calibration.read_text(encoding="utf-8", errors="replace")


def _quantization_config(plan: QuantizePlan) -> dict[str, object]:
    """What config.json says of it: keys of GPTQModel and AutoAWQ."""
    common: dict[str, object] = {"bits": plan.grid.bits, "group_size": plan.grid.group_size}
    if plan.method == "awq":
        awq = {"quant_method": "awq", "zero_point": True, "version": "gemm"}
        return common | awq | {"modules_to_not_convert": None}
    return common | {
        "quant_method": "gptq",
        "checkpoint_format": "gptq",
        "sym": plan.grid.symmetric,
        "desc_act": False,  # whatever the order of columns was, groups lie in theirs
        "static_groups": plan.act_order,
        "true_sequential": False,
        "lm_head": False,
        "meta": {"quantizer": ["phasescope"], "method": plan.method},
    }


def _dtype_name(dtype: torch.dtype) -> str:
    """As a config.json names it."""
    return str(dtype).removeprefix("torch.")


def _notices(checkpoint: Checkpoint) -> tuple[str, ...]:
    formats = {info.format for info in checkpoint.tensors.values() if len(info.shape) == 2}
    if formats <= set(_DENSE_FORMATS):
        return ()
    return (
        f"The source is quantized itself ({stored_format(checkpoint)}): what it lost before is "
        "not brought back.",
    )
