"""Operations in flight, as torch's Works and futures."""

import atexit
import queue
import threading
from datetime import timedelta
from typing import Any, Callable, List, Optional

import torch
from torch._C._distributed_c10d import Work

from remuda import native
from remuda.torch.errors import KINDS


class Done(Work):
    """An operation that has ended without an error."""

    def __init__(self, result: List[torch.Tensor]) -> None:
        super().__init__()
        self._result = result

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def result(self) -> List[torch.Tensor]:
        return self._result

    def synchronize(self) -> None:
        return None

    def get_future(self) -> torch.futures.Future:
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(self._result)
        return future


class Pending:
    """A started operation: its handle, the tensors that it uses, and what to do at its end.

    Threads that wait for it do so one after the other.
    """

    def __init__(
        self, handle: int, kept: Any, result: List[torch.Tensor], finish: "Optional[Callable[[], None]]"
    ) -> None:
        self.lock = threading.Lock()
        self.handle: Optional[int] = handle
        self.result = result
        self.error: Optional[BaseException] = None
        self.promise: Optional[Promise] = None
        #: Devices of the result, other than the memory of the host.
        self.devices: List[torch.device] = []
        self._kept = kept
        self._finish = finish

    def wait_for(self, limit_ms: int, busy: Optional[threading.Lock] = None) -> bool:
        """Waits for at most ``limit_ms`` milliseconds; returns whether the operation has ended.

        ``busy`` is held while torch runs: while results are copied and while callbacks of the future run.
        """
        with self.lock:
            if self.handle is None:
                return True
            status = native.library().remuda_wait(self.handle, limit_ms)
            if status == native.IN_PROGRESS:
                return False
            busy = busy or threading.Lock()
            busy.acquire()
            self.handle = None
            self._end(status)
            promise = self.promise
        try:
            if promise is not None:
                promise.settle(self.result, self.error)
        finally:
            busy.release()
        return True

    def _end(self, status: int) -> None:
        finish, self._finish, self._kept = self._finish, None, None
        if status != native.OK:
            self.error = native.last_error(KINDS)
        elif finish is not None:
            try:
                finish()
            except Exception as error:
                self.error = error


class Promise:
    """A future of torch that can fail.

    An exception that is set on a future is known to the Python object alone: C++, such as that of
    DistributedDataParallel, would take it for the result. The error of a callback is an error in both.
    """

    def __init__(self, devices: List[torch.device]) -> None:
        self._ended: torch.futures.Future = torch.futures.Future(devices=devices)
        self._result: List[torch.Tensor] = []
        self._error: Optional[BaseException] = None
        self.future = self._ended.then(self._outcome)

    def _outcome(self, _: torch.futures.Future) -> List[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._result

    def settle(self, result: List[torch.Tensor], error: Optional[BaseException]) -> None:
        """Completes the future."""
        self._result, self._error = result, error
        self._ended.set_result(None)


def _wait_until_done(future: torch.futures.Future) -> None:
    """Waits until a future says that it is done, which the helper thread sets after the operation has ended."""
    try:
        future.wait()
    except Exception:
        # The Work raises the error itself, in its class.
        return


class Completer:
    """A thread that waits for started operations, one after the other. It starts with the first of them.

    The queue holds at most the operations in flight: a group blocks if it has more than 1024 of them.

    A thread that Python ends while C++ runs in it would end the whole process. So the thread holds a lock while torch
    runs in it, and the exit of the process takes that lock first.
    """

    _running: "set[Completer]" = set()
    _is_exiting = False

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: "queue.SimpleQueue[Optional[Pending]]" = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: Optional[threading.Thread] = None
        self._busy = threading.Lock()

    def add(self, pending: Pending) -> None:
        self._queue.put(pending)
        if Completer._is_exiting:
            # The queue keeps the tensors: the operation may use them until the process has exited.
            Completer._running.add(self)
            return
        with self._lock:
            if self._thread is None:
                Completer._running.add(self)
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ends the thread after the operations that it has."""
        self._queue.put(None)

    def _run(self) -> None:
        while True:
            pending = self._queue.get()
            if pending is None:
                break
            pending.wait_for(native.FOREVER, self._busy)
            with self._busy:
                # Freed here, and not when the next operation arrives.
                del pending
        Completer._running.discard(self)

    @classmethod
    def _exit(cls) -> None:
        cls._is_exiting = True
        for completer in list(cls._running):
            completer._busy.acquire()


atexit.register(Completer._exit)


class Started(Work):
    """An operation in flight, for the program that waits for it.

    `get_future` passes the operation to the helper thread of its group, and so does dropping it: torch drops the Work
    of an ``isend`` that a program does not wait for. Until then, the thread that calls `wait` waits itself.
    """

    def __init__(self, pending: Pending, futures: Completer, dropped: Completer) -> None:
        super().__init__()
        self._pending = pending
        self._futures = futures
        self._dropped = dropped

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        seconds = timeout.total_seconds() if timeout else 0
        # torch's "no timeout" is 0 or negative.
        limit_ms = round(seconds * 1000) if 0 < seconds else native.FOREVER
        if not self._pending.wait_for(limit_ms):
            raise TimeoutError(f"the operation did not end within {seconds} s; it continues")
        if self._pending.promise is not None:
            _wait_until_done(self._pending.promise.future)
        if self._pending.error is not None:
            raise self._pending.error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        pending = self._pending
        # A thread that waits holds the lock.
        return pending.handle is None or (not pending.lock.locked() and pending.wait_for(0))

    def is_success(self) -> bool:
        return self.is_completed() and self._pending.error is None

    def exception(self) -> Optional[BaseException]:
        return self._pending.error if self.is_completed() else None

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return self._pending.result

    def get_future(self) -> torch.futures.Future:
        pending = self._pending
        with pending.lock:
            if pending.promise is not None:
                return pending.promise.future
            promise = pending.promise = Promise(pending.devices)
            is_running = pending.handle is not None
        if is_running:
            self._futures.add(pending)
        else:
            promise.settle(pending.result, pending.error)
        return promise.future

    def __del__(self) -> None:
        pending = getattr(self, "_pending", None)
        if pending is not None and pending.handle is not None and pending.promise is None:
            self._dropped.add(pending)


class Several(Work):
    """Operations that a program sees as one."""

    def __init__(self, works: List[Work], result: List[torch.Tensor]) -> None:
        super().__init__()
        self._works = works
        self._result = result
        self._future: Optional[torch.futures.Future] = None

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        for work in self._works:
            work.wait(timeout) if timeout else work.wait()
        if self._future is not None:
            _wait_until_done(self._future)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def exception(self) -> Optional[BaseException]:
        return next((error for error in (work.exception() for work in self._works) if error), None)

    def result(self) -> List[torch.Tensor]:
        self.wait()
        return self._result

    def get_future(self) -> torch.futures.Future:
        if self._future is not None:
            return self._future
        result = self._result
        together = torch.futures.collect_all([work.get_future() for work in self._works])

        def unwrap(ended: torch.futures.Future) -> List[torch.Tensor]:
            for one in ended.value():
                one.value()
            return result

        self._future = together.then(unwrap)
        return self._future
