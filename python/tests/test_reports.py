"""What the final report says of a rank that hangs, and of one that calls something else than the others."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

HANG = (
    "import os, signal, sys, time\n"
    "def hang(pid):\n"
    "    os.kill(pid, signal.SIGTERM)\n"
    "    while True: time.sleep(1)\n"
)
PREPARE = "from remuda import _stacks; _stacks.prepare()\n"


class Stack(unittest.TestCase):
    def run_worker(self, code, rank="3", name="rank3.error.json"):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, name)
            variables = {"REMUDA_RANK_FD": "0", "RANK": rank, "TORCHELASTIC_ERROR_FILE": str(path)}
            line = [sys.executable, "-c", HANG + code]
            finished = subprocess.run(line, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
            return finished, {file.name: file.read_text() for file in pathlib.Path(directory).iterdir()}

    def test_worker_writes_where_it_is_and_ends_by_the_signal(self):
        finished, files = self.run_worker(PREPARE + "hang(os.getpid())")
        self.assertEqual((finished.returncode, finished.stderr), (-signal.SIGTERM, ""))
        self.assertRegex(files["rank3.error.stack"], r'^Stack .*:\n  File "<string>", line 3 in hang\n')

    def test_handler_of_the_program_runs_as_ever(self):
        handler = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        finished, files = self.run_worker(handler + PREPARE + "hang(os.getpid())")
        self.assertEqual(finished.returncode, 7, finished.stderr)
        self.assertIn(" in hang\n", files["rank3.error.stack"])
        finished, files = self.run_worker(PREPARE + handler + "hang(os.getpid())")
        self.assertEqual((finished.returncode, files["rank3.error.stack"]), (7, ""))

    def test_child_writes_nothing(self):
        forked = (
            "child = os.fork()\n"
            "if child == 0: hang(os.getpid())\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        )
        started = (
            "import subprocess\n"
            f"child = [sys.executable, '-c', {HANG + PREPARE + 'hang(os.getpid())'!r}]\n"
            "print(subprocess.run(child).returncode)\n"
        )
        for code in (forked, started):
            finished, files = self.run_worker(PREPARE + code)
            expect = (f"{-signal.SIGTERM}\n", {"rank3.error.stack": ""})
            self.assertEqual((finished.stdout, files), expect, finished.stderr)

    def test_worker_of_another_launcher_writes_nothing(self):
        for rank, name in [("3", "error.json"), ("2", "rank3.error.json")]:
            finished, files = self.run_worker(PREPARE + "hang(os.getpid())", rank, name)
            self.assertEqual((finished.returncode, files), (-signal.SIGTERM, {}), finished.stderr)


@unittest.skipUnless(os.environ.get("REMUDA_EXECUTABLE"), "REMUDA_EXECUTABLE is not set")
class Report(unittest.TestCase):
    HANGS = (
        "import remuda, time\n"
        "group = remuda.init(timeout=1)\n"
        "def evaluate():\n"
        "    time.sleep(600)\n"
        "if group.rank == 1: evaluate()\n"
        "group.barrier()\n"
    )
    #: The others exit first, once rank 0 has reported what it called.
    DEVIATES = (
        "import pathlib, remuda, time, traceback\n"
        "group, reported = remuda.init(), pathlib.Path('reported')\n"
        "try:\n"
        "    if group.rank == 0: group.barrier()\n"
        "    else: group.all_reduce(memoryview(bytearray(8)).cast('f'))\n"
        "except remuda.Mismatch:\n"
        "    if group.rank == 0:\n"
        "        traceback.print_exc()\n"
        "        reported.touch()\n"
        "        time.sleep(600)\n"
        "    while not reported.exists(): time.sleep(0.01)\n"
        "    raise\n"
    )

    def run_job(self, program, *options):
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "train.py").write_text(program)
            run = [os.environ["REMUDA_EXECUTABLE"], "run", "--no_local_rank", "--accelerator", "cpu"]
            line = [*run, "--run_dir", directory, "--no_python", *options, sys.executable, "train.py"]
            finished = subprocess.run(line, cwd=directory, capture_output=True, text=True, check=False)
            (record,) = pathlib.Path(directory).glob("2*/run.json")
            return finished, json.loads(record.read_text())

    def test_report_says_where_a_rank_hangs(self):
        finished, record = self.run_job(self.HANGS, "-n", "2")
        report = finished.stderr[finished.stderr.index("error[") :]
        self.assertRegex(report, r"^error\[R101\]: rank 1 \(localhost\) did not take part: rank 0 timed out ")
        self.assertIn("\n  it was at train.py:4 in evaluate\n", report)
        self.assertNotIn("if the job hangs again", report)
        place = record["cause"]["place"]
        self.assertEqual((os.path.basename(place["file"]), place["line"], place["function"]), ("train.py", 4, "evaluate"))

    def test_report_says_where_a_rank_crashed(self):
        crashes = self.HANGS.replace("time.sleep(600)", "import os; os.abort()")
        finished, record = self.run_job(crashes, "-n", "2")
        self.assertIn("\n  at train.py:4 in evaluate\n", finished.stderr)
        self.assertEqual((record["cause"]["signal"], record["cause"]["place"]["line"]), (6, 4))

    def test_report_of_a_job_that_ran_too_long_has_the_place_of_each_rank(self):
        finished, _ = self.run_job(self.HANGS.replace("timeout=1", ""), "-n", "2", "--timeout", "3")
        places = re.findall(r"still running: rank (\d) \(localhost\), at train\.py:(\d) ?(.*?), ", finished.stderr)
        self.assertEqual(places, [("0", "6", ""), ("1", "4", "in evaluate")], finished.stderr)

    def test_report_names_the_rank_that_deviates(self):
        calls = r"this rank called barrier\(\), but rank [123] and 2 others called all_reduce\(2 × f32, sum\)"
        headline = rf"^remuda\.errors\.Mismatch: barrier \(operation 1, 0 bytes\) failed on rank 0: {calls}$"
        for options in (["-n", "4"], ["-H", "n1:1,n2:3", "--launcher", "local"]):
            finished, record = self.run_job(self.DEVIATES, *options)
            cause = record["cause"]
            self.assertEqual((cause["rank"], cause["place"]["line"]), (0, 4), finished.stderr)
            self.assertRegex(cause["exception"], headline)
            self.assertNotIn("lost their connection", finished.stderr)


if __name__ == "__main__":
    unittest.main()
