#!/usr/bin/env python3
"""All-reduce of float32 inside one machine, beside Open MPI and gloo.

Ours sums in the canonical order: the same bits wherever ranks run. Figures are microseconds of one
operation, medians over rounds in which all take turns, and ratios to Open MPI's. Open MPI and torch,
for gloo, are installed when they are missing.
"""

import argparse
import os
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
    """What a run prints, split into words."""
    ended = subprocess.run(
        command,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if ended.returncode != 0:
        raise harness.Failed(f"{' '.join(command)} returned {ended.returncode}\n{ended.stderr[-2000:]}")
    return [line.split() for line in ended.stdout.splitlines()]


def micros(found):
    return {int(words[0]): float(words[1]) for words in found if words[0].isdigit()}


def example():
    """Path of our rank, of a release build."""
    build = ["cargo", "build", "--release", "--locked", "--quiet", "--no-default-features"]
    subprocess.run([*build, "--example", "all_reduce"], cwd=harness.ROOT, check=True)
    return str(harness.ROOT / "target" / "release" / "examples" / "all_reduce")


def compile_mpi():
    """Path of Open MPI's rank; `None` where it or its headers are missing."""
    if not harness.peer("mpirun", "openmpi-bin") or not harness.peer("mpicc", "libopenmpi-dev"):
        return None
    asked = subprocess.run(["mpicc", "--showme:incdirs"], capture_output=True, text=True, check=True)
    if not any(os.path.exists(f"{directory}/mpi.h") for directory in asked.stdout.split()):
        # Debian's openmpi-bin has the compiler's wrapper without the headers.
        print("left out: Open MPI's headers are missing (apt-get install libopenmpi-dev)")
        return None
    harness.OUT.mkdir(parents=True, exist_ok=True)
    program, source = harness.OUT / "all_reduce", harness.ROOT / "scripts/bench.d/all_reduce.c"
    subprocess.run(["mpicc", "-O2", "-Wall", "-Wextra", "-o", program, source], check=True)
    return str(program)


def cases(ranks, arguments, remuda, mpi, python):
    ours = [remuda, "run", "-n", str(ranks), "--accelerator", "cpu", "--no_python"]
    ours += ["--no_local_rank", "--prefix", "", "--", example(), *arguments]
    found = {
        "remuda, buffer": lambda: lines([*ours, "buffer"]),
        "remuda, slice": lambda: lines([*ours, "slice"]),
    }
    if mpi:
        found["Open MPI"] = lambda: lines(harness.mpirun(ranks, mpi, *arguments))
    if python:
        ports = ["--master_addr", "127.0.0.1"]
        gloo = [remuda, "run", "-n", str(ranks), "--accelerator", "cpu", "--no_python"]
        gloo += ["--no_local_rank", "--prefix", "", *ports, "--", python, "-c", GLOO, *arguments]
        found["gloo"] = lambda: lines(gloo, {"OMP_NUM_THREADS": "1"})
    return found


def show(ranks, results, rates):
    names = list(results)
    sizes = sorted(micros(results[names[0]][0]))
    rows = []
    medians = {}
    for size in sizes:
        figures = {
            name: statistics.median(micros(found)[size] for found in results[name]) for name in names
        }
        medians[size] = figures
        cells = [f"{size >> 10} KiB", *(f"{figures[name]:.1f}" for name in names)]
        if "Open MPI" in figures:
            cells += [f"{figures['Open MPI'] / figures[name]:.2f}" for name in names[:2]]
        rows.append(cells)
    ratios = ["Open MPI / buffer", "Open MPI / slice"] if "Open MPI" in names else []
    print(f"\n{ranks} ranks, microseconds an operation")
    if rates:
        print(f"all ranks copy memory at {statistics.median(rates):.1f} GB/s of result together")
    harness.table(["size", *names, *ratios], rows)
    return medians


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes-max", type=int, default=256 << 20)
    parser.add_argument("--block-s", type=float, default=0.1)
    options = parser.parse_args()
    arguments = [str(options.bytes_max), str(options.block_s)]
    remuda, python = harness.remuda(), harness.torch_python()
    mpi = compile_mpi()
    saved = {}
    for ranks in options.ranks:
        found = cases(ranks, arguments, remuda, mpi, python)
        results = harness.interleaved(found, options.rounds)
        first = [words for run in results.get("Open MPI", []) for words in run]
        rates = [float(words[1]) for words in first if words[0] == "copy"]
        saved[ranks] = {"medians_us": show(ranks, results, rates), "copy_gb_s": rates}
    harness.save("collectives", {"bytes_max": options.bytes_max, "ranks": saved})


if __name__ == "__main__":
    main()
