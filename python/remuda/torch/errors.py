"""Errors of remuda that are errors of torch, too."""

import torch.distributed as dist

from remuda import errors

# Older versions of torch have no classes of their own for distributed errors.
TorchError: "type[Exception]" = getattr(dist, "DistBackendError", RuntimeError)


class Deadline(errors.Deadline, TorchError):  # type: ignore[misc,valid-type]
    """`remuda.Deadline`, as an error of torch."""


class PeerLost(errors.PeerLost, TorchError):  # type: ignore[misc,valid-type]
    """`remuda.PeerLost`, as an error of torch."""


class Mismatch(errors.Mismatch, TorchError):  # type: ignore[misc,valid-type]
    """`remuda.Mismatch`, as an error of torch."""


class Aborted(errors.Aborted, TorchError):  # type: ignore[misc,valid-type]
    """`remuda.Aborted`, as an error of torch."""


class TransportFailure(errors.TransportFailure, TorchError):  # type: ignore[misc,valid-type]
    """`remuda.TransportFailure`, as an error of torch."""


class SystemFailure(errors.SystemFailure, TorchError):  # type: ignore[misc,valid-type]
    """`remuda.SystemFailure`, as an error of torch."""


class EnvironmentMismatch(errors.EnvironmentMismatch, TorchError):  # type: ignore[misc,valid-type]
    """`remuda.EnvironmentMismatch`, as an error of torch."""


class BadArgument(errors.BadArgument, TorchError):  # type: ignore[misc,valid-type]
    """`remuda.BadArgument`, as an error of torch."""


#: Classes by the statuses of ``remuda.h``.
KINDS: "dict[int, type[errors.RemudaError]]" = {
    1: BadArgument,
    2: Deadline,
    3: PeerLost,
    4: Mismatch,
    5: Aborted,
    6: TransportFailure,
    7: SystemFailure,
    8: EnvironmentMismatch,
}


def of_torch(error: errors.RemudaError) -> errors.RemudaError:
    """The same error as an error of torch."""
    for status, kind in errors.KINDS.items():
        if type(error) is kind:
            return KINDS[status](error.message, error.rank, error.hint)
    return error
