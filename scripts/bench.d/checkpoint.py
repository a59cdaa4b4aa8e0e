#!/usr/bin/env python3
"""Saving and loading checkpoints, and `dd` with fsync on the same disk.

`save` and `load` are compared with `dd` writing and reading a file of the same size; both loads begin with files
that are not in memory, if this user may ask the kernel for that. `pause` is the time for which a save beside the
training stops it. Runs alternate, and the median counts.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import harness


def drop_caches():
    try:
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("1")
    except OSError:
        pass


def timed(command):
    begin = time.perf_counter()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


def dd(directory, megabytes, source):
    """Seconds of `dd` for writing and reading a file."""
    file = directory / "dd"
    write = ["dd", f"if={source}", f"of={file}", "bs=4M", f"count={megabytes // 4}", "conv=fsync"]
    written = timed(write)
    drop_caches()
    read = timed(["dd", f"if={file}", "of=/dev/null", "bs=4M"])
    file.unlink()
    return written, read


def checkpoints(program, example, directory, megabytes, ranks):
    """Seconds of one run of the example."""
    run = directory / "run"
    command = [example, str(run), str(megabytes)]
    if 1 < ranks:
        launch = [program, "run", "-n", str(ranks), "--no_python", "--no_local_rank", "--quiet"]
        command = [*launch, *command]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    shutil.rmtree(run)
    line = next(line for line in output.splitlines() if "{" in line)
    return json.loads(line[line.index("{") :])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--dir", default=str(harness.OUT), help="directory on the disk to measure")
    parser.add_argument("--example", help="the built example `checkpoints` [default: a release build]")
    options = parser.parse_args()
    pathlib.Path(options.dir).mkdir(parents=True, exist_ok=True)
    ranks = [int(number) for number in options.ranks.split(",")]
    program = harness.remuda() if any(1 < number for number in ranks) else None
    example = options.example
    if not example:
        build = ["cargo", "build", "--release", "--locked", "--quiet", "--example", "checkpoints"]
        subprocess.run(build, cwd=harness.ROOT, check=True)
        example = str(harness.ROOT / "target" / "release" / "examples" / "checkpoints")
    rounds = {number: [] for number in ranks}
    peers = []
    with tempfile.TemporaryDirectory(prefix="remuda-bench-", dir=options.dir) as scratch:
        directory = pathlib.Path(scratch)
        # Zeros may be compressed or not written at all; copying random bytes costs what a save costs.
        source = directory / "source"
        subprocess.run(["dd", "if=/dev/urandom", f"of={source}", "bs=4M", f"count={options.megabytes // 4}"],
                       check=True, stderr=subprocess.DEVNULL)
        for _ in range(options.rounds):
            source.read_bytes()
            peers.append(dd(directory, options.megabytes, source))
            for number in ranks:
                rounds[number].append(checkpoints(program, example, directory, options.megabytes, number))
    report(options.megabytes, peers, rounds)


def report(megabytes, peers, rounds):
    size = megabytes / 1024 * 1.073741824
    speed = lambda seconds: f"{size / seconds:.2f} GB/s"
    written, read = (statistics.median(times) for times in zip(*peers))
    rows = [["dd", speed(written), "", speed(read), "", "", ""]]
    results = {"megabytes": megabytes, "dd": {"write_s": written, "read_s": read}, "ranks": {}}
    for number, runs in rounds.items():
        median = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        ratios = {
            "save": statistics.median(peer[0] / run["save_s"] for peer, run in zip(peers, runs)),
            "load": statistics.median(peer[1] / run["load_s"] for peer, run in zip(peers, runs)),
        }
        results["ranks"][number] = {**median, "ratios": ratios}
        rows.append([
            f"{number} rank{'s' * (1 < number)}",
            speed(median["save_s"]),
            f"{ratios['save']:.2f}",
            speed(median["load_s"]),
            f"{ratios['load']:.2f}",
            f"{median['pause_s'] * 1e3:.1f} ms",
            f"{median['beside_s'] * 1e3:.0f} ms",
        ])
    harness.table(["", "save", "/ dd", "load", "/ dd", "pause", "complete after"], rows)
    harness.save("checkpoint", results)


if __name__ == "__main__":
    main()
