"""Writes the pictures of the site: recorded terminals, diagrams, and charts that the program draws.

python3 pictures.py REMUDA DIR
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import diagrams
import terminal

FAIL = """import os
import time


def load_batch(number):
    if number == 2 and os.environ["RANK"] == "1":
        raise ValueError("batch 3: expected 16 columns, found 15")


for number in range(3):
    load_batch(number)
    print(f"step {number + 1} loss {1 / (number + 1):.3f}", flush=True)
    time.sleep(0.2)
time.sleep(60)
"""
COLUMNS = 96
CHARTS = {
    "loss": "train --num_gpus 2 --steps 400 --eval_every 50",
    "bandwidth": "bench all-reduce --num_gpus 2 --minbytes 1K --maxbytes 16M --stepfactor 4",
    "pairs": "bench send-recv --pairs --num_gpus 4 --maxbytes 1M",
}


def record(remuda, name, title, line, folder):
    """Runs `remuda LINE` on a terminal; returns the picture."""
    base = Path(os.path.realpath(folder))
    home = base / "home/me"
    home.mkdir(parents=True, exist_ok=True)
    (home / "train.py").write_text(FAIL, encoding="utf-8")
    binaries = base / "bin"
    binaries.mkdir(exist_ok=True)
    for link, target in [("remuda", remuda), ("python3", os.path.realpath(sys.executable))]:
        if not (binaries / link).exists():
            (binaries / link).symlink_to(target)
    environment = {"PATH": f"{binaries}:/usr/bin:/bin", "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    text = terminal.record(["remuda", *line.split()], home, environment, COLUMNS)
    text = re.sub(r"[^\r\n]*29500[^\r\n]*in use[^\r\n]*\r?\n", "", text.replace(str(base), ""))
    screen = terminal.Screen(COLUMNS)
    screen.feed(text)
    return terminal.picture(title, f"$ remuda {line}", screen, COLUMNS)


def draw(remuda, line, picture):
    """Runs `remuda LINE`, which writes the picture."""
    command = [remuda, *line.split(), "--quiet", "--no_settings", "--plot", str(picture)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def main():
    remuda, target = os.path.abspath(sys.argv[1]), Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    recorded = {
        "failure": ("A job of three workers fails; the last lines name rank 1 and its exception", "run -n 3 train.py"),
        "training": ("A training of a small GPT on two workers", "train --num_gpus 2 --steps 100 --eval_every 50"),
    }
    with tempfile.TemporaryDirectory(prefix="p") as folder:
        for name, (title, line) in recorded.items():
            (target / f"{name}.svg").write_text(record(remuda, name, title, line, folder), encoding="utf-8")
    for name, line in CHARTS.items():
        draw(remuda, line, target / f"{name}.svg")
    for name, text in diagrams.all_diagrams().items():
        (target / f"{name}.svg").write_text(text, encoding="utf-8")
    print(f"{len(list(target.glob('*.svg')))} pictures in {target}")


main()
