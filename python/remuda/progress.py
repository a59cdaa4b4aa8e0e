"""Progress of a training program: what the launcher shows in its status line, in `run.json` and in its metrics."""

import atexit
import os
import threading
import time
from types import TracebackType
from typing import Any, Optional, Type

from remuda import notes

#: Shortest time between two steps that are sent, in seconds. The agent forwards the newest one ten times a second.
#: A program that hangs has sent its last step, unless its steps are shorter.
STEP_PAUSE = 0.002
#: Shortest time between two losses that are read from tensors, because that may wait for a GPU.
LOSS_PAUSE = 0.1
#: Time until a step is sent that may be none of the program, in seconds.
HOLD_PAUSE = 1.0
#: Largest number in a note.
_STEP_MAX = 2**63 - 1
#: Weight of the newest step in the mean of the speed.
_NEWEST = 0.2


class Steps:
    """The steps of this process."""

    def __init__(self) -> None:
        self.newest = 0
        #: Whether the program itself reports steps, so that those of its optimizers are not counted.
        self.is_reported = False
        self._steps: Optional[int] = None
        self._sent = 0
        self._send_at = 0.0
        self._stepped_at: Optional[float] = None
        self._tokens_per_s: Optional[float] = None
        #: The newest loss that was read.
        self._loss: Optional[float] = None
        self._read_at = 0.0
        self._timer: Optional[threading.Timer] = None

    def end(self, number: int, steps: Optional[int] = None, loss: Any = None, tokens: Any = None) -> None:
        """A step has ended."""
        now = time.monotonic()
        self.newest, self._steps = number, steps
        if tokens is not None:
            self._measure(tokens, now)
        self._stepped_at = now
        if loss is None or self._read_at <= now or isinstance(loss, (int, float)):
            self._read(loss, now)
        if self._send_at <= now or number == steps:
            self._send_at = now + STEP_PAUSE
            self._send()

    def hold(self, number: int) -> None:
        """A step was counted, which is sent soon or with a later one, unless the program then reports steps itself."""
        self.newest = number
        if self._timer is None:
            self._timer = threading.Timer(HOLD_PAUSE, self._send_held)
            self._timer.daemon = True
            self._timer.start()

    def _send_held(self) -> None:
        if not self.is_reported:
            self.flush()

    def flush(self) -> None:
        """Sends the newest step, if it was not sent."""
        if self.newest != self._sent:
            self._send()

    def _send(self) -> None:
        number = self.newest
        notes.step(number, self._steps, self._loss, self._tokens_per_s)
        # Afterwards, so that a process that exits does not take a step for sent that another thread is sending.
        self._sent = number

    def _read(self, loss: Any, now: float) -> None:
        if loss is None:
            self._loss = None
            return
        self._read_at = now + LOSS_PAUSE
        try:
            self._loss = float(loss)
        except Exception:
            # Progress is no reason to fail.
            self._loss = None

    def _measure(self, tokens: Any, now: float) -> None:
        if self._stepped_at is None or now <= self._stepped_at:
            return
        newest = int(tokens) / (now - self._stepped_at)
        before = newest if self._tokens_per_s is None else self._tokens_per_s
        self._tokens_per_s = before + _NEWEST * (newest - before)


steps = Steps()
#: The phase that the program is in; None while it trains.
_current: Optional[str] = None


def step(
    number: Optional[int] = None, *, loss: Any = None, tokens: Optional[int] = None, steps: Optional[int] = None
) -> None:
    """Reports that a training step has ended. Does nothing outside of a job.

    ``number`` is that of the step, from 1; without it, calls are counted. ``loss`` is a number or a tensor of one
    element, which is read at most ten times a second. ``tokens`` are those of this step, of all ranks together, and
    ``steps`` is the number of all steps.
    """
    if number is not None and not hasattr(number, "__index__"):
        raise TypeError(f"a step has a number, and {number!r} is none")
    if number is not None and not 0 < int(number) <= _STEP_MAX:
        raise ValueError(f"the number of a step is at least 1, and {number!r} is not one of a step")
    for name, count in (("tokens", tokens), ("steps", steps)):
        if count is not None and not (hasattr(count, "__index__") and 0 <= int(count) <= _STEP_MAX):
            raise TypeError(f"`{name}` is a number of {name}, and {count!r} is none")
    if loss is not None and not hasattr(loss, "__float__"):
        raise TypeError(f"a loss is a number or a tensor of one element, and {loss!r} is neither")
    if not notes.is_worker():
        return
    own = _steps_of_program()
    own.end(own.newest + 1 if number is None else int(number), steps, loss, tokens)


def _steps_of_program() -> Steps:
    if not steps.is_reported:
        # Steps of optimizers that were counted before are no steps of the program.
        steps.is_reported, steps.newest = True, 0
    return steps


class phase:
    """Reports what the program does instead of training, such as ``"checkpoint"`` or ``"evaluation"``.

    It lasts until the next phase, until ``phase(None)``, or to the end of a ``with`` block, after which the phase
    before it continues. Does nothing outside of a job.
    """

    def __init__(self, name: Optional[str]) -> None:
        if not isinstance(name, (str, type(None))):
            raise TypeError(f"a phase has a name, and {name!r} is none")
        self._before = _current
        _enter(name)

    def __enter__(self) -> "phase":
        return self

    def __exit__(
        self,
        kind: "Optional[Type[BaseException]]",
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        # The launcher shows the phase in which a program failed.
        if error is None:
            _enter(self._before)


def _enter(name: Optional[str]) -> None:
    global _current
    _current = name
    if notes.is_worker():
        # The launcher shows both in this order.
        steps.flush()
        notes.phase(name)


def _flush(process: int) -> None:
    if os.getpid() == process:
        steps.flush()


atexit.register(_flush, os.getpid())
