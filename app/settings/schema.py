"""Every setting there is, in one table: the store, the checks and the tests are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from engine.config import CONTEXT_POLICIES, WEIGHT_FORMATS, ContextPolicy
from engine.kv_formats import KV_FORMATS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One setting. `type` is the JSON type a value must have; None is allowed when `default` is.

    Numbers lie between `minimum` and `maximum`, texts are among `choices`, where given.
    """

    key: str
    type: type
    default: T
    title: str
    description: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    def accepts(self, value: object) -> bool:
        """Whether `value` may be stored under this setting."""
        if value is None:
            return self.default is None
        if self.type is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not self.type:
            return False
        if isinstance(value, list):
            return all(isinstance(item, str) for item in value)
        if self.choices:
            return value in self.choices
        if isinstance(value, int | float):
            low = self.minimum is None or value >= self.minimum
            high = self.maximum is None or value <= self.maximum
            return low and high
        return True


THEME: Setting[str] = Setting(
    "theme",
    str,
    "system",
    "Theme",
    "Colours of the window; system follows the desktop.",
    choices=("system", "light", "dark"),
)
FONT_SCALE: Setting[float] = Setting(
    "font_scale", float, 1.0, "Text size", "Factor of every type size.", minimum=0.7, maximum=2.0
)
LAST_MODEL: Setting[str] = Setting(
    "last_model", str, "", "Last model", "Loaded at the next start; empty is the starter."
)
RECENT_MODELS: Setting[list[str]] = Setting(
    "recent_models", list, [], "Recent models", "Paths for the Model menu, newest first."
)
MODEL_FOLDERS: Setting[list[str]] = Setting(
    "model_folders", list, [], "Model folders", "Where models are looked for besides known places."
)
WEIGHTS: Setting[str] = Setting(
    "weights", str, "as-stored", "Weights", "Format of the weights.", choices=WEIGHT_FORMATS
)
KV: Setting[str] = Setting(
    "kv", str, "auto", "KV cache", "Format of the KV cache.", choices=KV_FORMATS
)
CONTEXT: Setting[int | None] = Setting(
    "context", int, None, "Context length", "In tokens; none leaves it to the engine.", minimum=16
)
CONTEXT_POLICY: Setting[ContextPolicy] = Setting(
    "context_policy",
    str,
    "stop",
    "When the context is full",
    "Stop, drop the oldest turns, or keep the first tokens and a sliding window.",
    choices=CONTEXT_POLICIES,
)
DEVICE: Setting[str] = Setting("device", str, "auto", "Device", "auto, cpu, cuda or cuda:N.")
THREADS: Setting[int | None] = Setting(
    "threads", int, None, "Threads", "CPU threads; none is all cores.", minimum=1, maximum=1024
)
TEMPERATURE: Setting[float | None] = Setting(
    "temperature", float, None, "Temperature", "None is the model's own.", minimum=0, maximum=100
)
TOP_K: Setting[int | None] = Setting(
    "top_k", int, None, "Top-k", "0 is off, none the model's own.", minimum=0
)
TOP_P: Setting[float | None] = Setting(
    "top_p", float, None, "Top-p", "1 is off, none the model's own.", minimum=0.01, maximum=1
)
MIN_P: Setting[float | None] = Setting(
    "min_p", float, None, "Min-p", "0 is off, none the model's own.", minimum=0, maximum=1
)
REPETITION_PENALTY: Setting[float | None] = Setting(
    "repetition_penalty",
    float,
    None,
    "Repetition penalty",
    "1 is off, none the model's own.",
    minimum=0.01,
)
SEED: Setting[int | None] = Setting(
    "seed", int, None, "Seed", "None draws a fresh one for every answer.", minimum=0
)
MAX_TOKENS: Setting[int | None] = Setting(
    "max_tokens", int, None, "Longest answer", "In tokens; none is up to the context.", minimum=1
)
SYSTEM_PROMPT: Setting[str] = Setting(
    "system_prompt", str, "", "System prompt", "What new chats begin with."
)
WINDOW_GEOMETRY: Setting[str] = Setting(
    "window_geometry", str, "", "Window", "Place and size of the window."
)
WINDOW_STATE: Setting[str] = Setting(
    "window_state", str, "", "Panels", "Where the telemetry panels are docked."
)
SHOW_CHATS: Setting[bool] = Setting(
    "show_chats", bool, True, "Chats list", "Shown where the window is wide enough."
)
SHOW_TELEMETRY: Setting[bool] = Setting(
    "show_telemetry", bool, True, "Telemetry panels", "Shown where the window is wide enough."
)
SHOW_BLOCKS: Setting[bool] = Setting(
    "show_blocks", bool, True, "Block map", "Shown under the plots where there is room."
)
TIMELINE_VIEW: Setting[str] = Setting(
    "timeline_view",
    str,
    "answer",
    "What the plots show",
    "The newest seconds of an answer, the whole answer, or all answers of the session.",
    choices=("live", "answer", "session"),
)
TOKEN_AXIS: Setting[bool] = Setting(
    "token_axis", bool, False, "Token axis", "The plots of an answer go by tokens, not by seconds."
)
EXPLAIN: Setting[bool] = Setting(
    "explain", bool, False, "Explain what happens", "Tells each step of an answer by the panels."
)
EXPLAIN_LANGUAGE: Setting[str] = Setting(
    "explain_language",
    str,
    "system",
    "Language of the explanations",
    "English or simplified Chinese; system follows the desktop.",
    choices=("system", "en", "zh"),
)
EXPLAIN_OFFERED: Setting[bool] = Setting(
    "explain_offered", bool, False, "Explanations offered", "An empty chat offers them only once."
)
SHOW_STAGES: Setting[bool] = Setting(
    "show_stages", bool, False, "Step times", "Shown under the plots where there is room."
)
RECORD: Setting[bool] = Setting(
    "record", bool, False, "Record metrics continuously", "Writes CSV tables as answers end."
)
RECORD_FOLDER: Setting[str] = Setting(
    "record_folder", str, "", "Recording folder", "Where the tables go; empty is the own folder."
)

SCHEMA: tuple[Setting[Any], ...] = (
    THEME,
    FONT_SCALE,
    LAST_MODEL,
    RECENT_MODELS,
    MODEL_FOLDERS,
    WEIGHTS,
    KV,
    CONTEXT,
    CONTEXT_POLICY,
    DEVICE,
    THREADS,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    MIN_P,
    REPETITION_PENALTY,
    SEED,
    MAX_TOKENS,
    SYSTEM_PROMPT,
    WINDOW_GEOMETRY,
    WINDOW_STATE,
    SHOW_CHATS,
    SHOW_TELEMETRY,
    SHOW_BLOCKS,
    TIMELINE_VIEW,
    TOKEN_AXIS,
    EXPLAIN,
    EXPLAIN_LANGUAGE,
    EXPLAIN_OFFERED,
    SHOW_STAGES,
    RECORD,
    RECORD_FOLDER,
)
