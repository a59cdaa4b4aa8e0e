#!/usr/bin/env python3
"""All-reduce of float32 on one machine: remuda, Open MPI and gloo, over shared memory and over TCP.

remuda sums in the canonical order: the result has the same bits for every placement of ranks. Figures
are microseconds per operation, medians over interleaved rounds, and ratios to Open MPI. Over TCP every
rank is a separate simulated host on loopback. Open MPI, and torch for gloo, are installed if they are
missing.

Large sizes are compared with a limit of the machine that is measured in the same rounds. In shared
memory an operation reads and writes the numbers of every rank once; "of memory" is its rate, as a
fraction of the rate at which all ranks update their own memory at the same time. Over TCP every rank
sends and receives as many bytes as it sums (two ranks); "of pump" is its rate, as a fraction of the
rate of two processes that only send and receive.
"""

import argparse
import os
import pathlib
import statistics
import subprocess

import harness

GLOO = """
import statistics, sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
bytes_max, budget = int(sys.argv[1]), float(sys.argv[2])
def slowest(seconds):
    worst = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return float(worst)
def repeat(data, times):
    data.fill_(1)
    dist.barrier()
    start = time.perf_counter()
    for _ in range(times):
        dist.all_reduce(data)
    return slowest((time.perf_counter() - start) / times)
size = 1024
while size <= bytes_max:
    data = torch.ones(size // 4)
    repeat(data, 2)
    times = max(1, min(5000, int(budget / repeat(data, 2))))
    seconds = statistics.median(repeat(data, times) for _ in range(5))
    if dist.get_rank() == 0:
        print(size, f"{seconds * 1e6:.3f}", flush=True)
    size *= 4
dist.destroy_process_group()
"""


def lines(command, environment=None):
    """The output of a run, as lines of words."""
    finished = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if finished.returncode != 0:
        raise harness.Failed(f"{' '.join(map(str, command))} returned {finished.returncode}\n{finished.stderr[-2000:]}")
    return [line.split() for line in finished.stdout.splitlines()]


def micros(found):
    return {int(words[0]): float(words[1]) for words in found if words[0].isdigit()}


def example(build):
    """Path of the example `all_reduce`: beside the executable that REMUDA_BIN names, else a release build of this tree."""
    beside = pathlib.Path(build).parent / "examples" / "all_reduce"
    if os.environ.get("REMUDA_BIN") and beside.exists():
        return str(beside)
    command = ["cargo", "build", "--release", "--locked", "--quiet", "--no-default-features"]
    subprocess.run([*command, "--example", "all_reduce"], cwd=harness.ROOT, check=True)
    return str(harness.ROOT / "target" / "release" / "examples" / "all_reduce")


def compile_mpi():
    """Path of the MPI program; `None` if Open MPI or its headers are missing."""
    if not harness.peer("mpirun", "openmpi-bin") or not harness.peer("mpicc", "libopenmpi-dev"):
        return None
    include_dirs = subprocess.run(["mpicc", "--showme:incdirs"], capture_output=True, text=True, check=True)
    if not any(os.path.exists(f"{directory}/mpi.h") for directory in include_dirs.stdout.split()):
        # Debian's openmpi-bin contains the compiler wrapper, but not the headers.
        print("left out: Open MPI's headers are missing (apt-get install libopenmpi-dev)")
        return None
    harness.OUT.mkdir(parents=True, exist_ok=True)
    program, source = harness.OUT / "all_reduce", harness.ROOT / "scripts/bench.d/all_reduce.c"
    flags = ["-O3", "-march=native", "-Wall", "-Wextra"]
    subprocess.run(["mpicc", *flags, "-o", program, source], check=True)
    return str(program)


class Peers:
    """The programs to compare."""

    def __init__(self, bytes_max, block_s):
        self.arguments = [str(bytes_max), str(block_s)]
        self.builds, self.python = harness.builds(), harness.torch_python()
        self.remuda, self.mpi = self.builds["remuda"], compile_mpi()
        self.examples = {name: f"{pathlib.Path(build).parent}/examples/all_reduce" for name, build in self.builds.items()}
        self.examples["remuda"] = example(self.remuda)
        self.pump = harness.compile_c("pump")

    def launcher(self, *placement, build="remuda"):
        run = [self.builds[build], "run", *placement, "--accelerator", "cpu", "--no_python"]
        return [*run, "--no_local_rank", "--prefix", "", "--"]

    def gloo(self, *placement):
        words = [*self.launcher(*placement), self.python, "-c", GLOO, *self.arguments]
        return lambda: lines(words, {"OMP_NUM_THREADS": "1"})

    def memory(self, ranks):
        """Commands of ranks that share memory, by name."""
        found = {}
        for build, example in self.examples.items():
            for place in ("buffer", "slice"):
                words = [*self.launcher("-n", str(ranks), build=build), example, *self.arguments, place]
                found[f"{build}, {place}"] = lambda words=words: lines(words)
        if self.mpi:
            found["Open MPI"] = lambda: lines(harness.mpirun(ranks, self.mpi, *self.arguments))
        if self.python:
            found["gloo"] = self.gloo("-n", str(ranks), "--master_addr", "127.0.0.1")
        return found

    def tcp(self, ranks, directory):
        """Commands of ranks on separate simulated hosts, by name."""
        hosts = pathlib.Path(directory, f"hosts{ranks}")
        hosts.write_text("".join(f"host{number} slots=1\n" for number in range(ranks)))
        placement = ["-H", str(hosts), "--launcher", "local"]
        found = {}
        for build, example in self.examples.items():
            words = [*self.launcher(*placement, build=build), example, *self.arguments, "buffer"]
            found[build] = lambda words=words: lines(words)
        if self.mpi:
            only = ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"]
            only += ["--mca", "btl_tcp_if_include", "lo"]
            found["Open MPI"] = lambda: lines(
                harness.mpirun(ranks, *only, self.mpi, *self.arguments)
            )
        if self.python:
            found["gloo"] = self.gloo(*placement, "--master_addr", "127.0.0.1")
        if ranks == 2:
            found["pump"] = lambda: lines([self.pump])
        return found


