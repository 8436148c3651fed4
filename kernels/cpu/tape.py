"""Operations run one by one, or written down once and replayed in one native call.

Either way it is the same structs and the same code, so a replay equals the single steps bit for
bit. A replay holds no interpreter lock and polls the cancel cell between operations.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TypeVar

import torch

from kernels.cpu.library import NativeLibrary
from kernels.cpu.structs import Op, OpPointer, op_pointer
from kernels.recording import CancelCell
from kernels.stages import StageClock

T = TypeVar("T")


class NotRecordable(Exception):
    """An operation of the pass goes to the reference, which a tape cannot hold."""


class Tape:
    """A recorded list of operations; keeps the tensors alive that they point to."""

    def __init__(self, library: NativeLibrary, threads: int, clock: StageClock) -> None:
        self._library = library
        self._threads = threads
        self._clock = clock
        self._ops: list[Op] = []
        self._tensors: list[torch.Tensor] = []
        self._list: ctypes.Array[ctypes._Pointer[Op]] | None = None

    def append(self, op: Op, tensors: tuple[torch.Tensor, ...]) -> None:
        """Write an operation down."""
        self._ops.append(op)
        self._tensors += tensors

    def finish(self) -> None:
        """Nothing more comes: lay the list out for the native side."""
        self._list = (OpPointer * len(self._ops))(*(op_pointer(op) for op in self._ops))

    def replay(self, cancel: CancelCell) -> bool:
        """See kernels.recording.Recording."""
        assert self._list is not None, "a tape is replayed after it is finished"
        done: int = self._library.run(
            self._list, len(self._ops), self._threads, cancel.address, self._clock.nanoseconds
        )
        return bool(done)


class Recorder:
    """Runs operations at once, or writes them on a tape while one is open."""

    def __init__(self, library: NativeLibrary, threads: int, clock: StageClock) -> None:
        self._library = library
        self._threads = threads
        self._clock = clock
        self._tape: Tape | None = None
        self._never = CancelCell()
        self._ignored = (ctypes.c_int64 * len(clock.nanoseconds))()

    def emit(self, op: Op, *tensors: torch.Tensor) -> None:
        """Run an operation, or write it down; `tensors` are what it points to."""
        op.kind, op.stage = op.KIND, self._clock.stage
        if self._tape is not None:
            self._tape.append(op, tensors)
            return
        single = (OpPointer * 1)(op_pointer(op))
        # The caller's clock books the time here: it knows what happens between operations too.
        self._library.run(single, 1, self._threads, self._never.address, self._ignored)

    @property
    def recording(self) -> bool:
        """Whether a tape is open: only what is emitted will be replayed."""
        return self._tape is not None

    def refuse_to_record(self) -> None:
        """Called before a reference operation. Raises NotRecordable while a tape is open."""
        if self._tape is not None:
            raise NotRecordable

    def record(self, run: Callable[[], T]) -> tuple[T, Tape]:
        """Write down what `run` calls; what it returns is filled by each replay.

        Raises NotRecordable.
        """
        if self._tape is not None:
            raise RuntimeError("a recording is under way")
        tape = self._tape = Tape(self._library, self._threads, self._clock)
        try:
            result = run()
        finally:
            self._tape = None
        tape.finish()
        return result, tape
