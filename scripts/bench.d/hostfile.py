#!/usr/bin/env python3
"""Hostfiles: check of 65,536 hosts, expansion and folding of 65,536 names, check of 16 hosts.

Complete commands from start to exit, interleaved: the time, the peak memory and the ratio to
ClusterShell's `nodeset`, which expands and folds names without slots, and to the regular expression of
DeepSpeed's `fetch_hostfile` in a Python interpreter without other imports. The last column is the upper
limit of the figure.
"""

import argparse
import pathlib
import subprocess
import sys

import harness

HOSTS = 65_536
REMUDA, NODESET, REGEX = "remuda", "nodeset", "python, DeepSpeed's regex"

# The parser of DeepSpeed's launcher (0.19.8), without the imports of the launcher.
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
    """Writes the three hostfiles with mode 0600; returns their paths by name."""
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
    """For each figure: the commands by program, and the limits in ms and MB."""
    check = [program, "hostfile", "check"]
    fold = [program, "hostfile", "convert", "--to", "nodeset", paths["range"]]
    python = [sys.executable, "-I", "-S", "-c", FETCH]
    found = {
        f"check of {HOSTS} lines": (
            {REMUDA: [*check, paths["many"]], REGEX: [*python, paths["many"]]},
            {"ms": 40, "mb": 64},
        ),
        f"expand and fold {HOSTS}": ({REMUDA: fold}, {"ms": 20}),
        "check of 16 lines": (
            {REMUDA: [*check, paths["usual"]], REGEX: [*python, paths["usual"]]},
            {"ms": 5},
        ),
    }
    if with_nodeset:
        # nodeset also expands the list before it folds it.
        words = ["nodeset", "-f", f"node[00000-{HOSTS - 1:05}]"]
        found[f"expand and fold {HOSTS}"][0][NODESET] = words
    return found


# The kernel includes memory from before `execve` in the peak, so a small process starts the command.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_mb(command):
    """Peak memory of a command; a peak below that of a bare Python is reported as the latter."""
    bare = [sys.executable, "-I", "-S", "-c", PEAK]
    peak = subprocess.run([*bare, *command], capture_output=True, check=True, text=True)
    return int(peak.stdout) / 1000


def once(command):
    return lambda: harness.run(command, limit_s=60)


def rows(figure, results, peaks, limits):
    """Yields a row for each program; the limits are in the row of remuda."""
    for name, runs in results.items():
        is_remuda = name == REMUDA
        share = "–" if is_remuda else f"{harness.ratio(results, REMUDA, name):.3f}"
        limit = ", ".join(f"{limits[unit]} {unit.replace('mb', 'MB')}" for unit in limits)
        spread = harness.spread(runs, "wall_s", 1000)
        yield [figure, name, spread, f"{peaks[name]:.1f}", share, limit if is_remuda else ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()

    program = harness.remuda()
    with_nodeset = harness.peer("nodeset", "clustershell")
    table, measured = [], {}
    with harness.scratch() as directory:
        for figure, (commands, limits) in cases(program, files(directory), with_nodeset).items():
            runs = {name: once(command) for name, command in commands.items()}
            results = harness.interleaved(runs, options.rounds)
            peaks = {name: peak_mb(command) for name, command in commands.items()}
            table += rows(figure, results, peaks, limits)
            ratios = {name: harness.ratio(results, REMUDA, name) for name in results if name != REMUDA}
            measured[figure] = {"runs": results, "peak_mb": peaks, "limits": limits, "remuda_to": ratios}

    print(f"{options.rounds} rounds: median (minimum–maximum)\n")
    harness.table(["", "", "ms", "peak MB", "remuda/this", "limit"], table)
    harness.save("hostfile", {"hosts": HOSTS, "figures": measured})


if __name__ == "__main__":
    main()
