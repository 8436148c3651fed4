"""Where the time of a prompt's step goes on a GPU: CUDA events in its stream, read afterwards."""

from __future__ import annotations

import torch

from kernels.stages import Stage, StageClock


class EventClock(StageClock):
    """Marks where stages begin in the stream of a GPU. Never waits for work that is not over.

    Only a step that begins with a prompt and samples is timed: a decode step is one graph, whose
    parts no event tells apart, and before ids are read nothing is over. What lies between the
    kernels of a stage, where the GPU waits for the host, counts as the stage's.
    """

    def __init__(self) -> None:
        super().__init__()
        self._marks: list[tuple[Stage | None, torch.cuda.Event]] = []
        self._first: Stage | None = None  # where the step began

    def clear(self) -> None:
        """Forget what was marked."""
        super().clear()
        self._marks.clear()
        self._first = None

    def begin(self, stage: Stage) -> None:
        """Mark the place in the stream where this stage begins."""
        self.stage = stage
        if self._first is None:
            self._first = stage
        self._mark(stage)

    def end(self) -> None:
        """Mark the place where the stage ends, and no other begins."""
        self._mark(None)

    def settle(self) -> bool:
        """Book the marked times; whether the step could be timed."""
        if not self._is_timed():
            return False
        # Its stream is idle since the ids were read: this waits for the mark itself alone.
        self._marks[-1][1].synchronize()
        for stage, began, ended in self._spans():
            self.nanoseconds[stage] += round(1e6 * began.elapsed_time(ended))
        self._marks.clear()
        return True

    def _is_timed(self) -> bool:
        stages = [stage for stage, _ in self._marks]
        # The first run of a decode step, which is being recorded, samples twice.
        samples_once = stages.count(Stage.SAMPLE) == 1
        return samples_once and stages[-2:] == [Stage.SAMPLE, None]

    def _spans(self) -> list[tuple[Stage, torch.cuda.Event, torch.cuda.Event]]:
        pairs = zip(self._marks, self._marks[1:], strict=False)
        return [(stage, began, ended) for (stage, began), (_, ended) in pairs if stage is not None]

    def _mark(self, stage: Stage | None) -> None:
        # A step that begins otherwise replays a graph, and an event in a graph tells no time.
        if self._first is not Stage.ATTENTION or torch.cuda.is_current_stream_capturing():
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self._marks.append((stage, event))
