"""Folders of packed matrices: what is read, what is refused and in which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine import memory
from engine.loading.checkpoint import CheckpointError, open_checkpoint
from engine.loading.weight_source import WeightSource
from engine.models.decoder import DecoderModel
from engine.quantization.packing import pack_awq, pack_gptq
from kernels.select import torch_kernels
from tests.engine.loading import tiny_files
from tests.engine.rig import GOLDEN

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}
Q_PROJ = "model.layers.0.self_attn.q_proj"
DOWN = "model.layers.0.mlp.down_proj"
Tensors = dict[str, torch.Tensor]


def gptq_parts(num_out: int, num_in: int) -> Tensors:
    """A random matrix in groups of 32."""
    groups = -(-num_in // 32)
    return pack_gptq(
        torch.randint(0, 16, (num_out, num_in)),
        torch.rand(num_out, groups) / 64,
        torch.randint(1, 16, (num_out, groups)),
        torch.arange(num_in) // 32,
        4,
    )


def awq_parts(num_out: int, num_in: int) -> Tensors:
    """Likewise."""
    zeros = torch.randint(0, 16, (num_out, num_in // 32))
    codes = torch.randint(0, 16, (num_out, num_in))
    return pack_awq(codes, torch.rand(zeros.shape) / 64, zeros)


def packed_tensors(parts_of: Any) -> Tensors:
    """The tiny model with all layers' matrices packed."""
    tensors: Tensors = {}
    for name, tensor in tiny_files.hf_tensors().items():
        if not name.endswith("proj.weight"):
            tensors[name] = tensor
            continue
        module = name.removesuffix(".weight")
        parts = parts_of(*tensor.shape)
        tensors |= {f"{module}.{part}": value for part, value in parts.items()}
    return tensors


def write(folder: Path, tensors: Tensors, settings: dict[str, Any] | None) -> Path:
    """A folder with these tensors and this quantization_config."""
    folder.mkdir(exist_ok=True)
    tiny_files.write_config(folder, {"quantization_config": settings})
    save_file(tensors, folder / "model.safetensors")
    return folder


