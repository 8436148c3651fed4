"""Tiny Llama checkpoints quantized by other tools, with the logits of what those tools unpack.

Each case is made by GPTQModel, llm-compressor or transformers, from a random model; the same
tool's own code then expands the matrices to float32, and transformers computes with them, so that
nothing is rounded on the way to the logits. The tools need environments of their own: see
README.md beside this file. `make_packed.py gptq`, `... compressed`, `... g_idx` or `... fp8` makes
the cases of one tool.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from make_tiny import BOS, SMALL, VOCAB, Case, random_model
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

OUT = Path(__file__).parent / "packed"
SIZES = SMALL | {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
# GPTQModel's search for AWQ's clipping takes outputs 64 at a time.
AWQ_SIZES = SIZES | {"intermediate_size": 128, "num_key_value_heads": 4}
CALIBRATION_ROWS, CALIBRATION_TOKENS, TOKENS = 16, 64, 48
KEPT_FILES = ("config.json", "model.safetensors")
Weights = dict[str, torch.Tensor]

GPTQ_CASES: dict[str, dict[str, Any]] = {
    "gptq_4bit_act_order": {"bits": 4, "group_size": 32, "desc_act": True, "sym": False},
    "gptq_4bit_short_group": {"bits": 4, "group_size": 64, "desc_act": False, "sym": True},
    "gptq_8bit_channel": {
        "bits": 8,
        "group_size": -1,
        "desc_act": False,
        "sym": True,
        "act_group_aware": False,
    },
    "gptq_v2_8bit_asymmetric": {
        "bits": 8,
        "group_size": 32,
        "desc_act": False,
        "sym": False,
        "format": "gptq_v2",
    },
}
AWQ_CASES: dict[str, dict[str, Any]] = {
    "awq_4bit": {"bits": 4, "group_size": 32, "sym": False},
    "awq_4bit_symmetric": {"bits": 4, "group_size": 32, "sym": True},
}
COMPRESSED_CASES: dict[str, dict[str, Any]] = {
    "compressed_4bit_symmetric": {
        "num_bits": 4,
        "type": "int",
        "symmetric": True,
        "strategy": "group",
        "group_size": 32,
        "actorder": "weight",
    },
    "compressed_4bit_asymmetric": {
        "num_bits": 4,
        "type": "int",
        "symmetric": False,
        "strategy": "group",
        "group_size": 32,
    },
    "compressed_8bit_channel": {
        "num_bits": 8,
        "type": "int",
        "symmetric": True,
        "strategy": "channel",
    },
    "compressed_fp8_channel": {
        "num_bits": 8,
        "type": "float",
        "symmetric": True,
        "strategy": "channel",
    },
    "compressed_fp8_tensor": {
        "num_bits": 8,
        "type": "float",
        "symmetric": True,
        "strategy": "tensor",
    },
}
G_IDX_CASES = ("compressed_4bit_act_order",)
FP8_CASES: dict[str, list[int] | None] = {"fp8_block": [32, 32], "fp8_tensor": None}


def calibration() -> Iterator[dict[str, list[int]]]:
    """Random tokens: enough for a Hessian of full rank."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(CALIBRATION_ROWS):
        ids = torch.randint(0, BOS, (CALIBRATION_TOKENS,), generator=generator)
        yield {"input_ids": ids.tolist(), "attention_mask": [1] * CALIBRATION_TOKENS}


def base_model(folder: Path, name: str) -> None:
    """A random model in BF16 with the tokenizer that all tiny models share."""
    case = Case(AWQ_SIZES if name in AWQ_CASES else SIZES)
    random_model(case, seed=3000 + sum(name.encode())).bfloat16().save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(OUT.parent / "tiny" / name, folder / name)


