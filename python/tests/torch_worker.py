"""A rank of the tests of torch: runs the cases of one scenario and prints `ok` at its end.

torch_worker.py SCENARIO KIND

KIND is `backend` for the backend that torch finds by its entry point, or `group` for the process group that stands
for it in older versions. Where it can, a case compares the result with that of gloo on the same ranks.
"""

import datetime
import faulthandler
import functools
import hashlib
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CASES = {}


def case(scenario):
    def add(function):
        CASES.setdefault(scenario, []).append(function)
        return function

    return add


@functools.lru_cache
def gloo():
    return dist.new_group(backend="gloo")


def monitored_barrier(group, seconds):
    timeout = datetime.timedelta(seconds=seconds)
    if "cpu" in map(str, group._device_types):
        dist.monitored_barrier(group, timeout=timeout)
    else:
        # torch refuses it for process groups that are Python classes.
        options = dist.BarrierOptions()
        options.timeout = timeout
        group.monitored_barrier(options)


def values(kind, *shape):
    """Small numbers that differ between ranks, exact in every type."""
    generator = torch.Generator().manual_seed(1000 + RANK)
    found = torch.randint(0, 2 if kind is torch.bool else 4, shape, generator=generator)
    return found.to(kind)


def same(operation, *tensors):
    """Checks that an operation, which changes tensors, has one result over gloo and over remuda."""
    own, other = ([one.clone() for one in tensors] for _ in range(2))
    operation(dist.group.WORLD, *own)
    operation(gloo(), *other)
    for found, expected in zip(own, other):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int32, torch.int64]


# ---- operations ---------------------------------------------------------------------------------------------------


@case("operations")
def reductions():
    Op = dist.ReduceOp
    for kind in FLOATS + INTEGERS:
        for op in (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX):
            same(lambda group, x: dist.all_reduce(x, op, group=group), values(kind, 5, 3))
        same(lambda group, x: dist.all_reduce(x, group=group), values(kind, 6, 4).t()[1:])
        # Only the root has a result that torch defines.
        root = SIZE - 1
        found, expected = values(kind, 7), values(kind, 7)
        dist.reduce(found, root)
        dist.reduce(expected, root, group=gloo())
        torch.testing.assert_close(found, expected if RANK == root else values(kind, 7))
        whole, part, expected = values(kind, 2 * SIZE, 3), torch.empty(2, 3, dtype=kind), values(kind, 2 * SIZE, 3)
        dist.all_reduce(expected, group=gloo())
        dist.reduce_scatter_tensor(part, whole)
        torch.testing.assert_close(part, expected[2 * RANK : 2 * RANK + 2])
        dist.reduce_scatter(part, list(whole.split(2)))
        torch.testing.assert_close(part, expected[2 * RANK : 2 * RANK + 2])
    mean = torch.full((3,), float(RANK))
    dist.all_reduce(mean, Op.AVG)
    assert mean.tolist() == [(SIZE - 1) / 2] * 3


@case("operations")
def other_types_are_reduced():
    Op = dist.ReduceOp
    flags = torch.tensor([RANK == 0, True, False])
    for op, expected in [(Op.SUM, [True, True, False]), (Op.PRODUCT, [False, True, False]), (Op.BOR, [True, True, False])]:
        found = flags.clone()
        dist.all_reduce(found, op)
        assert found.tolist() == expected, (op, found)
    bits = torch.tensor([1 << RANK, 7], dtype=torch.int32)
    for op, expected in [(Op.BOR, [2**SIZE - 1, 7]), (Op.BAND, [0, 7]), (Op.BXOR, [2**SIZE - 1, 7 if SIZE % 2 else 0])]:
        found = bits.clone()
        dist.all_reduce(found, op, async_op=True).wait()
        assert found.tolist() == expected, (op, found)
    for kind in (torch.int16, torch.uint16, torch.complex64, torch.float8_e4m3fn):
        found = torch.ones(3).to(kind)
        dist.all_reduce(found)
        assert found.to(torch.complex64).tolist() == [SIZE] * 3, found
    wrapped = torch.full((2,), 100, dtype=torch.int8)
    dist.all_reduce(wrapped)
    assert wrapped[0].item() == (100 * SIZE + 128) % 256 - 128
    # Older versions of torch do not tell the factor.
    if hasattr(dist.ReduceOp, "factor"):
        scaled = torch.ones(2)
        dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
        assert scaled.tolist() == [SIZE / 2] * 2
    try:
        dist.all_reduce(torch.ones(2, dtype=torch.bool), Op.AVG)
        raise AssertionError("a mean of truth values")
    except RuntimeError as error:
        assert "have no reduction" in str(error), error


