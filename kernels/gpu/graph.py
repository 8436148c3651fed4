"""A recorded pass as a CUDA graph: one launch on the host for all of its operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from kernels.recording import CancelCell, Recording

T = TypeVar("T")

# The first run compiles kernels and lets libraries allocate; the second shows that nothing is left.
_WARM_UP_RUNS = 2


class CudaGraphRecording:
    """A captured graph. It holds the memory of every tensor that the pass made."""

    def __init__(self, graph: torch.cuda.CUDAGraph) -> None:
        self._graph = graph

    def replay(self, cancel: CancelCell) -> bool:
        """Enqueue the pass on the current stream; False, and nothing done, when cancelled before.

        A graph cannot be left between operations: cancelling takes effect at the next step.
        """
        if cancel:
            return False
        self._graph.replay()
        return True


class GraphRecorder:
    """Records passes, one for each size of a batch, whose graphs share one pool of memory.

    Graphs of one pool must not run at the same time: the tensors that a pass makes and drops lie
    in the same places for all. What a pass returned stays valid while it is referenced.
    """

    def __init__(self) -> None:
        self._pool: Any = None  # torch gives its type no public name

    def __call__(self, run: Callable[[], T]) -> tuple[T, Recording]:
        """Run `run` for warm-up, capture it, replay it once; what it returned and the recording.

        It runs four times in effect, hence must give the same again from unchanged inputs. It
        must not wait for the device or allocate on the host, which a capture refuses with
        RuntimeError.
        """
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        current = torch.cuda.current_stream()
        side = torch.cuda.Stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP_RUNS):
                run()
        current.wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Other threads of the program may use CUDA meanwhile: only this one's calls are captured.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = run()
        graph.replay()  # a capture computes nothing
        return result, CudaGraphRecording(graph)
