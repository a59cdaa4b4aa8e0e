"""Operations on tensors of GPUs. Experimental: they have not run on a GPU yet.

An operation begins after the work that the current stream has when it is called. ``wait`` of its Work makes the stream
that is current then wait for it, and not the program, as that of NCCL's backend of torch does. Futures, ``is_completed``
and a ``timeout`` of ``wait`` are about the end of the operation itself.
"""

from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Iterator, List, NamedTuple, Optional

import torch

from remuda import native
from remuda.torch.errors import KINDS, BadArgument
from remuda.torch.work import Pending, Started


class Streams:
    """What torch knows about tensors of GPUs and about streams: all questions to CUDA. Tests have others."""

    def index_of(self, tensor: torch.Tensor) -> Optional[int]:
        """Number of the GPU of a tensor; None for other devices."""
        return tensor.device.index if tensor.is_cuda else None

    def are_there(self) -> bool:
        return torch.cuda.is_available()

    def current(self, index: int) -> int:
        """The current stream, as a handle of CUDA."""
        return int(torch.cuda.current_stream(index).cuda_stream)

    def synchronize(self, index: int) -> None:
        """Waits on the host for the work of the current stream."""
        torch.cuda.current_stream(index).synchronize()

    def mark(self, index: int) -> Any:
        """The end of the work that the current stream has."""
        return torch.cuda.current_stream(index).record_event()

    def wait(self, index: int, mark: Any) -> None:
        """Makes the current stream wait."""
        torch.cuda.current_stream(index).wait_event(mark)

    def keep_for_current(self, tensor: torch.Tensor, index: int) -> None:
        """Keeps the memory of a tensor that is freed until the current stream has used it."""
        tensor.record_stream(torch.cuda.current_stream(index))

    def devices(self, index: int) -> "List[torch.device]":
        """Devices of futures."""
        return [torch.device("cuda", index)]

    @contextmanager
    def on(self, index: int) -> Iterator[None]:
        """Makes the GPU the current one: streams of torch belong to the current GPU of a thread."""
        with torch.cuda.device(index):
            yield


streams = Streams()


class Place(NamedTuple):
    """A GPU, and the stream that was current there at a call."""

    index: int
    stream: int


def tensors_in(kept: Any) -> Iterator[torch.Tensor]:
    """The tensors of nested lists."""
    if isinstance(kept, torch.Tensor):
        yield kept
    elif isinstance(kept, (list, tuple)):
        for part in kept:
            yield from tensors_in(part)


def place_of(kept: Any) -> Optional[Place]:
    """Where the tensors of an operation are; None for the memory of the host."""
    found = {streams.index_of(tensor) for tensor in tensors_in(kept)}
    if len(found) > 1:
        names = sorted({str(tensor.device) for tensor in tensors_in(kept)})
        raise BadArgument(f"the tensors of an operation are on several devices: {', '.join(names)}")
    index = found.pop() if found else None
    return None if index is None else Place(index, streams.current(index))


class PendingOnDevice(Pending):
    """A started operation on a GPU."""

    def __init__(self, place: Place, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.place = place
        #: End of what `finish` has enqueued, for other streams.
        self.mark: Any = None
        self.is_ordered = False
        self.devices = streams.devices(place.index)

    def order(self) -> None:
        """Makes the current stream wait for the operation, then for what copies its result."""
        index = self.place.index
        current = streams.current(index)
        with self.lock:
            if self.handle is not None:
                native.check(native.library().remuda_device_wait(self.handle, current), KINDS)
            self.is_ordered = True
            if current != self.place.stream:
                for tensor in tensors_in([self._kept, self.result]):
                    streams.keep_for_current(tensor, index)
            finish, self._finish = self._finish, None
            if finish is not None:
                finish()
                self.mark = streams.mark(index)
            elif self.mark is not None:
                streams.wait(index, self.mark)

    def release(self) -> None:
        """Drops the handle of an operation for which a stream waits."""
        with self.lock:
            handle, self.handle = self.handle, None
        if handle is not None:
            native.library().remuda_device_release(handle)

    def _end(self, status: int) -> None:
        has_copies = self._finish is not None
        with streams.on(self.place.index):
            super()._end(status)
            if has_copies and self.error is None:
                # The thread that reads the result may have another current stream.
                streams.synchronize(self.place.index)


class OnDevice(Started):
    """An operation in flight on a GPU, for the program whose streams wait for it."""

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        pending = self._pending
        has_limit = timeout is not None and 0 < timeout.total_seconds()
        # The thread that completes the future waits for the operation itself.
        if has_limit or pending.promise is not None:
            return super().wait(timeout)
        if pending.error is not None:
            raise pending.error
        pending.order()
        return True

    def __del__(self) -> None:
        pending = getattr(self, "_pending", None)
        if pending is not None and pending.is_ordered and pending.promise is None:
            pending.release()
        else:
            super().__del__()