@case("operations")
def copies():
    kinds = FLOATS + INTEGERS + [torch.bool, torch.int16, torch.complex64, torch.float8_e5m2]
    for kind in kinds:
        # gloo moves fewer types.
        expected = [None] * SIZE
        dist.all_gather_object(expected, values(torch.int32, 2, 3).to(torch.float32))
        expected = [one.to(kind) for one in expected]
        own = values(torch.int32, 2, 3).to(kind)

        def check(found, wanted):
            assert torch.equal(found.view(torch.uint8), wanted.contiguous().view(torch.uint8)), (kind, found, wanted)

        found = own.clone()
        dist.broadcast(found, 1)
        check(found, expected[1])
        listed = [torch.empty_like(own) for _ in range(SIZE)]
        dist.all_gather(listed, own)
        for one, wanted in zip(listed, expected):
            check(one, wanted)
        whole = torch.empty(2 * SIZE, 3, dtype=kind)
        dist.all_gather_into_tensor(whole, own)
        check(whole, torch.cat(expected))
        at_root = [torch.empty_like(own) for _ in range(SIZE)] if RANK == 1 else None
        dist.gather(own, at_root, 1)
        if at_root:
            check(torch.stack(at_root), torch.stack(expected))
        dist.scatter(found, expected if RANK == 0 else None, 0)
        check(found, expected[RANK])
        exchanged = torch.empty(2 * SIZE, 3, dtype=kind)
        dist.all_to_all_single(exchanged, whole)
        check(exchanged, torch.cat([expected[RANK]] * SIZE))
        received = [torch.empty_like(own) for _ in range(SIZE)]
        dist.all_to_all(received, [one.clone() for one in expected])
        check(torch.cat(received), torch.cat([expected[RANK]] * SIZE))
    strided = torch.zeros(4, 6).t()[1:4]
    dist.broadcast(strided, 0)
    dist.barrier()


@case("operations")
def uneven_parts():
    rows = [rank + 1 for rank in range(SIZE)]
    own = torch.full((RANK + 1, 2), float(RANK))
    listed = [torch.empty(count, 2) for count in rows]
    dist.all_gather(listed, own)
    assert [one.tolist() for one in listed] == [[[float(rank)] * 2] * (rank + 1) for rank in range(SIZE)]
    # Rank r sends r + 1 rows to every rank.
    output = torch.empty(sum(rows), 2)
    given = torch.full(((RANK + 1) * SIZE, 2), float(RANK))
    dist.all_to_all_single(output, given, rows, [RANK + 1] * SIZE)
    assert torch.equal(output, torch.cat(listed))
    parts = [torch.ones(count) for count in rows]
    summed = torch.empty(RANK + 1)
    dist.reduce_scatter(summed, parts)
    assert summed.tolist() == [SIZE] * (RANK + 1)
    received = [torch.empty(count) for count in rows]
    dist.all_to_all(received, [torch.full((RANK + 1,), float(RANK)) for _ in rows])
    assert [one.tolist() for one in received] == [[float(rank)] * (rank + 1) for rank in range(SIZE)]


