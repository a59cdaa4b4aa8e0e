"""Runs the tests of this folder and prints their totals in the form of cargo.

python3 -B python/tests [NAME OF A FILE …]
"""

import os
import pathlib
import sys
import unittest


def main():
    here = pathlib.Path(__file__).parent
    # The package itself, and the helpers of the tests.
    paths = [str(here.parent), str(here)]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    names = sys.argv[1:] or sorted(file.stem for file in here.glob("test_*.py"))
    suite = unittest.defaultTestLoader.loadTestsFromNames(names)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    failed, skipped = len(result.failures) + len(result.errors), len(result.skipped)
    passed = result.testsRun - failed - skipped
    word = "ok" if failed == 0 else "FAILED"
    print(f"test result: {word}. {passed} passed; {failed} failed; {skipped} ignored")
    return 0 if failed == 0 and 0 < result.testsRun else 1


if __name__ == "__main__":
    sys.exit(main())
