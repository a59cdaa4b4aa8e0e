"""The backend: one object for each group of torch, over a group of remuda."""

import atexit
import ctypes
import functools
import hashlib
import multiprocessing
import multiprocessing.util
import os
import sys
import threading
import weakref
from datetime import timedelta
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as C10dBackend
from torch._C._distributed_c10d import Work, _create_work_from_future

from remuda import group as groups
from remuda import native, notes
from remuda.devices import Devices
from remuda.errors import RemudaError
from remuda.torch.cuda import OnDevice, PendingOnDevice, Place, place_of, streams
from remuda.torch.errors import KINDS, BadArgument, EnvironmentMismatch, SystemFailure, of_torch
from remuda.torch.tensors import (
    BITWISE,
    block,
    copier,
    dense,
    empty_for,
    folded,
    reduction,
    spread,
    summand,
)
from remuda.torch.work import Completer, Done, Pending, Several, Started

#: Longest name of a group in bytes.
_NAME_BYTES_MAX = 128

#: What torch says of a Work that is not one of its own backends.
_UNKNOWN_OPERATION = 100

#: Time after which a rank tells that the next one has not made its default group over remuda, in seconds.
_NAMED_WITHIN_S = 30

_world_lock = threading.Lock()
_world: Optional[groups.Group] = None


def _forget_world() -> None:
    """A process that was forked has joined nothing; the handle is that of its parent."""
    global _world, _world_lock
    if _world is not None:
        _world.handle = None
    _world, _world_lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_world)


def _join_job(options: Any) -> "Tuple[groups.Group, bool]":
    """The group of all ranks, and whether this call has joined it: a process joins once.

    The ranks of a default group that remuda has not started meet through its store.
    """
    global _world
    with _world_lock:
        if _world is not None:
            return _world, False
        if _is_of_job():
            place, own = ctypes.c_void_p(), native.options(options.timeout.total_seconds())
            native.check(native.library().remuda_init(own, place), KINDS)
            _world = groups.Group(place.value or 0)
            return _world, True
        if options.global_ranks_in_group:
            hint = 'initialize the default group with "remuda", or start the program with `remuda run`'
            raise EnvironmentMismatch("this process has joined no group of all ranks", hint=hint)
        _world = _meet(options)
        _leave_at_exit(_world)
        return _world, True


def _compare_names(options: Any) -> None:
    """Tells the user if the next rank names another backend: torch does not compare the names, and both would wait."""
    after = (options.group_rank + 1) % options.group_size
    try:
        options.store.set(f"remuda/named/{options.group_rank}", "")
    except Exception:
        # A job does not need the store.
        return

    def look() -> None:
        try:
            is_named = options.store.check([f"remuda/named/{after}"])
        except Exception:
            # The program has ended, and the store with it.
            return
        if not is_named:
            problem = f"rank {after} has not named the backend remuda for its default group"
            note = f"note: {problem} within {_NAMED_WITHIN_S} s; all ranks name the same backend"
            print(note, file=sys.stderr, flush=True)

    timer = threading.Timer(_NAMED_WITHIN_S, look)
    timer.daemon = True

    def end() -> None:
        timer.cancel()
        # Python must not end the thread while C++ runs in it.
        timer.join(1)

    timer.start()
    atexit.register(end)


def _is_of_job() -> bool:
    """Whether remuda knows the rank of this process.

    Those that a worker starts have its environment. They are ranks of groups of their own.
    """
    if notes.is_worker():
        return multiprocessing.parent_process() is None and bool(native.library().remuda_is_worker())
    return "REMUDA_KEY_FILE" in os.environ


def _meet(options: Any) -> groups.Group:
    """The group of ranks that meet through the store of their default group."""
    address, timeout_s = _address_of(options.store), options.timeout.total_seconds()
    try:
        return groups.meet(options.store, options.group_rank, options.group_size, address, timeout_s)
    except Exception as error:
        if notes.is_worker() and _has_rank_of_worker(options):
            worker = os.environ["RANK"]
            problem = f"this is a child process of the worker of rank {worker}, with the rank of that worker"
            hint = (
                "call init_process_group in the worker itself, or start such a child on every rank; children that form "
                "a group of their own need `RANK`, `WORLD_SIZE` and `MASTER_PORT` of their own"
            )
            raise EnvironmentMismatch(f"{problem}, and has not met the other ranks: {error}", hint=hint) from error
        if isinstance(error, RemudaError):
            raise of_torch(error) from None
        raise


