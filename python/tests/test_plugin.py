"""The plugin of pytest; `REMUDA_EXECUTABLE` is the executable that starts the workers."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TESTS = '''
import array
import os
import threading

import pytest

import remuda

RANK = int(os.environ.get("RANK", -1))

@pytest.fixture
def lock():
    return threading.Lock()

@pytest.fixture
def four():
    assert RANK == -1
    return 4

@pytest.mark.remuda(n=3)
@pytest.mark.parametrize("added", [1, pytest.param(2, id="two")])
def test_passes(four, added, tmp_path):
    group = remuda.init(timeout=120)
    data = array.array("i", [added])
    group.all_reduce(data)
    assert data[0] == 3 * added and four == 4
    (tmp_path / f"rank{RANK}").touch()
    group.barrier()
    assert len(list(tmp_path.iterdir())) == 3

@pytest.mark.remuda
def test_has_not_imported_pytest():
    import sys
    assert type(sys.modules["pytest"]).__name__ == "_Delayed"

@pytest.mark.remuda(n=2)
def test_fails():
    print("hello from", RANK)
    if RANK == 1:
        assert RANK + 1 == 3, "text"
    remuda.init(timeout=120).barrier()

@pytest.mark.remuda
def test_shows_where_lists_differ():
    assert [1, 2, 3, RANK] == [1, 7, 3, RANK]

@pytest.mark.remuda(ranks=2)
def test_mark_has_an_unknown_option():
    pass

@pytest.mark.remuda(2, "cuda")
def test_mark_has_two_values():
    pass

@pytest.mark.remuda(options=["--no_such_option"])
def test_is_refused():
    pass

@pytest.mark.remuda(2)
def test_is_skipped():
    with pytest.raises(ValueError, match="x"):
        raise ValueError("xy")
    pytest.skip("not here")

@pytest.mark.remuda(n=2)
class TestClass:
    number = 5

    def test_method(self):
        assert self.number == 5 and RANK in (0, 1)

    def test_fixture_that_cannot_be_sent(self, lock):
        pass

    def test_fixture_of_pytest(self, monkeypatch):
        pass

@pytest.mark.remuda(n=2)
class TestSetup:
    @classmethod
    def setup_class(cls):
        assert RANK == -1
        cls.made = [1, 2]

    def setup_method(self):
        assert RANK == -1
        self.four = 4

    def test_setup(self):
        assert (self.made, self.four) == ([1, 2], 4) and RANK in (0, 1)

@pytest.mark.xfail(raises=ValueError, strict=True)
@pytest.mark.remuda
def test_fails_as_expected():
    raise ValueError("known")

@pytest.mark.xfail(raises=ValueError)
@pytest.mark.remuda
def test_fails_otherwise():
    raise KeyError("unknown")

@pytest.mark.remuda
def test_ends_as_expected():
    pytest.xfail("known")

@pytest.mark.remuda
async def test_is_async():
    pass

def test_without_a_mark():
    assert RANK == -1
'''

EXPECTED = {
    "test_passes[1]": "PASSED",
    "test_passes[two]": "PASSED",
    "test_has_not_imported_pytest": "PASSED",
    "test_fails": "FAILED",
    "test_shows_where_lists_differ": "FAILED",
    "test_mark_has_an_unknown_option": "FAILED",
    "test_mark_has_two_values": "FAILED",
    "test_is_refused": "FAILED",
    "test_is_skipped": "SKIPPED",
    "test_method": "PASSED",
    "test_fixture_that_cannot_be_sent": "FAILED",
    "test_fixture_of_pytest": "FAILED",
    "test_setup": "PASSED",
    "test_fails_as_expected": "XFAIL",
    "test_fails_otherwise": "FAILED",
    "test_ends_as_expected": "XFAIL",
    "test_is_async": "FAILED",
    "test_without_a_mark": "PASSED",
}


@unittest.skipUnless(os.environ.get("REMUDA_EXECUTABLE"), "REMUDA_EXECUTABLE is not set")
@unittest.skipUnless(importlib.util.find_spec("pytest"), "pytest is not installed")
class Plugin(unittest.TestCase):
    def run_tests(self, *options):
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "test_workers.py").write_text(TESTS)
            plugin = ["-p", "remuda.integrations.pytest", "-p", "no:cacheprovider"]
            line = [sys.executable, "-m", "pytest", "-v", *plugin, *options, "test_workers.py"]
            finished = subprocess.run(line, cwd=directory, capture_output=True, text=True, check=False)
        return finished.stdout

    def test_marked_tests_run_in_workers(self):
        output = self.run_tests("--strict-markers")
        found = dict(re.findall(r"::(test_[^ ]+) ([A-Z]+) ", output))
        self.assertEqual(found, EXPECTED, output)
        self.assertRegex(output, r"rank 1 on \S+ failed: AssertionError: text\nassert \(1 \+ 1\) == 3\n")
        self.assertIn('assert RANK + 1 == 3, "text"', output)
        self.assertIn("hello from 1", output)
        self.assertIn("a fixture of this test cannot be sent to workers", output)
        self.assertIn("the fixture `monkeypatch` belongs to the process of pytest, and cannot be sent", output)
        self.assertIn("the mark `remuda` runs no `async def`: call `asyncio.run` in the test", output)
        self.assertNotIn("_worker.py", output)
        self.assertRegex(output, r"assert \[1, 2, 3, [01]\] == \[1, 7, 3, [01]\]\n +\n +At index 1 diff: 2 != 7\n")
        self.assertIn("the mark `remuda` has no option `ranks`; its options are n, hosts, accelerator, ", output)
        self.assertIn("the mark `remuda` has 2 values without a name; only `n` needs none", output)
        # Once, and not in the captured output, too.
        self.assertEqual(output.count("there is no option `--no_such_option`"), 1, output)

    def test_assertions_can_be_plain(self):
        output = self.run_tests("--assert=plain", "-k", "fails")
        self.assertIn("failed: AssertionError: text\n\nTraceback", output)


if __name__ == "__main__":
    unittest.main()
