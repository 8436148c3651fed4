"""Layers run one by one are the model; what goes into their products is what is counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.loading.checkpoint import Checkpoint, open_checkpoint
from engine.models.decoder import StepAborted
from engine.quantization.layer_pass import LayerPass
from kernels.recording import CancelCell
from kernels.reference import rms_norm
from kernels.select import select_kernels
from tests.engine.rig import CPU, GOLDEN, TINY_CASES


def layer_weights(checkpoint: Checkpoint, layer: int) -> dict[str, torch.Tensor]:
    """A layer's tensors in FP32 by their name within it."""
    prefix = f"model.layers.{layer}."
    names = [name for name in checkpoint.tensors if name.startswith(prefix)]
    return {name.removeprefix(prefix): checkpoint.dense(name).float() for name in names}


def layer_pass(checkpoint: Checkpoint, layer: int, cancel: CancelCell | None = None) -> LayerPass:
    """A layer of the checkpoint, ready to run."""
    weights = layer_weights(checkpoint, layer)
    cancel = CancelCell() if cancel is None else cancel
    return LayerPass(checkpoint.config, layer, weights, select_kernels(CPU), cancel)


def embedded(checkpoint: Checkpoint, ids: list[int]) -> torch.Tensor:
    """The hidden states that the first layer gets."""
    return checkpoint.dense("model.embed_tokens.weight").float()[ids].clone()


@pytest.mark.parametrize("case", TINY_CASES)
def test_layer_after_layer_gives_transformers_logits(case: str) -> None:
    """Two sequences side by side in one table of states, each seeing only itself."""
    checkpoint = open_checkpoint(str(GOLDEN / "tiny" / case))
    with np.load(GOLDEN / "tiny" / case / "golden.npz") as golden:
        ids = [golden[f"input_ids_{i}"].tolist() for i in range(2)]
        expected = torch.cat([torch.from_numpy(golden[f"logits_{i}"]) for i in range(2)])
    hidden = embedded(checkpoint, ids[0] + ids[1])
    samples = [range(len(ids[0])), range(len(ids[0]), len(hidden))]
    config = checkpoint.config
    for layer in range(config.num_layers):
        assert len(list(layer_pass(checkpoint, layer).advance(hidden, samples))) == 2
    norm = checkpoint.dense("model.norm.weight").float()
    tied = config.tie_word_embeddings
    head = checkpoint.dense("model.embed_tokens.weight" if tied else "lm_head.weight").float()
    logits = rms_norm(hidden, norm, config.rms_norm_eps) @ head.T
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-3)


def test_statistics_are_those_of_the_inputs() -> None:
    """q, k and v see the normed states; gate and up share theirs; sums are over all samples."""
    checkpoint = open_checkpoint(str(GOLDEN / "tiny" / "gqa"))
    hidden = embedded(checkpoint, list(range(90)))
    before = hidden.clone()
    layer = layer_pass(checkpoint, 0)
    list(layer.observe(hidden, [range(50), range(50, 90)]))
    assert torch.equal(hidden, before)
    seen = layer.statistics
    assert seen["self_attn.q_proj"] is seen["self_attn.v_proj"]
    assert seen["mlp.gate_proj"] is seen["mlp.up_proj"]
    assert set(seen) == {
        *(f"self_attn.{name}_proj" for name in "qkvo"),
        *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
    }
    norm = checkpoint.dense("model.layers.0.input_layernorm.weight").float()
    inputs = rms_norm(hidden, norm, checkpoint.config.rms_norm_eps)
    torch.testing.assert_close(seen["self_attn.k_proj"].magnitude, inputs.abs().mean(0))
    torch.testing.assert_close(seen["self_attn.k_proj"].moment, inputs.T @ inputs / 90)
    assert seen["mlp.down_proj"].num_tokens == 90


def test_long_samples_go_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same states whatever the chunk."""
    checkpoint = open_checkpoint(str(GOLDEN / "tiny" / "gqa"))
    whole, chunked = (embedded(checkpoint, list(range(90))) for _ in range(2))
    list(layer_pass(checkpoint, 0).advance(whole, [range(90)]))
    monkeypatch.setattr("engine.quantization.layer_pass._CHUNK", 7)
    list(layer_pass(checkpoint, 0).advance(chunked, [range(90)]))
    torch.testing.assert_close(chunked, whole, rtol=0, atol=1e-5)


def test_it_can_be_stopped() -> None:
    """Before a layer, as every forward pass can."""
    cancel = CancelCell()
    checkpoint = open_checkpoint(str(GOLDEN / "tiny" / "gqa"))
    layer = layer_pass(checkpoint, 0, cancel)
    cancel.set()
    with pytest.raises(StepAborted):
        list(layer.observe(embedded(checkpoint, [1, 2, 3]), [range(3)]))


@pytest.mark.parametrize("family", sorted(path.name for path in (GOLDEN / "families").iterdir()))
def test_layer_after_layer_is_every_family(family: str) -> None:
    """Windows, norms around, scaled embeddings, experts: whatever the layers do, they do here."""
    checkpoint = open_checkpoint(str(GOLDEN / "families" / family))
    config = checkpoint.config
    with np.load(GOLDEN / "families" / family / "golden.npz") as golden:
        expected = torch.from_numpy(golden["prefill_logits"])
        ids = golden["input_ids"][: len(expected)].tolist()
    hidden = embedded(checkpoint, ids) * config.embedding_scale
    for layer in range(config.num_layers):
        list(layer_pass(checkpoint, layer).advance(hidden, [range(len(ids))]))
    norm = checkpoint.dense("model.norm.weight").float() + config.norm_offset
    tied = config.tie_word_embeddings
    head = checkpoint.dense("model.embed_tokens.weight" if tied else "lm_head.weight").float()
    logits = rms_norm(hidden, norm, config.rms_norm_eps) @ head.T * config.logits_scale
    if config.logits_softcap:
        logits = config.logits_softcap * (logits / config.logits_softcap).tanh()
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-3 * float(expected.abs().max()))
