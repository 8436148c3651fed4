"""What is asked of a quality run and what comes back: plain values, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

# Through the dense products of prompts, or through the recorded step of answers.
ForcingPath: TypeAlias = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class QualitySettings:
    """What is measured. `window` None: the smallest of 1,024, the model's context and the text.

    `stride` None: half the window. `reference_weights` is the weight format of a reference run,
    `reference_model` its file or folder where it is another than the measured one: what that one
    was quantized from.
    """

    path: ForcingPath = "prefill"
    window: int | None = None
    stride: int | None = None
    reference_weights: str | None = None
    reference_model: str | None = None

    def __post_init__(self) -> None:
        if self.reference_model is not None and self.reference_weights is None:
            raise ValueError("reference_model: say with reference_weights how it is loaded")


@dataclass(frozen=True, slots=True)
class QualityProgress:
    """How far a run is; `run` is "reference" or "measured"."""

    run: str
    done_tokens: int
    total_tokens: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Quality:
    """What was found. Means are per scored token, in nats; agreement is a share of them.

    `kl_divergence` is that of (reference || this) over the whole vocabulary. `weight_bytes` are
    all weights in memory, scales included.
    """

    model: str
    weights: str
    weight_bytes: int
    kv: str
    device: str
    kernels: str
    threads: int
    path: ForcingPath
    tokens: int
    scored_tokens: int
    window: int
    stride: int
    starts_with_bos: bool
    nll: float
    perplexity: float
    reference_model: str | None
    reference_weights: str | None
    reference_perplexity: float | None
    kl_divergence: float | None
    top1_agreement: float | None
    elapsed_s: float
