"""Groups over any objects with a buffer: ``array.array``, ``bytearray``, ``memoryview``, numpy arrays."""

import ctypes
import math
import os
import sys
import weakref
from typing import Any, Callable, Optional, Sequence

from remuda import _stacks, native, notes
from remuda.errors import BadArgument, EnvironmentMismatch

#: Element types by the format of a buffer; the size decides between the types of integers.
_FLOATS = {"f": native.F32, "d": native.F64, "e": native.F16}
_REDUCTIONS = {"sum": native.SUM, "prod": native.PROD, "min": native.MIN, "max": native.MAX, "avg": native.AVG}


class Work:
    """An operation in flight. Its buffers must not be used before `wait` returns; they are kept until then.

    If it is dropped before, it waits for the operation.
    """

    def __init__(self, handle: int, kept: Any) -> None:
        self._handle: Optional[int] = handle
        self._kept = kept

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the operation has ended, for at most ``timeout`` seconds; returns whether it has.

        Raises the error of the operation, once.
        """
        if self._handle is None:
            return True
        limit = native.FOREVER if timeout is None else round(timeout * 1000)
        status = native.library().remuda_wait(self._handle, limit)
        if status == native.IN_PROGRESS:
            return False
        self._handle = self._kept = None
        native.check(status)
        return True

    def has_ended(self) -> bool:
        """Whether the operation has ended; does not wait."""
        if self._handle is None:
            return True
        ended = ctypes.c_int32()
        native.check(native.library().remuda_test(self._handle, ended))
        return bool(ended.value)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not sys.is_finalizing():
            native.library().remuda_wait(self._handle, native.FOREVER)


class Memory:
    """Zeros in memory that the ranks of a node share: collectives use it in place. Has the buffer protocol through
    `view`."""

    def __init__(self, group: "Group", size: int) -> None:
        place = ctypes.c_void_p()
        library = native.library()
        native.check(library.remuda_alloc(group.handle, size, place))
        self.address: int = place.value or 0
        self.size = size
        #: The bytes. Views of it keep the memory.
        self.bytes = (ctypes.c_char * size).from_address(self.address)
        weakref.finalize(self.bytes, release, library, self.address, os.getpid()).atexit = False

    def view(self, format: str = "B") -> memoryview:
        """The memory as elements of a format of `struct`, such as ``f``."""
        return memoryview(self.bytes).cast("B").cast(format)  # type: ignore[call-overload]


def release(library: ctypes.CDLL, address: int, process: int) -> None:
    """Frees memory, except in a process that was forked since: its parent uses the memory."""
    if os.getpid() == process:
        library.remuda_release(address)


class _Elements:
    """Address, number and type of the elements of a buffer."""

    def __init__(self, buffer: Any, is_output: bool) -> None:
        try:
            view = memoryview(buffer)
        except TypeError:
            hint = "pass an `array.array`, a `bytearray` or a numpy array; `torch.distributed` takes tensors"
            raise BadArgument(f"{type(buffer).__name__} has no buffer", hint=hint) from None
        if not view.c_contiguous:
            raise BadArgument("the buffer is not contiguous")
        if view.readonly and is_output:
            raise BadArgument("the buffer is read-only")
        self.dtype, size = _type_of(view)
        self.count = view.nbytes // size
        # A read-only buffer has no address for ctypes.
        data = bytearray(view) if view.readonly else view
        self.kept: Any = None
        self.address = 0
        if view.nbytes:
            self.kept = (ctypes.c_char * view.nbytes).from_buffer(data)
            self.address = ctypes.addressof(self.kept)


def _type_of(view: memoryview) -> "tuple[int, int]":
    """Code and size of an element; types that cannot be summed are bytes."""
    letter = view.format.lstrip("@=<")
    if letter in _FLOATS:
        return _FLOATS[letter], view.itemsize
    if letter in ("i", "l", "q") and view.itemsize in (4, 8):
        return (native.I32 if view.itemsize == 4 else native.I64), view.itemsize
    return native.U8, 1


class Group:
    """A set of ranks that communicate.

    All ranks call the same operations in the same order, with equal types and sizes. With ``start=True`` an operation
    returns a `Work`; else it returns None when it has ended. After an error every further operation fails.
    """

    def __init__(self, handle: int) -> None:
        self.handle: Optional[int] = handle
        self._library = native.library()

    @property
    def rank(self) -> int:
        """Rank of this worker in the group."""
        return int(self._library.remuda_rank(self.handle))

    @property
    def size(self) -> int:
        """Number of ranks."""
        return int(self._library.remuda_size(self.handle))

    def of(self, ranks: Sequence[int], name: str, timeout: Optional[float] = None) -> "Group":
        """Makes a group of some ranks of this one; only they call it, with equal arguments."""
        place = ctypes.c_void_p()
        listed = (ctypes.c_uint32 * len(ranks))(*ranks)
        options = None if timeout is None else native.options(timeout)
        native.check(
            self._library.remuda_group_of(self._own_handle(), listed, len(ranks), name.encode(), options, place)
        )
        return Group(place.value or 0)

    def free(self) -> None:
        """Leaves the group after its started operations have ended."""
        handle, self.handle = self.handle, None
        native.check(self._library.remuda_free(handle))

    def set_timeout(self, timeout: float) -> None:
        """Sets the deadline in seconds of the operations of this rank that begin later."""
        native.check(self._library.remuda_set_timeout(self._own_handle(), native.milliseconds(timeout)))

    def check(self) -> None:
        """Raises the failure of the group, if it is known to have failed; does not wait."""
        native.check(self._library.remuda_check(self._own_handle()))

    def abort(self, reason: str) -> None:
        """Aborts the group: running and later operations fail on every rank."""
        native.check(self._library.remuda_abort(self._own_handle(), reason.encode()))

    def note_step(
        self, step: int, steps: int = 0, loss: float = math.nan, tokens_per_s: float = math.nan
    ) -> None:
        """Reports to the launcher that a training step has ended; NaN and 0 steps are unknown."""
        native.check(self._library.remuda_note_step(self._own_handle(), step, steps, loss, tokens_per_s))

    def alloc(self, size: int) -> Memory:
        """Allocates zeros that collectives use in place; ``size`` is in bytes."""
        return Memory(self, size)

    def all_reduce(self, data: Any, op: str = "sum", start: bool = False) -> Optional[Work]:
        """Replaces the data of every rank by the reduction: ``sum``, ``prod``, ``min``, ``max``, ``avg``."""
        own = _Elements(data, True)
        arguments = (own.address, own.count, own.dtype, reduction(op))
        return self._run(self._library.remuda_all_reduce, arguments, own, start)

    def reduce(self, data: Any, root: int, op: str = "sum", start: bool = False) -> Optional[Work]:
        """Replaces the data of ``root`` by the reduction over all ranks."""
        own = _Elements(data, True)
        arguments = (own.address, own.count, own.dtype, reduction(op), root)
        return self._run(self._library.remuda_reduce, arguments, own, start)

    def broadcast(self, data: Any, root: int, start: bool = False) -> Optional[Work]:
        """Replaces the data of every rank by that of ``root``."""
        own = _Elements(data, True)
        arguments = (own.address, own.count, own.dtype, root)
        return self._run(self._library.remuda_broadcast, arguments, own, start)

    def all_gather(self, given: Any, output: Any, start: bool = False) -> Optional[Work]:
        """Fills ``output`` with the input of every rank, in rank order."""
        own, all_parts = _Elements(given, False), _Elements(output, True)
        self._check_parts(all_parts, own)
        arguments = (own.address, all_parts.address, own.count, own.dtype)
        return self._run(self._library.remuda_all_gather, arguments, (own, all_parts), start)

    def reduce_scatter(self, given: Any, output: Any, op: str = "sum", start: bool = False) -> Optional[Work]:
        """Fills ``output`` with part ``rank`` of the reduction of the inputs."""
        all_parts, own = _Elements(given, False), _Elements(output, True)
        self._check_parts(all_parts, own)
        arguments = (all_parts.address, own.address, own.count, own.dtype, reduction(op))
        return self._run(self._library.remuda_reduce_scatter, arguments, (own, all_parts), start)

    def gather(self, given: Any, output: Any, root: int, start: bool = False) -> Optional[Work]:
        """Fills ``output`` of ``root`` with the input of every rank; other ranks pass None."""
        own, all_parts = _Elements(given, False), _Elements(output if self.rank == root else b"", False)
        if self.rank == root:
            all_parts = _Elements(output, True)
            self._check_parts(all_parts, own)
        arguments = (own.address, all_parts.address, own.count, own.dtype, root)
        return self._run(self._library.remuda_gather, arguments, (own, all_parts), start)

    def scatter(self, given: Any, output: Any, root: int, start: bool = False) -> Optional[Work]:
        """Fills ``output`` of every rank with its part of the input of ``root``; other ranks pass None."""
        own, all_parts = _Elements(output, True), _Elements(given if self.rank == root else b"", False)
        if self.rank == root:
            self._check_parts(all_parts, own)
        arguments = (all_parts.address, own.address, own.count, own.dtype, root)
        return self._run(self._library.remuda_scatter, arguments, (own, all_parts), start)

    def all_to_all(self, given: Any, output: Any, start: bool = False) -> Optional[Work]:
        """Sends part ``r`` of ``given`` to rank ``r`` and fills part ``r`` of ``output`` with the part from there."""
        sent, received = _Elements(given, False), _Elements(output, True)
        part = sent.count // self.size
        if sent.count != received.count or part * self.size != sent.count or sent.dtype != received.dtype:
            problem = f"both buffers have one type and {self.size} equal parts, got {sent.count} and {received.count}"
            raise BadArgument(f"{problem} elements")
        arguments = (sent.address, received.address, part, sent.dtype)
        return self._run(self._library.remuda_all_to_all, arguments, (sent, received), start)

    def all_to_all_v(
        self, given: Any, send_counts: Sequence[int], output: Any, recv_counts: Sequence[int], start: bool = False
    ) -> Optional[Work]:
        """`all_to_all` with parts of any length, in elements, one for each rank."""
        sent, received = _Elements(given, False), _Elements(output, True)
        self._check_counts(sent, send_counts)
        self._check_counts(received, recv_counts)
        counts = [(ctypes.c_size_t * self.size)(*of) for of in (send_counts, recv_counts)]
        arguments = (sent.address, counts[0], received.address, counts[1], sent.dtype)
        return self._run(self._library.remuda_all_to_all_v, arguments, (sent, received), start)

    def barrier(self, start: bool = False) -> Optional[Work]:
        """Waits until every rank has called it."""
        return self._run(self._library.remuda_barrier, (), None, start)

    def monitored_barrier(self, timeout: Optional[float] = None) -> None:
        """`barrier` for at most ``timeout`` seconds, or as long as any operation of the group; the error names the ranks
        that are late. All ranks call this one: a `barrier` of another rank is a `Mismatch`."""
        limit = native.milliseconds(timeout)
        native.check(self._library.remuda_monitored_barrier(self._own_handle(), limit))

    def send(self, data: Any, to: int, start: bool = False) -> Optional[Work]:
        """Sends elements to another rank, which receives as many of the same type."""
        own = _Elements(data, False)
        return self._run(self._library.remuda_send, (own.address, own.count, own.dtype, to), own, start)

    def recv(self, data: Any, source: int, start: bool = False) -> Optional[Work]:
        """Receives elements from another rank."""
        own = _Elements(data, True)
        return self._run(self._library.remuda_recv, (own.address, own.count, own.dtype, source), own, start)

    def exchange(
        self, sends: "Sequence[tuple[int, Any]]", recvs: "Sequence[tuple[int, Any]]", start: bool = False
    ) -> Optional[Work]:
        """Sends and receives several messages, each a rank and a buffer, at the same time."""
        kept = [[(peer, _Elements(data, at == 1)) for peer, data in part] for at, part in enumerate((sends, recvs))]
        arrays = []
        for part in kept:
            messages = [native.Message(own.address, own.count, own.dtype, peer) for peer, own in part]
            arrays.append((native.Message * len(part))(*messages))
        arguments = (arrays[0], len(sends), arrays[1], len(recvs))
        return self._run(self._library.remuda_exchange, arguments, kept, start)

    def _run(self, call: "Callable[..., int]", arguments: "tuple[Any, ...]", kept: Any, start: bool) -> Optional[Work]:
        handle = self._own_handle()
        if not start:
            native.check(call(handle, *arguments, None))
            return None
        place = ctypes.c_void_p()
        native.check(call(handle, *arguments, place))
        return Work(place.value or 0, kept)

    def _own_handle(self) -> int:
        if self.handle is None:
            raise BadArgument("the group was freed", hint="use a group that is not freed, or make another one")
        return self.handle

    def _check_parts(self, all_parts: _Elements, own: _Elements) -> None:
        if all_parts.dtype != own.dtype or all_parts.count != self.size * own.count:
            problem = f"expected {self.size} × {own.count} elements of the type of the part, got {all_parts.count}"
            raise BadArgument(problem)

    def _check_counts(self, own: _Elements, counts: Sequence[int]) -> None:
        if len(counts) != self.size or sum(counts) != own.count:
            raise BadArgument(f"expected {self.size} counts whose sum is {own.count}, got {list(counts)}")


def reduction(name: str) -> int:
    try:
        return _REDUCTIONS[name]
    except KeyError:
        raise BadArgument(f"no reduction is named {name!r}; reductions: {', '.join(_REDUCTIONS)}") from None


def init(timeout: Optional[float] = None, streams: int = 0) -> Group:
    """Joins the group of all workers of the job, once in each process.

    ``timeout`` is the deadline of every operation in seconds, ten minutes by default; ``streams`` the number of TCP
    streams between two ranks of different nodes, 0 for the default. Raises `EnvironmentMismatch` outside of a job.
    """
    _stacks.prepare()
    place = ctypes.c_void_p()
    try:
        native.check(native.library().remuda_init(native.options(timeout, streams), place))
    except EnvironmentMismatch as error:
        program = _program()
        if program is None or notes.is_worker() or "REMUDA_KEY_FILE" in os.environ:
            raise
        hint = f"start the program as a worker: `remuda run -n 2 {program}`"
        raise EnvironmentMismatch(error.message, hint=hint) from None
    return Group(place.value or 0)


def _program() -> Optional[str]:
    """The program as ``remuda run`` takes it; None where it has no file, as in a notebook."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return f"--module {spec.name.removesuffix('.__main__')}"
    return sys.argv[0] if getattr(main, "__file__", None) and sys.argv[0] else None


