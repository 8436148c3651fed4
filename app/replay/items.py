"""What a recording consists of: everything the panels' model is told, and when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePath

from engine.events import (
    BlockMap,
    ContextCut,
    Event,
    GenerationFailed,
    GenerationFinished,
    ModelLoaded,
    PrefillDone,
    PrefillProgress,
    StepStats,
    TokenEvent,
)
from engine.sensors import SensorSample


@dataclass(frozen=True, slots=True)
class RequestSent:
    """Send was pressed."""

    request_id: str
    t_ns: int


@dataclass(frozen=True, slots=True)
class RequestPainted:
    """The conversation shows the tokens up to `index` of a request since `t_ns`."""

    request_id: str
    index: int
    t_ns: int


@dataclass(frozen=True, slots=True)
class ModelDropped:
    """The model is gone, and its pool with it."""

    t_ns: int


Item = Event | SensorSample | RequestSent | RequestPainted | ModelDropped
KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        RequestSent,
        RequestPainted,
        ModelDropped,
        SensorSample,
        ModelLoaded,
        ContextCut,
        PrefillProgress,
        PrefillDone,
        TokenEvent,
        GenerationFinished,
        GenerationFailed,
        StepStats,
        BlockMap,
    )
}
# What is, or may quote, the text of prompts and answers: written only where the person asks for it.
TEXT_FIELDS: dict[str, tuple[str, ...]] = {
    "TokenEvent": ("token_id", "text"),
    "GenerationFinished": ("text_tail", "prompt_ids", "token_ids"),
    "GenerationFailed": ("what", "why", "next"),
}


@dataclass(frozen=True, slots=True)
class Told:
    """An item and when it happened, on the engine's clock."""

    t_ns: int
    item: Item


def without_traces(item: Item) -> Item:
    """The same without the folders of this machine and without its GPU's serial number."""
    if not isinstance(item, ModelLoaded):
        return item
    return replace(
        item,
        model=replace(item.model, path=PurePath(item.model.path).name),
        config=replace(item.config, model_path=PurePath(item.config.model_path).name),
        device_uuid=None,
    )


def fault_of(item: Item) -> str:
    """What no engine would have said, for files come from anywhere; empty where all is well.

    Panels rely on it: columns of equal length, owners that know every group, a dtype with a roof.
    """
    if isinstance(item, BlockMap):
        return _fault_of_map(item)
    if isinstance(item, ModelLoaded):
        roofs = item.roofs
        if roofs and not (
            roofs.matmul_dtype in roofs.peaks.matmul_flops and roofs.peaks.read_bandwidth
        ):
            return "roofs without peaks"
        return _fault_of_map(item.blocks) if item.blocks else ""
    if isinstance(item, TokenEvent | RequestPainted) and item.index < 0:
        return "a negative index"
    return ""


def _fault_of_map(blocks: BlockMap) -> str:
    if blocks.block_size < 1 or not blocks.groups:
        return "a pool without blocks"
    for group in blocks.groups:
        columns = (group.used, group.shared, group.cached, group.tokens, group.owners)
        cells = len(group.used)
        last = group.num_blocks - group.blocks_per_cell * (cells - 1)
        if not cells or any(len(column) != cells for column in columns):
            return "columns of unequal length"
        if not 0 < last <= group.blocks_per_cell or min(map(min, columns)) < 0:
            return "cells that do not add up"
    num_groups = len(blocks.groups)
    for owner in blocks.owners:
        if len(owner.unused_tokens) != num_groups or len(owner.block_tables) not in (0, num_groups):
            return "owners without their groups"
    return ""
