"""torch.distributed over the groups of remuda.

A script needs no import: ``init_process_group("remuda")``, or ``"cpu:remuda,cuda:nccl"`` beside NCCL for the tensors
of GPUs, which `remuda.torch.cuda` moves otherwise. torch 2.14 and newer find the backend by its entry point when it is first named, older versions when torch is
imported.

* Sums of floats have the same bits for every placement of the ranks.
* A rank that calls another operation, is late, or is lost is named by an exception on every rank: `Mismatch`,
  `Deadline` and `PeerLost` are errors of remuda and of torch (``torch.distributed.DistBackendError``).
* ``async_op=True`` and DistributedDataParallel start operations on the memory of the tensors. A helper thread
  completes their futures while the program computes.
* `empty` and FSDP2's allocation from the process group return tensors in memory that the ranks of a node share, which
  collectives use without a copy.
* Messages between two ranks are matched by their order, so ``tag`` must be 0.
"""

from remuda.torch.backend import RemudaBackend, RemudaProcessGroup, empty, register
from remuda.torch.errors import (
    Aborted,
    BadArgument,
    Deadline,
    EnvironmentMismatch,
    Mismatch,
    PeerLost,
    SystemFailure,
    TransportFailure,
)

__all__ = [
    "Aborted",
    "BadArgument",
    "Deadline",
    "EnvironmentMismatch",
    "Mismatch",
    "PeerLost",
    "RemudaBackend",
    "RemudaProcessGroup",
    "SystemFailure",
    "TransportFailure",
    "empty",
    "register",
]
