"""Groups over buffers of Python, on threads of this process or on the workers of a job."""

import array
import gc
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest

import remuda

RANKS = 3


def on_ranks(body, ranks=RANKS):
    """Runs a function on every rank of a group of threads; returns results in rank order."""
    results, errors = [None] * ranks, []

    def run(rank, group):
        try:
            results[rank] = body(group)
        except BaseException as error:
            errors.append(error)
            group.abort(f"rank {rank} failed: {error}")
        finally:
            group.free()

    groups = remuda.threads(ranks, timeout=120)
    running = [threading.Thread(target=run, args=pair) for pair in enumerate(groups)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]
    return results


def failures(body, ranks=2):
    """The error of every rank, or None."""

    def run(group):
        try:
            body(group)
        except remuda.RemudaError as error:
            return error
        return None

    return on_ranks(run, ranks)


def twice(call):
    """Blocking, then started."""
    assert call(start=False) is None
    work = call(start=True)
    assert work.wait() and work.has_ended() and work.wait()


class Collectives(unittest.TestCase):
    def test_reductions(self):
        def body(group):
            found = []
            for code, op in [("f", "sum"), ("d", "avg"), ("i", "prod"), ("q", "max"), ("B", "min"), ("l", "sum")]:
                for start in (False, True):
                    data = array.array(code, [group.rank + 1, 2])
                    work = group.all_reduce(data, op, start=start)
                    if work:
                        work.wait()
                    found.append(data.tolist())
            rooted = array.array("f", [group.rank])
            group.reduce(rooted, root=2)
            parts, own = array.array("d", [group.rank, 10, 20]), array.array("d", [0])
            twice(lambda start: group.reduce_scatter(parts, own, start=start))
            return found, rooted[0], own[0]

        expected = [value for one in ([6, 6], [2, 2], [6, 8], [3, 2], [1, 2], [6, 6]) for value in (one, one)]
        results = on_ranks(body)
        self.assertEqual([found for found, _, _ in results], [expected] * RANKS)
        self.assertEqual([(rooted, own) for _, rooted, own in results], [(0, 3), (1, 30), (3, 60)])

    def test_copies(self):
        def body(group):
            rank = group.rank
            value, gathered, at_root, part = bytearray([rank]), bytearray(3), bytearray(3), array.array("i", [0])
            twice(lambda start: group.broadcast(value, root=1, start=start))
            twice(lambda start: group.all_gather(bytes([rank]), gathered, start=start))
            output = at_root if rank == 2 else None
            twice(lambda start: group.gather(bytes([10 + rank]), output, root=2, start=start))
            given = array.array("i", [5, 6, 7]) if rank == 0 else None
            twice(lambda start: group.scatter(given, part, root=0, start=start))
            exchanged = bytearray(3)
            twice(lambda start: group.all_to_all(bytes([10 * rank, 10 * rank + 1, 10 * rank + 2]), exchanged, start=start))
            counts = [1, 2, 0]
            received = array.array("d", [0] * (3 * counts[rank]))
            sent = array.array("d", [rank] * 3)
            twice(lambda start: group.all_to_all_v(sent, counts, received, [counts[rank]] * 3, start=start))
            twice(lambda start: group.barrier(start=start))
            return value[0], list(gathered), list(at_root), part[0], list(exchanged), received.tolist()

        results = on_ranks(body)
        self.assertEqual(results[1], (1, [0, 1, 2], [0, 0, 0], 6, [1, 11, 21], [0, 0, 1, 1, 2, 2]))
        self.assertEqual(results[2], (1, [0, 1, 2], [10, 11, 12], 7, [2, 12, 22], []))

    def test_messages(self):
        def body(group):
            rank, after, before = group.rank, (group.rank + 1) % 3, (group.rank + 2) % 3
            received, other = array.array("f", [0]), bytearray(2)
            send = group.send(array.array("f", [rank]), after, start=True)
            group.recv(received, before, start=True).wait()
            send.wait()
            sends = [(after, bytes([rank, 7])), (after, array.array("f", [rank + 0.5]))]
            twice(lambda start: group.exchange(sends, [(before, other), (before, received)], start=start))
            if rank == 0:
                group.send(b"ab", 1)
            if rank == 1:
                group.recv(other, 0)
            return received[0], bytes(other)

        expected = [(2.5, bytes([2, 7])), (0.5, b"ab"), (1.5, bytes([1, 7]))]
        self.assertEqual(on_ranks(body), expected)

    def test_subgroup_and_shared_memory(self):
        def body(group):
            memory = group.alloc(4 << 20)
            view = memory.view("f")
            view[0], view[1 << 19] = group.rank, 1
            group.all_reduce(view)
            if group.rank == 1:
                return view[0], view[1 << 19]
            pair = group.of([2, 0], "ends", timeout=60)
            data = array.array("i", [group.rank])
            pair.all_reduce(data)
            found = pair.rank, pair.size, data[0]
            pair.free()
            group.set_timeout(90)
            group.check()
            group.note_step(1, loss=0.5)
            return found

        self.assertEqual(on_ranks(body), [(1, 2, 2), (3, 3), (0, 2, 2)])

    def test_memory_is_freed_with_its_last_view(self):
        def body(group):
            # More than all of the memory, one after the other.
            for _ in range(64):
                view = group.alloc(1 << 28).view("d")
                assert view[0] == view[-1] == 0
                view[0] = view[-1] = 1
                del view
                gc.collect()

        on_ranks(body, 1)

    def test_dropped_work_keeps_its_buffers(self):
        def body(group):
            data = array.array("f", [1] * 100000)
            group.all_reduce(data, start=True)
            group.barrier()
            return data[99999]

        self.assertEqual(on_ranks(body), [RANKS] * RANKS)


