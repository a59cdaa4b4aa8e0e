"""torch's own tests of a backend, those of `DistributedTest._DistTestBase` in its wheel, over the backend remuda.

torch_suite.py [--name NAME] [--limit SECONDS] RANKS [TEST …]

Prints a line for each test: its name, `passed`, `failed`, `skipped` or `out of time`, seconds, the name of the backend,
and why. Many tests are skipped if the backend is not named `gloo` or `mpi`; these names then make groups of remuda,
and a test is run under the first name that it takes. With `--name none` the tests run over gloo itself.

The ranks of a test are forked, and meet through a file: no launcher is part of it. The exit status is 0 if the tests
ran, whatever they found.
"""

import argparse
import collections
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest


#: Names of the backend, in the order in which tests are run under them.
NAMES = ("remuda", "gloo", "mpi")
#: Why a test is skipped that another name may run.
OTHER_NAME = re.compile(r"\b(remuda|gloo|mpi)\b|small world size", re.IGNORECASE)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("ranks", type=int)
    parser.add_argument("--name", choices=(*NAMES, "none"))
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("tests", nargs="*")
    return parser.parse_args()


def prepare(options, directory):
    """The environment that torch's module reads when it is imported."""
    os.environ.update(
        BACKEND="gloo" if options.name == "none" else options.name,
        WORLD_SIZE=str(options.ranks),
        TEMP_DIR=directory,
        INIT_METHOD=f"file://{directory}/init",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(options.limit),
        CUDA_VISIBLE_DEVICES="",
        OMP_NUM_THREADS="1",
    )
    for name in ("RANK", "LOCAL_RANK", "MASTER_PORT", "REMUDA_RANK_FD", "REMUDA_KEY_FILE"):
        os.environ.pop(name, None)


def suite_of_torch():
    """The module of the tests, in which the features of remuda are known."""
    from torch.testing._internal import common_distributed

    # One limit for all tests.
    common_distributed.TIMEOUT_OVERRIDE.clear()
    for feature in ("ddp", "subgroup", "plugin"):
        common_distributed.DistTestCases.backend_feature.setdefault(feature, set()).add("remuda")
    from torch.testing._internal.distributed import distributed_test

    return distributed_test


def test_class(module):
    class OverRemuda(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            import torch

            # A fork takes a tenth of a second, a new process imports torch again.
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return OverRemuda


def make_groups_of_remuda():
    """Whatever name a group is made with, it is one of remuda."""
    from remuda import _swap

    _swap.replace_names(lambda said, _: "remuda" if said in NAMES else said)


def reason_of(text):
    """The exception of the first rank that failed, in one line."""
    # The last line of a traceback that is not indented.
    first = text.split("\nProcess ")[0]
    lines = [line for line in first.splitlines() if re.match(r"^([\w.]+\.)?[A-Z]\w+: ", line)]
    found = lines[-1] if lines else (first.strip().splitlines() or ["?"])[-1]
    return re.sub(r"\s+", " ", found)[:200]


class Rows(unittest.TestResult):
    """Prints a row when a test ends."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.began = 0.0

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def row(self, test, verdict, reason=""):
        seconds = time.monotonic() - self.began
        print(test.id().rpartition(".")[2], verdict, f"{seconds:.1f}", self.name, reason, sep="\t", flush=True)

    def addSuccess(self, test):
        self.row(test, "passed")

    def addSkip(self, test, reason):
        self.row(test, "skipped", reason)

    def addFailure(self, test, error):
        text = "".join(map(str, error[1].args))
        print(text, file=sys.stderr, flush=True)
        self.row(test, "out of time" if "timed out after" in text else "failed", reason_of(text))

    addError = addFailure


def run_under_one_name(options):
    with tempfile.TemporaryDirectory() as directory:
        prepare(options, directory)
        module = suite_of_torch()
        if options.name != "none":
            make_groups_of_remuda()
        case, rows = test_class(module), Rows(options.name)
        for test in options.tests or unittest.defaultTestLoader.getTestCaseNames(case):
            case(test).run(rows)


def run_under_all_names(options):
    """Every test under the first name that it takes; torch's module reads the name when it is imported."""
    rows, tests = {}, options.tests
    for name in NAMES:
        line = [sys.executable, __file__, "--name", name, "--limit", str(options.limit), str(options.ranks), *tests]
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
            for row in process.stdout:
                fields = row.rstrip("\n").split("\t")
                # Tests print, too.
                if len(fields) != 5 or not fields[0].startswith("test_"):
                    continue
                # A name that a test does not take is the last reason to state.
                if fields[0] not in rows or fields[1] != "skipped" or not OTHER_NAME.search(fields[4]):
                    rows[fields[0]] = fields
        if process.returncode != 0:
            sys.exit(f"the tests under the name {name} ended with {process.returncode}")
        tests = [test for test, row in rows.items() if row[1] == "skipped" and OTHER_NAME.search(row[4])]
        if not tests:
            break
    return list(rows.values())


def main():
    options = arguments()
    if options.name:
        run_under_one_name(options)
        return 0
    rows = run_under_all_names(options)
    for row in rows:
        print(*row, sep="\t")
    counts = collections.Counter(row[1] for row in rows)
    listed = " ".join(f"{verdict.replace(' ', '_')}={count}" for verdict, count in sorted(counts.items()))
    print(f"RESULT ranks={options.ranks} tests={len(rows)} {listed}")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
