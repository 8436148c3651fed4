"""Tensor names of Hugging Face checkpoints: one spelling, whatever wrapper the model came in.

A model that also sees or hears has its text model under a prefix, which differs by version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What stands in front of the text model's own names, and what stands for it here.
_TEXT_PREFIXES = {
    "model.language_model.": "model.",
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
}
_OTHER_SENSES = (
    "vision_tower.",
    "vision_model.",
    "visual.",
    "audio_tower.",
    "multi_modal_projector.",
)
# Fields that a wrapper's config states for its text part.
_SHARED_FIELDS = ("tie_word_embeddings", "quantization_config")


def text_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config of the text model: the config itself, or its `text_config`."""
    text = config.get("text_config")
    if not isinstance(text, dict):
        return dict(config)
    shared = {name: config[name] for name in _SHARED_FIELDS if name in config}
    return shared | text


def is_of_other_senses(name: str) -> bool:
    """Whether a tensor belongs to a part for images or sound."""
    return name.removeprefix("model.").startswith(_OTHER_SENSES)


def canonical_name(name: str, family_parts: Mapping[str, str]) -> str:
    """The name in a plain checkpoint of the text model, `family_parts` replaced in order."""
    for prefix, replacement in _TEXT_PREFIXES.items():
        if name.startswith(prefix):
            name = replacement + name.removeprefix(prefix)
            break
    for part, replacement in family_parts.items():
        name = name.replace(part, replacement)
    return name