def make_gptqmodel(base: Path, packed: Path, name: str) -> tuple[Weights, str]:
    """GPTQ and AWQ by GPTQModel; its Torch kernels unpack."""
    from gptqmodel import BACKEND, GPTQModel
    from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm
    from gptqmodel.quantization.config import AWQConfig, GPTQConfig

    is_awq = name in AWQ_CASES
    config = AWQConfig(**AWQ_CASES[name]) if is_awq else GPTQConfig(**GPTQ_CASES[name])
    model = GPTQModel.load(str(base), config, device="cpu")
    model.quantize(list(calibration()), batch_size=1)
    model.save(str(packed))
    backend = BACKEND.AWQ_TORCH if is_awq else BACKEND.GPTQ_TORCH
    loaded = GPTQModel.load(str(packed), device="cpu", backend=backend).model
    stored, weights = load_file(packed / "model.safetensors"), {}
    for module_name, module in loaded.named_modules():
        if not hasattr(module, "qweight"):
            continue
        # As stored: loading rounds FP16 scales to the dtype of the rest of the model.
        module.scales = stored[f"{module_name}.scales"].float()
        if is_awq:
            weight = dequantize_gemm(
                module.qweight, module.qzeros, module.scales, module.bits, module.group_size
            )
        else:
            weight = module.dequantize_weight()
        weights[f"{module_name}.weight"] = weight.t().float().contiguous()
    return weights, f"gptqmodel {version('gptqmodel')}"