def rate(results, word):
    """The median of a rate that runs print under this name, in GB/s; `None` if there is none."""
    runs = [run for of_case in results.values() for run in of_case]
    found = [float(words[1]) for run in runs for words in run if words[0] == word]
    return statistics.median(found) if found else None


def show(title, results, limit):
    """Prints the table. `limit` has a name, GB/s, bytes transferred per byte, and the smallest size."""
    names = [name for name in results if micros(results[name][0])]
    remuda_names = [name for name in names if name.startswith("remuda")]
    medians = {}
    rows = []
    for size in sorted(micros(results[names[0]][0])):
        figures = {
            name: statistics.median(micros(found)[size] for found in results[name]) for name in names
        }
        medians[size] = figures
        cells = [f"{size >> 10} KiB", *(f"{figures[name]:.1f}" for name in names)]
        if "Open MPI" in figures:
            cells += [f"{figures['Open MPI'] / figures[name]:.2f}" for name in remuda_names]
        if limit and limit["from"] <= size:
            moved_gb_s = limit["bytes"] * size / figures[remuda_names[0]] / 1e3
            cells.append(f"{moved_gb_s / limit['gb_s']:.2f}")
        rows.append(cells)
    header = ["size", *names]
    if "Open MPI" in names:
        header += [f"Open MPI / {name.removeprefix('remuda, ')}" for name in remuda_names]
    if limit:
        header.append(f"of {limit['name']}")
    print(f"\n{title}, microseconds per operation")
    if limit:
        print(f"{limit['name']}: {limit['gb_s']:.1f} GB/s")
    widest = len(header)
    harness.table(header, [row + [""] * (widest - len(row)) for row in rows])
    return {"medians_us": medians, "limit": limit}


def show_comparison(remuda, ranks, medians, bytes_max, directory):
    """Runs `remuda bench` with Open MPI's figures of this run in its table, and plots both."""
    mpi_us = {size: figures["Open MPI"] for size, figures in medians.items() if "Open MPI" in figures}
    if not mpi_us:
        return
    table = pathlib.Path(directory, "Open MPI.txt")
    table.write_text("".join(f"{size} {micros:.3f}\n" for size, micros in mpi_us.items()))
    plot_file = harness.OUT / f"all-reduce-{ranks}.svg"
    command = [remuda, "bench", "all-reduce", "--num_gpus", str(ranks), "--accelerator", "cpu"]
    command += ["-b", "1K", "-e", str(bytes_max), "-f", "4", "--compare", str(table), "-q"]
    print(f"\nremuda bench all-reduce --compare 'Open MPI.txt', {ranks} ranks", flush=True)
    subprocess.run([*command, "--plot", str(plot_file)], check=True, timeout=600)


def memory_limit(ranks, results):
    gb_s = rate(results, "memory")
    return gb_s and {"name": "memory", "gb_s": gb_s, "bytes": 2 * ranks, "from": 64 << 20}


def pump_limit(results):
    gb_s = rate(results, "pump")
    return gb_s and {"name": "pump", "gb_s": gb_s, "bytes": 1, "from": 16 << 20}


def main():
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4], help="in shared memory")
    parser.add_argument("--hosts", type=int, nargs="*", default=[2, 4], help="over TCP")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes-max", type=int, default=256 << 20)
    parser.add_argument("--block-s", type=float, default=0.1)
    options = parser.parse_args()
    peers = Peers(options.bytes_max, options.block_s)
    saved = {"bytes_max": options.bytes_max, "ranks": {}, "hosts": {}}
    with harness.scratch() as directory:
        for ranks in options.ranks:
            results = harness.interleaved(peers.memory(ranks), options.rounds)
            title = f"{ranks} ranks, shared memory"
            saved["ranks"][ranks] = shown = show(title, results, memory_limit(ranks, results))
            medians = shown["medians_us"]
            show_comparison(peers.remuda, ranks, medians, options.bytes_max, directory)
        for hosts in options.hosts:
            results = harness.interleaved(peers.tcp(hosts, directory), options.rounds)
            title = f"{hosts} hosts with one rank each, TCP"
            saved["hosts"][hosts] = show(title, results, pump_limit(results))
    harness.save("collectives", saved)


if __name__ == "__main__":
    main()