def refusal(folder: Path) -> str:
    """The sentences with which a folder is refused."""
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(str(folder))
    error = caught.value
    assert error.what
    assert error.why
    assert error.next_step
    return str(error)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quant_method": "bitsandbytes"}, "'bitsandbytes'"),
        ({"quant_method": "hqq"}, "'hqq'"),
        ({"quant_method": None}, "quant_method is missing"),
        (GPTQ | {"bits": 3}, "GPTQ of 3 bits"),
        (GPTQ | {"bits": 2}, "GPTQ of 2 bits"),
        (GPTQ | {"checkpoint_format": "marlin"}, "'marlin'"),
        (GPTQ | {"is_marlin_format": True}, "'marlin'"),
        (GPTQ | {"pack_dtype": "int16"}, "other words than int32"),
        (GPTQ | {"group_size": 0}, "group_size is 0"),
        (GPTQ | {"group_size": None}, "group_size is missing"),
        (GPTQ | {"desc_act": 1}, "desc_act is 1"),
        (AWQ | {"version": "gemv"}, "'gemv'"),
        (AWQ | {"version": "marlin"}, "'marlin'"),
        (AWQ | {"bits": 8}, "AWQ of 8 bits"),
        (AWQ | {"backend": "llm-awq"}, "llm-awq"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "'e5m2'"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "not a pair"),
        ({"quant_method": "compressed-tensors", "format": "marlin-24"}, "'marlin-24'"),
        ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, "config_groups"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 3}}},
            },
            "of 3 bits",
        ),
        (
            {"quant_method": "compressed-tensors", "sparsity_config": {"format": "x"}},
            "sparsity_config",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": None}}},
            "weights is not an object",
        ),
    ],
)
def test_other_formats_are_refused_by_name(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    """Settings that cannot be read, and some that make no sense."""
    assert message in refusal(write(tmp_path / "model", packed_tensors(gptq_parts), settings))


def test_a_refusal_says_what_can_be_read(tmp_path: Path) -> None:
    """Another format's name is no dead end."""
    said = refusal(write(tmp_path / "model", {}, {"quant_method": "hqq"}))
    for name in ("GPTQ", "AWQ", "compressed-tensors", "FP8"):
        assert name in said


@pytest.mark.parametrize("part", ["qweight", "qzeros", "scales", "g_idx"])
@pytest.mark.parametrize("fault", ["missing", "shape", "dtype"])
def test_faulty_parts_are_named(tmp_path: Path, part: str, fault: str) -> None:
    """Each part, absent, too small and of another dtype."""
    if (part, fault) == ("g_idx", "missing"):
        return  # only desc_act needs it: see below
    tensors = packed_tensors(gptq_parts)
    name = f"{Q_PROJ}.{part}"
    if fault == "missing":
        del tensors[name]
    elif fault == "shape":
        tensors[name] = tensors[name][:-1].contiguous()
    else:
        tensors[name] = tensors[name].long()
    said = refusal(write(tmp_path / "model", tensors, GPTQ))
    assert (f"{Q_PROJ}.weight" if (part, fault) == ("qweight", "missing") else name) in said


def test_act_order_needs_its_order(tmp_path: Path) -> None:
    """Without desc_act the order is implied."""
    tensors = packed_tensors(gptq_parts)
    del tensors[f"{Q_PROJ}.g_idx"]
    assert open_checkpoint(str(write(tmp_path / "model", tensors, GPTQ)))
    said = refusal(write(tmp_path / "model", tensors, GPTQ | {"desc_act": True}))
    assert f"{Q_PROJ}.g_idx is missing" in said


@pytest.mark.parametrize(
    ("group_of", "desc_act", "message"),
    [
        ([0] * 32 + [2] * 32, True, "groups that do not exist"),
        ([-1] * 64, True, "groups that do not exist"),
        ([0] * 31 + [1] * 33, True, "different numbers of inputs"),
        ([1] * 32 + [0] * 32, False, "desc_act"),
    ],
)
def test_an_impossible_order_is_told(
    tmp_path: Path, group_of: list[int], desc_act: bool, message: str
) -> None:
    """Found when the matrix is read: headers do not tell."""
    tensors = packed_tensors(gptq_parts)
    tensors[f"{Q_PROJ}.g_idx"] = torch.tensor(group_of, dtype=torch.int32)
    folder = write(tmp_path / "model", tensors, GPTQ | {"desc_act": desc_act})
    checkpoint = open_checkpoint(str(folder))
    with pytest.raises(CheckpointError, match=message):
        checkpoint.quantized(f"{Q_PROJ}.weight")


def test_symmetric_bytes_have_one_zero_point(tmp_path: Path) -> None:
    """The memory that was promised has no room for others."""

    def parts(num_out: int, num_in: int) -> Tensors:
        codes = torch.randint(0, 256, (num_out, num_in))
        zeros = torch.full((num_out, 1), 127)
        return pack_gptq(codes, torch.rand(num_out, 1), zeros, torch.zeros(num_in), 8)

    settings = GPTQ | {"bits": 8, "group_size": -1, "sym": True}
    checkpoint = open_checkpoint(str(write(tmp_path / "model", packed_tensors(parts), settings)))
    with pytest.raises(CheckpointError, match="not all 128"):
        checkpoint.quantized(f"{Q_PROJ}.weight")


def test_settings_in_files_of_their_own(tmp_path: Path) -> None:
    """As AutoGPTQ and AutoAWQ wrote them once."""
    folder = write(tmp_path / "gptq", packed_tensors(gptq_parts), None)
    assert "no quantization_config says how" in refusal(folder)
    settings = {key: value for key, value in GPTQ.items() if key != "quant_method"}
    (folder / "quantize_config.json").write_text(json.dumps(settings))
    assert open_checkpoint(str(folder)).tensors[f"{Q_PROJ}.weight"].format == "GPTQ 4-bit g32"
    folder = write(tmp_path / "awq", packed_tensors(awq_parts), None)
    old = {"zero_point": True, "q_group_size": 32, "w_bit": 4, "version": "GEMM"}
    (folder / "quant_config.json").write_text(json.dumps(old))
    assert open_checkpoint(str(folder)).tensors[f"{Q_PROJ}.weight"].format == "AWQ 4-bit g32"


def test_groups_that_do_not_divide(tmp_path: Path) -> None:
    """GPTQ's last group is shorter and is expanded; AWQ has no such thing."""
    tensors = packed_tensors(gptq_parts)
    down = {
        f"{DOWN}.{part}": t for part, t in _groups_of_64(*tiny_files.HF_SHAPES[f"{DOWN}.weight"])
    }
    settings = GPTQ | {"group_size": 64}
    for name in list(tensors):
        if name.endswith(("scales", "qzeros")) and DOWN not in name:
            tensors[name] = tensors[name][: tensors[name].shape[0] // 2].contiguous()
        if name.endswith("g_idx"):
            tensors[name] = tensors[name] // 2
    checkpoint = open_checkpoint(str(write(tmp_path / "gptq", tensors | down, settings)))
    assert checkpoint.tensors[f"{DOWN}.weight"].grouping is None
    assert checkpoint.quantized(f"{DOWN}.weight") is None
    assert checkpoint.tensors[f"{Q_PROJ}.weight"].grouping is not None
    folder = write(tmp_path / "awq", packed_tensors(awq_parts), AWQ | {"group_size": 64})
    assert "in groups of 64" in refusal(folder)


def _groups_of_64(num_out: int, num_in: int) -> list[tuple[str, torch.Tensor]]:
    codes, groups = torch.randint(0, 16, (num_out, num_in)), -(-num_in // 64)
    zeros = torch.full((num_out, groups), 8)
    order = torch.arange(num_in) // 64
    return list(pack_gptq(codes, torch.rand(num_out, groups), zeros, order, 4).items())


def test_zero_biases_that_no_layer_has(tmp_path: Path) -> None:
    """Old files have them; others than zero are not thrown away."""
    tensors = packed_tensors(gptq_parts)
    tensors[f"{Q_PROJ}.bias"] = torch.zeros(64).half()
    folder = write(tmp_path / "model", tensors, GPTQ)
    assert f"{Q_PROJ}.bias" not in open_checkpoint(str(folder)).tensors
    tensors[f"{Q_PROJ}.bias"] = torch.ones(64).half()
    assert f"{Q_PROJ}.bias" in refusal(write(folder, tensors, GPTQ))


def test_plain_matrices_beside_packed_ones(tmp_path: Path) -> None:
    """modules_to_not_convert: what is not packed is as it is."""
    tensors = packed_tensors(awq_parts)
    for part in ("qweight", "qzeros", "scales"):
        del tensors[f"{DOWN}.{part}"]
    tensors[f"{DOWN}.weight"] = tiny_files.hf_tensors()[f"{DOWN}.weight"]
    settings = AWQ | {"modules_to_not_convert": ["down_proj"]}
    checkpoint = open_checkpoint(str(write(tmp_path / "model", tensors, settings)))
    assert checkpoint.tensors[f"{DOWN}.weight"].format == "F32"
    assert torch.equal(checkpoint.dense(f"{DOWN}.weight"), tensors[f"{DOWN}.weight"])


def test_fp8_needs_its_scale(tmp_path: Path) -> None:
    """An FP8 matrix without one is no matrix, in any method."""
    tensors = tiny_files.hf_tensors()
    tensors[f"{Q_PROJ}.weight"] = tensors[f"{Q_PROJ}.weight"].to(torch.float8_e4m3fn)
    folder = write(tmp_path / "model", tensors, {"quant_method": "fp8"})
    assert f"{Q_PROJ}.weight_scale_inv is missing" in refusal(folder)


def test_fp8_blocks_at_the_edges(tmp_path: Path) -> None:
    """Blocks that do not divide the matrix are cut, and powers of two are scales too."""
    tensors = tiny_files.hf_tensors()
    values = tensors[f"{DOWN}.weight"].to(torch.float8_e4m3fn)  # 64 x 96
    scale = 2.0 ** torch.arange(-4, 4).view(2, 4)
    tensors |= {
        f"{DOWN}.weight": values,
        f"{DOWN}.weight_scale_inv": scale.to(torch.float8_e8m0fnu),
    }
    settings = {"quant_method": "fp8", "weight_block_size": [48, 28]}
    checkpoint = open_checkpoint(str(write(tmp_path / "model", tensors, settings)))
    expanded = checkpoint.dense(f"{DOWN}.weight")
    for row, column in ((0, 0), (47, 27), (48, 28), (63, 95), (10, 84), (50, 83)):
        expected = values[row, column].float() * scale[row // 48, column // 28]
        assert expanded[row, column] == expected


CASES = sorted(path.name for path in (GOLDEN / "packed").iterdir())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("weight_format", ["as-stored", "fp32", "bf16", "int8", "int4"])
def test_estimated_weights_are_the_loaded_weights(case: str, weight_format: str) -> None:
    """The figure shown before loading is the figure after it, orders of columns included."""
    checkpoint = open_checkpoint(str(GOLDEN / "packed" / case))
    cpu = torch.device("cpu")
    kernels = torch_kernels(torch.float32, torch.float32)
    source = WeightSource(checkpoint, weight_format, kernels, cpu)
    for _ in DecoderModel(checkpoint.config, kernels, cpu).load(source, 64):
        pass
    assert source.weight_bytes == memory.weight_bytes(checkpoint, weight_format)
    assert source.bytes_read == sum(info.num_bytes for info in checkpoint.tensors.values())


@pytest.mark.parametrize("case", [case for case in CASES if "fp8" not in case])
def test_kept_bits_are_those_of_the_file(case: str) -> None:
    """Integers stay as many bits as they are, and the label says which."""
    checkpoint = open_checkpoint(str(GOLDEN / "packed" / case))
    info = checkpoint.tensors[f"{Q_PROJ}.weight"]
    bits = 8 if "8bit" in case else 4
    assert info.grouping is not None
    assert info.grouping.bits == bits
    assert f"{bits}-bit" in memory.stored_format(checkpoint)