class Errors(unittest.TestCase):
    def test_mismatch_names_both_calls(self):
        found = failures(lambda group: group.all_reduce(array.array("f", [0] * (4 + group.rank))))
        self.assertEqual([type(error) for error in found], [remuda.Mismatch] * 2)
        self.assertEqual([error.rank for error in found], [1, 0])
        self.assertIn("this rank called all_reduce(4 × f32, sum)", found[0].message)
        self.assertIn("\nhint: all ranks of a group must call the same operations", str(found[0]))

    def test_lost_rank_is_named(self):
        found = failures(lambda group: group.barrier() if group.rank else None)
        self.assertIsInstance(found[1], remuda.PeerLost)
        self.assertEqual(found[1].rank, 0)

    def test_deadline_names_the_late_rank(self):
        event = threading.Event()

        def body(group):
            if group.rank == 0:
                # Waits for the failure of the other rank, not for a time.
                event.wait()
                return
            try:
                group.set_timeout(0.05)
                work = group.barrier(start=True)
                assert not work.wait(timeout=0)
                work.wait()
            finally:
                event.set()

        found = failures(body)
        self.assertIsInstance(found[1], remuda.Deadline)
        self.assertEqual(found[1].rank, 0)

    def test_abort_gives_its_reason(self):
        found = failures(lambda group: group.barrier() if group.rank else group.abort("bad data"))
        self.assertIsInstance(found[1], remuda.Aborted)
        self.assertIn("rank 0 aborted the group: bad data", found[1].message)

    def test_bad_arguments_leave_the_group_usable(self):
        def body(group):
            calls = [
                lambda: group.all_reduce(b"read-only"),
                lambda: group.all_reduce(bytearray(1), op="median"),
                lambda: group.all_reduce(memoryview(bytearray(8))[::2]),
                lambda: group.broadcast(bytearray(1), root=9),
                lambda: group.all_gather(bytearray(1), bytearray(3)),
                lambda: group.all_gather(array.array("f", [0]), array.array("i", [0, 0])),
                lambda: group.reduce_scatter(bytearray(3), bytearray(1)),
                lambda: group.all_to_all(bytearray(3), bytearray(3)),
                lambda: group.all_to_all_v(b"abc", [1, 1], bytearray(2), [1, 1]),
                lambda: group.of([0, 5], "x"),
                lambda: group.send(b"a", group.rank),
            ]
            kinds = []
            for call in calls:
                with self.assertRaises(remuda.BadArgument) as raised:
                    call()
                kinds.append(str(raised.exception) != "")
            group.barrier()
            return all(kinds)

        self.assertEqual(on_ranks(body, 2), [True, True])

    def test_values_without_a_buffer_and_freed_groups_are_explained(self):
        (group,) = remuda.threads(1)
        with self.assertRaises(remuda.BadArgument) as raised:
            group.all_reduce([1.0])
        self.assertEqual(raised.exception.message, "list has no buffer")
        group.free()
        with self.assertRaises(remuda.BadArgument) as raised:
            group.barrier()
        self.assertEqual(raised.exception.message, "the group was freed")

    def test_process_without_a_job_is_told_how_to_start(self):
        environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
        environment.pop("REMUDA_RANK_FD", None)
        code = "import remuda\ntry: remuda.init()\nexcept remuda.EnvironmentMismatch as error: print(error.hint)"
        finished = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        self.assertEqual(finished.stdout, "start the program as a worker: `remuda run -n 2 PROGRAM`\n", finished.stderr)
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "train.py")
            path.write_text(code)
            for line, program in (([str(path), "x"], str(path)), (["-m", "train"], "--module train")):
                finished = subprocess.run(
                    [sys.executable, *line], env=environment, capture_output=True, text=True, check=False, cwd=directory
                )
                expect = f"start the program as a worker: `remuda run -n 2 {program}`\n"
                self.assertEqual(finished.stdout, expect, finished.stderr)

    def test_errors_survive_pickling(self):
        error = pickle.loads(pickle.dumps(remuda.PeerLost("rank 3 is gone", 3, "look")))
        self.assertEqual((type(error), error.rank, str(error)), (remuda.PeerLost, 3, "rank 3 is gone\nhint: look"))