def _has_rank_of_worker(options: Any) -> bool:
    of_worker = (os.environ.get("RANK"), os.environ.get("WORLD_SIZE"))
    return of_worker == (str(options.group_rank), str(options.group_size))


def _leave_at_exit(group: groups.Group) -> None:
    """Tells the other ranks at the exit of this process that it has not failed: no launcher does."""
    process = os.getpid()

    def leave() -> None:
        # A forked process is not a rank.
        if os.getpid() == process:
            group.free()

    atexit.register(leave)
    # Processes of multiprocessing do not run what is registered above.
    multiprocessing.util.Finalize(None, leave, exitpriority=0)


def _address_of(store: Any) -> str:
    """Address at which other hosts reach rank 0: that of its store."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return str(getattr(store, "host", "") or os.environ.get("MASTER_ADDR", "") or "127.0.0.1")


def _member_group(options: Any) -> groups.Group:
    """The group of remuda for a group of torch, whose members call this."""
    timeout_s = options.timeout.total_seconds()
    if not options.global_ranks_in_group and 1 < options.group_size:
        _compare_names(options)
    world, is_new = _join_job(options)
    ranks = list(options.global_ranks_in_group) or list(range(options.group_size))
    if world.size <= max(ranks) or ranks[options.group_rank] != world.rank:
        problem = f"torch says that this is rank {ranks[options.group_rank]} of at least {max(ranks) + 1}"
        hint = "leave `rank` and `world_size` of init_process_group to the environment of the job"
        raise EnvironmentMismatch(f"{problem}, the job has rank {world.rank} of {world.size}", hint=hint)
    if is_new and ranks == list(range(world.size)):
        return world
    if not options.global_ranks_in_group:
        _check_joined(world)
    name = f"torch {options.group_id}"
    if _NAME_BYTES_MAX < len(name.encode()):
        name = f"torch {hashlib.sha256(name.encode()).hexdigest()}"
    place, listed = ctypes.c_void_p(), (ctypes.c_uint32 * len(ranks))(*ranks)
    library, own = native.library(), native.options(timeout_s)
    native.check(library.remuda_group_of(world.handle, listed, len(ranks), name.encode(), own, place), KINDS)
    return groups.Group(place.value or 0)


def _check_joined(world: groups.Group) -> None:
    """A later default group is made by the group of the job, which may have failed."""
    try:
        world.check()
    except RemudaError as error:
        hint = "start the job again: a process joins its job once, and a group that has failed stays failed"
        kind = type(of_torch(error))
        raise kind(f"no further default group can be made: {error.message}", error.rank, hint) from None


def _free(group: groups.Group) -> None:
    if group is not _world and group.handle is not None:
        group.free()


def empty(*size: int, dtype: Optional[torch.dtype] = None) -> torch.Tensor:
    """A tensor like that of `torch.empty`, filled with zeros, in memory that collectives use in place.

    Raises `SystemFailure` if the shared memory is too small, and `EnvironmentMismatch` before the process has joined
    its group.
    """
    if _world is None:
        raise EnvironmentMismatch("this process has joined no group", hint='call init_process_group("remuda") first')
    return _allocate(_world, size, dtype or torch.get_default_dtype())


def _allocate(group: groups.Group, size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    count = 1
    for extent in size:
        count *= extent
    place, library = ctypes.c_void_p(), native.library()
    bytes_ = max(1, count * dtype.itemsize)
    native.check(library.remuda_alloc(group.handle, bytes_, place), KINDS)
    address = place.value or 0
    memory = (ctypes.c_char * bytes_).from_address(address)
    weakref.finalize(memory, groups.release, library, address, os.getpid()).atexit = False
    # The tensor keeps `memory`.
    return torch.frombuffer(memory, dtype=dtype, count=count).view(*size) if count else torch.empty(*size, dtype=dtype)


class Call(NamedTuple):
    """An operation as a call of the C library.

    ``arguments`` are those between the group and the handle, ``kept`` is the memory that they point to, ``result`` what
    the Work of the operation returns, and ``finish`` runs at its end. ``name`` is that of ``remuda_all_reduce`` without
    ``remuda_``, for memory of the host, or without ``remuda_device_``.
    """

    name: str
    arguments: "Tuple[Any, ...]"
    kept: Any
    result: List[torch.Tensor]
    finish: "Optional[Callable[[], None]]" = None


class _Operations:
    """The operations of c10d, under the names of all versions of torch, for both kinds of backends."""

    _rank: int
    _size: int
    _group: groups.Group

    def _join(self, options: Any) -> None:
        self._rank, self._size = options.group_rank, options.group_size
        self._timeout_s = options.timeout.total_seconds()
        self._group = _member_group(options)
        self._library = native.library()
        self._futures = Completer("remuda-futures")
        self._dropped = Completer("remuda-dropped")
        self._name, self._description = "", ""
        self._operations = 0
        self._bracket: Optional[List[Work]] = None
        #: Messages of GPUs in the bracket, and what copies those that were received.
        self._messages: "Tuple[List[_Message], List[_Message], List[torch.Tensor]]" = ([], [], [])
        self._devices: "Dict[int, Devices]" = {}
        self._freed = weakref.finalize(self, _close, self._group, self._devices, self._futures, self._dropped)
        self._freed.atexit = False

    # ---- how an operation runs ----

    def _run(self, call: Call, options: Any) -> Work:
        """Runs an operation of all ranks."""
        self._operations += 1
        return self._run_here(call, options)

    def _run_here(self, call: Call, options: Any) -> Work:
        """Starts an operation, or runs it if the program waits for it anyway."""
        is_async = getattr(options, "asyncOp", True)
        device = place_of(call.kept)
        if device is not None:
            work: Work = self._start_on_device(call, device)
            if not is_async:
                work.wait()
        elif is_async:
            place = ctypes.c_void_p()
            native.check(self._function(call)(self._handle(), *call.arguments, place), KINDS)
            pending = Pending(place.value or 0, call.kept, call.result, call.finish)
            work = Started(pending, self._futures, self._dropped)
        else:
            native.check(self._function(call)(self._handle(), *call.arguments, None), KINDS)
            if call.finish is not None:
                call.finish()
            return Done(call.result)
        if is_async and self._bracket is not None:
            self._bracket.append(work)
        return work

    def _function(self, call: Call) -> "Callable[..., int]":
        function: "Callable[..., int]" = getattr(self._library, f"remuda_{call.name}")
        return function

    def _start_on_device(self, call: Call, device: Place) -> Work:
        """Starts an operation after the work of the current stream."""
        handle, place = self._devices_at(device.index), ctypes.c_void_p()
        arguments = (0 if argument is None else argument for argument in call.arguments)
        function = getattr(self._library, f"remuda_device_{call.name}")
        native.check(function(handle, *arguments, device.stream, place), KINDS)
        pending = PendingOnDevice(device, place.value or 0, call.kept, call.result, call.finish)
        return OnDevice(pending, self._futures, self._dropped)

    def _devices_at(self, index: int) -> Optional[int]:
        """Handle of the GPUs of the ranks, which the first operation on them connects: all ranks take part in it."""
        self._handle()
        if index not in self._devices:
            if not native.has_devices(self._library):
                hint = 'name the backends "cpu:remuda,cuda:nccl", with torch 2.14 or newer: NCCL moves these tensors'
                raise BadArgument(f"a tensor is on GPU {index}, and this C library is for host memory", hint=hint)
            try:
                self._devices[index] = Devices(self._group, index)
            except RemudaError as error:
                raise of_torch(error) from None
        return self._devices[index].handle

    def _handle(self) -> int:
        handle = self._group.handle
        if handle is None:
            raise BadArgument("the process group was destroyed", hint="create it again on all of its ranks")
        return handle

    def _together(self, works: List[Work], result: List[torch.Tensor]) -> Work:
        if all(isinstance(work, Done) for work in works):
            return Done(result)
        return Several(works, result)

    # ---- reductions ----

    def allreduce(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        if len(tensors) == 1:
            return self._all_reduce(tensors[0], tensors, opts)
        return self._together([self._all_reduce(one, [one], opts) for one in tensors], tensors)

    def allreduce_coalesced(self, tensors: List[torch.Tensor], opts: Any = None) -> Work:
        return self.allreduce(tensors, opts)

    def _all_reduce(self, tensor: torch.Tensor, result: List[torch.Tensor], opts: Any) -> Work:
        given = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
        if reduction(given) in BITWISE and tensor.dtype is not torch.bool:
            parts = tensor.new_empty((self._size, *tensor.shape))

            def fold() -> None:
                tensor.copy_(folded(given, list(parts)))

            return self._gather_all(dense(tensor), parts, result, opts, fold)
        memory, op = own = summand(tensor, given)
        arguments = (*own.block, op)
        return self._run(Call("all_reduce", arguments, memory, result, copier(tensor, memory)), opts)

    def reduce(self, tensors: List[torch.Tensor], opts: Any) -> Work:
        (tensor,) = tensors
        memory, op = own = summand(tensor, opts.reduceOp)
        finish = copier(tensor, memory) if self._rank == opts.rootRank else None
        arguments = (*own.block, op, opts.rootRank)
        return self._run(Call("reduce", arguments, memory, tensors, finish), opts)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        given = getattr(opts, "reduceOp", dist.ReduceOp.SUM)
        if reduction(given) in BITWISE and input.dtype is not torch.bool:
            parts = input.new_empty((self._size, *output.shape))

            def fold() -> None:
                output.copy_(folded(given, list(parts)))

            work = self.all_to_all_single(parts, input, [], [], opts)
            return self._then(work, fold, [output], opts)
        memory, op = own = summand(input, given)
        target = self._target(output, memory)
        address, _, code = own.block
        arguments = (address, target.data_ptr(), target.numel(), code, op)
        finish = copier(output, target)
        return self._run(Call("reduce_scatter", arguments, (memory, target), [output], finish), opts)

    def _target(self, output: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """Where a reduction of ``memory`` writes the elements of an output."""
        direct = summand(output, dist.ReduceOp.SUM).memory if output.is_contiguous() else None
        if direct is not None and direct.data_ptr() == output.data_ptr() and direct.dtype == memory.dtype:
            return direct
        return torch.empty(memory.numel() // self._size, dtype=memory.dtype, device=memory.device)

    def _then(self, work: Work, finish: "Callable[[], None]", result: List[torch.Tensor], opts: Any) -> Work:
        """Runs ``finish`` after a work that a program may not see."""
        work.wait()
        finish()
        return Done(result)

    def reduce_scatter_single_coalesced(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None
    ) -> Work:
        pairs = zip(outputs, inputs)
        return self._together([self.reduce_scatter_single(*pair, opts) for pair in pairs], outputs)

    def reduce_scatter(
        self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any = None
    ) -> Work:
        return self._together([self._reduce_parts(*pair, opts) for pair in zip(outputs, inputs)], outputs)

    def _reduce_parts(self, output: torch.Tensor, parts: List[torch.Tensor], opts: Any) -> Work:
        if len({part.numel() for part in parts}) == 1:
            return self.reduce_scatter_single(output, torch.cat([part.reshape(-1) for part in parts]), opts)
        # Parts of different lengths: every rank is the root of its own.
        works: List[Work] = []
        for root, part in enumerate(parts):
            memory, op = own = summand(part.clone(), getattr(opts, "reduceOp", dist.ReduceOp.SUM))
            finish = copier(output, memory) if root == self._rank else None
            works.append(
                self._run(Call("reduce", (*own.block, op, root), memory, [output], finish), opts)
            )
        return self._together(works, [output])

    # ---- copies ----

    def broadcast(self, tensors: List[torch.Tensor], opts: Any) -> Work:
        (tensor,) = tensors
        memory = dense(tensor)
        arguments = (memory.data_ptr(), *block(memory), opts.rootRank)
        return self._run(Call("broadcast", arguments, memory, tensors, copier(tensor, memory)), opts)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        if output.is_contiguous():
            return self._gather_all(dense(input), output, [output], opts, None)
        parts = torch.empty(output.shape, dtype=output.dtype, device=output.device)
        return self._gather_all(dense(input), parts, [output], opts, copier(output, parts))

    def _gather_all(
        self,
        own: torch.Tensor,
        parts: torch.Tensor,
        result: List[torch.Tensor],
        opts: Any,
        finish: "Optional[Callable[[], None]]",
    ) -> Work:
        """Fills the dense tensor ``parts`` with those of all ranks."""
        if parts.numel() != self._size * own.numel() or parts.dtype != own.dtype:
            problem = f"expected {self._size} × {own.numel()} elements of type {own.dtype}"
            raise BadArgument(f"{problem}, got {parts.numel()} of type {parts.dtype}")
        count, code = block(own)
        arguments = (own.data_ptr(), dense(parts).data_ptr(), count, code)
        return self._run(Call("all_gather", arguments, (own, parts), result, finish), opts)

    def all_gather_single_coalesced(
        self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None
    ) -> Work:
        pairs = zip(outputs, inputs)
        return self._together([self.all_gather_single(*pair, opts) for pair in pairs], outputs)

    def allgather(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None) -> Work:
        works = [self._gather_parts(*pair, opts) for pair in zip(outputs, inputs)]
        return self._together(works, [part for parts in outputs for part in parts])

    def allgather_coalesced(
        self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any = None
    ) -> Work:
        # `outputs` has a list for each rank, not for each input.
        return self.allgather([list(parts) for parts in zip(*outputs)], inputs, opts)

    def _gather_parts(self, parts: List[torch.Tensor], own: torch.Tensor, opts: Any) -> Work:
        if len({part.numel() for part in parts}) == 1:
            flat = empty_for(parts)
            return self._gather_all(dense(own), flat, parts, opts, spread(flat, parts))
        # Parts of different lengths are messages.
        sends = [(rank, own) for rank in range(self._size)]
        return self._exchange(sends, list(enumerate(parts)), parts, opts)

    def gather(self, outputs: List[List[torch.Tensor]], inputs: List[torch.Tensor], opts: Any) -> Work:
        own, root = dense(inputs[0]), opts.rootRank
        parts = outputs[0] if self._rank == root else []
        if len({own.numel(), *(part.numel() for part in parts)}) != 1:
            raise BadArgument("the tensors of a gather have one size", hint="use all_gather for different sizes")
        flat = empty_for(parts) if parts else None
        count, code = block(own)
        arguments = (own.data_ptr(), None if flat is None else flat.data_ptr(), count, code, root)
        finish = None if flat is None else spread(flat, parts)
        return self._run(Call("gather", arguments, (own, flat), parts or inputs, finish), opts)

    def scatter(self, outputs: List[torch.Tensor], inputs: List[List[torch.Tensor]], opts: Any) -> Work:
        (output,) = outputs
        root, flat = opts.rootRank, None
        if self._rank == root:
            flat = torch.cat([dense(part).view(-1) for part in inputs[0]])
        target = dense(output)
        count, code = block(target)
        arguments = (None if flat is None else flat.data_ptr(), target.data_ptr(), count, code, root)
        if flat is not None and flat.numel() != self._size * target.numel():
            raise BadArgument(f"expected {self._size} tensors of {target.numel()} elements")
        finish = copier(output, target)
        return self._run(Call("scatter", arguments, (flat, target), outputs, finish), opts)

    def alltoall(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any = None) -> Work:
        return self._exchange(list(enumerate(inputs)), list(enumerate(outputs)), outputs, opts)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_split_sizes: Optional[List[int]] = None,
        input_split_sizes: Optional[List[int]] = None,
        opts: Any = None,
    ) -> Work:
        own, target = dense(input), dense(output)
        sends = self._counts("input", own, input_split_sizes)
        recvs = self._counts("output", target, output_split_sizes)
        # Both count in the unit of one type.
        code = block(own)[1]
        finish = copier(output, target)
        if streams.index_of(own) is None:
            arguments: "Tuple[Any, ...]" = (own.data_ptr(), sends, target.data_ptr(), recvs, code)
            return self._run(Call("all_to_all_v", arguments, (own, target), [output], finish), opts)
        arguments = _arrays(_parts(own, sends), _parts(target, recvs))
        return self._run(Call("exchange", arguments, (own, target), [output], finish), opts)

    def _counts(
        self, what: str, tensor: torch.Tensor, splits: Optional[List[int]]
    ) -> "ctypes.Array[ctypes.c_size_t]":
        """Elements of every rank's part of the input or output, along the first dimension."""
        count, _ = block(tensor)
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self._size:
                problem = f"the {what} has {rows} rows, which cannot be divided among {self._size} ranks"
                raise BadArgument(problem, hint=f"pass `{what}_split_sizes`")
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows:
            problem = f"the {what} has {rows} rows, so its {self._size} split sizes have this sum, and not {list(splits)}"
            raise BadArgument(problem, hint=f"pass `{what}_split_sizes` with one number of rows for each rank")
        unit = count // rows if rows else 0
        return (ctypes.c_size_t * self._size)(*(split * unit for split in splits))

    def barrier(self, opts: Any = None) -> Work:
        self._finish_on_devices()
        return self._run(Call("barrier", (), None, []), opts)

    def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier whose error names the ranks that are missing; all of them, with and without ``wait_all_ranks``."""
        self._finish_on_devices()
        timeout = getattr(opts, "timeout", None)
        # The timeout of options without one is negative.
        is_given = isinstance(timeout, timedelta) and timedelta() <= timeout
        limit = native.milliseconds(timeout.total_seconds() if is_given else None)
        native.check(self._library.remuda_monitored_barrier(self._handle(), limit), KINDS)

    def _finish_on_devices(self) -> None:
        """Waits for the work of GPUs, as the barrier of torch's NCCL does."""
        for index in self._devices:
            streams.synchronize(index)

    # ---- messages ----

    def send(self, tensors: List[torch.Tensor], dstRank: int, tag: int = 0) -> Work:
        (tensor,) = tensors
        _check_tag(tag)
        memory = dense(tensor)
        if self._bracket is not None and streams.index_of(memory) is not None:
            self._messages[0].append((dstRank, memory))
            return Done(tensors)
        arguments = (memory.data_ptr(), *block(memory), dstRank)
        return self._run_here(Call("send", arguments, memory, tensors), None)

    def recv(self, tensors: List[torch.Tensor], srcRank: int, tag: int = 0) -> Work:
        (tensor,) = tensors
        _check_tag(tag)
        memory = dense(tensor)
        if self._bracket is not None and streams.index_of(memory) is not None:
            self._messages[1].append((srcRank, memory))
            self._messages[2].append(tensor)
            return Done(tensors)
        arguments = (memory.data_ptr(), *block(memory), srcRank)
        return self._run_here(Call("recv", arguments, memory, tensors, copier(tensor, memory)), None)

    def recv_anysource(self, tensors: List[torch.Tensor], tag: int = 0) -> Work:
        raise BadArgument("remuda receives a message from a rank that is named, and not from any", hint="pass `src`")

    def _exchange(
        self,
        sends: "List[Tuple[int, torch.Tensor]]",
        recvs: "List[Tuple[int, torch.Tensor]]",
        result: List[torch.Tensor],
        opts: Any,
    ) -> Work:
        """Sends and receives tensors of any sizes at the same time."""
        sent, received = ([(peer, dense(tensor)) for peer, tensor in part] for part in (sends, recvs))
        targets = [tensor for _, tensor in recvs]
        return self._run(self._exchange_of(sent, received, targets, result), opts)

    def _exchange_of(
        self,
        sent: "List[_Message]",
        received: "List[_Message]",
        targets: List[torch.Tensor],
        result: List[torch.Tensor],
    ) -> Call:
        """Messages of dense tensors; those that are received are copied to ``targets``."""
        copies = [copier(tensor, memory) for tensor, (_, memory) in zip(targets, received)]

        def finish() -> None:
            for copy in copies:
                if copy is not None:
                    copy()

        arguments = _arrays(*([(peer, one.data_ptr(), *block(one)) for peer, one in part] for part in (sent, received)))
        return Call("exchange", arguments, [sent, received], result, finish if any(copies) else None)

    def start_coalescing(self, *device: torch.device) -> None:
        """Begins operations of which the program waits for the last Work only."""
        self._bracket = []

    def end_coalescing(self, *device: torch.device) -> Work:
        works, self._bracket = self._bracket or [], None
        (sent, received, targets), self._messages = self._messages, ([], [], [])
        if sent or received:
            # NCCL needs all messages that ranks send to each other in one call.
            works.append(self._run_here(self._exchange_of(sent, received, targets, targets), None))
        return self._together(works, [])

    # ---- the group ----

    def abort(self) -> None:
        """Aborts the group: running and later operations fail on all of its ranks."""
        if self._group.handle is not None:
            self._group.abort(f"rank {self._rank} of the process group called abort")

    def shutdown(self) -> None:
        """Leaves the group after its started operations have ended."""
        self._freed()
        if self._group is _world:
            # A process joins once, so a later group of torch uses it again.
            self._group = groups.Group(0)
        self._group.handle = None

    def get_error(self) -> Any:
        """`ErrorType` of the failure of the group, if it is known to have failed."""
        from torch._C._distributed_c10d import ErrorType

        try:
            self._group.check()
        except RemudaError as error:
            names = {KINDS[2].__name__: "TIMEOUT", KINDS[3].__name__: "REMOTE_ERROR", KINDS[5].__name__: "REMOTE_ERROR"}
            return getattr(ErrorType, names.get(type(error).__name__, "COMM_ERROR"))
        return ErrorType.SUCCESS

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the deadline of the operations that begin later."""
        self._timeout_s = timeout.total_seconds()
        self._set_deadline(self._timeout_s)

    def _set_deadline(self, seconds: float) -> None:
        native.check(self._library.remuda_set_timeout(self._handle(), native.milliseconds(seconds)), KINDS)

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return torch.device(device).type == "cpu"

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A tensor that collectives use in place; an ordinary one if the shared memory is full."""
        try:
            return _allocate(self._group, (size,), dtype)
        except SystemFailure:
            return torch.empty(size, dtype=dtype, device=device)

    def name(self) -> str:
        return "remuda"

    def getBackendName(self) -> str:
        return "remuda"

    def _get_backend_name(self) -> str:
        return "remuda"

    def _set_sequence_number_for_group(self) -> None:
        """Operations have numbers from the first on, which ranks compare."""

    def _get_sequence_number_for_group(self) -> int:
        """Number of the operations of all ranks that this one has begun: torch compares it in its checks."""
        return self._operations

    # Names of other versions of torch.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single
    setTimeout = set_timeout
    monitoredBarrier = monitored_barrier
    _start_coalescing = start_coalescing
    _end_coalescing = end_coalescing


