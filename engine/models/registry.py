"""Which families there are: a new one is a file here and a line below."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.loading.files import Fields, unsupported
from engine.loading.hf_config import HfConfig
from engine.loading.hf_names import text_part
from engine.loading.model_config import ModelConfig, require_consistent
from engine.models.architecture import Architecture
from engine.models.gemma2 import GEMMA2
from engine.models.gemma3 import GEMMA3
from engine.models.granite import GRANITE
from engine.models.llama import LLAMA
from engine.models.mistral import MISTRAL
from engine.models.mixtral import MIXTRAL
from engine.models.olmo2 import OLMO2
from engine.models.phi3 import PHI3
from engine.models.qwen2 import QWEN2
from engine.models.qwen3 import QWEN3
from engine.models.qwen3_moe import QWEN3_MOE
from engine.models.smollm3 import SMOLLM3

ARCHITECTURES: tuple[Architecture, ...] = (
    GEMMA2,
    GEMMA3,
    GRANITE,
    LLAMA,
    MISTRAL,
    MIXTRAL,
    OLMO2,
    PHI3,
    QWEN2,
    QWEN3,
    QWEN3_MOE,
    SMOLLM3,
)


def read_hf_config(values: Mapping[str, Any], path: Path) -> tuple[Architecture, ModelConfig]:
    """The family and the text model of a config.json. Raises CheckpointError by field."""
    text = text_part(values)
    model_type = Fields(text, path).text("model_type")
    architecture = next((a for a in ARCHITECTURES if model_type in a.hf_names), None)
    if architecture is None:
        raise _unknown(model_type)
    config = architecture.from_hf(HfConfig(text, architecture.hf_defaults, path))
    require_consistent(config, path)
    return architecture, config


def gguf_architecture(name: str) -> Architecture:
    """The family of a GGUF `general.architecture`. Raises CheckpointError naming those known."""
    for architecture in ARCHITECTURES:
        if architecture.from_gguf is not None and name == architecture.gguf_name:
            return architecture
    raise _unknown(name)


def _unknown(name: str) -> Exception:
    return unsupported(
        f"The architecture {name[:60]!r}",
        f"Known architectures: {', '.join(family.name for family in ARCHITECTURES)}.",
        "Choose a model of a known architecture.",
    )
