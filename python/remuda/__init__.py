"""Process groups and collectives of remuda, for Python and torch.

    import remuda

    group = remuda.init()                     # a worker of `remuda run -n 4 train.py`
    values = array.array("f", [group.rank])
    group.all_reduce(values)

torch needs no import: ``torch.distributed.init_process_group("remuda")``, or ``"cpu:remuda,cuda:nccl"``.
`remuda.torch` documents what it does there.

Importing this package loads nothing: the C library is opened at the first use.
"""

from typing import TYPE_CHECKING, Any

from remuda.errors import (
    Aborted,
    BadArgument,
    Deadline,
    EnvironmentMismatch,
    Mismatch,
    PeerLost,
    RemudaError,
    SystemFailure,
    TransportFailure,
)

if TYPE_CHECKING:
    from remuda.group import Group, Memory, Work, init, meet, threads, version

__all__ = [
    "Aborted",
    "BadArgument",
    "Deadline",
    "EnvironmentMismatch",
    "Group",
    "Memory",
    "Mismatch",
    "PeerLost",
    "RemudaError",
    "SystemFailure",
    "TransportFailure",
    "Work",
    "init",
    "meet",
    "threads",
    "version",
]

_OF_GROUP = ("Group", "Memory", "Work", "init", "meet", "threads", "version")


def __getattr__(name: str) -> Any:
    if name in _OF_GROUP:
        from remuda import group

        return getattr(group, name)
    raise AttributeError(f"module 'remuda' has no attribute {name!r}")