def _close(group: groups.Group, devices: "Dict[int, Devices]", *completers: Completer) -> None:
    for completer in completers:
        completer.close()
    for own in devices.values():
        own.free()
    devices.clear()
    _free(group)


#: A rank, and a dense tensor for it or from it.
_Message = Tuple[int, torch.Tensor]


def _arrays(sends: "List[Tuple[int, int, int, int]]", recvs: "List[Tuple[int, int, int, int]]") -> "Tuple[Any, ...]":
    """Arguments of an exchange of messages: rank, address, number and code of the elements of each."""
    arrays = []
    for part in (sends, recvs):
        messages = [native.Message(address, count, code, peer) for peer, address, count, code in part]
        arrays.append((native.Message * len(part))(*messages))
    return arrays[0], len(sends), arrays[1], len(recvs)


def _parts(tensor: torch.Tensor, counts: "Iterable[int]") -> "List[Tuple[int, int, int, int]]":
    """The parts of a dense tensor as messages, one for each rank."""
    count, code = block(tensor)
    unit = tensor.numel() * tensor.element_size() // count if count else 1
    messages, address = [], tensor.data_ptr()
    for rank, length in enumerate(counts):
        messages.append((rank, address, length, code))
        address += length * unit
    return messages


def _check_tag(tag: int) -> None:
    if tag != 0:
        hint = "receive the messages of a rank in the order in which it sends them, and leave out the tag"
        raise BadArgument(f"tag {tag}: remuda has no tags, messages are matched by their order", hint=hint)


