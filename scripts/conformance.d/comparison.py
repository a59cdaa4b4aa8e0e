"""What the comparisons with recorded or real peers have in common: counting, recording, the command line."""

import argparse
import collections
import json
import os
import shutil
import sys
import tempfile


def unexplained(found):
    """Texts of the differences without a rule."""
    return [text for rule, text in found if rule is None]


class Tally:
    """Results of a comparison; `unit` names its cases."""

    def __init__(self, unit):
        self.unit = unit
        self.count = collections.Counter()
        self.rules = collections.Counter()
        self.failed = []

    def take(self, case, found, is_refused):
        """Counts a case by its differences; without one, by whether both refuse it."""
        texts = unexplained(found)
        if texts:
            self.failed.append((case, texts))
        elif found:
            self.count["explained"] += 1
            self.rules.update({rule for rule, _ in found})
        else:
            self.count["refused by both" if is_refused else "the same"] += 1

    def table(self, what):
        total = sum(self.count.values()) + len(self.failed)
        parts = [f"{self.count[name]} {name}" for name in ("the same", "refused by both", "explained")]
        lines = [f"{what}: {total} {self.unit}: {', '.join(parts)}, {len(self.failed)} unexplained"]
        lines += [f"  {count:>7}  {rule}" for rule, count in sorted(self.rules.items())]
        return "\n".join(lines)

    def report_replay(self, path, shown_max):
        """Prints the result of a comparison with a file of recorded answers."""
        print(self.table(os.path.basename(path)))
        for case, texts in self.failed[:shown_max]:
            print(json.dumps(case), *texts, sep="\n    ")


def record(path, kept):
    """Writes pairs of a case and the peer's answer."""
    with open(path, "w", encoding="utf-8") as file:
        for case, theirs in kept:
            file.write(json.dumps({"case": case, "theirs": theirs}, ensure_ascii=False, sort_keys=True) + "\n")


def recorded(path):
    """Reads what `record` wrote."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def run(description, name, count, compare, replay, peers=None):
    """Parses the command line, and ends the process with the outcome of `compare` or `replay`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remuda", required=True)
    if peers is not None:
        parser.add_argument("--peer", choices=list(peers))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record")
    parser.add_argument("--replay")
    options = parser.parse_args()
    options.remuda = os.path.abspath(options.remuda)
    scratch = tempfile.mkdtemp(prefix=f"remuda-{name}-")
    try:
        is_good = replay(options, scratch) if options.replay else compare(options, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    sys.exit(0 if is_good else 1)
