"""The page of the JSON documents: every key and type of documents which the executable has just written.

A key is listed with all types that it had. Keys of a mapping whose names are free, such as variables, are `NAME`.
"""

import json
import os
import re
import subprocess
import tempfile

from markdown import fence, table

TRAIN = """import os, sys, time
print("rank", os.environ["RANK"], flush=True)
if "fail" in sys.argv:
    if os.environ["RANK"] == "1":
        raise ValueError("batch 3")
    time.sleep(60)
"""
HOSTS = "n1 slots=2\nn2 slots=2\n"
CONFIG = """{
  "train_batch_size": 16,
  "stepsperprint": 1,
  "zero_optimization": {"stage": 2, "contiguous_gradients": true}
}
"""
# Variables, and names of types.
KEYS_WITH_NAMES = re.compile(r"^[A-Z]")
# Values that depend on the machine: what lies below these lists is left out, and these numbers may be missing.
BY_MACHINE = {"devices", "infiniband", "interfaces", "libraries", "xids"}
MAY_BE_MISSING = {"memory_limit_bytes"}


def page(remuda):
    out = [
        "# JSON documents",
        "Every document but the lines of `--metrics` has a number `version`. The tables list keys and types of documents"
        " that jobs on CPU slots wrote: `null` stands beside other types where a value can be missing, and alone where"
        " these jobs had none.",
    ]
    with Jobs(remuda) as jobs:
        for title, commands, text, documents in jobs.all():
            out += [f"## {title}", text, fence("sh", "\n".join(commands)), table(["key", "type"], rows(documents))]
    return "\n\n".join(out)


def rows(documents):
    types = {}
    for document in documents:
        walk(document, "", types)
    return [[f"`{path}`", ", ".join(sorted(found))] for path, found in types.items() if path]


def walk(value, path, types):
    """Collects the types of all values below a path."""
    if isinstance(value, dict):
        kind = "object"
    elif isinstance(value, list):
        kind = "list"
    elif isinstance(value, bool):
        kind = "boolean"
    elif value is None:
        kind = "null"
    else:
        kind = "text" if isinstance(value, str) else "number"
    last = path.rsplit(".", 1)[-1]
    types.setdefault(path, set()).update({kind, "null", "number"} if last in MAY_BE_MISSING else {kind})
    if last in BY_MACHINE:
        return
    if kind == "object":
        for key, each in value.items():
            walk(each, f"{path}.{'NAME' if KEYS_WITH_NAMES.match(key) else key}".lstrip("."), types)
    for each in value if kind == "list" else []:
        walk(each, f"{path}[]", types)


class Jobs:
    """Commands in a directory of their own, and the documents that they write."""

    def __init__(self, remuda):
        self.remuda = remuda

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = self.folder.name
        for name, text in [
            ("train.py", TRAIN),
            ("hosts", HOSTS),
            ("ds_config.json", CONFIG),
            ("text.txt", "a b c\n" * 500),
        ]:
            with open(os.path.join(self.path, name), "w", encoding="utf-8") as file:
                file.write(text)
        os.symlink(self.remuda.path, os.path.join(self.path, "remuda"))
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def output(self, command):
        """Standard output of a command of this page, whatever its exit status is."""
        environment = self.remuda.environment | {
            "HOME": self.path,
            "PATH": f"{self.path}:{self.remuda.environment['PATH']}",
        }
        done = subprocess.run(
            command.split(), env=environment, cwd=self.path, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        return done.stdout.decode()

    def last_record(self):
        with open(os.path.join(self.path, ".local/state/remuda/runs/latest/run.json"), encoding="utf-8") as file:
            return json.load(file)

    def records(self, commands):
        found = []
        for command in commands:
            self.output(command)
            found.append(self.last_record())
        return found

    def all(self):
        """Title, commands, remark and documents of each kind."""
        runs = [
            "remuda run -H hosts --launcher local train.py",
            "remuda run -H hosts --launcher local --max_restarts 1 train.py fail",
        ]
        yield "run.json", runs, "In the run directory of every job; `latest` is a link to the newest one.", self.records(
            runs
        )
        for title, command, remark in [
            (
                "The plan of a job",
                "remuda run -H hosts --launcher local --dry-run --json train.py",
                "Nothing is started.",
            ),
            (
                "Facts and findings of hosts",
                "remuda doctor -H hosts --launcher local --json train.py",
                "From `doctor`.",
            ),
            (
                "Findings of a hostfile",
                "remuda hostfile check --format json hosts",
                "`sarif` and `github` are other formats.",
            ),
            ("Hosts and ranks", "remuda hostfile show --json hosts", "Also written by `convert --to json`."),
            ("Findings and values of a configuration", "remuda config check --json ds_config.json", "Of each file."),
            (
                "Results of bench",
                "remuda bench all-reduce --num_gpus 2 -b 8 -e 64 -f 2 -n 2 --json",
                "A row for each size.",
            ),
        ]:
            yield title, [command], remark, [json.loads(self.output(command))]
        train = "remuda train --num_gpus 2 --model mlp --steps 4 --metrics steps.jsonl --checkpoint_dir run"
        self.output(train)
        with open(os.path.join(self.path, "steps.jsonl"), encoding="utf-8") as file:
            steps = [json.loads(line) for line in file]
        yield "Steps of a training", [train], "A line for each step in the file of `--metrics`.", steps
        show = "remuda checkpoint show --json run"
        yield "A checkpoint", [train, show], "From `checkpoint show`.", [json.loads(self.output(show))]


def worker_variables(remuda):
    """Table of the variables that remuda sets, by launcher."""
    lines = {
        "run": "remuda run -H hosts --launcher local --dry-run train.py",
        "torchrun": "remuda torchrun -H hosts --launcher local --nproc-per-node 2 --dry-run train.py",
        "accelerate": "remuda accelerate launch --cpu --num_processes 2 --dry-run train.py",
    }
    seen = {}
    with Jobs(remuda) as jobs:
        for launcher, line in lines.items():
            for variable, value in re.findall(r"^  remuda +([A-Z_0-9]+)=(.*)$", jobs.output(line), re.MULTILINE):
                seen.setdefault(variable, {})[launcher] = value

    def cell(values, launcher):
        return f"`{values[launcher]}`" if launcher in values else "–"

    rows = [[f"`{name}`", *(cell(values, each) for each in lines)] for name, values in sorted(seen.items())]
    return table(["variable", *(f"`{each}`" for each in lines)], rows)