def _can_subclass_backend() -> bool:
    """Whether this version of torch calls methods of Python classes that derive from its Backend."""
    try:
        type("Probe", (C10dBackend,), {})(0, 1)
    except TypeError:
        return False
    return True


class RemudaProcessGroup(_Operations, dist.ProcessGroup):  # type: ignore[misc]
    """A whole process group over remuda, for versions of torch whose Backend has no subclasses in Python.

    It replaces the groups of all devices, so these versions cannot use ``"cpu:remuda,cuda:nccl"``.
    """

    def __init__(self, options: Any) -> None:
        dist.ProcessGroup.__init__(self, options.group_rank, options.group_size)
        self._join(options)

    def getSize(self) -> int:
        return self._size

    def getRank(self) -> int:
        return self._rank

    def _get_backend(self, device: torch.device) -> Any:
        return self

    @property
    def supports_coalescing(self) -> bool:
        return False

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description


def _with_works_of_cpp(method: "Callable[..., Any]") -> "Callable[..., Any]":
    """An operation whose Work outlives its Python object.

    Older versions of torch keep the C++ half of a Work alone, if C++ has called the operation: it never ends. So C++
    gets a Work of its own. torch's Python functions get that of remuda, whose errors have their class.
    """

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        work = method(self, *arguments, **named)
        if not isinstance(work, Work) or sys._getframe(1).f_globals.get("__name__") == dist.distributed_c10d.__name__:
            return work
        return _create_work_from_future(work.get_future())

    return call