class Store:
    """A key-value store of threads."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            self.changed.wait_for(lambda: key in self.values)
            return self.values[key]


class Meeting(unittest.TestCase):
    def test_ranks_meet_through_a_store(self):
        store, sums = Store(), [None] * RANKS

        def run(rank):
            group = remuda.meet(store, rank, RANKS, timeout=120)
            data = array.array("i", [rank])
            group.all_reduce(data)
            sums[rank] = (data[0], group.rank, group.size)
            group.barrier()
            group.free()

        running = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        self.assertEqual(sums, [(3, rank, RANKS) for rank in range(RANKS)])

    def test_exception_of_a_store_is_raised_again(self):
        class Broken(Store):
            def get(self, key):
                raise KeyError(key)

        with self.assertRaisesRegex(KeyError, "remuda/rank/0"):
            remuda.meet(Broken(), 0, 2)

    def test_end_of_a_process_is_noticed(self):
        code = (
            "import array, os, pathlib, remuda, sys, time\n"
            "class Files:\n"
            "    def set(self, key, value):\n"
            "        part = pathlib.Path(sys.argv[2], key.replace('/', '-') + '.part')\n"
            "        part.write_text(value); part.rename(part.with_suffix(''))\n"
            "    def get(self, key):\n"
            "        path = pathlib.Path(sys.argv[2], key.replace('/', '-'))\n"
            "        while not path.exists(): time.sleep(0.01)\n"
            "        return path.read_text()\n"
            "rank = int(sys.argv[1])\n"
            "group = remuda.meet(Files(), rank, 3, timeout=120)\n"
            "group.barrier()\n"
            "if rank == 1: os._exit(9)\n"
            "try: group.barrier()\n"
            "except remuda.PeerLost as error: print('lost', error.rank)\n"
        )
        with tempfile.TemporaryDirectory() as directory:
            lines = [[sys.executable, "-c", code, str(rank), directory] for rank in range(3)]
            ranks = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for line in lines]
            outputs = [rank.communicate()[0] for rank in ranks]
        self.assertEqual(outputs, ["lost 1\n", "", "lost 1\n"])


class Job(unittest.TestCase):
    """The workers of a job; `REMUDA_EXECUTABLE` is the executable that starts it."""

    @unittest.skipUnless(os.environ.get("REMUDA_EXECUTABLE"), "REMUDA_EXECUTABLE is not set")
    def test_workers_of_a_job(self):
        code = (
            "import array, remuda; group = remuda.init(timeout=120); data = array.array('i', [group.rank]);"
            "group.all_reduce(data); group.note_step(1, 2, 0.5); print('sum', data[0], 'of', group.size)\n"
            "try: remuda.init()\nexcept remuda.EnvironmentMismatch as error: print(error.message)"
        )
        options = ["run", "-n", "3", "--no_local_rank", "--accelerator", "cpu", "--no_python"]
        line = [os.environ["REMUDA_EXECUTABLE"], *options, sys.executable, "-c", code]
        finished = subprocess.run(line, capture_output=True, text=True, check=False)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        for text in ("sum 3 of 3", "this process has joined its job before"):
            self.assertEqual(finished.stdout.count(text), 3, finished.stdout)

    @unittest.skipUnless(os.environ.get("REMUDA_EXECUTABLE"), "REMUDA_EXECUTABLE is not set")
    def test_process_that_a_worker_starts_is_told_that_it_is_none(self):
        # Another file has the number of the worker's descriptor.
        child = (
            "import os, remuda; os.dup2(0, int(os.environ['REMUDA_SHM_FD']))\n"
            "try: remuda.init()\nexcept remuda.EnvironmentMismatch as error: print(error)"
        )
        code = f"import subprocess, sys, remuda; subprocess.run([sys.executable, '-c', {child!r}]); remuda.init()"
        options = ["run", "-n", "1", "--no_local_rank", "--accelerator", "cpu", "--no_python", "--quiet"]
        line = [os.environ["REMUDA_EXECUTABLE"], *options, sys.executable, "-c", code]
        finished = subprocess.run(line, capture_output=True, text=True, check=False)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertIn("this process was started by the worker of rank 0, and is not that worker", finished.stdout)
        self.assertIn("hint: join the job in the worker itself", finished.stdout)


if __name__ == "__main__":
    unittest.main()