def meet(store: Any, rank: int, size: int, address: str = "127.0.0.1", timeout: Optional[float] = None) -> Group:
    """Joins a group of ranks that any program has started, through a key-value store that no other group has used.

    ``store`` has ``set(key, value)`` and ``get(key)``, which waits for the key, as the stores of torch have. Ranks of
    one machine share memory; other hosts reach rank 0 at ``address``. An exception of the store is raised again.
    """
    place, raised = ctypes.c_void_p(), []  # type: ignore[var-annotated]
    own = native.options(timeout)
    table = native.Store(None, *_functions(store, raised))
    status = native.library().remuda_meet(table, address.encode(), rank, size, own, place)
    if raised:
        raise raised[0]
    native.check(status)
    return Group(place.value or 0)


def _functions(store: Any, raised: "list[BaseException]") -> "tuple[Any, Any]":
    """The functions of a store for C; their exceptions are kept, because C cannot pass them on."""

    def set_value(_: Any, key: bytes, value: bytes) -> int:
        try:
            store.set(key.decode(), value.decode())
        except BaseException as error:
            raised.append(error)
            return -1
        return 0

    def get_value(_: Any, key: bytes, place: int, size: int) -> int:
        try:
            value = store.get(key.decode())
        except BaseException as error:
            raised.append(error)
            return -1
        found = value.encode() if isinstance(value, str) else bytes(value)
        if size <= len(found):
            return -1
        ctypes.memmove(place, found + b"\0", len(found) + 1)
        return 0

    return native.SetFunction(set_value), native.GetFunction(get_value)


def threads(ranks: int, timeout: Optional[float] = None) -> "list[Group]":
    """Groups of this process, each for one thread that acts as a rank. For tests."""
    places = (ctypes.c_void_p * ranks)()
    first = ctypes.cast(places, ctypes.POINTER(ctypes.c_void_p))
    native.check(native.library().remuda_threads(ranks, native.options(timeout), first))
    return [Group(place or 0) for place in places]


def version() -> str:
    """Version of the C library."""
    return str(native.library().remuda_version().decode())
