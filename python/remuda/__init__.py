"""Process groups and collectives of remuda, for Python and torch.

    import remuda

    group = remuda.init()                     # a worker of `remuda run -n 4 train.py`
    values = array.array("f", [group.rank])
    group.all_reduce(values)

torch needs no import: ``torch.distributed.init_process_group("remuda")``, or ``"cpu:remuda,cuda:nccl"``.
`remuda.torch` documents what it does there.

`step`, `phase` and `record` tell the launcher what a program does; `launch` starts workers from Python, and raises
`JobFailed`. Errors of groups are `Deadline`, `PeerLost`, `Mismatch`, `Aborted`, `TransportFailure` and `SystemFailure`;
`EnvironmentMismatch` and `BadArgument` are those of calls. All are `RemudaError`.

Importing this package loads nothing: what it has is imported, and the C library opened, at the first use.
"""

# `typing` would take longer to import than all else; checkers of types take this name as true.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from remuda.errors import (
        Aborted,
        BadArgument,
        Deadline,
        EnvironmentMismatch,
        JobFailed,
        Mismatch,
        PeerLost,
        RemudaError,
        SystemFailure,
        TransportFailure,
    )
    from remuda.failures import record
    from remuda.group import Group, Memory, Work, init, meet, threads, version
    from remuda.launcher import launch
    from remuda.progress import phase, step

__all__ = [
    "Aborted",
    "BadArgument",
    "Deadline",
    "EnvironmentMismatch",
    "Group",
    "JobFailed",
    "Memory",
    "Mismatch",
    "PeerLost",
    "RemudaError",
    "SystemFailure",
    "TransportFailure",
    "Work",
    "init",
    "launch",
    "meet",
    "phase",
    "record",
    "step",
    "threads",
    "version",
]

#: Modules of the names that are not errors.
_MODULES = {
    **dict.fromkeys(("Group", "Memory", "Work", "init", "meet", "threads", "version"), "group"),
    **dict.fromkeys(("phase", "step"), "progress"),
    "launch": "launcher",
    "record": "failures",
}


def __dir__() -> "list[str]":
    return sorted(set(globals()) | set(__all__))


def __getattr__(name: str) -> "Any":
    if name == "__version__":
        return __getattr__("version")()
    if name not in __all__:
        raise AttributeError(f"module 'remuda' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(f"remuda.{_MODULES.get(name, 'errors')}")
    return getattr(module, name)