for _name in (
    "allreduce allreduce_coalesced reduce broadcast allgather allgather_coalesced _allgather_base all_gather_single "
    "allgather_into_tensor_coalesced all_gather_single_coalesced gather scatter reduce_scatter _reduce_scatter_base "
    "reduce_scatter_single reduce_scatter_tensor_coalesced reduce_scatter_single_coalesced alltoall alltoall_base "
    "all_to_all_single send recv barrier"
).split():
    setattr(RemudaProcessGroup, _name, _with_works_of_cpp(getattr(_Operations, _name)))


def _let_works_tell_their_end() -> None:
    """Makes `is_completed` true for Works of operations that have ended.

    torch wraps the Work of a backend that is a Python class. Its wrapper passes on `wait` and `get_future` alone, so
    that a program that asks `is_completed` again and again would never end.
    """
    told_by_torch = Work.is_completed
    if getattr(told_by_torch, "asks_the_future", False):
        return

    @functools.wraps(told_by_torch)
    def is_completed(work: Any) -> bool:
        if told_by_torch(work):
            return True
        # Works of torch's own backends know which operation they are. Their futures may end earlier than they do.
        return work._get_op_type() == _UNKNOWN_OPERATION and bool(work.get_future().done())

    is_completed.asks_the_future = True  # type: ignore[attr-defined]
    Work.is_completed = is_completed