@case("operations")
def objects():
    found = [None] * SIZE
    dist.all_gather_object(found, {"rank": RANK, "text": "x" * RANK})
    assert [one["rank"] for one in found] == list(range(SIZE))
    shared = [{"a": RANK}, 5] if RANK == 0 else [None, None]
    dist.broadcast_object_list(shared, 0)
    assert shared == [{"a": 0}, 5]
    given = [None]
    dist.scatter_object_list(given, [f"for {rank}" for rank in range(SIZE)] if RANK == 1 else None, 1)
    assert given == [f"for {RANK}"]
    gathered = [None] * SIZE if RANK == 1 else None
    dist.gather_object(RANK, gathered, 1)
    assert gathered in (None, list(range(SIZE)))
    monitored_barrier(dist.group.WORLD, 60)


@case("operations")
def started_operations():
    works, tensors = [], [torch.full((1000,), float(RANK + at)) for at in range(20)]
    for at, tensor in enumerate(tensors):
        works.append(dist.all_reduce(tensor, async_op=True))
    # In another order than they were started in; the first through their futures.
    futures = [work.get_future() for work in works[:10]]
    for work in reversed(works[10:]):
        assert work.wait()
    for future in futures:
        future.wait()
    for at, tensor in enumerate(tensors):
        assert tensor[999].item() == SIZE * (SIZE - 1) / 2 + SIZE * at
    chained = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda ended: ended.value()[0].item() + 1)
    assert chained.wait() == SIZE + 1
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert tensors[0][0].item() == SIZE * SIZE * (SIZE - 1) / 2
    # The Work is dropped at once.
    dropped = torch.ones(100_000)
    dist.all_reduce(dropped, async_op=True)
    dist.barrier()
    assert dropped[99_999].item() == SIZE


@case("operations")
def operations_tell_their_end():
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    parts = [torch.empty(2) for _ in range(SIZE)]
    works = [
        dist.all_reduce(torch.ones(1000), async_op=True),
        dist.all_gather(parts, torch.ones(2), async_op=True),
        dist.isend(torch.ones(3), after),
        dist.irecv(torch.empty(3), before),
        dist.all_reduce(torch.ones(10), group=gloo(), async_op=True),
    ]
    for work in works:
        # A program that asks need not wait.
        while not work.is_completed():
            time.sleep(0.001)
        work.wait()
        assert work.is_completed()
    waited = dist.all_gather(parts, torch.ones(2), async_op=True)
    waited.wait()
    assert waited.is_completed()


# ---- groups and messages ------------------------------------------------------------------------------------------


