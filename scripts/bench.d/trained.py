"""Runs of `remuda train` whose steps are timed."""

import json
import pathlib
import subprocess
import tempfile

import harness
from torch_worker import MODELS, times_of


def start(program, model, workers, steps, *options):
    """Starts a run of one of MODELS; returns it and the file of its step times."""
    metrics = tempfile.NamedTemporaryFile(suffix=".jsonl")
    command = [program, "train", "-n", str(workers), "--accelerator", "cpu"]
    command += ["--model", model.split("-")[0]]
    for name, size in MODELS[model].items():
        command += [f"--{name}", str(size)]
    command += ["--steps", str(steps), "--eval_every", "0", "--threads", "1"]
    command += ["--metrics", metrics.name, *options]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, **quiet), metrics


def records(run):
    """The records of all steps of a run, after its end."""
    process, metrics = run
    with metrics:
        if process.wait():
            raise harness.Failed(" ".join(process.args))
        return [json.loads(line) for line in pathlib.Path(metrics.name).read_text().splitlines()]


def finish(run):
    """The times of a run's steps after the first five."""
    times = [record["ms"] for record in records(run) if "ms" in record]
    return times_of(times[5:])
