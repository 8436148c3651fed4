"""How a diagnosis is put into words: the headline, a sentence with its figures, what to try."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication

from app.diagnosis.machine_words import held_up_by, held_up_words, remedy
from app.telemetry.format import (
    count,
    memory,
    milliseconds,
    percent,
    three_digits,
    tokens_per_second,
)
from engine.diagnosis.cures import Diagnosis, Expectation, Outcome, Suggestion
from engine.diagnosis.facts import AnswerFacts, PhaseSteps
from engine.diagnosis.verdict import Finding

# Utilization that is so many times the MFU needs the explanation why.
PUZZLING_RATIO = 2.0


def headline(finding: Finding) -> str:
    """The verdict and its cause."""
    if finding.verdict == "fast":
        return {
            "arithmetic": _tr("Fast. The start is limited by arithmetic."),
            "kv": _tr("Fast. Streaming is limited by reading the cache."),
            "host": _tr("Fast. Streaming is limited by the work between operations."),
            "neither": _tr("Fast. Neither arithmetic nor memory bandwidth is near its limit."),
        }.get(finding.cause, _tr("Fast. Streaming is limited by memory bandwidth."))
    if _is_explained(finding):
        slow = _tr("Slow to start") if finding.phase == "start" else _tr("Slow to stream")
        return f"{slow}: {held_up_by(finding.hindrances[0])}."
    if finding.verdict == "slow to start":
        return {
            "queue": _tr("Slow to start: it waited for its turn."),
            "company": _tr("Slow to start: other chats ran in the same steps."),
            "chunks": _tr("Slow to start: the prompt was read in small chunks."),
            "interference": _tr("Slow to start: something held the arithmetic up."),
        }.get(finding.cause, _tr("Slow to start: reading the prompt is limited by arithmetic."))
    return {
        "company": _tr("Slow to stream: other chats ran in the same steps."),
        "host": _tr("Slow to stream: much time passes between the operations."),
        "throttled": _tr("Slow to stream: it slowed down on the way."),
        "interference": _tr("Slow to stream: something held the reading up."),
        "kv": _tr("Slow to stream: each token reads the whole cache."),
    }.get(finding.cause, _tr("Slow to stream: each token reads all the weights."))


def sentence(facts: AnswerFacts, finding: Finding) -> str:
    """The figures that support the verdict."""
    is_explained = _is_explained(finding)
    match finding.cause:
        case "queue":
            text = _tr("{queue} of {ttft} passed before its first step. Stop other chats or wait.")
        case "company":
            text = _tr(
                "{shared} of the time went to steps that served others too. Stop other chats or "
                "wait."
            )
        case "chunks":
            text = _tr(
                "{rows} tokens a step keep the arithmetic {mfu} busy: each step reads all the "
                "weights anew."
            )
        case "host":
            text = _tr(
                "{host} of the time goes to sampling, text and the program, not to the model."
            )
        case "throttled" if is_explained:
            text = _tr(
                "The last tokens took {slowdown} times as long as the first, more than the longer "
                "context explains: {machine}. {remedy}"
            )
        case "interference" if is_explained and finding.expected_tok_s is None:
            text = _tr("{pace}: {machine}. {remedy}")
        case "interference" if is_explained:
            text = _tr("{pace}, where {expected} would be possible: {machine}. {remedy}")
        case "throttled":
            text = _tr(
                "The last tokens took {slowdown} times as long as the first, more than the longer "
                "context explains: heat, power saving or another program."
            )
        case "interference":
            text = _tr(
                "{pace}, where {expected} would be possible: another program, heat or power saving "
                "takes the rest."
            )
        case _ if finding.phase == "start":
            text = _tr(
                "{computed} tokens of the prompt were computed, {cached} came from the cache: "
                "{pace}, at {mfu} of this machine's arithmetic."
            )
        case _ if finding.reads is not None:
            text = _tr(
                "Each token reads {weights} of weights and {kv} of cache at {mbu} of this "
                "machine's bandwidth; arithmetic is {mfu} busy."
            )
        case _:
            text = _tr("It streams {pace}.")
    return text.format(**_figures(facts, finding))


def advice(suggestion: Suggestion, facts: AnswerFacts) -> str:
    """What a suggestion would gain and cost."""
    match suggestion.field:
        case "threads":
            threads = facts.unbound.machine.threads if facts.unbound else None
            text = _tr("{0} threads instead of {1}").format(
                count(threads), count(facts.metrics.threads)
            )
        case "device":
            text = _tr("The GPU instead of the processor")
        case "max_num_batched_tokens":
            text = _tr("Chunks of {0} tokens").format(count(int(suggestion.value or 0)))
        case "prefix_caching":
            return _tr("Kept in the cache, a prompt is not read again on the next turn.")
        case "kv_format":
            text = _tr("A cache in {0}").format(str(suggestion.value).upper())
        case "weight_format":
            text = str(suggestion.value).upper()
    if suggestion.gain is None:
        return _tr("{0} may be faster; that is not measured here yet.").format(text)
    if suggestion.bytes_ratio is not None:
        text = _tr("{0} would read {1} of the bytes").format(text, f"{suggestion.bytes_ratio:.2f}")
    return f"{text}: {_gain(suggestion.gain)}{_cost(suggestion)}."


def button(suggestion: Suggestion, facts: AnswerFacts) -> str:
    """The words on the button that applies a suggestion."""
    match suggestion.field:
        case "threads":
            threads = facts.unbound.machine.threads if facts.unbound else None
            return _tr("Use {0} threads").format(count(threads))
        case "device":
            return _tr("Use the GPU")
        case "max_num_batched_tokens":
            return _tr("Larger chunks")
        case "prefix_caching":
            return _tr("Keep prompts")
        case "kv_format":
            return _tr("Try an {0} cache").format(str(suggestion.value).upper())
        case "weight_format":
            return _tr("Try {0}").format(str(suggestion.value).upper())


def race_button(suggestion: Suggestion) -> str:
    """The words on the button that runs the answer's prompt again with a suggestion."""
    match suggestion.field:
        case "threads":
            return _tr("Race more threads")
        case "device":
            return _tr("Race the GPU")
        case "kv_format":
            return _tr("Race an {0} cache").format(str(suggestion.value).upper())
        case _:
            return _tr("Race {0}").format(str(suggestion.value).upper())