@case("groups")
def messages():
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    # All ranks send first; the Work is dropped.
    dist.isend(torch.full((50_000,), float(RANK)), after)
    received = torch.empty(50_000)
    dist.irecv(received, before).wait()
    assert received[49_999].item() == before
    flag = torch.tensor([RANK % 2 == 0])
    strided = torch.zeros(2, 3).t()
    ops = [
        dist.P2POp(dist.isend, flag, after),
        dist.P2POp(dist.isend, torch.full((3, 2), float(RANK)), before),
        dist.P2POp(dist.irecv, strided, after),
        dist.P2POp(dist.irecv, flag_of_before := torch.empty(1, dtype=torch.bool), before),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    assert flag_of_before.item() == (before % 2 == 0) and strided.tolist() == [[float(after)] * 2] * 3
    if RANK == 0:
        dist.send(torch.arange(5), 1)
    if RANK == 1:
        numbers = torch.empty(5, dtype=torch.int64)
        assert dist.recv(numbers, 0) == 0 and numbers.tolist() == [0, 1, 2, 3, 4]
    for call in (lambda: dist.send(flag, after, tag=3), lambda: dist.recv(flag)):
        try:
            call()
            raise AssertionError("no error")
        except RuntimeError as error:
            assert "hint:" in str(error), error


@case("groups")
def subgroups():
    halves = [dist.new_group(list(range(SIZE // 2))), dist.new_group(list(range(SIZE // 2, SIZE)))]
    own = halves[RANK // (SIZE // 2)]
    total = torch.tensor([RANK])
    dist.all_reduce(total, group=own)
    dist.all_reduce(total)
    assert total.item() == SIZE // 2 * SIZE * (SIZE - 1) // 2
    for _ in range(3):
        again = dist.new_group(list(range(SIZE)))
        dist.barrier(again)
        dist.destroy_process_group(again)


@case("groups")
def meshes():
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, SIZE // 2), mesh_dim_names=("rows", "columns"))
    for name in ("rows", "columns"):
        group = mesh.get_group(name)
        total = torch.tensor([RANK])
        dist.all_reduce(total, group=group)
        assert total.item() == sum(dist.get_process_group_ranks(group))


@case("groups")
def members_alone_create_a_group():
    # torch numbers groups, so this is the last one before its counter begins again.
    if RANK in (1, 3):
        pair = dist.new_group([1, 3], use_local_synchronization=True)
        found = [None, None]
        dist.all_gather_object(found, RANK, group=pair)
        assert found == [1, 3] and dist.get_group_rank(pair, RANK) == (1, 3).index(RANK)
        dist.destroy_process_group(pair)
    dist.barrier()


@case("groups")
def process_group_is_created_a_second_time():
    # The process joins its job once; the new group has a timeout of its own.
    name = dist.get_backend()
    gloo.cache_clear()
    dist.destroy_process_group()
    store = dist.FileStore(os.path.join(os.environ["TORCH_WORKER_DIRECTORY"], "store"), SIZE)
    timeout = datetime.timedelta(seconds=77)
    dist.init_process_group(name, store=store, rank=RANK, world_size=SIZE, timeout=timeout)
    one = torch.ones(1)
    dist.all_reduce(one)
    assert one.item() == SIZE


# ---- training -----------------------------------------------------------------------------------------------------


def model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def data():
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(SIZE * 32, 64, generator=generator)
    targets = torch.randint(10, (SIZE * 32,), generator=generator)
    return inputs[RANK::SIZE], targets[RANK::SIZE]


def train(net, parameters, steps=5):
    inputs, targets = data()
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), targets).backward()
        optimizer.step()


def digest(net):
    return hashlib.sha256(b"".join(one.detach().numpy().tobytes() for one in net.parameters())).hexdigest()


@case("training")
def ddp_has_the_bits_of_gloo():
    # With two ranks there is one order of sums.
    found = {}
    for group in (dist.group.WORLD, gloo()):
        net = model()
        parallel = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.1, process_group=group)
        train(parallel, net.parameters())
        found[group] = digest(net)
    assert SIZE != 2 or len(set(found.values())) == 1, found
    everywhere = [None] * SIZE
    dist.all_gather_object(everywhere, found[dist.group.WORLD])
    assert len(set(everywhere)) == 1, everywhere


@case("training")
def ddp_starts_buckets_while_it_computes():
    started = []
    net = model()
    parallel = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.01)
    hooks = [
        layer.register_full_backward_hook(lambda *_, at=at: started.append(("layer", at)))
        for at, layer in enumerate(net)
    ]
    import remuda.torch.backend as backend

    run = backend._Operations._all_reduce
    patched = lambda self, tensor, *rest: (started.append(("all_reduce", tensor.numel())), run(self, tensor, *rest))[1]
    backend._Operations._all_reduce = patched
    try:
        train(parallel, net.parameters(), steps=2)
    finally:
        backend._Operations._all_reduce = run
    kinds = [kind for kind, _ in started]
    assert kinds.index("all_reduce") < len(kinds) - 1 - kinds[::-1].index("layer"), started
    for hook in hooks:
        hook.remove()


@case("training")
def fsdp_trains_like_ddp():
    if not hasattr(torch.cpu.Stream(), "record_event"):
        # FSDP2 of this version of torch needs a GPU.
        return
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (SIZE,))
    sharded = model()
    for layer in sharded:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    # Buffers of all-gathers and reduce-scatters in shared memory.
    if hasattr(sharded, "set_allocate_memory_from_process_group_for_comm"):
        sharded.set_allocate_memory_from_process_group_for_comm(True)
    train(sharded, sharded.parameters())
    net = model()
    train(nn.parallel.DistributedDataParallel(net), net.parameters())
    for own, other in zip(sharded.parameters(), net.parameters()):
        torch.testing.assert_close(own.full_tensor(), other.detach())


@case("training")
def tensors_are_distributed():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (SIZE,))
    whole = torch.arange(float(4 * SIZE * SIZE)).reshape(2 * SIZE, 2 * SIZE)
    shared = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal((shared @ shared.T).full_tensor(), whole @ whole.T)
    net = nn.Sequential(nn.Linear(8, 8 * SIZE), nn.ReLU(), nn.Linear(8 * SIZE, 8))
    expected = net(torch.ones(2, 8))
    for parameter in net.parameters():
        dist.broadcast(parameter.data, 0)
    expected = net(torch.ones(2, 8)).detach()
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.testing.assert_close(net(torch.ones(2, 8)).detach(), expected)


