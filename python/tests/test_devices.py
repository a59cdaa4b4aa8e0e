"""Memory of GPUs by its addresses. The driver and the NCCL are those of ``tests/capi/gpu.c``: the memory of a device is that of
the process. ``scripts/bindings`` builds them, and sets ``REMUDA_TEST_GPU`` to their directory."""

import array
import os
import subprocess
import sys
import threading
import unittest

import remuda
from remuda import native
from remuda.devices import Devices

DIRECTORY = os.environ.get("REMUDA_TEST_GPU")
#: Set in the process that has the driver: the loader reads its path when a process starts.
INSIDE = "REMUDA_TEST_INSIDE"


def address(values):
    return values.buffer_info()[0]


def rank(devices, group, found):
    own = array.array("f", [group.rank + 1, 2])
    devices.all_reduce(address(own), 2, "f32")
    number, pair = array.array("q", [group.rank]), array.array("q", [0] * 2)
    devices.all_gather(address(number), address(pair), 1, "i64")
    parts = array.array("f", [group.rank, 10 + group.rank])
    devices.reduce_scatter(address(parts), address(own), 1, "f32")
    other = array.array("f", [group.rank])
    devices.reduce(address(other), 1, "f32", root=1)
    bytes_ = array.array("B", [group.rank] * 3)
    devices.broadcast(address(bytes_), 3, "u8", root=1)
    swapped = array.array("f", [0, 0])
    devices.all_to_all(address(parts), address(swapped), 1, "f32")
    found[group.rank] = [*own, *pair, *other, *bytes_, *swapped, devices.uses_nccl]


def in_flight(devices, group, found):
    """Operations that are started, each with a memory of its own, and ended in another order."""
    own = array.array("f", [group.rank + 1, 2])
    peer, number = 1 - group.rank, array.array("q", [40 + group.rank])
    received = array.array("q", [0])
    sum_ = devices.all_reduce(address(own), 2, "f32", start=True)
    message = (peer, address(number), 1, "i64")
    swap = devices.exchange([message], [(peer, address(received), 1, "i64")], start=True)
    root = array.array("B", [group.rank] * 2)
    parts = array.array("B", [0] * 4)
    devices.gather(address(root), address(parts) if group.rank == 0 else 0, 2, "u8", root=0)
    share = array.array("B", [0])
    devices.scatter(address(root) if group.rank == 0 else 0, address(share), 1, "u8", root=0)
    if group.rank == 0:
        devices.send(address(own), 1, "f32", to=1)
    else:
        devices.recv(address(own) + 4, 1, "f32", source=0)
    swap.order()
    swap.release()
    sum_.order()
    ended = sum_.wait(), sum_.wait(), sum_.has_ended()
    found[group.rank] = [*own, *received, *parts, *share, all(ended)]


def mismatch(devices, group, found):
    value = array.array("f", [0])
    try:
        devices.broadcast(address(value), 1, "f32", root=group.rank)
    except remuda.Mismatch as error:
        found[group.rank] = error.rank


def on_threads(call):
    """What the threads of two ranks find, each with a device of its own."""
    groups, found = remuda.threads(2), [None, None]

    def run(group):
        devices = Devices(group, group.rank)
        call(devices, group, found)
        devices.free()

    threads = [threading.Thread(target=run, args=(group,)) for group in groups]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return found


@unittest.skipUnless(INSIDE in os.environ, "runs in a process with the driver of the tests")
class Inside(unittest.TestCase):
    def test_operations(self):
        uses_nccl = os.environ[INSIDE] == "nccl"
        common = [0, 1]
        expected = [
            [1, 4, *common, 0, 1, 1, 1, 0, 1, uses_nccl],
            [21, 4, *common, 1, 1, 1, 1, 10, 11, uses_nccl],
        ]
        self.assertEqual(on_threads(rank), expected)

    def test_started_operations_and_messages(self):
        self.assertEqual(on_threads(in_flight), [[3, 4, 41, 0, 0, 1, 1, 0, True], [3, 3, 40, 0, 0, 0, 0, 0, True]])

    def test_mismatch_names_the_other_rank(self):
        self.assertEqual(on_threads(mismatch), [1, 0])

    def test_wrong_arguments(self):
        (group,) = remuda.threads(1)
        devices = Devices(group, 0)
        for arguments in ((1, 1, "f32"), (0, 1, "f32"), (64, 1, "f31"), (64, 1, "f32", "mean")):
            with self.assertRaises(remuda.BadArgument):
                devices.all_reduce(*arguments)
        with self.assertRaises(remuda.SystemFailure):
            Devices(group, 9)


@unittest.skipUnless(DIRECTORY, "REMUDA_TEST_GPU is not set")
class Outside(unittest.TestCase):
    def run_inside(self, kind):
        environment = {**os.environ, "LD_LIBRARY_PATH": DIRECTORY, INSIDE: kind}
        environment["REMUDA_NCCL_LIBRARY"] = f"{DIRECTORY}/libcuda.so" if kind == "nccl" else "/nowhere"
        line = [sys.executable, "-B", "-m", "unittest", "test_devices.Inside"]
        finished = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertIn("Ran 4 tests", finished.stderr)

    def test_operations_through_nccl(self):
        self.run_inside("nccl")

    def test_operations_through_host_memory(self):
        self.run_inside("host")


class WithoutDevices(unittest.TestCase):
    def test_library_without_functions_for_gpus_is_named(self):
        (group,) = remuda.threads(1)
        found, native.has_devices = native.has_devices, lambda _: False
        try:
            with self.assertRaises(remuda.EnvironmentMismatch) as raised:
                Devices(group, 0)
        finally:
            native.has_devices = found
        self.assertIn("--features capi,nccl", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
