#!/usr/bin/env python3
"""Thousands of nodes that connect by themselves: time and memory of node 0 for each node.

Node 0 is real and runs on one core; the other nodes are simulated on the other cores, with the real handshake
and the real frames, and their workers exit at once. The figures are the time until all nodes have joined and
until the job is complete, the processor time and the peak resident memory of node 0, each also divided by the
number of nodes: if these are flat, the cost of a node does not depend on the size of the job.
"""

import argparse
import resource

import harness
import pods

# Node 0 needs one open file for each node, and some for the process and its log files.
FILES_OF_NODE, OWN_FILES = 1, 1200


def sizes_within_limit(sizes):
    """The numbers of nodes for which the hard limit of open files, raised if possible, is high enough."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_OF_NODE * max(sizes) + OWN_FILES
    if hard < needed:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, needed))
            return sizes
        except (ValueError, OSError):
            pass
    fitting = [size for size in sizes if FILES_OF_NODE * size + OWN_FILES <= hard]
    for size in sizes:
        if size not in fitting:
            print(f"left out: {size} nodes (the hard limit of open files is {hard})")
    return fitting


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[1000, 3000, 10000])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    sizes = sizes_within_limit(options.nodes)
    program, simulator = harness.remuda(), pods.example()

    def once(count):
        def run():
            with harness.scratch() as directory:
                return pods.crowd(program, simulator, directory, count)

        return run

    results = harness.interleaved({count: once(count) for count in sizes}, options.rounds)
    rows = []
    for count, runs in results.items():
        joined, over, cpu, peak = (harness.median(runs, key) for key in ("s", "over_s", "cpu_s", "peak_mb"))
        rows.append(
            [
                count,
                f"{joined:.2f}",
                f"{joined / count * 1e6:.0f}",
                f"{over:.2f}",
                f"{over / count * 1e6:.0f}",
                f"{cpu:.2f}",
                f"{cpu / count * 1e6:.0f}",
                f"{peak:.1f}",
                f"{peak / count * 1e3:.1f}",
            ]
        )
    print(f"node 0 on one core, simulated nodes on the others, medians of {options.rounds} rounds\n")
    header = ["nodes", "joined s", "µs a node", "complete s", "µs a node"]
    header += ["node 0 CPU s", "µs a node", "node 0 MB", "kB a node"]
    harness.table(header, rows)
    harness.save("scale", {"results": {str(count): runs for count, runs in results.items()}})


if __name__ == "__main__":
    main()