@case("training")
def functional_collectives_and_compile():
    import torch.distributed._functional_collectives as functional

    group = dist.group.WORLD
    summed = functional.wait_tensor(functional.all_reduce(torch.ones(4), "sum", group))
    gathered = functional.wait_tensor(functional.all_gather_tensor(torch.ones(2), 0, group))
    assert summed[0].item() == SIZE and gathered.numel() == 2 * SIZE


@case("training")
def shared_tensors_are_used_in_place():
    import remuda.torch

    own = remuda.torch.empty(3, 1000, dtype=torch.float64)
    assert own.shape == (3, 1000) and own.dtype == torch.float64 and own.sum() == 0
    own.fill_(RANK)
    dist.all_reduce(own)
    assert own[2, 999].item() == SIZE * (SIZE - 1) / 2
    part = own[1]
    del own
    dist.broadcast(part, 0)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    if hasattr(backend, "allocate_tensor"):
        # Known to FSDP2.
        assert backend.supports_tensor_alloc(torch.device("cpu"))
        made = backend.allocate_tensor(10, dtype=torch.float32, device=torch.device("cpu"))
        assert made.numel() == 10
    assert remuda.torch.empty(0).numel() == 0


# ---- errors -------------------------------------------------------------------------------------------------------


def error_of(call):
    try:
        call()
    except RuntimeError as error:
        return error
    raise AssertionError("no error")


@case("errors")
def mismatch_is_an_error_of_torch():
    import remuda

    group = dist.new_group(list(range(SIZE)))
    error = error_of(lambda: dist.all_reduce(torch.ones(4 + RANK), group=group))
    assert isinstance(error, remuda.Mismatch) and isinstance(error, dist.DistBackendError), type(error)
    assert "this rank called all_reduce(" in str(error) and error.rank != RANK
    other = dist.new_group(list(range(SIZE)))
    calls = [lambda: dist.all_reduce(torch.ones(4), group=other), lambda: dist.broadcast(torch.ones(4), 0, group=other)]
    assert isinstance(error_of(calls[RANK % 2]), remuda.Mismatch)
    # A group that fails leaves the others as they are.
    dist.barrier()


@case("errors")
def missing_ranks_are_named():
    import remuda

    for seconds in (0.05, 0):
        group = dist.new_group(list(range(SIZE)))
        if RANK == 0:
            error = error_of(lambda: monitored_barrier(group, seconds))
            assert isinstance(error, remuda.Deadline) and error.rank == 1, error
    dist.barrier()
    short = dist.new_group(list(range(SIZE)), timeout=datetime.timedelta(milliseconds=50))
    if RANK == 0:
        work = dist.all_reduce(torch.ones(3), group=short, async_op=True)
        assert "waiting for rank" in str(error_of(work.wait))
        future = dist.all_reduce(torch.ones(3), group=short, async_op=True).get_future()
        assert "waiting for rank" in str(error_of(future.wait))
    dist.barrier()