if _can_subclass_backend():
    _let_works_tell_their_end()

    class RemudaBackend(_Operations, C10dBackend):
        """The backend of a process group for host memory and GPUs; other devices have backends of their own."""

        #: Backends that torch has wrapped: its wrapper keeps their C++ half alone.
        _wrapped: "set[RemudaBackend]" = set()

        def __init__(self, options: Any) -> None:
            C10dBackend.__init__(self, options.group_rank, options.group_size)
            self._join(options)
            # With TORCH_DISTRIBUTED_DEBUG=DETAIL torch checks operations in a wrapper.
            if dist.get_debug_level() == dist.DebugLevel.DETAIL:
                self._wrapped.add(self)

        def shutdown(self) -> None:
            _Operations.shutdown(self)
            self._wrapped.discard(self)

        @property
        def supports_coalescing(self) -> bool:
            """Messages of GPUs must be sent together; those of host memory need not."""
            return streams.are_there() and native.has_devices(self._library)

        @property
        def supports_splitting(self) -> bool:
            return False

else:
    RemudaBackend = RemudaProcessGroup  # type: ignore[misc,assignment]


def create(options: Any, backend_options: Any = None) -> Any:
    """Creator that torch calls on every member of a new group."""
    return RemudaBackend(options)


def register() -> None:
    """Makes the name ``remuda`` known to torch."""
    if "REMUDA" not in dist.Backend._plugins:
        dist.Backend.register_backend("remuda", create, extended_api=True, devices=["cpu", "cuda"])
