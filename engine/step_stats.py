"""What a step was worth: its duration by stage, and the share of the device's peaks it reached."""

from __future__ import annotations

from engine.events import Phase, StageTimes, StepStats
from engine.model_loader import LoadedModel
from engine.scheduler import ScheduledStep
from kernels.stages import Stage, StageClock

_NS_PER_MS = 1e6


def step_stats(
    loaded: LoadedModel,
    step: ScheduledStep,
    step_id: int,
    span_ns: tuple[int, int],
    cost: tuple[int, int],
    detokenize_ns: int,
) -> StepStats:
    """MFU and MBU as docs/metrics.md defines them.

    `span_ns` is when the step began and ended, `cost` the FLOPs and bytes of ModelCosts.step.
    """
    start_ns, end_ns = span_ns
    flops, num_bytes = cost
    duration_ns = max(1, end_ns - start_ns)
    seconds = duration_ns / 1e9
    clock = loaded.runner.clock
    is_timed = loaded.device.type == "cpu" or clock.settle()
    return StepStats(
        step_id=step_id,
        t_ns=end_ns,
        phase=_phase(step),
        num_seqs=len(step.sequences),
        num_tokens=step.num_tokens,
        step_ms=duration_ns / _NS_PER_MS,
        flops=flops,
        bytes=num_bytes,
        mfu_pct=100 * flops / seconds / loaded.roofs.matmul_flops,
        mbu_pct=100 * num_bytes / seconds / loaded.roofs.bandwidth_at(num_bytes),
        stages=_stages(duration_ns, clock, detokenize_ns) if is_timed else None,
        request_ids=tuple(sequence.request_id for sequence in step.sequences),
    )


def _phase(step: ScheduledStep) -> Phase:
    if step.decode and step.prefill:
        return "mixed"
    return "decode" if step.decode else "prefill"


def _stages(duration_ns: int, clock: StageClock, detokenize_ns: int) -> StageTimes:
    known_ns = sum(clock[stage] for stage in Stage) + detokenize_ns
    return StageTimes(
        attention_ms=clock[Stage.ATTENTION] / _NS_PER_MS,
        ffn_ms=clock[Stage.FFN] / _NS_PER_MS,
        head_ms=clock[Stage.HEAD] / _NS_PER_MS,
        sample_ms=clock[Stage.SAMPLE] / _NS_PER_MS,
        detokenize_ms=detokenize_ns / _NS_PER_MS,
        host_ms=max(0, duration_ns - known_ns) / _NS_PER_MS,
    )
