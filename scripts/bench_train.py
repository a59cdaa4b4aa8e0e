#!/usr/bin/env python3
"""Times a training step of `remuda train` beside PyTorch's CPU build, in the same run.

    python3 scripts/bench_train.py [--binary target/release/remuda] [--rounds 5] [--steps 40]

The model is nanoGPT's CPU configuration (4 layers, 4 heads, 128 wide, block 64, batch 12, AdamW with
clipping) on one thread, on this repository's own text. Both sides take turns, so that whatever else
the machine does meets both; a round's ratio is ours over torch's, both medians of its steps. A step
is everything from drawing the batch to the moved parameters. Prints one JSON object.

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


def time_ours(binary, model, steps):
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as metrics:
        command = [binary, "train-worker", "--model", model, "--steps", str(steps)]
        command += ["--eval_every", "0", "--threads", "1", "--metrics", metrics.name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        lines = pathlib.Path(metrics.name).read_text().splitlines()
    return [json.loads(line)["ms"] for line in lines]


def compare(binary, model, step, rounds, steps):
    time_torch(step, 10)
    ours, torchs, ratios = [], [], []
    for _ in range(rounds):
        torchs.append(statistics.median(time_torch(step, steps)))
        ours.append(statistics.median(time_ours(binary, model, steps)))
        ratios.append(ours[-1] / torchs[-1])
    return {
        "ms": statistics.median(ours),
        "torch_ms": statistics.median(torchs),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default=str(ROOT / "target/release/remuda"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = (ROOT / "src/train/corpus.txt").read_bytes()
    makers = {"gpt": gpt_step, "mlp": mlp_step}
    results = {
        model: compare(args.binary, model, make(data), args.rounds, args.steps)
        for model, make in makers.items()
    }
    load = float(pathlib.Path("/proc/loadavg").read_text().split()[0])
    print(json.dumps({"torch": torch.__version__, "load": load, **results}, indent=2))


if __name__ == "__main__":
    main()
