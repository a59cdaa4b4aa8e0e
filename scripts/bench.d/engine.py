#!/usr/bin/env python3
"""ZeRO stages of `remuda train` on two workers, beside DDP, FSDP2 and DeepSpeed of PyTorch over gloo.

The models are GPTs of 0.8 and 12 million parameters on the built-in text: block 64, batch 12 a worker,
one micro-batch a step (--accumulate for more), f32, AdamW with clipping, one thread a worker. The peers do
the same step with torch's layers, FSDP2 with each block a unit. Cases are interleaved within a round, and
the ratio of a round is that of its medians. With --memory: the memory of a worker of four, measured beside
the forecast, without timing.

torch and DeepSpeed come from scripts/integrations --install; without them only the stages are compared.
"""

import argparse
import statistics
import sys

import harness
import torch_worker
from trained import finish, records, start

STEPS = {"gpt": 60, "gpt-12m": 14}
PEERS = {"0": ["ddp"], "1": ["zero1"], "2": ["zero2"], "3": ["zero3", "fsdp2"]}


def cases(program, python, model, steps, accumulate):
    def trained(stage):
        options = ["--stage", stage, "--accumulate", str(accumulate)]
        return lambda: finish(start(program, model, 2, steps, *options))

    found = {f"stage {stage}": trained(stage) for stage in PEERS}
    if python and accumulate == 1:
        has_deepspeed = torch_worker.has_deepspeed(python)
        for peer in (peer for peers in PEERS.values() for peer in peers):
            if has_deepspeed or not peer.startswith("zero"):
                found[peer] = lambda peer=peer: measured(python, model, peer, steps)
    return found


def measured(python, model, peer, steps):
    """Measures a peer; once more if it fails, because DeepSpeed's build of its operations sometimes does."""
    try:
        return torch_worker.measure(python, model, peer, 2, steps)
    except harness.Failed as failed:
        print(f"once more: {failed}", file=sys.stderr)
        return torch_worker.measure(python, model, peer, 2, steps)


def ratio(times, above, below):
    """Median over the rounds of the ratio of the medians of two cases."""
    if above not in times or below not in times:
        return None
    pairs = zip(times[above], times[below])
    return round(statistics.median(a["median"] / b["median"] for a, b in pairs), 2)


def rows(model, times):
    found = []
    for stage, peers in PEERS.items():
        own = f"stage {stage}"
        beside = [f"{peer} {ratio(times, peer, own):.2f}" for peer in peers if peer in times]
        time = harness.spread(times[own], "median")
        found.append([model, stage, time, ratio(times, own, "stage 0"), ", ".join(beside) or "–"])
    return found


def memory(program, model):
    """Bytes of a worker of four, for each stage: measured at the end, and forecast."""
    found = {}
    for stage in PEERS:
        options = ["--stage", stage, "--oversubscribe"]
        last = records(start(program, model, 4, 3, *options))[-1]
        found[stage] = {key: last[f"memory_{key}"] for key in ("peak", "forecast")}
    return found


def compare_memory(program, models):
    found = {model: memory(program, model) for model in models}
    header = ["", "stage", "measured MB", "forecast MB", "measured/forecast"]
    cells = [
        [model, stage, round(of["peak"] / 1e6, 1), round(of["forecast"] / 1e6, 1), round(of["peak"] / of["forecast"], 3)]
        for model, stages in found.items()
        for stage, of in stages.items()
    ]
    print("4 workers, memory of the worker that needs most\n")
    harness.table(header, cells)
    harness.save("engine-memory", {"bytes": found})


def compare_times(program, models, rounds, accumulate):
    python = harness.torch_python()
    times = {
        model: harness.interleaved(cases(program, python, model, STEPS[model], accumulate), rounds)
        for model in models
    }
    header = ["", "stage", "ms a step", "/ stage 0", "time of a peer / ours"]
    print(f"{rounds} rounds, medians; 2 workers of one thread, {accumulate} × 12 samples of 64 tokens each\n")
    harness.table(header, [row for model in models for row in rows(model, times[model])])
    harness.save("engine", {"accumulate": accumulate, "ms": times})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--model", choices=STEPS, action="append")
    parser.add_argument("--memory", action="store_true")
    options = parser.parse_args()
    program, models = harness.remuda(), options.model or list(STEPS)
    if options.memory:
        compare_memory(program, models)
    else:
        compare_times(program, models, options.rounds, options.accumulate)


if __name__ == "__main__":
    main()
