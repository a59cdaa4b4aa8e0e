"""Collectives on memory of GPUs, given by addresses: that of ``tensor.data_ptr()``, or of any other library.

Experimental: they have not run on a GPU yet. They need a C library that was built with the feature ``nccl``, as that of
the wheel was.
"""

import ctypes
import os
import weakref
from typing import Any, Optional, Sequence, Tuple

from remuda import native
from remuda.errors import BadArgument, EnvironmentMismatch
from remuda.group import Group, Work, reduction

_TYPES = {
    "f32": native.F32,
    "f64": native.F64,
    "i32": native.I32,
    "i64": native.I64,
    "u8": native.U8,
    "f16": native.F16,
    "bf16": native.BF16,
}


class DeviceWork(Work):
    """An operation in flight on GPUs: `order` makes a stream wait for it, `wait` the caller.

    Its memory must not be used before, except by a stream that was made to wait. If the handle is dropped, it waits.
    """

    def order(self, stream: int = 0) -> None:
        """Makes what ``stream`` gets later wait until the operation has ended; the caller does not wait.

        Raises the error of the operation if it is known to have failed. If it fails later, the stream goes on with
        wrong values, and the next operation of the group raises.
        """
        if self._handle is not None:
            native.check(native.library().remuda_device_wait(self._handle, stream))

    def release(self) -> None:
        """Drops the handle without a wait, for example after `order`."""
        handle, self._handle = self._handle, None
        if handle is not None:
            native.library().remuda_device_release(handle)


#: A message: the other rank, an address, a number of elements, and their type.
Message = Tuple[int, int, int, str]


class Devices:
    """The GPUs of the ranks of a group. All ranks make it, each with a GPU of its own, ``device`` of those of CUDA.

    The rules of `Group` hold. An operation begins after the work that ``stream`` has when it is called, a handle of
    CUDA such as ``torch.cuda.current_stream().cuda_stream`` or 0 for the default stream. A call returns when it has ended,
    or with ``start=True`` at once, with a `DeviceWork`. ``count`` is a number of elements, ``dtype`` their type: f32, f64,
    i32, i64, u8, f16 or bf16.
    """

    def __init__(self, group: Group, device: int) -> None:
        self._library = native.library()
        if not native.has_devices(self._library):
            hint = "build it with `--features capi,nccl`, and set REMUDA_LIBRARY to its path"
            raise EnvironmentMismatch(f"the C library `{native.path()}` has no functions for GPUs", hint=hint)
        place = ctypes.c_void_p()
        native.check(self._library.remuda_devices_connect(group.handle, device, place))
        #: The handle of C; None after `free`.
        self.handle: Optional[int] = place.value
        self._free = weakref.finalize(self, _free, self._library, self.handle, os.getpid())
        self._free.atexit = False

    def free(self) -> None:
        """Disconnects the GPUs; the group remains."""
        self._free()
        self.handle = None

    @property
    def uses_nccl(self) -> bool:
        """Whether NCCL moves the data; else the memory of the host does."""
        return bool(self._library.remuda_devices_nccl(self.handle))

    def all_reduce(
        self, data: int, count: int, dtype: str, op: str = "sum", stream: int = 0, start: bool = False
    ) -> Optional[DeviceWork]:
        """Replaces the data of every rank by the reduction over all ranks."""
        return self._run("all_reduce", (data, count, _type(dtype), reduction(op)), stream, start)

    def reduce(
        self, data: int, count: int, dtype: str, root: int, op: str = "sum", stream: int = 0, start: bool = False
    ) -> Optional[DeviceWork]:
        """Replaces the data of ``root`` by the reduction over all ranks."""
        return self._run("reduce", (data, count, _type(dtype), reduction(op), root), stream, start)

    def broadcast(
        self, data: int, count: int, dtype: str, root: int, stream: int = 0, start: bool = False
    ) -> Optional[DeviceWork]:
        """Replaces the data of every rank by that of ``root``."""
        return self._run("broadcast", (data, count, _type(dtype), root), stream, start)

    def all_gather(
        self, input: int, output: int, count: int, dtype: str, stream: int = 0, start: bool = False
    ) -> Optional[DeviceWork]:
        """Fills ``output`` (ranks × ``count``) with the input of every rank, in rank order."""
        return self._run("all_gather", (input, output, count, _type(dtype)), stream, start)

    def reduce_scatter(
        self, input: int, output: int, count: int, dtype: str, op: str = "sum", stream: int = 0, start: bool = False
    ) -> Optional[DeviceWork]:
        """Fills ``output`` with this rank's part of the reduction of ``input`` (ranks × ``count``)."""
        return self._run("reduce_scatter", (input, output, count, _type(dtype), reduction(op)), stream, start)

    def gather(
        self, input: int, output: int, count: int, dtype: str, root: int, stream: int = 0, start: bool = False
    ) -> Optional[DeviceWork]:
        """Fills ``output`` (ranks × ``count``) of ``root`` with the input of every rank; other ranks pass 0."""
        return self._run("gather", (input, output, count, _type(dtype), root), stream, start)

    def scatter(
        self, input: int, output: int, count: int, dtype: str, root: int, stream: int = 0, start: bool = False
    ) -> Optional[DeviceWork]:
        """Fills ``output`` of every rank with its part of ``input`` (ranks × ``count``) of ``root``; others pass 0."""
        return self._run("scatter", (input, output, count, _type(dtype), root), stream, start)

    def all_to_all(
        self, input: int, output: int, count: int, dtype: str, stream: int = 0, start: bool = False
    ) -> Optional[DeviceWork]:
        """Sends part r (``count``) of ``input`` to rank r, and fills part r of ``output`` with the part from rank r."""
        return self._run("all_to_all", (input, output, count, _type(dtype)), stream, start)

    def send(
        self, data: int, count: int, dtype: str, to: int, stream: int = 0, start: bool = False
    ) -> Optional[DeviceWork]:
        """Sends elements to another rank. Messages run one after the other: see `exchange`."""
        return self._run("send", (data, count, _type(dtype), to), stream, start)

    def recv(
        self, data: int, count: int, dtype: str, source: int, stream: int = 0, start: bool = False
    ) -> Optional[DeviceWork]:
        """Receives elements from another rank."""
        return self._run("recv", (data, count, _type(dtype), source), stream, start)

    def exchange(
        self, sends: Sequence[Message], recvs: Sequence[Message], stream: int = 0, start: bool = False
    ) -> Optional[DeviceWork]:
        """Sends and receives several messages at the same time, so that ranks cannot wait for each other in a cycle."""
        arrays = []
        for part in (sends, recvs):
            messages = [native.Message(data, count, _type(dtype), peer) for peer, data, count, dtype in part]
            arrays.append((native.Message * len(part))(*messages))
        return self._run("exchange", (arrays[0], len(sends), arrays[1], len(recvs)), stream, start)

    def _run(self, name: str, arguments: "Tuple[Any, ...]", stream: int, start: bool) -> Optional[DeviceWork]:
        call = getattr(self._library, f"remuda_device_{name}")
        place = ctypes.c_void_p() if start else None
        native.check(call(self.handle, *arguments, stream, place))
        return None if place is None else DeviceWork(place.value or 0, None)


def _free(library: ctypes.CDLL, handle: Optional[int], process: int) -> None:
    # A forked process has no GPUs of its parent.
    if os.getpid() == process:
        library.remuda_devices_free(handle)


def _type(name: str) -> int:
    if name not in _TYPES:
        raise BadArgument(f"no element type is called {name!r}", hint=f"pass one of {', '.join(_TYPES)}")
    return _TYPES[name]
