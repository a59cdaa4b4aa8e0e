#!/usr/bin/env python3
"""Start, and restart after a failure, of eight workers: torchrun and `remuda torchrun`.

Both run the same line. `start` is the wall time of the complete command with workers that run `true`;
`restart` is the time from the exit of a worker to the first instruction of the last of the new workers.
The figures are ratios of runs that follow each other.
"""

import argparse
import os
import pathlib

import harness

PEER = "torchrun"
REMUDA = "remuda torchrun"
# Bars: remuda's share of torchrun's time.
START_BAR = 1 / 20
RESTART_BAR = 1 / 5

# All workers run before rank 0 fails. Every worker of the restart writes when it began.
WORKER = """\
now=$(date +%s%N)
if [ "$TORCHELASTIC_RESTART_COUNT" = 1 ]; then
    echo $now >"$DUMP/began.$RANK"
    exit 0
fi
: >"$DUMP/ready.$RANK"
[ "$RANK" = 0 ] || exec sleep 60
while [ "$(ls "$DUMP" | grep -c ready)" -lt "$WORLD_SIZE" ]; do sleep 0.05; done
date +%s%N >"$DUMP/failed"
exit 1
"""


def commands(workers, program, python):
    options = ["--nproc-per-node", str(workers)]
    own = [program, "torchrun", *options]
    if python is None:
        return {REMUDA: own}
    return {PEER: [str(pathlib.Path(python).parent / "torchrun"), *options], REMUDA: own}


def measure_start(launchers, environment, rounds):
    def once(command):
        return lambda: harness.run([*command, "--no-python", "true"], environment, limit_s=120)

    return harness.interleaved({name: once(command) for name, command in launchers.items()}, rounds)


def measure_restart(launchers, environment, rounds, directory):
    def once(command):
        def run():
            dump = pathlib.Path(directory) / "dump"
            dump.mkdir()
            line = [*command, "--max-restarts=1", "--no-python", "sh", "-c", WORKER]
            harness.run(line, {**environment, "DUMP": str(dump)}, limit_s=120)
            failed = int((dump / "failed").read_text())
            began = max(int(file.read_text()) for file in dump.glob("began.*"))
            for file in dump.iterdir():
                file.unlink()
            dump.rmdir()
            return {"wall_s": (began - failed) / 1e9}

        return run

    return harness.interleaved({name: once(command) for name, command in launchers.items()}, rounds)


def row(what, times, bar):
    share = harness.ratio(times, REMUDA, PEER)
    cells = [harness.spread(times[name], "wall_s", 1000) if name in times else "–" for name in (PEER, REMUDA)]
    if share is None:
        return [what, *cells, "–", f"{bar:.2f}", "–"]
    return [what, *cells, f"{share:.3f}", f"{bar:.2f}", "yes" if share <= bar else "no"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()

    launchers = commands(options.workers, harness.remuda(), harness.torch_python())
    with harness.scratch() as directory:
        environment = {"REMUDA_RUN_DIR": os.path.join(directory, "runs"), "OMP_NUM_THREADS": "1"}
        start = measure_start(launchers, environment, options.rounds)
        restart = measure_restart(launchers, environment, options.rounds, directory)

    print(f"{options.workers} workers, {options.rounds} rounds: median (minimum–maximum)\n")
    rows = [row("start", start, START_BAR), row("restart", restart, RESTART_BAR)]
    harness.table(["", "torchrun ms", "remuda ms", "ratio", "bar", "held"], rows)
    ratios = {name: harness.ratio(times, REMUDA, PEER) for name, times in (("start", start), ("restart", restart))}
    harness.save("torchrun", {"workers": options.workers, "start": start, "restart": restart, "ratios": ratios})


if __name__ == "__main__":
    main()
