#!/usr/bin/env python3
"""Hostfiles: 65,536 hosts checked, a range of 65,536 expanded and folded, a usual file checked.

Whole commands, from start to exit, interleaved: the median time, the least one, the largest memory and
the ratio to ClusterShell's `nodeset`, which expands and folds names and knows no slots, and to Python's
regular expression in DeepSpeed's `fetch_hostfile`, read by an interpreter that has nothing else to
import. The last column says what the figure has to stay below.
"""

import argparse
import pathlib
import subprocess
import sys

import harness

HOSTS = 65_536
OURS, NODESET, REGEX = "remuda", "nodeset", "python, DeepSpeed's regex"

# What DeepSpeed's launcher does with the lines (0.19.8), without what it imports before.
FETCH = r"""
import collections, re, sys
pool = collections.OrderedDict()
pattern = re.compile(r'^(\S+)\s+slots=(\d+)')
for line in open(sys.argv[1]):
    line = line.strip()
    if line.startswith('#') or line == '':
        continue
    match = pattern.search(line)
    if match is None or match.group(1) in pool:
        raise SystemExit('bad line')
    pool[match.group(1)] = int(match.group(2))
"""


def files(directory):
    """The three texts, readable for us alone."""
    texts = {
        "many": "".join(f"node{host:05} slots=8\n" for host in range(HOSTS)),
        "range": f"node[00000-{HOSTS - 1:05}] slots=8\n",
        "usual": "".join(f"worker-{host} slots=8\n" for host in range(16)),
    }
    paths = {}
    for name, text in texts.items():
        path = pathlib.Path(directory, name)
        path.touch(mode=0o600)
        path.write_text(text)
        paths[name] = str(path)
    return paths


def cases(program, paths, with_nodeset):
    """For each figure: who is asked, in which words, and the bars in ms and MB."""
    check = [program, "hostfile", "check"]
    fold = [program, "hostfile", "convert", "--to", "nodeset", paths["range"]]
    python = [sys.executable, "-I", "-S", "-c", FETCH]
    found = {
        f"check of {HOSTS} lines": (
            {OURS: [*check, paths["many"]], REGEX: [*python, paths["many"]]},
            {"ms": 40, "mb": 64},
        ),
        f"expand and fold {HOSTS}": ({OURS: fold}, {"ms": 20}),
        "check of 16 lines": (
            {OURS: [*check, paths["usual"]], REGEX: [*python, paths["usual"]]},
            {"ms": 5},
        ),
    }
    if with_nodeset:
        # It folds what it has expanded, as our reader does.
        words = ["nodeset", "-f", f"node[00000-{HOSTS - 1:05}]"]
        found[f"expand and fold {HOSTS}"][0][NODESET] = words
    return found


# The kernel counts what a process had before `execve` to its peak, so one with little starts it.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_mb(command):
    """The most memory that a command ever has; what is below that of a bare Python is not seen."""
    bare = [sys.executable, "-I", "-S", "-c", PEAK]
    said = subprocess.run([*bare, *command], capture_output=True, check=True, text=True)
    return int(said.stdout) / 1000


def once(command):
    return lambda: harness.run(command, limit_s=60)


def ratio(results, name):
    """Median of the ratios of runs that followed each other, ours to theirs."""
    pairs = zip(results[OURS], results[name])
    ratios = [{"ratio": ours["wall_s"] / theirs["wall_s"]} for ours, theirs in pairs]
    return harness.median(ratios, "ratio")


def rows(figure, results, peaks, bars):
    """A row for each program; the bars stand beside ours."""
    for name, runs in results.items():
        is_ours = name == OURS
        share = "–" if is_ours else f"{ratio(results, name):.3f}"
        limit = ", ".join(f"{bars[unit]} {unit.replace('mb', 'MB')}" for unit in bars)
        spread = harness.spread(runs, "wall_s", 1000)
        yield [figure, name, spread, f"{peaks[name]:.1f}", share, limit if is_ours else ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()

    program = harness.remuda()
    with_nodeset = harness.peer("nodeset", "clustershell")
    table, measured = [], {}
    with harness.scratch() as directory:
        for figure, (commands, bars) in cases(program, files(directory), with_nodeset).items():
            runs = {name: once(command) for name, command in commands.items()}
            results = harness.interleaved(runs, options.rounds)
            peaks = {name: peak_mb(command) for name, command in commands.items()}
            table += rows(figure, results, peaks, bars)
            ratios = {name: ratio(results, name) for name in results if name != OURS}
            measured[figure] = {"runs": results, "peak_mb": peaks, "bars": bars, "ours_to": ratios}

    print(f"{options.rounds} rounds: median (least–greatest)\n")
    harness.table(["", "", "ms", "MB at most", "remuda/this", "bar"], table)
    harness.save("hostfile", {"hosts": HOSTS, "figures": measured})


if __name__ == "__main__":
    main()
