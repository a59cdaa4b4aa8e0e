"""`remuda.launch`; `REMUDA_EXECUTABLE` is the executable that starts the workers."""

import array
import contextlib
import importlib.util
import io
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
import unittest.mock

import remuda
from remuda import _worker, launcher

CPU = {"accelerator": "cpu"}


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def rank():
    return int(os.environ["RANK"])


def sums(first, second=0):
    group = remuda.init(timeout=120)
    data = array.array("i", [group.rank + first + second])
    group.all_reduce(data)
    print("sum", data[0])
    return group.rank, data[0]


class Refused(Exception):
    def __init__(self, text, number):
        super().__init__(f"{text}: {number}")
        self.number = number

    def __reduce__(self):
        return type(self), ("refused", self.number)


def refuses(at):
    if rank() == at:
        raise Refused("refused", 7)
    remuda.init(timeout=120).barrier()


def kills(at):
    if rank() == at:
        os.kill(os.getpid(), 9)
    remuda.init(timeout=120).barrier()


def exits(status):
    sys.exit(status)


class Unpickled(Exception):
    """It cannot be made from its arguments."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def raises_unpickled():
    raise Unpickled("one", "two")


def crashes():
    os.kill(os.getpid(), signal.SIGSEGV)


class Unreadable:
    def __reduce__(self):
        raise TypeError("a file is open")


def program(text, *arguments, python=sys.executable):
    """Runs a program that calls `launch`."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "program.py")
        path.write_text(textwrap.dedent(text))
        line = [python, str(path), *arguments]
        return subprocess.run(line, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


class Calls(unittest.TestCase):
    def test_wrong_arguments_are_explained(self):
        for arguments in ({"n": 0}, {"hosts": ["n1"]}):
            with self.assertRaises(remuda.BadArgument) as raised:
                remuda.launch(rank, **arguments)
            self.assertIn("\nhint: ", str(raised.exception))

    def test_hosts_are_a_list_with_slots(self):
        self.assertEqual(launcher._place(4, ["n1", "n2:8"], None), ["-n", "4", "--hostfile", "n1:4,n2:8"])
        self.assertEqual(launcher._place(None, "n[1-4]:8", "cuda"), ["--hostfile", "n[1-4]:8", "--accelerator", "cuda"])
        self.assertEqual(launcher._place(2, "n1,n2", None), ["-n", "2", "--slots", "2", "--hostfile", "n1,n2"])

    def test_function_without_a_name_needs_cloudpickle(self):
        by_value, _worker.dumps_by_value = _worker.dumps_by_value, lambda: None
        try:
            with self.assertRaises(remuda.BadArgument) as raised:
                launcher.pack(lambda: None, (), {})
        finally:
            _worker.dumps_by_value = by_value
        self.assertIn("install `cloudpickle`", str(raised.exception))

    def test_missing_executable_is_explained(self):
        with tempfile.TemporaryDirectory() as directory:
            code = "import remuda; from remuda import launcher; print(launcher.executable())"
            environment = {**os.environ, "PATH": directory}
            environment.pop("REMUDA_EXECUTABLE", None)
            line = [sys.executable, "-c", code]
            finished = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
            self.assertIn("set REMUDA_EXECUTABLE to the path of `remuda`", finished.stderr)
            executable = pathlib.Path(directory, "remuda")
            executable.touch(0o755)
            finished = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
            self.assertEqual(finished.stdout, f"{executable}\n")


@unittest.skipUnless(os.environ.get("REMUDA_EXECUTABLE"), "REMUDA_EXECUTABLE is not set")
class Jobs(unittest.TestCase):
    def launch(self, *arguments, **options):
        """Results, and what was printed."""
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            results = remuda.launch(*arguments, **{**CPU, **options})
        return results, output.getvalue(), errors.getvalue()

    def failure(self, *arguments, **options):
        with self.assertRaises(remuda.JobFailed) as raised:
            self.launch(*arguments, **options)
        return raised.exception

    def test_results_are_in_rank_order(self):
        results, output, errors = self.launch(sums, 3, args=(10,), kwargs={"second": 1})
        self.assertEqual(results, [(0, 36), (1, 36), (2, 36)])
        self.assertEqual(output.count("sum 36\n"), 3, output)
        self.assertEqual(errors, "")

    def test_log_of_a_failure_is_kept_and_that_of_a_success_is_not(self):
        errors = io.StringIO()
        with tempfile.TemporaryDirectory() as runs, unittest.mock.patch.dict(os.environ, REMUDA_RUN_DIR=runs):
            self.launch(rank, 1)
            # Not even a link to the newest one.
            self.assertEqual(os.listdir(os.path.join(runs, "calls")), [])
            with contextlib.redirect_stderr(errors), self.assertRaises(remuda.JobFailed):
                remuda.launch(int, 1, args=("no number",), **CPU)
            log = errors.getvalue().partition("log: ")[2].split("\n")[0]
            self.assertIn("ValueError", pathlib.Path(log).read_text(encoding="utf-8"))

    def test_variables_are_set_and_files_are_removed(self):
        with tempfile.TemporaryDirectory() as directory:
            results, _, _ = self.launch(os.getenv, 2, args=("TOKEN",), env={"TOKEN": "a b"}, directory=directory)
            self.assertEqual((results, os.listdir(directory)), (["a b", "a b"], []))

    def test_exception_has_rank_and_traceback(self):
        error = self.failure(refuses, 3, args=(1,))
        self.assertEqual((error.rank, error.status), (1, 1))
        self.assertIn(f"rank 1 on localhost failed: {__name__}.Refused: refused: 7\n\nTraceback", str(error))
        self.assertIn("in refuses\n", error.traceback)
        self.assertNotIn("_worker.py", error.traceback)
        self.assertIsInstance(error.__cause__, Refused)
        self.assertEqual(error.__cause__.number, 7)

    def test_signal_and_exit_are_told(self):
        error = self.failure(kills, 2, args=(1,))
        self.assertIn("signal 9 ended rank 1 on localhost", str(error))
        self.assertEqual(error.status, 137)
        error = self.failure(exits, 1, args=(3,))
        self.assertEqual((str(error), error.rank), ("rank 0 on localhost exited with 3", 0))
        self.assertIn("error[R101]: rank 0 (localhost) exited with code 3", error.report)
        error = self.failure(exits, 1, args=("bye",))
        self.assertEqual((str(error), error.status), ("rank 0 on localhost exited with 1: bye", 1))
        self.assertEqual(self.launch(exits, 1, args=(0,))[0], [None])
        self.assertIn("left no result\nhint: let the function return", str(self.failure(os._exit, 1, args=(0,))))

    def test_timeout_and_refused_options_are_told(self):

        error = self.failure(time.sleep, 1, args=(600,), timeout=0.5)
        self.assertEqual(error.status, 124)
        self.assertIn("--timeout", str(error))
        error = self.failure(rank, 1, options=["--no_such_option"])
        self.assertEqual(error.status, 2)
        self.assertIn("no_such_option", str(error))

    def test_crash_shows_where_it_happened(self):
        error = self.failure(crashes, 1)
        line = crashes.__code__.co_firstlineno + 1
        place = f"{pathlib.Path(__file__).resolve()}:{line} in crashes"
        self.assertEqual(str(error), f"signal 11 ended rank 0 on localhost\n  at {place}")
        self.assertIn("in crashes\n", error.report)
        self.assertNotIn("PYTHONFAULTHANDLER", error.report)

    def test_exception_that_cannot_be_sent_is_told(self):
        error = self.failure(raises_unpickled, 1)
        self.assertIsNone(error.__cause__)
        self.assertIn("Unpickled: one and two\n\nThe exception itself cannot be sent: TypeError: ", str(error))

    def test_refusal_is_in_the_exception_and_printed_once(self):
        finished = program(
            """
            import remuda, time
            if __name__ == "__main__":
                for options in ({"options": ["--no_such_option"]}, {"timeout": 0.2}):
                    try:
                        remuda.launch(time.sleep, 1, args=(600,), accelerator="cpu", **options)
                    except remuda.JobFailed as error:
                        print(error)
            """
        )
        self.assertEqual(finished.stderr, "")
        self.assertIn("`remuda` exited with 2\n\nerror[C001]: there is no option `--no_such_option`\n", finished.stdout)
        self.assertIn("the call did not end in time\n\nerror[R105]: the job did not end within 200 ms", finished.stdout)

    def end_program(self, directory, number):
        """Ends a program that waits for a worker by a signal; returns its status and the worker."""
        code = (
            "import os, remuda, signal, sys, time\n"
            # Tests that run under `nohup` ignore it.
            "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
            "def call(launcher, number):\n"
            "    print(os.getpid(), flush=True)\n"
            "    os.kill(launcher, number)\n"
            "    time.sleep(600)\n"
            "    print('slept')\n"
            "if __name__ == '__main__':\n"
            "    arguments = (os.getpid(), int(sys.argv[2]))\n"
            "    remuda.launch(call, 1, args=arguments, accelerator='cpu', directory=sys.argv[1])\n"
        )
        finished = program(code, directory, str(int(number)))
        self.assertNotIn("slept", finished.stdout)
        return finished.returncode, int(re.findall(r"\d+", finished.stdout)[-1])

    def test_files_are_removed_when_a_signal_ends_the_program(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with tempfile.TemporaryDirectory() as directory:
                status, _ = self.end_program(directory, number)
                self.assertEqual((status, os.listdir(directory)), (-number, []))

    def test_worker_and_files_do_not_outlive_a_killed_program(self):
        with tempfile.TemporaryDirectory() as directory:
            status, worker = self.end_program(directory, signal.SIGKILL)
            self.assertEqual(status, -signal.SIGKILL)
            until = time.monotonic() + 300
            while is_running(worker) and time.monotonic() < until:
                time.sleep(0.01)
            self.assertFalse(is_running(worker))
            # The next call removes them, and no files of a call that lasts.
            with launcher._directory(directory, None) as lasting:
                self.launch(rank, 1, directory=directory)
                self.assertEqual(os.listdir(directory), [lasting.name])

    def test_arguments_that_no_call_can_have_are_refused(self):
        for options, text in (
            ({"n": "2"}, "`n` is '2'; pass the number of workers"),
            ({"timeout": "2s"}, "`timeout` is '2s'; pass seconds"),
            ({"timeout": 0}, "`timeout` is 0; pass seconds"),
            ({"env": {"A": 1}}, "`env` is {'A': 1}; pass names and values"),
            ({"args": 1}, "`args` is 1; pass a tuple"),
            ({"hosts": []}, "`hosts` is []; name at least one host"),
            ({"directory": "/no/such"}, "`directory` is '/no/such'; pass a directory that exists"),
            ({"options": "--quiet --tag"}, "`options` is one text; pass a list of words: `options=['--quiet', '--tag']`"),
        ):
            with self.assertRaises(remuda.BadArgument) as raised:
                remuda.launch(time.sleep, **options)
            self.assertEqual(str(raised.exception).replace("\nhint: ", "; ")[: len(text)], text)
        with self.assertRaises(remuda.BadArgument):
            remuda.launch(5, 2)

    def test_launcher_that_is_stopped_is_named(self):
        failure = launcher._problem(128 + signal.SIGTERM, {"host": "n1"}, None)
        self.assertEqual(failure, "`remuda` was stopped by SIGTERM")
        self.assertEqual(launcher._problem(1, {"host": "n1"}, None), "host n1 was lost")

    def test_result_that_cannot_be_sent_is_a_failure(self):
        error = self.failure(Unreadable, 1)
        self.assertIn("a file is open", str(error))

    def test_program_with_a_guard_is_imported(self):
        finished = program(
            """
            import os, remuda, sys

            class Result:
                def __init__(self, rank):
                    self.rank = rank

            def call(given):
                if given is None:
                    raise ValueError("bad")
                return Result(int(os.environ["RANK"]))

            if __name__ == "__main__":
                results = remuda.launch(call, 2, args=(Result(3),), accelerator="cpu")
                print([(type(result) is Result, result.rank) for result in results])
                remuda.launch(call, 2, args=(None,), accelerator="cpu")
            """
        )
        self.assertEqual(finished.stdout, "[(True, 0), (True, 1)]\n", finished.stderr)
        self.assertIn("ValueError: bad\n\nThe above exception was the direct cause", finished.stderr)
        self.assertIn('    raise ValueError("bad")\n', finished.stderr)

    def test_worker_launches_workers(self):
        finished = program(
            """
            import os, remuda

            def inner(given):
                return int(os.environ["RANK"]) + given

            def outer():
                return remuda.launch(inner, 2, args=(5,), accelerator="cpu")

            if __name__ == "__main__":
                print(remuda.launch(outer, 1, accelerator="cpu"))
            """
        )
        self.assertEqual((finished.stdout, finished.stderr), ("[[5, 6]]\n", ""))

    def test_syntax_error_is_described_by_its_message(self):
        error = self.failure(eval, 1, args=("a b",))
        self.assertIn("rank 0 on localhost failed: SyntaxError: invalid syntax (<string>, line 1)\n", str(error))

    def test_program_that_calls_launch_when_imported_is_told(self):
        finished = program(
            """
            import remuda
            if __name__ != "x":
                pass
            def call():
                return 1
            remuda.launch(call, 1, accelerator="cpu")
            """
        )
        self.assertIn('put the call of `remuda.launch` below `if __name__ == "__main__":`', finished.stderr)

    def test_function_below_the_guard_is_sent_by_value(self):
        finished = program(
            """
            import remuda
            def inner():
                def call(): pass
            if __name__ == "__main__":
                def call(value):
                    return value + 1
                print(remuda.launch(call, 2, args=(1,), accelerator="cpu"))
            """
        )
        if importlib.util.find_spec("cloudpickle"):
            self.assertEqual(finished.stdout, "[2, 2]\n", finished.stderr)
        else:
            problem = "`call` or one of its arguments cannot be sent to workers by its name: `call` is defined below `if __name__ == \"__main__\":`"
            self.assertIn(problem, finished.stderr)
            self.assertIn("define it in a module, or above the guard of the program", finished.stderr)

    @unittest.skipUnless(importlib.util.find_spec("cloudpickle"), "cloudpickle is not installed")
    def test_notebook_sends_functions_by_value(self):
        # A notebook has neither a file nor the standard output of its process.
        code = (
            "import io, sys\n"
            "sys.stdout = io.StringIO()\n"
            "import remuda\n"
            "factor = 3\n"
            "def call(value):\n"
            "    print('called')\n"
            "    return factor * value\n"
            "results = remuda.launch(call, 2, args=(4,), accelerator='cpu')\n"
            "results += remuda.launch(lambda: factor, 1, accelerator='cpu')\n"
            "print(results, file=sys.__stdout__)\n"
            "print(sys.stdout.getvalue().count('called'), file=sys.__stdout__)\n"
            "import linecache\n"
            "cell = 'def fails():\\n    def inner(): raise ValueError(7)\\n    inner()'\n"
            "linecache.cache['<cell>'] = (len(cell), None, cell.splitlines(True), '<cell>')\n"
            "exec(compile(cell, '<cell>', 'exec'))\n"
            "try: remuda.launch(fails, 1, accelerator='cpu')\n"
            "except remuda.JobFailed as error: print(error.traceback, file=sys.__stdout__)\n"
        )
        finished = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, check=False)
        self.assertTrue(finished.stdout.startswith("[12, 12, 3]\n2\nTraceback"), finished.stdout + finished.stderr)
        # Lines of the cell, which has no file.
        lines = ['  File "<cell>", line 3, in fails\n    inner()\n', '  File "<cell>", line 2, in inner\n    def inner():']
        for line in lines:
            self.assertIn(line, finished.stdout)


if __name__ == "__main__":
    unittest.main()
