"""What a model takes and reaches as one choice of formats and context. Plain values, no torch.

`Planning` is what has to be read from a model's headers and from the machine; `make_plan` is
arithmetic on it, quick enough for every step of a slider. Formulas: docs/metrics.md, "Planned".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from engine.config import DEFAULT_CONTEXT_LENGTH, EngineConfig, KVGroupSize, kv_bytes
from engine.footprint import (
    Footprint,
    default_context,
    longest_context,
    most_sequences,
    resolve_kv_format,
)
from engine.prediction import DeviceSpeed, ModelWork, SpeedPrediction, predict


@dataclass(frozen=True, slots=True)
class WeightLevel:
    """What the weights take in a format.

    `nominal_bytes` counts the format's bits alone, `num_bytes` is what is really kept, with scales
    and with what stays finer; None where the engine cannot store the model so.
    """

    name: str
    label: str  # e.g. "As stored (Q4_1, head Q8_0)"
    nominal_bits: float
    nominal_bytes: int
    num_bytes: int | None


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """What is known of a model before it is loaded.

    `source` is its path, or whose config.json a built-in shape is from. `can_run`: whether the
    engine has its architecture. `work` is by weight format, without the KV cache; empty where it
    cannot run. `default_weights`: the format it comes in.
    """

    name: str
    source: str
    is_built_in: bool
    can_run: bool
    parameters: int
    footprint: Footprint
    levels: tuple[WeightLevel, ...]
    work: Mapping[str, ModelWork]
    default_weights: str = "as-stored"

    @property
    def weight_formats(self) -> tuple[str, ...]:
        """Formats whose bytes are known."""
        return tuple(level.name for level in self.levels if level.num_bytes is not None)

    @property
    def kv_formats(self) -> tuple[str, ...]:
        """Formats a cache of this model can have."""
        return tuple(self.footprint.kv_groups)

    def token_work(self, weights: str, kv: str) -> ModelWork:
        """What a token costs in these formats. KeyError for one that the model cannot have."""
        groups = self.footprint.kv_groups[kv]
        return replace(self.work[weights], kv_bytes_per_token=kv_bytes(groups, 1))


@dataclass(frozen=True, slots=True)
class Machine:
    """The device a plan is for. `speeds` is by weight format, empty until its peaks are measured.

    `freed_by_unload_bytes` is what dropping the present model adds to `available_bytes`.
    """

    device: str
    threads: int
    available_bytes: int
    freed_by_unload_bytes: int = 0
    speeds: Mapping[str, DeviceSpeed] = field(default_factory=dict)

    @property
    def budget_bytes(self) -> int:
        """What a model may take once the present one is dropped."""
        return self.available_bytes + self.freed_by_unload_bytes


@dataclass(frozen=True, slots=True)
class Planning:
    """A model and the machine it is planned for."""

    model: PlannedModel
    machine: Machine


@dataclass(frozen=True, slots=True)
class Question:
    """What to plan for. None and "auto" leave it to the engine, as when loading."""

    weights: str | None = None
    kv: str = "auto"
    context: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """A question with nothing left open."""

    weights: str
    kv: str
    context: int


@dataclass(frozen=True, slots=True)
class KVLevel:
    """A KV format: bytes of one token in all layers, and of one whole context."""

    name: str
    bytes_per_token: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer. Bytes are those the loader would say.

    `kv_pool_bytes` is what a load reserves: the context in whole blocks, the null block, and what
    keys that are quantized by block need besides. `longest_context` None: not even one token fits.
    `fitting_levels` names the weight formats that fit with this context.
    `speed` None: not measured yet, or it cannot run.
    """

    choice: Choice
    weight_bytes: int
    kv_pool_bytes: int
    workspace_bytes: int
    budget_bytes: int
    kv_levels: tuple[KVLevel, ...]
    fitting_levels: frozenset[str]
    longest_context: int | None
    sequences: int
    speed: SpeedPrediction | None

    @property
    def required_bytes(self) -> int:
        """Weights, KV pool and workspace together."""
        return self.weight_bytes + self.kv_pool_bytes + self.workspace_bytes

    @property
    def fits(self) -> bool:
        """Whether the load can succeed."""
        return self.required_bytes <= self.budget_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        """In the chosen format, all layers."""
        return self._level.bytes_per_token

    @property
    def kv_bytes(self) -> int:
        """One context in the chosen format, to the token."""
        return self._level.num_bytes

    @property
    def _level(self) -> KVLevel:
        return next(level for level in self.kv_levels if level.name == self.choice.kv)


def nominal_bytes(parameters: int, bits: float) -> int:
    """Parameters x bits / 8: the size a format is spoken of by, no scales counted."""
    return round(parameters * bits / 8)


def kv_level(name: str, groups: tuple[KVGroupSize, ...], context: int) -> KVLevel:
    """Bytes per token, and of a context, in which windowed layers keep their window only."""
    return KVLevel(name, kv_bytes(groups, 1), kv_bytes(groups, context))


def make_plan(planning: Planning, asked: Question) -> Plan:
    """Plan. Raises ValueError for a format or a context that the model cannot have."""
    model, footprint = planning.model, planning.model.footprint
    choice = _resolved(planning, asked)
    config = EngineConfig("", weight_format=choice.weights)
    budget = planning.machine.budget_bytes
    fitting = (
        name
        for name in model.weight_formats
        if footprint.required_bytes(replace(config, weight_format=name), choice.kv, choice.context)
        <= budget
    )
    return Plan(
        choice=choice,
        weight_bytes=footprint.weight_bytes[choice.weights],
        kv_pool_bytes=footprint.pool_bytes(config, choice.kv, choice.context),
        workspace_bytes=footprint.workspace_bytes(config, choice.context),
        budget_bytes=budget,
        kv_levels=tuple(
            kv_level(name, groups, choice.context) for name, groups in footprint.kv_groups.items()
        ),
        fitting_levels=frozenset(fitting),
        longest_context=longest_context(footprint, config, choice.kv, budget),
        sequences=most_sequences(footprint, config, choice.kv, choice.context, budget),
        speed=_speed(planning, choice),
    )


def _resolved(planning: Planning, asked: Question) -> Choice:
    """The formats and the context that a load would come to."""
    model = planning.model
    weights = asked.weights or model.default_weights
    _require_one_of("weights", weights, model.weight_formats, model)
    kv_format = resolve_kv_format(weights, asked.kv)
    _require_one_of("kv", kv_format, model.kv_formats, model)
    own = model.footprint.context_length
    if asked.context is not None and asked.context > own:
        raise ValueError(f"context: {model.name} was made for at most {own:,} tokens")
    context = asked.context or _default_context(planning, weights, kv_format)
    return Choice(weights, kv_format, context)


def _default_context(planning: Planning, weights: str, kv_format: str) -> int:
    """What a load would take; of a model that is only asked about, not cut to what fits here."""
    footprint = planning.model.footprint
    if planning.model.is_built_in:
        return min(DEFAULT_CONTEXT_LENGTH, footprint.context_length)
    config = EngineConfig("", weight_format=weights)
    return default_context(footprint, config, kv_format, planning.machine.budget_bytes)


def _require_one_of(what: str, name: str, known: tuple[str, ...], model: PlannedModel) -> None:
    if name not in known:
        raise ValueError(f"{what}: {name} is not planned for {model.name}, but {', '.join(known)}")


def _speed(planning: Planning, choice: Choice) -> SpeedPrediction | None:
    model, speeds = planning.model, planning.machine.speeds
    if not speeds or choice.weights not in model.work:
        return None
    return predict(model.token_work(choice.weights, choice.kv), speeds[choice.weights])
