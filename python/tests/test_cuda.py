"""The backend of torch on tensors of GPUs, without one: the driver and the NCCL are those of ``tests/capi/gpu.c``, whose device
memory is that of the process, so tensors of the host are taken for those of GPUs. Two ranks are threads."""

import ctypes
import functools
import os
import pathlib
import subprocess
import sys
import threading
import time
import types
import unittest
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions

import remuda
from remuda import native
from remuda.torch import backend, cuda
from remuda.torch.errors import BadArgument

DIRECTORY = os.environ.get("REMUDA_TEST_GPU")
#: Set in the process that has the driver: the loader reads its path when a process starts.
INSIDE = "REMUDA_TEST_INSIDE"
USES_NCCL = os.environ.get(INSIDE) == "nccl"
WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class TestStreams(cuda.Streams):
    """The streams of the driver of the tests. A thread is a rank: its tensors are on its GPU, or on the host."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.driver.test_enqueue.argtypes = [ctypes.c_void_p, WORK, ctypes.c_void_p]
        self.driver.cuStreamSynchronize.argtypes = [ctypes.c_void_p]
        self.of_thread = threading.local()
        self.kept, self.works = [], []

    def begin(self, index):
        self.of_thread.index = index
        self.of_thread.stream = self.make()

    def make(self):
        place = ctypes.c_void_p()
        self.driver.cuStreamCreate(ctypes.byref(place), 1)
        return place.value

    @contextmanager
    def stream(self, stream):
        before, self.of_thread.stream = self.of_thread.stream, stream
        yield
        self.of_thread.stream = before

    @contextmanager
    def on_host(self):
        index, self.of_thread.index = self.of_thread.index, None
        yield
        self.of_thread.index = index

    def enqueue(self, work):
        self.works.append(WORK(lambda _: work()))
        self.driver.test_enqueue(self.of_thread.stream, self.works[-1], None)

    def index_of(self, tensor):
        return getattr(tensor, "gpu", getattr(self.of_thread, "index", None))

    def are_there(self):
        return True

    def current(self, index):
        # The helper thread of a group has a stream of its own.
        if not hasattr(self.of_thread, "stream"):
            self.begin(index)
        return self.of_thread.stream

    def synchronize(self, index):
        self.driver.cuStreamSynchronize(self.current(index))

    def mark(self, index):
        return self.current(index)

    def wait(self, index, mark):
        self.driver.cuStreamSynchronize(mark)

    def keep_for_current(self, tensor, index):
        self.kept.append(tensor)

    def devices(self, index):
        return []

    @contextmanager
    def on(self, index):
        yield


def make_backend(group):
    own = types.SimpleNamespace(group_rank=group.rank, group_size=group.size, timeout=timedelta(seconds=60))
    with_group = types.SimpleNamespace(**vars(own), group=group)
    return backend.RemudaBackend(with_group)


def on_ranks(call, *arguments):
    """What two ranks return, each with a backend and a GPU of its own; the first error is raised."""
    groups, found = remuda.threads(2), [None, None]

    def run(group):
        cuda.streams.begin(group.rank)
        own = make_backend(group)
        try:
            found[group.rank] = call(own, group.rank, *arguments)
        except BaseException as error:
            found[group.rank] = error
        own.shutdown()

    threads = [threading.Thread(target=run, args=(group,)) for group in groups]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return found


@contextmanager
def as_on_a_device():
    """Operations of torch on the host run at once, those of a GPU in its stream: here the stream is waited for first."""
    library = native.library()
    order = library.remuda_device_wait

    def wait(work, stream):
        status = order(work, stream)
        cuda.streams.driver.cuStreamSynchronize(stream)
        return status

    library.remuda_device_wait = wait
    try:
        yield
    finally:
        library.remuda_device_wait = order


def options(kind, **values):
    made = kind()
    for name, value in values.items():
        setattr(made, name, value)
    return made


def floats(*values):
    return torch.tensor(values, dtype=torch.float32)


def reductions(own, rank):
    whole, strided = floats(rank, 2), torch.zeros(4)
    strided[::2] = floats(rank, 2)
    own.allreduce([whole], dist.AllreduceOptions()).wait()
    own.allreduce([strided[::2]], dist.AllreduceOptions()).wait()
    root = floats(rank)
    own.reduce([root], options(dist.ReduceOptions, rootRank=1)).wait()
    part = torch.zeros(1)
    own.reduce_scatter_single(part, floats(rank, 10 + rank), dist.ReduceScatterOptions()).wait()
    parts = [torch.zeros(1), torch.zeros(2)]
    inputs = [[floats(rank), floats(5)], [floats(rank, rank), floats(7, 7)]]
    own.reduce_scatter(parts, inputs, dist.ReduceScatterOptions()).wait()
    uneven = torch.zeros(1 + rank)
    own.reduce_scatter([uneven], [[floats(1), floats(rank, 3)]], dist.ReduceScatterOptions()).wait()
    pair = [torch.zeros(1), torch.zeros(1)]
    inputs = [floats(1, 2), floats(3, 4)]
    own.reduce_scatter_single_coalesced(pair, inputs, dist.ReduceScatterOptions()).wait()
    found = [whole, strided, root, part, *parts, uneven, *pair]
    return [tensor.tolist() for tensor in found]


def copies(own, rank):
    number = torch.tensor([rank, 7])
    own.broadcast([number], options(dist.BroadcastOptions, rootRank=1)).wait()
    lists = [torch.zeros(2, dtype=torch.int64) for _ in range(2)]
    own.allgather([lists], [torch.tensor([rank, 3])], AllgatherOptions()).wait()
    whole = torch.zeros(4, dtype=torch.complex64)
    own.all_gather_single(whole, torch.tensor([rank + 1j, 2]), AllgatherOptions()).wait()
    pair = [torch.zeros(2, dtype=torch.bool), torch.zeros(2)]
    inputs = [torch.tensor([rank == 1]), floats(rank)]
    own.all_gather_single_coalesced(pair, inputs, AllgatherOptions()).wait()
    gathered = [torch.zeros(1) for _ in range(2)]
    own.gather([gathered] if rank == 0 else [], [floats(rank)], options(dist.GatherOptions, rootRank=0)).wait()
    share = torch.zeros(1)
    shares = [[floats(8), floats(9)]] if rank == 1 else []
    own.scatter([share], shares, options(dist.ScatterOptions, rootRank=1)).wait()
    found = [number, *lists, whole.real, *pair, *gathered, share]
    return [tensor.tolist() for tensor in found]


def messages(own, rank):
    peer, received = 1 - rank, torch.zeros(3)
    if rank == 0:
        own.send([floats(4, 5, 6)], 1).wait()
    else:
        own.recv([received], 0).wait()
    # Both send first, which only works if NCCL gets all messages together.
    strided, big = torch.zeros(4), torch.zeros(100_000)
    own.start_coalescing(torch.device("cpu"))
    own.send([torch.full((100_000,), float(rank))], peer)
    own.send([floats(rank, 8)], peer)
    own.recv([big], peer)
    own.recv([strided[::2]], peer)
    own.end_coalescing(torch.device("cpu")).wait()
    swapped = [torch.zeros(1), torch.zeros(2, dtype=torch.int64)]
    given = [floats(rank), torch.tensor([rank, rank])]
    own.alltoall([swapped[0], torch.zeros(1)], [floats(rank), floats(10 + rank)]).wait()
    # Rank 0 sends one row to itself and two to rank 1, which sends three to rank 0 and none to itself.
    rows = (torch.arange(3.0) + 10 * rank).repeat(2, 1).T.contiguous()
    counts = ([1, 2], [1, 3]) if rank == 0 else ([3, 0], [2, 0])
    output = torch.zeros(sum(counts[1]), 2)
    own.all_to_all_single(output, rows, counts[1], counts[0]).wait()
    found = [received, big[:1], big[-1:], strided, swapped[0], output[:, 1]]
    return [tensor.tolist() for tensor in found], given[1].tolist()


def asynchronous(own, rank):
    """A gate in the current stream holds the operation; nothing holds the program, and other streams wait."""
    # As torch's functions in Python call it: before 2.14, others get Works of C++, for which the program waits.
    all_reduce = functools.partial(backend._Operations.allreduce, own)
    gate, values, taken = threading.Event(), floats(rank, 2), []
    cuda.streams.enqueue(gate.wait)
    work = all_reduce([values], dist.AllreduceOptions())
    # As long as the gate is closed, the operation has not ended.
    is_early = any(work.is_completed() or time.sleep(0.002) for _ in range(30))
    with cuda.streams.stream(cuda.streams.make()):
        work.wait()
        cuda.streams.enqueue(lambda: taken.append(values.tolist()))
        kept = any(tensor is values for tensor in cuda.streams.kept)
        stream = cuda.streams.current(rank)
    before = list(taken)
    gate.set()
    cuda.streams.driver.cuStreamSynchronize(stream)
    # A future ends with the operation.
    future = all_reduce([values], dist.AllreduceOptions()).get_future()
    future.wait()
    dropped = all_reduce([values], dist.AllreduceOptions())
    del dropped
    own.barrier().wait()
    return is_early, before, kept, taken, values.tolist()


def mixed(own, rank):
    """Tensors of both devices in one group, in one order."""
    found = []
    for _ in range(3):
        values = floats(rank, 1)
        own.allreduce([values], dist.AllreduceOptions()).wait()
        with cuda.streams.on_host():
            numbers = torch.tensor([rank, 5])
            own.allreduce([numbers], dist.AllreduceOptions()).wait()
        found += [*values.tolist(), *numbers.tolist()]
    own.barrier().wait()
    return found


def other_types(own, rank):
    """Through host memory: reductions that the NCCL of the tests does not know."""
    small, truth, bits = torch.tensor([rank, -3], dtype=torch.int8), torch.tensor([rank == 0]), torch.tensor([4 + rank])
    own.allreduce([small], options(dist.AllreduceOptions, reduceOp=dist.ReduceOp.MAX)).wait()
    own.allreduce([truth], options(dist.AllreduceOptions, reduceOp=dist.ReduceOp.SUM)).wait()
    own.allreduce([bits], options(dist.AllreduceOptions, reduceOp=dist.ReduceOp.BAND)).wait()
    return small.tolist(), truth.tolist(), bits.tolist()


def different_calls(own, rank):
    values, problems = floats(1, 2, 3), []
    for _ in range(2):
        try:
            own.allreduce([values[: 2 + rank]], dist.AllreduceOptions()).get_future().wait()
            own.allreduce([values], dist.AllreduceOptions()).wait(timedelta(seconds=30))
        except Exception as error:
            problems.append(str(error))
    return problems


def on_several_devices(own, rank):
    one, other = torch.zeros(1), torch.zeros(2)
    one.gpu, other.gpu = 0, 1
    try:
        own.all_gather_single(other, one)
    except BadArgument as error:
        return str(error)


def without_functions(own, rank):
    found, native.has_devices = native.has_devices, lambda _: False
    try:
        own.allreduce([floats(1)], dist.AllreduceOptions())
    except BadArgument as error:
        return error.hint
    finally:
        native.has_devices = found


@unittest.skipUnless(INSIDE in os.environ, "runs in a process with the driver of the tests")
class Inside(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cuda.streams = backend.streams = TestStreams()
        backend._member_group = lambda options: options.group

    def test_reductions(self):
        with as_on_a_device():
            first, second = on_ranks(reductions)
        shared = [[1, 4], [1, 0, 4, 0]]
        self.assertEqual(first, [*shared, [0], [1], [1], [1, 1], [2], [2], [6]])
        self.assertEqual(second, [*shared, [1], [21], [10], [14, 14], [1, 6], [4], [8]])

    def test_copies(self):
        with as_on_a_device():
            first, second = on_ranks(copies)
        shared = [[1, 7], [0, 3], [1, 3], [0, 2, 1, 2], [False, True], [0, 1]]
        self.assertEqual(first, [*shared, [0], [1], [8]])
        self.assertEqual(second, [*shared, [0], [0], [9]])

    def test_messages(self):
        with as_on_a_device():
            first, second = on_ranks(messages)
        self.assertEqual(first[0], [[0, 0, 0], [1], [1], [1, 0, 8, 0], [0], [0, 10, 11, 12]])
        self.assertEqual(second[0], [[4, 5, 6], [0], [0], [0, 0, 8, 0], [10], [1, 2]])

    @unittest.skipUnless(USES_NCCL, "through host memory, an operation has ended when it is started")
    def test_wait_is_one_of_the_stream(self):
        for found in on_ranks(asynchronous):
            self.assertEqual(found, (False, [], True, [[1, 4]], [4, 16]))

    def test_both_devices_in_one_group(self):
        with as_on_a_device():
            self.assertEqual(on_ranks(mixed), [[1, 2, 1, 10] * 3] * 2)

    @unittest.skipIf(USES_NCCL, "the NCCL of the tests adds floats")
    def test_other_types(self):
        with as_on_a_device():
            self.assertEqual(on_ranks(other_types), [([1, -3], [True], [4])] * 2)

    def test_different_calls_are_named(self):
        for rank, (first, later) in enumerate(on_ranks(different_calls)):
            self.assertIn(f"this rank called all_reduce({2 + rank} × f32, sum)", first)
            self.assertIn("failed earlier", later)

    def test_refusals(self):
        for problem in on_ranks(on_several_devices):
            self.assertIn("on several devices", problem)
        for hint in on_ranks(without_functions):
            self.assertIn("cpu:remuda,cuda:nccl", hint)


@unittest.skipUnless(DIRECTORY, "REMUDA_TEST_GPU is not set")
class Outside(unittest.TestCase):
    def run_inside(self, kind):
        environment = {**os.environ, "LD_LIBRARY_PATH": DIRECTORY, INSIDE: kind}
        environment["REMUDA_NCCL_LIBRARY"] = f"{DIRECTORY}/libcuda.so" if kind == "nccl" else "/nowhere"
        line = [sys.executable, "-B", "-m", "unittest", "test_cuda.Inside"]
        finished = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertIn("Ran 8 tests", finished.stderr)

    def test_tensors_of_gpus_through_nccl(self):
        self.run_inside("nccl")

    def test_tensors_of_gpus_through_host_memory(self):
        self.run_inside("host")


class Registration(unittest.TestCase):
    def test_name_is_the_backend_of_both_devices(self):
        code = (
            "import torch, torch.distributed as dist; from remuda.torch import register\n"
            "register(); print(dist.Backend.backend_capability['remuda'])\n"
            "for name in ('remuda', 'cpu:remuda,cuda:remuda'):\n"
            "    dist.init_process_group(name, store=dist.HashStore(), rank=0, world_size=1)\n"
            "    group = dist.group.WORLD; kinds = [torch.device(kind) for kind in ('cpu', 'cuda')]\n"
            "    print({type(group._get_backend(kind)).__name__ for kind in kinds}, dist.get_backend_config())\n"
            "    one = torch.ones(2); dist.all_reduce(one); print(one.tolist()); dist.destroy_process_group()\n"
        )
        environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(remuda.__file__).parents[1])}
        line = [sys.executable, "-B", "-c", code]
        finished = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertEqual(finished.stdout.count("[1.0, 1.0]"), 2, finished.stdout)
        self.assertIn("['cpu', 'cuda']", finished.stdout)
        self.assertEqual(finished.stdout.count("cpu:remuda,cuda:remuda"), 2, finished.stdout)


if __name__ == "__main__":
    unittest.main()