def name(suggestion: Suggestion) -> str:
    """What was changed, as the beginning of a sentence."""
    match suggestion.field:
        case "threads":
            return _tr("More threads")
        case "device":
            return _tr("The GPU")
        case "max_num_batched_tokens":
            return _tr("Larger chunks")
        case "prefix_caching":
            return _tr("Kept prompts")
        case "kv_format":
            return _tr("A cache in {0}").format(str(suggestion.value).upper())
        case "weight_format":
            return str(suggestion.value).upper()


def applied_text(expectation: Expectation) -> str:
    """What is said once a suggestion is applied and nothing has been measured yet."""
    before = tokens_per_second(expectation.before_tok_s).text
    if expectation.predicted_tok_s is None:
        text = _tr("{0}: {1} before. The next answer shows what it reaches.")
        return text.format(name(expectation.suggestion), before)
    text = _tr("{0}: {1} before, {2} predicted. The next answer shows what it reaches.")
    predicted = tokens_per_second(expectation.predicted_tok_s).text
    return text.format(name(expectation.suggestion), before, predicted)


def outcome_text(outcome: Outcome) -> str:
    """What was predicted beside what was measured."""
    expectation = outcome.expectation
    before = three_digits(expectation.before_tok_s)
    measured = tokens_per_second(outcome.measured_tok_s).text
    if expectation.predicted_tok_s is None:
        text = _tr("{0}: {1} before, {2} measured.")
        return text.format(name(expectation.suggestion), before, measured)
    text = _tr("{0}: {1} before, {2} predicted, {3} measured.")
    predicted = three_digits(expectation.predicted_tok_s)
    return text.format(name(expectation.suggestion), before, predicted, measured)


def details(facts: AnswerFacts, diagnosis: Diagnosis) -> tuple[str, ...]:
    """All figures behind the verdict, a line each; those without a value are left out."""
    figures = _figures(facts, diagnosis.finding)
    lines = [
        _tr("First token {ttft}: {queue} in the queue, {prefill} reading the prompt"),
        _tr("Prompt {prompt} tokens, {cached} from the cache; {rows} a step; {start}"),
    ]
    if facts.decode.count:
        lines.append(_tr("Decode {decode}; {stream}"))
    if diagnosis.finding.reads is not None:
        lines.append(_tr("A token reads {weights} of weights and {kv} of keys and values"))
    if diagnosis.finding.expected_tok_s is not None:
        lines.append(_tr("Bytes and FLOPs predict {expected}, {pace} were measured"))
    if diagnosis.finding.host_share is not None:
        lines.append(_tr("{host} of the stream's time passed between the operations"))
    if diagnosis.finding.hindrances and not _is_explained(diagnosis.finding):
        lines.append(_tr("Meanwhile {machine}"))
    if facts.is_first:
        lines.append(_tr("Loading took {load} and warming up {warmup}: in none of these figures"))
    told = [line.format(**figures) for line in lines]
    return (*told, *_why_it_looks_busy(facts))