@case("errors")
def barrier_does_not_satisfy_a_monitored_barrier():
    import remuda

    group = dist.new_group(list(range(SIZE)))
    calls = [lambda: monitored_barrier(group, 60), lambda: dist.barrier(group)]
    error = error_of(calls[RANK])
    own, other = ("monitored_barrier", "barrier")[:: 1 - 2 * RANK]
    text = f"{own} (operation 1, 0 bytes) failed on rank {RANK}: this rank called {own}(), but rank {1 - RANK} called {other}()"
    assert isinstance(error, remuda.Mismatch) and error.message == text, error
    dist.barrier()


@case("errors")
def operations_have_their_names_in_errors():
    import remuda

    def check(call, text):
        group = dist.new_group(list(range(SIZE)), timeout=datetime.timedelta(milliseconds=50))
        if RANK == 0:
            error = error_of(lambda: call(group))
            assert isinstance(error, remuda.Deadline) and error.message.startswith(text), error
        dist.barrier()
        if RANK == 1:
            error = error_of(lambda: dist.barrier(group))
            assert f"rank 0 failed first, in {text.split()[0]}: the deadline passed" in error.message, error

    ones = torch.ones(4)
    check(lambda group: monitored_barrier(group, 0.05), "monitored_barrier (operation 1, 0 bytes)")
    check(lambda group: dist.recv(ones, 1, group=group), "recv (operation 1, 16 bytes)")
    check(lambda group: dist.send(ones, 1, group=group), "send (operation 1, 16 bytes)")
    check(lambda group: dist.isend(ones, 1, group=group).wait(), "send (operation 1, 16 bytes)")
    splits = [1, 3]
    check(lambda group: dist.all_to_all_single(ones + 0, ones, splits, splits, group=group), "all_to_all (operation 1, 16 bytes)")


@case("errors")
def wrong_split_sizes_name_their_tensor():
    import remuda

    def check(call, text):
        error = error_of(call)
        assert isinstance(error, remuda.BadArgument) and error.message == text, error

    one, two, three, halves = torch.ones(1), torch.ones(2), torch.ones(3), [1, 1]
    sizes = f"the output has 3 rows, so its {SIZE} split sizes have this sum, and not [1, 1]"
    check(lambda: dist.all_to_all_single(three, two, halves, halves), sizes)
    check(lambda: dist.all_to_all_single(two, one), f"the input has 1 rows, which cannot be divided among {SIZE} ranks")
    # No rank has begun an operation.
    dist.barrier()


@case("errors")
def parts_of_two_sizes_are_explained():
    import remuda

    group = dist.new_group(list(range(SIZE)))
    # Rank 0 sends one element to rank 1, which expects two.
    sends, recvs = ([1, 1], [1, 1]) if RANK == 0 else ([1, 1], [2, 1])
    data, output = torch.ones(2), torch.ones(sum(recvs))
    error = error_of(lambda: dist.all_to_all_single(output, data, recvs, sends, group=group))
    assert isinstance(error, remuda.Mismatch) and error.hint.startswith("the part that a rank sends to another"), error
    dist.barrier()


@case("errors")
def every_rank_learns_which_one_was_late():
    import remuda

    group = dist.new_group(list(range(SIZE)), timeout=datetime.timedelta(milliseconds=50))
    if RANK == 0:
        error = error_of(lambda: dist.all_reduce(torch.ones(3), group=group))
        text = "the deadline passed while waiting for rank 1, after 50 ms"
    # Rank 1 comes when it is too late.
    dist.barrier()
    if RANK == 1:
        error = error_of(lambda: dist.broadcast(torch.ones(3), 0, group=group))
        text = "rank 0 failed first, in all_reduce: the deadline passed while waiting for rank 1, after 50 ms"
    assert isinstance(error, remuda.Deadline) and error.rank == 1, error
    assert error.message.endswith(f"failed on rank {RANK}: {text}"), error


