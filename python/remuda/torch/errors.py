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


#: The class of torch for every class of remuda.
OF_REMUDA = {
    kind.__bases__[0]: kind
    for kind in (
        BadArgument,
        Deadline,
        PeerLost,
        Mismatch,
        Aborted,
        TransportFailure,
        SystemFailure,
        EnvironmentMismatch,
    )
}

#: Classes by the statuses of ``remuda.h``.
KINDS: "dict[int, type[errors.RemudaError]]" = {
    status: OF_REMUDA[kind] for status, kind in errors.KINDS.items()
}


def of_torch(error: errors.RemudaError) -> errors.RemudaError:
    """The same error as an error of torch."""
    kind = OF_REMUDA.get(type(error))
    return error if kind is None else kind(error.message, error.rank, error.hint)