def make_compressed(base: Path, packed: Path, name: str) -> tuple[Weights, str]:
    """compressed-tensors by llm-compressor; its compressors unpack."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from transformers import AutoTokenizer

    scheme = {"group_0": {"targets": ["Linear"], "weights": COMPRESSED_CASES[name]}}
    modifier = GPTQModifier if COMPRESSED_CASES[name]["type"] == "int" else QuantizationModifier
    model = LlamaForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    oneshot(
        model=model,
        tokenizer=AutoTokenizer.from_pretrained(base),
        dataset=Dataset.from_list(list(calibration())),
        recipe=modifier(config_groups=scheme, ignore=["lm_head"]),
        num_calibration_samples=CALIBRATION_ROWS,
        max_seq_length=CALIBRATION_TOKENS,
    )
    model.save_pretrained(packed, save_compressed=True)
    stored = load_file(packed / "model.safetensors")
    config = json.loads((packed / "config.json").read_text())["quantization_config"]
    args = QuantizationArgs(**config["config_groups"]["group_0"]["weights"])
    compressor = BaseCompressor.get_value_from_registry(config["format"])
    weights = {}
    for scale_name in [key for key in stored if key.endswith(".weight_scale")]:
        module = scale_name.removesuffix(".weight_scale")
        parts = {k.removeprefix(f"{module}."): v for k, v in stored.items() if module + "." in k}
        parts["weight_scale"] = parts["weight_scale"].float()
        unpacked = compressor.decompress(
            parts, QuantizationScheme(targets=["Linear"], weights=args)
        )
        weights[f"{module}.weight"] = unpacked["weight"].float()
    return weights, f"llmcompressor {version('llmcompressor')}"


def make_g_idx(base: Path, packed: Path, name: str) -> tuple[Weights, str]:
    """Activation ordering with a `weight_g_idx`, which compressed-tensors wrote up to 0.12.

    Its own functions choose scales, round, pack and unpack; the order of the columns is random.
    """
    from compressed_tensors.compressors import PackedQuantizationCompressor
    from compressed_tensors.quantization import QuantizationArgs
    from compressed_tensors.quantization.utils import calculate_qparams

    settings = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group"}
    settings |= {"group_size": 32, "actorder": "group"}
    args = QuantizationArgs(**settings)
    compressor = PackedQuantizationCompressor()
    generator = torch.Generator().manual_seed(11)
    stored, weights = {}, {}
    for key, value in load_file(base / "model.safetensors").items():
        if not key.endswith("proj.weight"):
            stored[key] = value
            continue
        order = torch.randperm(value.shape[1], generator=generator)
        g_idx = (order.argsort() // args.group_size).to(torch.int32)
        groups = value.float()[:, order].unflatten(1, (-1, args.group_size))
        scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), args)
        parts = compressor.compress_weight(value.float(), scale, args, zero, g_idx)
        parts |= {"weight_scale": scale, "weight_g_idx": g_idx}
        module = key.removesuffix(".weight")
        stored |= {f"{module}.{part}": tensor for part, tensor in parts.items()}
        weights[key] = compressor.decompress_weight(parts, args)
    described = {"targets": ["Linear"], "weights": settings}
    quantization = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    quantization |= {"config_groups": {"group_0": described}, "ignore": ["lm_head"]}
    _save(base, packed, stored, quantization)
    return weights, f"compressed-tensors {version('compressed-tensors')}"


def make_fp8(base: Path, packed: Path, name: str) -> tuple[Weights, str]:
    """Block FP8 by the operations with which transformers saves and loads it."""
    from transformers import FineGrainedFP8Config
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize

    settings = FineGrainedFP8Config(weight_block_size=FP8_CASES[name])

    class Quantizer:
        quantization_config = settings

    quantize, expand = Fp8Quantize(Quantizer()), Fp8Dequantize(Quantizer())
    stored, weights = {}, {}
    for key, value in load_file(base / "model.safetensors").items():
        if not key.endswith("proj.weight"):
            stored[key] = value
            continue
        parts = quantize.convert({key: value})
        stored |= parts
        scale = parts[key.replace(".weight", ".weight_scale_inv")]
        weights[key] = expand._dequantize_one(parts[key], scale, torch.float32)
    _save(base, packed, stored, settings.to_dict())
    return weights, f"transformers {version('transformers')}"


def _save(base: Path, packed: Path, stored: Weights, quantization: dict[str, Any]) -> None:
    packed.mkdir()
    save_file(stored, packed / "model.safetensors")
    config = json.loads((base / "config.json").read_text())
    config["quantization_config"] = quantization
    (packed / "config.json").write_text(json.dumps(config, indent=2, default=str) + "\n")


def write_case(name: str, make: Callable[[Path, Path, str], tuple[Weights, str]]) -> None:
    """Quantize, expand, compute, and keep what a reader needs."""
    with TemporaryDirectory() as scratch:
        base, packed = Path(scratch) / "base", Path(scratch) / "packed"
        base_model(base, name)
        weights, tool = make(base, packed, name)
        folder = OUT / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in KEPT_FILES:
            shutil.copy(packed / file, folder / file)
    _strip_config(folder / "config.json")
    arrays = _golden(folder, weights)
    versions = {"tool": tool, "transformers": version("transformers"), "torch": torch.__version__}
    np.savez_compressed(folder / "golden.npz", versions=np.array(json.dumps(versions)), **arrays)
    print(f"  {name}: {(folder / 'model.safetensors').stat().st_size:,} bytes")


def _golden(folder: Path, weights: Weights) -> dict[str, Any]:
    """Logits of transformers' own Llama over the expanded weights, all in float32."""
    settings = json.loads((folder / "config.json").read_text())
    settings.pop("quantization_config")
    model = LlamaForCausalLM(LlamaConfig.from_dict(settings)).float().eval()
    plain = load_file(folder / "model.safetensors")
    names = set(model.state_dict())
    assert len(weights) == 7 * SIZES["num_hidden_layers"], sorted(weights)
    state = {k: v.float() for k, v in plain.items() if k in names} | weights
    model.load_state_dict(state)
    ids = torch.randint(0, BOS, (1, TOKENS), generator=torch.Generator().manual_seed(5))
    with torch.inference_mode():
        logits = model(ids, use_cache=False).logits[0]
    assert logits.shape == (TOKENS, VOCAB)
    return {"input_ids": ids[0].numpy(), "logits": logits.numpy()}


def _strip_config(path: Path) -> None:
    """Without what the tool says of itself, paths of the machine among it."""
    config = json.loads(path.read_text())
    config["quantization_config"].pop("meta", None)
    config.pop("_name_or_path", None)
    path.write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    """Make the cases of the tools, or the single cases, named on the command line."""
    torch.set_num_threads(1)
    makers = dict.fromkeys((*GPTQ_CASES, *AWQ_CASES), make_gptqmodel)
    makers |= dict.fromkeys(COMPRESSED_CASES, make_compressed)
    makers |= dict.fromkeys(G_IDX_CASES, make_g_idx)
    makers |= dict.fromkeys(FP8_CASES, make_fp8)
    groups = {
        "gptq": (*GPTQ_CASES, *AWQ_CASES),
        "compressed": tuple(COMPRESSED_CASES),
        "g_idx": G_IDX_CASES,
        "fp8": tuple(FP8_CASES),
    }
    for argument in sys.argv[1:] or groups:
        for name in groups.get(argument, (argument,)):
            write_case(name, makers[name])


if __name__ == "__main__":
    main()
