"""Check that Hugging Face transformers reads a folder that `phasescope quantize` wrote.

    python tests/golden/check_quantized.py FOLDER...

Loads each folder the way its users do (`AutoModelForCausalLM.from_pretrained`, products by
GPTQModel's CPU kernels) and once more as a plain model whose weights are unpacked here by the
formula of the format, in numpy. Prints the largest difference of their logits and fails beyond the
bound. Needs an environment of its own with transformers, gptqmodel and optimum.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

BOUND = 5e-3  # of the largest logit: the kernels multiply in 16 bits
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
TEXT = "Up at the League, says a friend, there had been one night a brisk conversational discussion"


def main() -> int:
    """Check every folder; 1 when one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    return max(_check(folder) for folder in parser.parse_args().folders)


def _check(folder: Path) -> int:
    ids = torch.tensor([AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"]])
    read = AutoModelForCausalLM.from_pretrained(folder, device_map="cpu", dtype=torch.float32)
    kinds = sorted({type(m).__name__ for m in read.modules() if hasattr(m, "qweight")})
    plain = _plain_model(folder)
    with torch.inference_mode():
        got, expected = (model(ids).logits.float() for model in (read, plain))
    difference = float((got - expected).abs().max() / expected.abs().max())
    print(f"{folder}: {', '.join(kinds)}: {difference:.1e} of the largest logit")
    if not kinds:
        print("  no product is quantized")
    return int(difference > BOUND or not kinds)


def _plain_model(folder: Path) -> torch.nn.Module:
    """The same model in FP32, its weights unpacked here."""
    config = AutoConfig.from_pretrained(folder)
    quantization = config.quantization_config
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    tensors = _tensors(folder)
    state = {n: t.float() for n, t in tensors.items() if n.endswith((".weight", ".bias"))}
    for name in tensors:
        if name.endswith(".qweight"):
            stem = name.removesuffix(".qweight")
            parts = {p: tensors[f"{stem}.{p}"].numpy() for p in ("qweight", "qzeros", "scales")}
            unpack = _unpack_awq if quantization["quant_method"] == "awq" else _unpack_gptq
            weight = unpack(parts, quantization["bits"], quantization["group_size"])
            state[f"{stem}.weight"] = torch.from_numpy(weight)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    return model


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return tensors


def _unpack_gptq(parts: dict[str, np.ndarray], bits: int, group_size: int) -> np.ndarray:
    """w[n, k] = scales[g, n] (q - (stored zero + 1)), float32 [N, K]."""
    codes = _values(parts["qweight"], bits, axis=0)
    zeros = _values(parts["qzeros"], bits, axis=1) + 1
    return _scaled(codes, zeros, parts["scales"], group_size)


def _unpack_awq(parts: dict[str, np.ndarray], bits: int, group_size: int) -> np.ndarray:
    """w[n, k] = scales[g, n] (q - zero), float32 [N, K]."""

    def ordered(packed: np.ndarray) -> np.ndarray:
        values = _values(packed, bits, axis=1).reshape(packed.shape[0], -1, 8)
        result = np.empty_like(values)
        result[:, :, AWQ_ORDER] = values
        return result.reshape(packed.shape[0], -1)

    codes, zeros = ordered(parts["qweight"]), ordered(parts["qzeros"])
    return _scaled(codes, zeros, parts["scales"], group_size)


def _values(packed: np.ndarray, bits: int, axis: int) -> np.ndarray:
    """The values of 32-bit words, lowest bits first, in place of each word along `axis`."""
    words = np.moveaxis(packed, axis, -1).astype(np.int64) & 0xFFFFFFFF
    shifts = np.arange(0, 32, bits)
    values = (words[..., None] >> shifts) & (2**bits - 1)
    return np.moveaxis(values.reshape(*words.shape[:-1], -1), -1, axis)


def _scaled(
    codes: np.ndarray, zeros: np.ndarray, scales: np.ndarray, group_size: int
) -> np.ndarray:
    group = np.arange(codes.shape[0]) // group_size
    return ((codes - zeros[group]) * scales.astype(np.float32)[group]).T.astype(np.float32)


if __name__ == "__main__":
    sys.exit(main())
