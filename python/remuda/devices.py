"""Collectives on memory of GPUs, given by addresses: that of ``tensor.data_ptr()``, or of any other library.

Experimental: they have not run on a GPU yet. They need a C library that was built with the feature ``nccl``; that of the
wheel was not.
"""

import ctypes
import os
import weakref
from typing import Optional, Tuple

from remuda import native
from remuda.errors import BadArgument, EnvironmentMismatch
from remuda.group import Group, reduction

_TYPES = {
    "f32": native.F32,
    "f64": native.F64,
    "i32": native.I32,
    "i64": native.I64,
    "u8": native.U8,
    "f16": native.F16,
    "bf16": native.BF16,
}


class Devices:
    """The GPUs of the ranks of a group. All ranks make it, each with a GPU of its own, ``device`` of those of CUDA.

    The rules of `Group` hold. An operation begins after the work that ``stream`` has when it is called, a handle of
    CUDA such as ``torch.cuda.current_stream().cuda_stream`` or 0 for the default stream, and returns when it has ended.
    ``count`` is a number of elements, ``dtype`` their type: f32, f64, i32, i64, u8, f16 or bf16.
    """

    def __init__(self, group: Group, device: int) -> None:
        self._library = native.library()
        if not native.has_devices(self._library):
            hint = "build it with `--features capi,nccl`, and set REMUDA_LIBRARY to its path"
            raise EnvironmentMismatch(f"the C library `{native.path()}` has no functions for GPUs", hint=hint)
        place = ctypes.c_void_p()
        native.check(self._library.remuda_devices_connect(group.handle, device, place))
        self._handle: Optional[int] = place.value
        self._free = weakref.finalize(self, _free, self._library, self._handle, os.getpid())
        self._free.atexit = False

    def free(self) -> None:
        """Disconnects the GPUs; the group remains."""
        self._free()
        self._handle = None

    @property
    def uses_nccl(self) -> bool:
        """Whether NCCL moves the data; else the memory of the host does."""
        return bool(self._library.remuda_devices_nccl(self._handle))

    def all_reduce(self, data: int, count: int, dtype: str, op: str = "sum", stream: int = 0) -> None:
        """Replaces the data of every rank by the reduction over all ranks."""
        native.check(self._library.remuda_device_all_reduce(*self._of(data, count, dtype, op), stream))

    def reduce(self, data: int, count: int, dtype: str, root: int, op: str = "sum", stream: int = 0) -> None:
        """Replaces the data of ``root`` by the reduction over all ranks."""
        native.check(self._library.remuda_device_reduce(*self._of(data, count, dtype, op), root, stream))

    def broadcast(self, data: int, count: int, dtype: str, root: int, stream: int = 0) -> None:
        """Replaces the data of every rank by that of ``root``."""
        native.check(self._library.remuda_device_broadcast(*self._of(data, count, dtype), root, stream))

    def all_gather(self, input: int, output: int, count: int, dtype: str, stream: int = 0) -> None:
        """Fills ``output`` (ranks × ``count``) with the input of every rank, in rank order."""
        arguments = (self._handle, input, output, count, _type(dtype), stream)
        native.check(self._library.remuda_device_all_gather(*arguments))

    def reduce_scatter(
        self, input: int, output: int, count: int, dtype: str, op: str = "sum", stream: int = 0
    ) -> None:
        """Fills ``output`` with this rank's part of the reduction of ``input`` (ranks × ``count``)."""
        arguments = (self._handle, input, output, count, _type(dtype), reduction(op), stream)
        native.check(self._library.remuda_device_reduce_scatter(*arguments))

    def all_to_all(self, input: int, output: int, count: int, dtype: str, stream: int = 0) -> None:
        """Sends part r (``count``) of ``input`` to rank r, and fills part r of ``output`` with the part from rank r."""
        arguments = (self._handle, input, output, count, _type(dtype), stream)
        native.check(self._library.remuda_device_all_to_all(*arguments))

    def _of(self, data: int, count: int, dtype: str, *op: str) -> "Tuple[Optional[int], ...]":
        return (self._handle, data, count, _type(dtype), *map(reduction, op))


def _free(library: ctypes.CDLL, handle: Optional[int], process: int) -> None:
    # A forked process has no GPUs of its parent.
    if os.getpid() == process:
        library.remuda_devices_free(handle)


def _type(name: str) -> int:
    if name not in _TYPES:
        raise BadArgument(f"no element type is called {name!r}", hint=f"pass one of {', '.join(_TYPES)}")
    return _TYPES[name]