def _is_explained(finding: Finding) -> bool:
    """Whether the sentence itself says what held the machine back."""
    return finding.cause in ("throttled", "interference") and bool(finding.hindrances)


def _why_it_looks_busy(facts: AnswerFacts) -> list[str]:
    """Utilization and MFU say different things of a phase that waits for memory."""
    busy, mfu = facts.device_pct, facts.decode.mfu_pct
    if busy is None or mfu is None or busy < PUZZLING_RATIO * mfu:
        return []
    text = (
        _tr(
            "The GPU says it is {0} busy: its sensor (NVML) counts the time in which any kernel "
            "runs, and one that waits for memory does run. The arithmetic units did {1} of what "
            "they can."
        )
        if facts.on_gpu
        else _tr(
            "The processor says it is {0} busy: a core that waits for memory counts as busy. The "
            "arithmetic units did {1} of what they can."
        )
    )
    return [text.format(percent(busy).text, percent(mfu).text), *_gpm_words(facts)]


def _gpm_words(facts: AnswerFacts) -> list[str]:
    """The card's own counters, where it has them: they tell the two apart."""
    machine = facts.machine("stream")
    if machine.gpu_sm_active_pct is None or machine.gpu_dram_active_pct is None:
        return []
    text = _tr(
        "Its counters (GPM) tell more: {0} of the multiprocessors had work, and the memory moved "
        "{1} of what it can."
    )
    active = percent(machine.gpu_sm_active_pct).text
    return [text.format(active, percent(machine.gpu_dram_active_pct).text)]


def _figures(facts: AnswerFacts, finding: Finding) -> dict[str, str]:
    metrics, reads, machine = facts.metrics, finding.reads, facts.machine(finding.phase)
    steps = facts.prefill if finding.phase == "start" else facts.decode
    shared = 100 * steps.shared_s / steps.seconds if steps.seconds else None
    prefill = facts.prefill
    return {
        "queue": milliseconds(metrics.queue_ms).text,
        "ttft": milliseconds(metrics.ttft_ms).text,
        "prefill": milliseconds(metrics.prefill_ms).text,
        "prompt": count(metrics.prompt_tokens),
        "computed": count(facts.computed_tokens),
        "cached": count(metrics.cached_tokens),
        "rows": count(round(prefill.tokens / prefill.count)) if prefill.count else count(None),
        "decode": tokens_per_second(metrics.decode_tok_s).text,
        "pace": tokens_per_second(facts.pace(finding.phase)).text,
        "expected": tokens_per_second(finding.expected_tok_s).text,
        "shared": _share(shared),
        "host": _share(None if finding.host_share is None else 100 * finding.host_share),
        "slowdown": three_digits(finding.slowdown),
        "mfu": _share(steps.mfu_pct),
        "mbu": _share(steps.mbu_pct),
        "start": _utilization(facts.prefill),
        "stream": _utilization(facts.decode),
        "weights": memory(reads.weight_bytes if reads else None).text,
        "kv": memory(reads.kv_bytes if reads else None).text,
        "machine": held_up_words(finding.hindrances, machine),
        "remedy": remedy(finding.hindrances[0]) if finding.hindrances else "",
        "load": milliseconds(1e3 * facts.load_s).text,
        "warmup": milliseconds(1e3 * metrics.warmup_s).text,
    }


def _utilization(steps: PhaseSteps) -> str:
    return f"MFU {percent(steps.mfu_pct).text}, MBU {percent(steps.mbu_pct).text}"


def _share(value_pct: float | None) -> str:
    """A share in a sentence: whole, for three digits are not what is said with it."""
    return percent(None).text if value_pct is None else f"{value_pct:.0f} %"


def _gain(gain: float) -> str:
    return _tr("about {0}x faster").format(f"{gain:.1f}")


def _cost(suggestion: Suggestion) -> str:
    if suggestion.keeps_quality:
        return ""
    if suggestion.perplexity_change is None:
        return _tr(", quality not measured here")
    return _tr(", perplexity {0} %").format(f"{100 * suggestion.perplexity_change:+,.1f}")


def _tr(text: str) -> str:
    return QCoreApplication.translate("Diagnosis", text)
