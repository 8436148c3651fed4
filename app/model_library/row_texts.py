"""What stands in a row of the list of models, as words and figures."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

from app.telemetry.format import NO_VALUE, count, memory, milliseconds, three_digits
from engine.model_library.entries import ModelEntry, Source
from engine.model_library.measured import MeasuredSpeed
from engine.prediction import PROMPT_TOKENS, ModelSurvey


@dataclass(frozen=True, slots=True)
class CellText:
    """Two lines of a cell, the second one quiet unless `warns`, and what the pointer is told."""

    text: str = NO_VALUE
    below: str = ""
    tip: str = ""
    warns: bool = False


def column_titles() -> tuple[str, ...]:
    """The header, in the order of `row_texts`."""
    return (
        _tr("Model"),
        _tr("Parameters"),
        _tr("Stored as"),
        _tr("File"),
        _tr("Context"),
        _tr("Memory"),
        _tr("First token"),
        _tr("Decode"),
    )


def source_title(source: Source) -> str:
    """The heading of a group."""
    return {
        "starter": _tr("Starter model"),
        "folder": _tr("Your folders"),
        "huggingface": _tr("Hugging Face cache"),
        "lm-studio": _tr("LM Studio"),
        "ollama": _tr("Ollama"),
        "recent": _tr("Opened before"),
    }[source]


def unread_row(entry: ModelEntry) -> tuple[CellText, ...]:
    """A row before its headers are read, or of a model that cannot be opened."""
    first = CellText(entry.name, entry.problem or entry.detail, entry.path)
    return (first, *(CellText("" if entry.problem else "…") for _ in column_titles()[1:]))


def problem_row(entry: ModelEntry, why: str) -> tuple[CellText, ...]:
    """A row of a model whose headers say that it cannot be opened."""
    return (CellText(entry.name, why, entry.path), *(CellText("") for _ in column_titles()[1:]))


def survey_row(
    entry: ModelEntry, survey: ModelSurvey, measured: MeasuredSpeed
) -> tuple[CellText, ...]:
    """A row with everything that is known."""
    info, need = survey.info, survey.memory
    below = " · ".join(filter(None, (info.architecture, entry.detail)))
    verdict = _tr("fits") if need.fits else _tr("does not fit")
    return (
        CellText(entry.name, below, entry.path),
        CellText(parameters(info.parameters)),
        CellText(*_body_and_head(info.stored_format)),
        CellText(memory(info.file_bytes).text),
        CellText(count(info.context_length), _tr("loads {0}").format(count(need.context_length))),
        CellText(memory(need.required_bytes).text, verdict, memory_sentence(survey), not need.fits),
        _first_token(survey, measured),
        _decode(survey, measured),
    )


def memory_sentence(survey: ModelSurvey) -> str:
    """What the model would take, and of how much."""
    need = survey.memory
    text = _tr(
        "Weights {weights}, KV cache {kv} for {context} tokens, workspace {work}; {there} free"
    )
    return text.format(
        weights=memory(need.weight_bytes).text,
        kv=memory(need.kv_bytes).text,
        context=count(need.context_length),
        work=memory(need.workspace_bytes).text,
        there=memory(need.available_bytes + need.freed_by_unload_bytes).text,
    )


def parameters(number: int) -> str:
    """Parameters as models are called by: "135 M", "1.24 B"."""
    if number >= 999_500_000:
        return f"{three_digits(number / 1e9)} B"
    return f"{three_digits(number / 1e6)} M"


def _body_and_head(stored_format: str) -> tuple[str, str]:
    body, _, head = stored_format.partition(", ")
    return body, head


def _first_token(survey: ModelSurvey, measured: MeasuredSpeed) -> CellText:
    tip = _tr("From Send to the first token, for a prompt of {0} tokens").format(
        count(PROMPT_TOKENS)
    )
    if measured.prefill_tok_s:
        text = milliseconds(1e3 * PROMPT_TOKENS / measured.prefill_tok_s).text
        return CellText(text, _tr("measured"), tip)
    if survey.speed:
        return CellText(milliseconds(survey.speed.ttft_ms).text, _tr("predicted"), tip)
    return CellText(tip=_not_measured_yet())


def _decode(survey: ModelSurvey, measured: MeasuredSpeed) -> CellText:
    unit = _tr("tok/s")
    if measured.decode_tok_s:
        tip = _tr("The pace of the last long answer")
        return CellText(f"{three_digits(measured.decode_tok_s)} {unit}", _tr("measured"), tip)
    if survey.speed:
        tip = _tr("From the bytes a token reads and this machine's measured bandwidth")
        text = f"{three_digits(survey.speed.decode_tok_s)} {unit}"
        return CellText(text, _tr("predicted"), tip)
    return CellText(tip=_not_measured_yet())


def _not_measured_yet() -> str:
    return _tr("Known once this machine has been measured: the first load does it")


def _tr(text: str) -> str:
    return QCoreApplication.translate("ModelLibrary", text)