@case("errors")
def both_ranks_see_that_a_message_has_two_sizes():
    import remuda

    group = dist.new_group(list(range(SIZE)))
    calls = [lambda: dist.send(torch.ones(4), 1, group=group), lambda: dist.recv(torch.ones(5), 0, group=group)]
    error = error_of(calls[RANK])
    own, other = ("send(4", "recv(5")[:: 1 - 2 * RANK]
    assert isinstance(error, remuda.Mismatch) and error.rank == 1 - RANK, error
    assert error.message.endswith(f"this rank called {own} × f32), but rank {1 - RANK} called {other} × f32)"), error
    assert error.hint.startswith("a message has one type and one size"), error
    dist.barrier()


@case("errors")
def aborted_group_gives_its_reason():
    import remuda

    group = dist.new_group(list(range(SIZE)))
    if RANK == 0:
        group._get_backend(torch.device("cpu")).abort()
    else:
        error = error_of(lambda: dist.barrier(group))
        assert isinstance(error, remuda.Aborted) and "called abort" in str(error), error
    dist.barrier()


@case("errors")
def bad_arguments_are_explained():
    error = error_of(lambda: dist.all_gather_into_tensor(torch.empty(3), torch.ones(2)))
    assert "elements" in str(error), error
    error = error_of(lambda: dist.all_to_all_single(torch.empty(SIZE + 1), torch.ones(SIZE + 1)))
    assert "cannot be divided" in str(error), error
    dist.barrier()


@case("errors")
def group_that_one_rank_makes_names_the_other():
    # torch numbers groups, so this is the last one.
    if RANK == 0:
        options = {"timeout": datetime.timedelta(milliseconds=50), "use_local_synchronization": True}
        error = error_of(lambda: dist.new_group([0, 1], **options))
        text = "creating a group failed on rank 0: the deadline passed while waiting for rank 1"
        assert str(error).startswith(text), error
    dist.barrier()


@case("errors")
def default_group_of_a_failed_job_is_refused():
    import remuda

    # The last case, because the job has no other default group.
    assert isinstance(error_of(lambda: dist.all_reduce(torch.ones(4 + RANK))), remuda.Mismatch)
    dist.destroy_process_group()
    error = error_of(lambda: dist.init_process_group("remuda"))
    text = "no further default group can be made: the group has failed: this rank called all_reduce("
    assert isinstance(error, remuda.Mismatch) and error.message.startswith(text), error
    assert error.hint.startswith("start the job again"), error


@case("met")
def ranks_share_memory():
    import remuda.torch

    # The segment is one anonymous file, which all of them map.
    with open("/proc/self/maps") as lines:
        own = {line.split()[4] for line in lines if "/memfd:remuda" in line}
    everywhere = [None] * SIZE
    dist.all_gather_object(everywhere, own)
    assert set.intersection(*everywhere), everywhere
    own = remuda.torch.empty(1 << 20)
    own.fill_(RANK)
    dist.all_reduce(own)
    assert own[-1].item() == SIZE * (SIZE - 1) / 2
    pair = dist.new_group([0, 1])
    if RANK < 2:
        one = torch.ones(1)
        dist.all_reduce(one, group=pair)
        assert one.item() == 2
    dist.barrier()


def spawned(rank, directory):
    """A process of `torch.multiprocessing.spawn`."""
    store = dist.FileStore(os.path.join(directory, "spawned"), SIZE)
    dist.init_process_group("remuda", store=store, rank=rank, world_size=SIZE)
    total = torch.tensor([rank])
    dist.all_reduce(total)
    assert total.item() == SIZE * (SIZE - 1) // 2
    print("spawned rank", rank, flush=True)
    dist.destroy_process_group()


