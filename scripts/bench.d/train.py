#!/usr/bin/env python3
"""Training on the CPU with one and two workers: remuda, and PyTorch with DDP over gloo.

The models are nanoGPT's CPU configuration (4 layers, 4 heads, hidden size 128, block 64, batch 12) and an
MLP 784-1024-1024-10 with batch 64, both with AdamW and clipping; every worker has one thread. A step
lasts from drawing the batch to the updated parameters. Cases are interleaved within a round, so that
other load on the machine affects all of them, and the ratio of a round is that of its medians. On a busy
machine use the ratio of the fastest tenth instead, which contains undisturbed steps.

torch is installed if it is missing; without it, only the ratios between remuda's own cases are shown.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import socket
import statistics
import subprocess
import tempfile
import time

import harness

MODELS = {"gpt": 1, "mlp": 3}


def times_of(steps):
    """Milliseconds of the median step, and of the slowest step of the fastest tenth."""
    return {"median": statistics.median(steps), "fast": sorted(steps)[len(steps) // 10]}


# ---- torch ---------------------------------------------------------------------------------------


def load_modules():
    """Imports the models of scripts/gradient_vectors.py."""
    path = harness.ROOT / "scripts" / "gradient_vectors.py"
    spec = importlib.util.spec_from_file_location("gradient_vectors", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def torch_gpt(torch, modules):
    data = (harness.ROOT / "src/train/data/corpus.txt").read_bytes()
    vocabulary = {byte: token for token, byte in enumerate(sorted(set(data)))}
    tokens = torch.tensor([vocabulary[byte] for byte in data])

    def batch():
        starts = torch.randint(len(tokens) - 65, (12,))
        windows = torch.stack([tokens[start : start + 65] for start in starts])
        return windows[:, :-1], windows[:, 1:]

    return modules.Gpt(len(vocabulary), 64, 4, 4, 128), batch


def torch_mlp(torch, modules):
    teacher = torch.randn(784, 10)

    def batch():
        inputs = torch.randn(64, 784)
        return inputs, (inputs @ teacher).argmax(1)

    return modules.Mlp([784, 1024, 1024, 10]), batch


def torch_worker(model, steps):
    """Trains as one rank of torch; prints the milliseconds of its steps."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1337)
    net, batch = {"gpt": torch_gpt, "mlp": torch_mlp}[model](torch, load_modules())
    net.forward = net.loss
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    if "RANK" in os.environ:
        torch.distributed.init_process_group("gloo")
        torch.manual_seed(1337 + torch.distributed.get_rank())
        net = torch.nn.parallel.DistributedDataParallel(net)
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        net(*batch()).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1e3)
    print(json.dumps(times))


def start_torch(python, model, workers, steps):
    """Starts the ranks of torch with the variables of torchrun; only the output of rank 0 is read."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
    base |= {"MASTER_PORT": str(port), "WORLD_SIZE": str(workers)}
    command = [python, __file__, "--torch_worker", model, "--steps", str(steps)]
    ranks = []
    for rank in range(workers):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if 1 < workers else {}
        output = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        environment = {**os.environ, **base, **own}
        ranks.append(subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.DEVNULL))
    return ranks


def time_torch(python, model, workers, steps):
    ranks = start_torch(python, model, workers, steps)
    output, _ = ranks[0].communicate()
    if any(rank.wait() for rank in ranks):
        raise harness.Failed(f"torch's {model} with {workers} workers")
    return times_of(json.loads(output)[5:])


# ---- remuda --------------------------------------------------------------------------------------


def start_remuda(program, model, workers, steps):
    """Starts a run; returns it and the file of its step times."""
    metrics = tempfile.NamedTemporaryFile(suffix=".jsonl")
    command = [program, "train", "-n", str(workers), "--accelerator", "cpu", "--model", model]
    command += ["--steps", str(steps), "--eval_every", "0", "--threads", "1"]
    command += ["--metrics", metrics.name]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, **quiet), metrics


def finish_remuda(run):
    process, metrics = run
    with metrics:
        if process.wait():
            raise harness.Failed(" ".join(process.args))
        lines = pathlib.Path(metrics.name).read_text().splitlines()
    return times_of([json.loads(line)["ms"] for line in lines[5:]])


def time_remuda(program, model, workers, steps):
    return finish_remuda(start_remuda(program, model, workers, steps))


def time_apart(program, model, steps):
    """Times two independent single workers that run at the same time."""
    runs = [start_remuda(program, model, 1, steps) for _ in range(2)]
    both = [finish_remuda(run) for run in runs]
    return {key: statistics.mean(times[key] for times in both) for key in both[0]}


# ---- comparison ----------------------------------------------------------------------------------


def measure(program, python, model, rounds, steps):
    """Milliseconds per step of every case, once per round."""
    cases = {
        "one": lambda: time_remuda(program, model, 1, steps),
        "two": lambda: time_remuda(program, model, 2, steps),
        "apart": lambda: time_apart(program, model, steps),
    }
    if python:
        cases["torch one"] = lambda: time_torch(python, model, 1, steps)
        cases["torch two"] = lambda: time_torch(python, model, 2, steps)
    return harness.interleaved(cases, rounds)


def ratios(times):
    """Median ratios over rounds: remuda to torch, two workers to two independent ones and to one."""

    def ratio(above, below, factor=1, key="median"):
        if above not in times or below not in times:
            return None
        pairs = zip(times[above], times[below])
        return round(statistics.median(factor * a[key] / b[key] for a, b in pairs), 3)

    return {
        "step_over_torch": ratio("one", "torch one"),
        "fast_step_over_torch": ratio("one", "torch one", key="fast"),
        "two_over_apart": ratio("apart", "two"),
        "fast_two_over_apart": ratio("apart", "two", key="fast"),
        "two_over_one": ratio("one", "two", 2),
        "torch_two_over_one": ratio("torch one", "torch two", 2),
    }


def row(model, times, found):
    cell = lambda name: f"{harness.median(times[name], 'median'):.1f}" if name in times else "–"
    share = lambda name: "–" if found[name] is None else f"{found[name]:.2f}"
    columns = ["one", "torch one"]
    return [
        model,
        *map(cell, columns),
        share("step_over_torch"),
        share("fast_step_over_torch"),
        cell("two"),
        cell("apart"),
        share("two_over_apart"),
        share("fast_two_over_apart"),
        share("two_over_one"),
        share("torch_two_over_one"),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60, help="steps of the GPT; the MLP runs three times as many")
    parser.add_argument("--torch_worker", choices=MODELS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.torch_worker:
        torch_worker(options.torch_worker, options.steps)
        return

    program = harness.remuda()
    python = harness.torch_python()
    results, rows = {}, []
    for model, factor in MODELS.items():
        times = measure(program, python, model, options.rounds, options.steps * factor)
        found = ratios(times)
        results[model] = {"ms": times, "ratio": found}
        rows.append(row(model, times, found))
    header = ["", "1 worker ms", "torch ms", "/torch", "fast", "2 workers ms", "2 apart ms"]
    print(f"{options.rounds} rounds, medians; 2 workers are two processes of one thread\n")
    harness.table([*header, "together/apart", "fast", "2 over 1", "torch DDP 2 over 1"], rows)
    harness.save("train", results)


if __name__ == "__main__":
    main()
