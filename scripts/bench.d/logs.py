#!/usr/bin/env python3
"""Output of eight workers, 100 MB of lines each, through the launcher into one file.

Every line is verified. The table shows the rate, the numbers of torn and lost lines, and the peak memory
of the launcher's own processes.
"""

import argparse
import json
import os
import subprocess

import harness

BASELINE = "sed"
PEER = "mpirun --tag-output"


def commands(workers, builds, emit, megabytes, output, with_peer):
    """Complete command line of each launcher. The baseline appends to the file itself."""
    pipe = f'"{emit}" {megabytes} $i | LC_ALL=C sed "s/^/$i: /" >> "{output}"'
    loop = f"i=0; while [ $i -lt {workers} ]; do {{ {pipe}; }} & i=$((i+1)); done; wait"
    found = {BASELINE: ["sh", "-c", loop]}
    if with_peer:
        found[PEER] = [*harness.mpirun(workers, "--tag-output"), emit, str(megabytes)]
    options = ["--num_gpus", str(workers), "--no_python", "--no_local_rank"]
    for name, program in builds.items():
        found[name] = [program, "run", *options, "--", emit, str(megabytes)]
    return found


def once(command, emit, options, output, environment):
    """Runs a command once; returns its times, its memory and the state of its lines."""
    # The kernel keeps the peaks; frequent sampling would take CPU time from the launcher.
    peak = harness.OwnMemory(emit, 1)
    with open(output, "wb") as sink:
        result = harness.run(command, environment, stdout=sink, watch=peak, watch_every_s=0.2)
    check = [emit, "--check", str(options.workers), str(options.megabytes)]
    with open(output, "rb") as written:
        lines = subprocess.run(check, stdin=written, capture_output=True, check=True)
    os.truncate(output, 0)
    rate = options.workers * options.megabytes / result["wall_s"]
    return {**result, **peak.result(), "mb_per_s": rate, "lines": json.loads(lines.stdout)}


def row(name, results):
    worst = {key: max(result["lines"][key] for result in results) for key in results[0]["lines"]}
    return [
        name,
        harness.spread(results, "mb_per_s", digits=0),
        worst["torn"],
        worst["lost"],
        worst["repeated"] + worst["disordered"],
        harness.spread(results, "peak_mb"),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--megabytes", type=int, default=100, help="output of each worker, in MB")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()

    emit = harness.compile_c("emit")
    with_peer = harness.peer("mpirun", "openmpi-bin")
    with harness.scratch() as directory:
        output = os.path.join(directory, "output")
        environment = {"REMUDA_RUN_DIR": os.path.join(directory, "runs")}
        launchers = commands(
            options.workers, harness.builds(), emit, options.megabytes, output, with_peer
        )
        cases = {
            name: lambda command=command: once(command, emit, options, output, environment)
            for name, command in launchers.items()
        }
        results = harness.interleaved(cases, options.rounds)

    header = ["", "MB/s", "torn", "lost", "repeated", "peak RSS MB"]
    total = f"{options.workers} × {options.megabytes} MB of 100-byte lines"
    print(f"{total}, {options.rounds} rounds: median (minimum–maximum), largest of the counts\n")
    harness.table(header, [row(name, runs) for name, runs in results.items()])
    rates = {name: harness.median(runs, "mb_per_s") for name, runs in results.items()}
    result = {"workers": options.workers, "megabytes": options.megabytes, "runs": results}
    harness.save("logs", {**result, "mb_per_s": rates})


if __name__ == "__main__":
    main()
