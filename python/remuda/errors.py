"""Errors: one class for each kind of the C interface."""

from typing import Any, Optional


class RemudaError(RuntimeError):
    """A failed call.

    ``rank`` is the rank in the job that failed, disagreed, aborted, or is the first that was missing; None if the
    error names none. ``hint`` says what to do.
    """

    def __init__(self, message: str, rank: Optional[int] = None, hint: Optional[str] = None) -> None:
        super().__init__(message if hint is None else f"{message}\nhint: {hint}")
        self.message = message
        self.rank = rank
        self.hint = hint

    def __reduce__(self) -> Any:
        return type(self), (self.message, self.rank, self.hint)


class BadArgument(RemudaError):
    """A buffer, type, length, rank or name is invalid. The group can be used further if no other rank has begun the
    operation."""


class Deadline(RemudaError):
    """The deadline of an operation passed; the message names the ranks that did not call it.

    All ranks of the group get it, the late ones included: a rank whose deadline did not pass learns which one's did.
    """


class PeerLost(RemudaError):
    """Rank ``rank`` exited or its connection was lost."""


class Mismatch(RemudaError):
    """This rank and rank ``rank`` called different operations, or passed messages of different sizes; the message names
    both calls. If two other ranks differ, ``rank`` is the one that has found it."""


class Aborted(RemudaError):
    """Rank ``rank`` aborted the group, for the reason in the message."""


class TransportFailure(RemudaError):
    """The transport between ranks failed."""


class SystemFailure(RemudaError):
    """The system has no more memory, threads or descriptors."""


class EnvironmentMismatch(RemudaError):
    """This process was not started as a worker, is one that a worker has started, or cannot join its job."""


class JobFailed(RemudaError):
    """A job of `remuda.launch` failed.

    ``rank`` is the worker that is the cause, and ``traceback`` the text of its traceback, where it raised an exception;
    else ``report`` is what remuda has printed about the failure. ``status`` is the exit status of ``remuda``.
    """

    def __init__(
        self, message: str, rank: Optional[int] = None, hint: Optional[str] = None, status: Optional[int] = None
    ) -> None:
        super().__init__(message, rank, hint)
        self.status = status
        self.traceback: Optional[str] = None
        self.report: Optional[str] = None

    def __reduce__(self) -> Any:
        state = {"traceback": self.traceback, "report": self.report}
        return type(self), (self.message, self.rank, self.hint, self.status), state


#: Classes by the statuses of ``remuda.h``; other statuses are bugs of the library.
KINDS: "dict[int, type[RemudaError]]" = {
    1: BadArgument,
    2: Deadline,
    3: PeerLost,
    4: Mismatch,
    5: Aborted,
    6: TransportFailure,
    7: SystemFailure,
    8: EnvironmentMismatch,
}
