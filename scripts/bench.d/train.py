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
import statistics

import harness
import torch_worker
from trained import finish, start

MODELS = {"gpt": 1, "mlp": 3}


def time_remuda(program, model, workers, steps):
    return finish(start(program, model, workers, steps))


def time_apart(program, model, steps):
    """Times two independent single workers that run at the same time."""
    runs = [start(program, model, 1, steps) for _ in range(2)]
    both = [finish(run) for run in runs]
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
        cases["torch one"] = lambda: torch_worker.measure(python, model, "ddp", 1, steps)
        cases["torch two"] = lambda: torch_worker.measure(python, model, "ddp", 2, steps)
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
    options = parser.parse_args()

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
