"""Steps, phases and exceptions that a program reports, and what it costs where remuda has not started it."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import agent
import remuda
from remuda import notes

#: Reports without a pause between steps.
EVERY_STEP = "import remuda, remuda.progress as progress; progress.STEP_PAUSE = progress.LOSS_PAUSE = 0\n"


def outside(code):
    """Runs a program that remuda has not started."""
    environment = {name: value for name, value in os.environ.items() if name != "REMUDA_RANK_FD"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


class Notes(unittest.TestCase):
    def test_frames_have_the_bytes_of_the_contract(self):
        sent = []
        send, notes._send = notes._send, lambda note: sent.append(list(notes.frame(note)))
        try:
            notes.step(300, 2, 0.5)
            notes.phase("no")
            notes.phase(None)
            notes.failed("no")
        finally:
            notes._send = send
        # The same as in `runtime::contract`.
        expected = [
            [15, 0, 0, 0, 3, 1, 0xAC, 2, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0xE0, 0x3F, 0],
            [5, 0, 0, 0, 3, 4, 1, 2, 110, 111],
            [2, 0, 0, 0, 3, 4, 0],
            [4, 0, 0, 0, 3, 5, 2, 110, 111],
        ]
        self.assertEqual(sent, expected)

    def test_largest_note_fits_its_limit(self):
        self.assertEqual(len(notes._text("ö" * 10_000)), 2 + notes.TEXT_BYTES_MAX)
        self.assertEqual(notes._text("aö" * 10_000)[2:].decode(), "aö" * 341 + "a")
        self.assertLess(3 + notes.TEXT_BYTES_MAX, notes.NOTE_BYTES_MAX)

    def test_only_the_socket_of_an_agent_is_written(self):
        code = "import sys, os, remuda; os.environ['REMUDA_RANK_FD'] = sys.argv[1]; remuda.step(); remuda.phase('x')"
        with tempfile.TemporaryFile() as file:
            for descriptor in (str(file.fileno()), "999", "x", "-1"):
                line = [sys.executable, "-c", code, descriptor]
                finished = subprocess.run(line, pass_fds=[file.fileno()], capture_output=True, text=True, check=False)
                self.assertEqual((finished.returncode, finished.stderr), (0, ""))
            self.assertEqual(os.fstat(file.fileno()).st_size, 0)

    def test_agent_that_does_not_read_stops_no_program(self):
        code = EVERY_STEP + "for _ in range(20_000): remuda.step()\nprint('done')"
        found, finished = agent.run(code)
        self.assertEqual((finished.stdout, finished.stderr), ("done\n", ""))
        # What was sent is whole.
        self.assertEqual([number for _, number, *_ in found], list(range(1, len(found) + 1)))

    def test_socket_is_closed(self):
        code = EVERY_STEP + "import os\nremuda.step()\npid = os.fork()\npid and os.wait()"
        found, finished = agent.run(code, PYTHONWARNINGS="always")
        self.assertEqual((len(found), finished.stderr), (1, ""))

    def test_forked_process_is_not_the_worker(self):
        code = EVERY_STEP + "import os\nremuda.step()\npid = os.fork()\nremuda.step(7 if pid else 9)\npid and os.wait()"
        found, finished = agent.run(code)
        self.assertEqual(finished.stderr, "")
        self.assertEqual(found, [("step", 1, None, None, None), ("step", 7, None, None, None)])


class Steps(unittest.TestCase):
    def test_steps_have_numbers_loss_and_speed(self):
        code = EVERY_STEP + (
            "class Tensor:\n"
            "    def __float__(self): return 0.25\n"
            "class Broken:\n"
            "    def __float__(self): raise ValueError('two elements')\n"
            "remuda.step()\n"
            "remuda.step(loss=Tensor(), steps=9)\n"
            "remuda.step(5, loss=Broken(), tokens=100)\n"
            "remuda.step(loss=0.5)\n"
        )
        found, finished = agent.run(code)
        self.assertEqual(finished.stderr, "")
        expected = [(1, None, None), (2, 9, 0.25), (5, None, None), (6, None, 0.5)]
        self.assertEqual([(number, steps, loss) for _, number, steps, loss, _ in found], expected)
        self.assertEqual(found[1][4], None)
        self.assertGreater(found[2][4], 0)
        self.assertEqual(found[3][4], found[2][4])

    def test_newest_step_is_sent_at_the_end(self):
        code = "import remuda, remuda.progress as progress; progress.STEP_PAUSE = 1000\n"
        loop = "for number in range(50): remuda.step(loss=1.0)\n"
        found, _ = agent.run(code + loop)
        self.assertEqual(found, [("step", 1, None, 1.0, None), ("step", 50, None, 1.0, None)])
        found, _ = agent.run(code + loop + "remuda.phase('end')\n")
        self.assertEqual([note[:2] for note in found], [("step", 1), ("step", 50), ("phase", "end")])

    def test_loss_of_a_tensor_is_read_at_intervals(self):
        code = EVERY_STEP + (
            "progress.LOSS_PAUSE = 1000\n"
            "class Tensor:\n"
            "    reads = 0\n"
            "    def __float__(self): Tensor.reads += 1; return float(Tensor.reads)\n"
            "remuda.step()\n"
            "for _ in range(3): remuda.step(loss=Tensor())\n"
            "remuda.step(loss=9)\n"
        )
        found, _ = agent.run(code)
        self.assertEqual([loss for *_, loss, _ in found], [None, 1, 1, 1, 9])

    def test_phases_nest_and_a_failure_keeps_its_phase(self):
        code = EVERY_STEP + (
            "with remuda.phase('evaluation'):\n"
            "    with remuda.phase('checkpoint'): pass\n"
            "remuda.phase('data')\n"
            "remuda.phase(None)\n"
            "with remuda.phase('checkpoint'): raise OSError('disk full')\n"
        )
        found, finished = agent.run(code)
        names = ["evaluation", "checkpoint", "evaluation", None, "data", None, "checkpoint"]
        self.assertEqual(found, [("phase", name) for name in names])
        self.assertIn("OSError: disk full", finished.stderr)


class Record(unittest.TestCase):
    PROGRAM = (
        "import remuda\n"
        "@remuda.record\n"
        "def main(value):\n"
        "    '''Trains.'''\n"
        "    if value: raise ValueError('bad: ' + value)\n"
        "    return 7\n"
        "import sys\n"
        "assert main.__doc__ == 'Trains.'\n"
        "print(main(sys.argv[1]))\n"
    )

    def test_decorator_has_parentheses_or_not(self):
        self.assertEqual(remuda.record()(len)("abc"), 3)
        with self.assertRaisesRegex(TypeError, "record decorates a function, not int"):
            remuda.record(5)

    def test_exception_is_written_and_sent(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "error.json")
            found, finished = agent.run(self.PROGRAM, "rücken", TORCHELASTIC_ERROR_FILE=str(path))
            message = json.loads(path.read_text())["message"]
        self.assertEqual(found, [("failed", "ValueError: bad: rücken")])
        self.assertEqual(finished.returncode, 1)
        self.assertEqual(message["message"], "ValueError: bad: rücken")
        self.assertIn("in main\n", message["extraInfo"]["py_callstack"])
        self.assertTrue(message["extraInfo"]["timestamp"].isdigit())

    def test_result_is_returned_and_nothing_sent(self):
        found, finished = agent.run(self.PROGRAM, "")
        self.assertEqual((found, finished.stdout, finished.returncode), ([], "7\n", 0))

    def test_error_file_that_cannot_be_written_changes_nothing(self):
        found, finished = agent.run(self.PROGRAM, "x", TORCHELASTIC_ERROR_FILE="/nowhere/error.json")
        self.assertEqual(found, [("failed", "ValueError: bad: x")])
        self.assertEqual(finished.stderr.count("Traceback"), 1)


class Outside(unittest.TestCase):
    def test_nothing_is_done_outside_of_a_job(self):
        code = (
            "import remuda, sys\n"
            "class Tensor:\n"
            "    def __float__(self): raise AssertionError('it waits for a GPU')\n"
            "remuda.step(loss=Tensor())\n"
            "for wrong in ({'loss': 'x'}, {'number': 0}, {'number': 10**30}, {'tokens': 'many'}, {'steps': -1}):\n"
            "    try: remuda.step(**wrong)\n"
            "    except (TypeError, ValueError) as error: print(error)\n"
            "with remuda.phase('x'): pass\n"
            "@remuda.record\n"
            "def main(): raise ValueError('x')\n"
            "try: main()\n"
            "except ValueError: print('raised')\n"
            "print('socket' in sys.modules, 'faulthandler' in sys.modules, 'ctypes' in sys.modules)\n"
        )
        told = (
            "a loss is a number or a tensor of one element, and 'x' is neither\n"
            "the number of a step is at least 1, and 0 is not one of a step\n"
            f"the number of a step is at least 1, and {10**30} is not one of a step\n"
            "`tokens` is a number of tokens, and 'many' is none\n"
            "`steps` is a number of steps, and -1 is none"
        )
        finished = outside(code)
        self.assertEqual((finished.stdout, finished.stderr), (f"{told}\nraised\nFalse False False\n", ""))

    def test_import_loads_nothing(self):
        code = "import sys; before = set(sys.modules); import remuda; print(sorted(set(sys.modules) - before))"
        self.assertEqual(outside(code).stdout, "['remuda']\n")

    def test_every_name_is_found(self):
        finished = outside("import remuda\nfor name in remuda.__all__: getattr(remuda, name)\nremuda.nothing")
        self.assertIn("module 'remuda' has no attribute 'nothing'", finished.stderr)


@unittest.skipUnless(os.environ.get("REMUDA_EXECUTABLE"), "REMUDA_EXECUTABLE is not set")
class Job(unittest.TestCase):
    def run_job(self, code, workers=2):
        with tempfile.TemporaryDirectory() as directory:
            options = ["run", "-n", str(workers), "--no_local_rank", "--accelerator", "cpu", "--no_python"]
            line = [os.environ["REMUDA_EXECUTABLE"], *options, "--run_dir", directory, sys.executable, "-c", code]
            finished = subprocess.run(line, capture_output=True, text=True, check=False)
            (record,) = pathlib.Path(directory).glob("2*/run.json")
            return json.loads(record.read_text()), finished

    def test_record_of_the_run_has_steps_and_phases(self):
        code = (
            "import os, remuda\n"
            "for _ in range(40 + int(os.environ['RANK'])): remuda.step(loss=1.0)\n"
            "if os.environ['RANK'] == '1': remuda.phase('checkpoint')\n"
        )
        record, finished = self.run_job(code)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        found = [(worker["step"], worker["phase"]) for worker in record["workers"]]
        self.assertEqual(found, [(40, None), (41, "checkpoint")])

    def test_record_follows_the_steps_of_a_running_job(self):
        code = (
            "import json, os, pathlib, remuda, time\n"
            "def recorded():\n"
            "    record = json.loads(pathlib.Path(os.environ['REMUDA_RUN_PATH'], 'run.json').read_text())\n"
            "    return [(worker['step'], worker['phase']) for worker in record['workers']]\n"
            "until = time.monotonic() + 120\n"
            "for number in (3, 4):\n"
            "    remuda.step(number); remuda.phase('evaluation')\n"
            "    while recorded() != [(number, 'evaluation')] and time.monotonic() < until: time.sleep(0.01)\n"
            "    print('recorded', *recorded())\n"
        )
        _, finished = self.run_job(code, 1)
        expect = [f"recorded ({number}, 'evaluation')" for number in (3, 4)]
        self.assertEqual(re.findall("recorded .*", finished.stdout), expect, finished.stderr)

    def test_report_of_a_failure_has_its_step_and_phase(self):
        code = (
            "import remuda\n"
            "remuda.step(7)\n"
            "with remuda.phase('checkpoint'): raise OSError('disk full')\n"
        )
        _, finished = self.run_job(code, 1)
        self.assertIn("rank 0 (localhost) failed: OSError: disk full\n", finished.stderr)
        self.assertIn("\n  it last reported step 7, phase checkpoint\n", finished.stderr)

    def test_exception_is_the_cause(self):
        code = (
            "import os, remuda, sys, time\n"
            "@remuda.record\n"
            "def main():\n"
            "    if os.environ['RANK'] == '1': raise ValueError('bad data')\n"
            "    time.sleep(600)\n"
            # The interpreter would print the exception, too.
            "sys.excepthook = lambda *_: print('Exception ignored in: <noise>', file=sys.stderr)\n"
            "os.environ.pop('TORCHELASTIC_ERROR_FILE')\n"
            "main()\n"
        )
        record, finished = self.run_job(code)
        cause = record["cause"]
        self.assertEqual((cause["rank"], cause["exception"], cause["evidence"]), (1, "ValueError: bad data", "note"))
        self.assertIn("ValueError: bad data", finished.stderr)


if __name__ == "__main__":
    unittest.main()
