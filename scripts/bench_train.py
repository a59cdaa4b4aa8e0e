#!/usr/bin/env python3
"""Times `remuda train` beside PyTorch's CPU build, and two workers beside two single ones.

    python3 scripts/bench_train.py [--binary target/release/remuda] [--rounds 5] [--steps 40]

The model is nanoGPT's CPU configuration (4 layers, 4 heads, 128 wide, block 64, batch 12, AdamW with
clipping), and an MLP 784-1024-1024-10 with batch 64; every worker has one thread. A step is
everything from drawing the batch to the moved parameters. Both sides take turns, so that whatever
else the machine does meets both; a round's ratio compares the medians of its steps:

* `step`: our milliseconds over torch's, lower is better;
* `pair`: items per second of two workers that share gradients, over those of two independent ones
  that run side by side; 1 would be free communication.

Prints one JSON object.

Needs torch; writes nothing but a temporary file.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"

import torch
import torch.nn as nn
import torch.nn.functional as F

from gradient_vectors import Gpt, Mlp

ROOT = pathlib.Path(__file__).resolve().parent.parent


def gpt_step(data):
    """torch's step, as nanoGPT writes it."""
    vocabulary = sorted(set(data))
    tokens = torch.tensor([vocabulary.index(byte) for byte in data])
    model = Gpt(len(vocabulary), 64, 4, 4, 128)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)

    def step():
        starts = torch.randint(len(tokens) - 65, (12,))
        windows = torch.stack([tokens[start : start + 65] for start in starts])
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss(windows[:, :-1], windows[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def mlp_step(_data):
    model = Mlp([784, 1024, 1024, 10])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    teacher = torch.randn(784, 10)

    def step():
        inputs = torch.randn(64, 784)
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss(inputs, (inputs @ teacher).argmax(1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def time_torch(step, steps):
    """Milliseconds of each step."""
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def start(binary, model, workers, steps):
    """A run of ours, with the file that gets its step times."""
    metrics = tempfile.NamedTemporaryFile(suffix=".jsonl")
    command = [binary, "train", "-n", str(workers), "--accelerator", "cpu", "--model", model]
    command += ["--steps", str(steps), "--eval_every", "0", "--threads", "1"]
    command += ["--metrics", metrics.name]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), metrics


def finish(run):
    """Milliseconds of each step."""
    process, metrics = run
    with metrics:
        if process.wait() != 0:
            raise SystemExit(f"{process.args} failed")
        lines = pathlib.Path(metrics.name).read_text().splitlines()
    return [json.loads(line)["ms"] for line in lines]


def time_alone(binary, model, steps):
    return statistics.median(finish(start(binary, model, 1, steps)))


def time_side_by_side(binary, model, steps):
    """Two single workers at once; only the steps of the time that they share are compared."""
    runs = [start(binary, model, 1, steps) for _ in range(2)]
    return statistics.mean(statistics.median(finish(run)) for run in runs)


def summary(ratios, **times):
    medians = {name: round(statistics.median(values), 2) for name, values in times.items()}
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        **medians,
    }


def compare_step(binary, model, step, rounds, steps):
    time_torch(step, 10)
    ours, theirs = [], []
    for _ in range(rounds):
        theirs.append(statistics.median(time_torch(step, steps)))
        ours.append(time_alone(binary, model, steps))
    return summary([a / b for a, b in zip(ours, theirs)], ms=ours, torch_ms=theirs)


def compare_pair(binary, model, rounds, steps):
    together, apart = [], []
    for _ in range(rounds):
        apart.append(time_side_by_side(binary, model, steps))
        together.append(statistics.median(finish(start(binary, model, 2, steps))))
    return summary([b / a for a, b in zip(together, apart)], ms=together, independent_ms=apart)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target/release/remuda"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = (ROOT / "src/train/corpus.txt").read_bytes()
    results = {"torch": torch.__version__}
    for model, make, factor in (("gpt", gpt_step, 1), ("mlp", mlp_step, 3)):
        steps = args.steps * factor
        results[model] = {
            "step": compare_step(args.binary, model, make(data), args.rounds, steps),
            "pair": compare_pair(args.binary, model, args.rounds, 2 * steps),
        }
    results["load"] = float(pathlib.Path("/proc/loadavg").read_text().split()[0])
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
