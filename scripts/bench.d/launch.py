#!/usr/bin/env python3
"""Launch and exit of eight workers that run `true`: remuda, mpirun and a shell.

The figures are the wall time of the complete command, on an idle machine and with two busy loops, as a
ratio to mpirun in the same run, and the memory of the launcher's own processes while eight workers
sleep (the median of that second).
"""

import argparse

import harness

BASELINE = "sh & wait"
PEER = "mpirun"
REMUDA = "remuda"


def commands(workers, builds, with_peer):
    """Each launcher's command line, up to the worker."""
    loop = f'i=0; while [ $i -lt {workers} ]; do "$@" & i=$((i+1)); done; wait'
    found = {BASELINE: ["sh", "-c", loop, "sh"]}
    if with_peer:
        found[PEER] = harness.mpirun(workers)
    options = ["--num_gpus", str(workers), "--no_python", "--no_local_rank"]
    found |= {name: [program, "run", *options, "--"] for name, program in builds.items()}
    return found


def measure_time(launchers, environment, rounds):
    def once(command):
        return lambda: harness.run([*command, "true"], environment, limit_s=60)

    return harness.interleaved({name: once(command) for name, command in launchers.items()}, rounds)


def measure_memory(launchers, environment, workers):
    found = {}
    for name, command in launchers.items():
        own = harness.OwnMemory("sleep", workers)
        harness.run([*command, "sleep", "1"], environment, watch=own, limit_s=60)
        found[name] = own.result()
    return found


def row(name, idle, busy, memory):
    cells = [name]
    for times in (idle, busy):
        share = harness.ratio(times, name, PEER)
        cells.append(harness.spread(times[name], "wall_s", 1000))
        cells.append("–" if share is None else f"{share:.2f}")
    cells.append(harness.spread(idle[name], "cpu_s", 1000))
    own = memory[name]
    return [*cells, f"{own['rss_mb']:.1f}", f"{own['pss_mb']:.1f}", own["processes"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--busy", type=int, default=2, help="number of busy loops in the second half")
    options = parser.parse_args()

    launchers = commands(options.workers, harness.builds(), harness.peer("mpirun", "openmpi-bin"))
    with harness.scratch() as directory:
        environment = {"REMUDA_RUN_DIR": directory}
        idle = measure_time(launchers, environment, options.rounds)
        with harness.BusyLoops(options.busy):
            busy = measure_time(launchers, environment, options.rounds)
        memory = measure_memory(launchers, environment, options.workers)

    header = ["", "idle ms", "/mpirun", "busy ms", "/mpirun", "CPU ms", "RSS MB", "PSS MB", "processes"]
    print(f"{options.workers} × true, {options.rounds} rounds: median (minimum–maximum)\n")
    harness.table(header, [row(name, idle, busy, memory) for name in launchers])
    ratios = {name: harness.ratio(times, REMUDA, PEER) for name, times in (("idle", idle), ("busy", busy))}
    result = {"workers": options.workers, "idle": idle, "busy": busy, "memory": memory}
    harness.save("launch", {**result, "ratio_to_mpirun": ratios})


if __name__ == "__main__":
    main()