@case("children")
def processes_of_a_worker_form_groups_of_their_own():
    own = torch.ones(1)
    dist.all_reduce(own)
    directory = os.path.join(os.environ["TORCH_WORKER_DIRECTORY"], f"of-rank-{RANK}")
    os.mkdir(directory)
    torch.multiprocessing.spawn(spawned, (directory,), nprocs=SIZE)
    dist.all_reduce(own)
    assert own.item() == SIZE * SIZE


@case("children")
def process_with_the_rank_of_its_worker_meets_those_of_the_others():
    # It names the store itself: that of the environment is the worker's own.
    code = (
        "import os, sys, datetime, torch, torch.distributed as dist\n"
        "store = dist.FileStore(sys.argv[1], int(os.environ['WORLD_SIZE']))\n"
        "rank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n"
        "timeout = datetime.timedelta(seconds=float(sys.argv[2])); store.set_timeout(timeout)\n"
        "try: dist.init_process_group('remuda', store=store, rank=rank, world_size=size, timeout=timeout)\n"
        "except dist.DistBackendError as error: sys.exit(str(error))\n"
        "one = torch.ones(1); dist.all_reduce(one); print(one.item()); dist.destroy_process_group()\n"
    )

    def run(name, seconds):
        line = [sys.executable, "-c", code, os.path.join(os.environ["TORCH_WORKER_DIRECTORY"], name), str(seconds)]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    together = run("children", 300)
    assert together.stdout == f"{float(SIZE)}\n", together
    if RANK == 1:
        alone = run("alone", 0.05).stderr
        assert "this is a child process of the worker of rank 1, with the rank of that worker" in alone, alone
        assert "hint: call init_process_group in the worker itself" in alone, alone
    dist.barrier()


@case("names")
def rank_that_names_another_backend_is_told():
    import io

    import remuda.torch.backend as backend

    told, backend._NAMED_WITHIN_S = io.StringIO(), 0.01
    directory = os.environ["TORCH_WORKER_DIRECTORY"]
    end = os.path.join(directory, "end")
    if RANK == 0:
        sys.stderr, own = told, sys.stderr
        store = dist.FileStore(os.path.join(directory, "names"), SIZE)
        dist.init_process_group("remuda", store=store, rank=0, world_size=SIZE)
        while not told.getvalue().endswith("\n"):
            time.sleep(0.01)
        sys.stderr = own
        text = "note: rank 1 has not named the backend remuda for its default group within 0.01 s"
        assert told.getvalue().startswith(text), told.getvalue()
        open(end, "w").close()
    while not os.path.exists(end):
        time.sleep(0.01)


@case("lost")
def lost_rank_is_named():
    import remuda

    net = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
    if RANK == 1:
        # With 0, so that the launcher does not stop the others.
        os._exit(0)
    # torch keeps the text alone; the next operation has the error.
    error = error_of(lambda: net(torch.ones(1, 2)).sum().backward())
    assert not isinstance(error, remuda.RemudaError) and "PeerLost: " in str(error), error
    error = error_of(dist.barrier)
    assert isinstance(error, remuda.PeerLost) and error.rank == 1, error
    # The group has failed, so it cannot be left in an orderly way.
    print("ok lost_rank_is_named", flush=True)
    os._exit(0)


def main():
    scenario, kind = sys.argv[1:]
    # A hang shows where it is, and ends.
    faulthandler.dump_traceback_later(300, exit=True)
    torch.set_num_threads(1)
    if scenario == "spawn":
        arguments = (os.environ["TORCH_WORKER_DIRECTORY"],)
        torch.multiprocessing.spawn(spawned, arguments, nprocs=SIZE)
        return
    if kind == "group":
        import remuda.torch

        create = lambda options, _: remuda.torch.RemudaProcessGroup(options)
        dist.Backend.register_backend("remuda_group", create, extended_api=True, devices=["cpu"])
        dist.init_process_group("remuda_group")
    elif scenario != "names":
        dist.init_process_group("cpu:remuda" if scenario == "errors" else "remuda")
    for function in CASES[scenario]:
        function()
        print(f"ok {function.__name__}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
