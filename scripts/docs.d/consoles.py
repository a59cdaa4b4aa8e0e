"""Runs the console blocks of the pages and compares what they print.

A block is run by bash in a new directory, which has the files that the page names (`<!-- file: NAME -->` above a
block) and nothing else. Expected lines follow their `$ command`; a line `> …` continues a command. A line `…` stands
for any lines, and `…` in a line for any text. What differs from run to run is compared by these rules:

* names of jobs, times of run directories, process ids, ports, durations, rates and sizes stand for any other;
* the home directory is /home/me, the working directory /home/me/job, this machine is `box`, the user `me`, Python
  /usr/bin/python3;
* adjacent lines of workers are compared in the order of the ranks, because workers write at the same time;
* several blanks are one, because columns are as wide as the numbers in them;
* the note that port 29500 is in use is left out: it depends on other programs; the line about hosts that are waited
  for, too: it depends on the load.

A word after `console` names what a block needs; without it the block is skipped:

* `torch`: the Python of `scripts/integrations --install`;
* `library`: the library of `scripts/bindings --library-only`;
* `pytest`: a Python with pytest, which PYTEST_PYTHON can name;
* `pre_commit`: pre-commit, which PRE_COMMIT can name; ~/remuda is this repository;
* `ssh`: root and sshd, which the block gets as the hosts node01 to node04; with `denied` or `unknown`, logins fail.

`console,not-run` is not run; its first line states why. On pages that import remuda, the Python package is installed.
"""

import contextlib
import difflib
import getpass
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import ssh_hosts

NEEDS = ("torch", "pytest", "library", "pre_commit", "ssh")
MARK = "\x1e"
LIMIT_S = 120
REASON = "# not run by the tests: "
# `host:3 │ ` of `remuda run`; `[default3]:` and `[host:default3]:` of torchrun.
WORKER = re.compile(r"^(?:[\w.-]+:(?P<rank>\d+) [│|]|\[(?P<host>[\w.-]+:)?[a-z]+(?P<local>\d+)\]:)")
RULES = [
    (re.compile(r"\b\d{8}-\d{6}Z-[a-z0-9]{8}\b"), "RUN"),
    (re.compile(r"\bjob [a-z0-9]{8}\b"), "job NAME"),
    (re.compile(r"/tmp/remuda-[a-z0-9_]{8}\b"), "/tmp/remuda-NAME"),
    (re.compile(r"\bpid \d+"), "pid N"),
    (re.compile(r"\bport \d+"), "port N"),
    (re.compile(r"(127\.0\.0\.1|localhost|\]):\d{4,5}\b"), r"\1:PORT"),
    (re.compile(r"\b\d+(\.\d+)?(e[+-]\d+)? ?(µs|ms|s|min|h)\b"), "TIME"),
    # The times of several hosts can be equal.
    (re.compile(r"TIME-TIME"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? ?(tokens/s|lines/s|samples/s|[KMGT]i?B/s|[KMGT]i?B)(?=\b|\W|$)"), "SIZE"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:]+Z"), "DATE"),
    (re.compile(r"[ \t]+"), " "),
]
LEFT_OUT = re.compile(
    r"^.*29500.*in use.*$|^  help: another job, or a process .* uses the port;.*$|^ +Waiting +for .* so far$"
)


@dataclass
class Place:
    """Where blocks are run: executable, repository, and what some blocks need, empty if it is missing."""

    remuda: str
    root: Path
    torch: str
    pytest: str
    library: str
    pre_commit: str
    ssh: bool

    def python(self, block):
        """The Python of a virtual environment that the block needs, if any."""
        return next((getattr(self, name) for name in ("torch", "pytest") if name in block.attributes), "")

    def lacks(self, block):
        """What the block needs and this machine does not have."""
        return [name for name in NEEDS if name in block.attributes and not getattr(self, name)]


def commands_of(block):
    """Commands of a block, each with its expected lines."""
    found = []
    for line in block.lines:
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line.startswith("> ") and found and not found[-1][1]:
            found[-1] = (found[-1][0] + "\n" + line[2:], [])
        elif found:
            found[-1][1].append(line)
        elif line.strip() and not line.startswith("#"):
            raise ValueError(f"line {block.start}: a console block begins with `$ `")
    return found


def run(place, page, block):
    """What each command of a block prints, as a reader would see it."""
    with tempfile.TemporaryDirectory(prefix="docs-") as folder:
        base = Path(os.path.realpath(folder))
        job, binaries = base / "home/me/job", base / "usr/bin"
        job.mkdir(parents=True)
        binaries.mkdir(parents=True)
        for name, text in page.files().items():
            (job / name).parent.mkdir(parents=True, exist_ok=True)
            (job / name).write_text(text, encoding="utf-8")
        (binaries / "remuda").symlink_to(place.remuda)
        path = f"{binaries}:/usr/local/bin:/usr/bin:/bin"
        python = place.python(block)
        if python:
            path = f"{os.path.dirname(python)}:{path}"
        else:
            python = os.path.realpath(sys.executable)
            (binaries / "python3").symlink_to(python)
        environment = {"PATH": path, "HOME": str(base / "home/me"), "LANG": "C.UTF-8", "USER": "me", "COLUMNS": "100"}
        if "pre_commit" in block.attributes:
            (base / "home/me/remuda").symlink_to(place.root)
            environment["PATH"] = f"{path}:{os.path.dirname(place.pre_commit)}"
        if uses_package(page, block):
            environment["PYTHONPATH"] = str(install_package(place.root, base))
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
            environment["REMUDA_LIBRARY"] = place.library
        command = ["bash", "--norc", "-c", script(block)]
        with contextlib.ExitStack() as stack:
            if "ssh" in block.attributes:
                accepts_key, is_known = "denied" not in block.attributes, "unknown" not in block.attributes
                command = stack.enter_context(ssh_hosts.SshHosts(base, accepts_key, is_known)).command(command)
            done = subprocess.run(
                command,
                cwd=job,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=LIMIT_S,
                check=False,
            )
        text = done.stdout.decode(errors="replace")
        for old, new in [
            (python, "/usr/bin/python3"),
            (place.remuda, "/usr/bin/remuda"),
            (str(base), ""),
        ]:
            text = text.replace(old, new)
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "box", text)
        text = text.replace(f"{getpass.getuser()}@", "me@")
    return [part.strip("\n") for part in text.split(MARK + "\n")][:-1]


def uses_package(page, block):
    return "import remuda" in page.text or {"torch", "library"} & set(block.attributes)


def install_package(root, base):
    """A directory with the package and its entry points, as pip makes it."""
    target = base / "usr/lib/python3"
    info = target / "remuda-0.dist-info"
    info.mkdir(parents=True)
    (target / "remuda").symlink_to(root / "python/remuda")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: remuda\nVersion: 0\n")
    groups = re.findall(
        r'^\[project\.entry-points\."(.*)"\]\n(.*)$', (root / "pyproject.toml").read_text(), re.MULTILINE
    )
    lines = [line for group, entry in groups for line in (f"[{group}]", entry.replace('"', ""))]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return target


def script(block):
    """Commands with a mark after each; the exit status of a command is there for the next one."""
    lines = ["exec 2>&1", "status=0"]
    for command, _ in commands_of(block):
        lines += ["(exit $status)", command, "status=$?", f"printf '%s\\n' '{MARK}'"]
    return "\n".join(lines)


def ordered(lines):
    """Lines with adjacent lines of workers in the order of the ranks."""
    out, workers = [], []
    for line in [*lines, None]:
        found = line is not None and WORKER.match(line)
        if found:
            key = (found["host"] or "", int(found["rank"] or found["local"]))
            workers.append((key, len(workers), line))
            continue
        out += [each for *_, each in sorted(workers)]
        workers = []
        if line is not None:
            out.append(line)
    return out


def normal(text):
    lines = ordered([line.rstrip() for line in text.splitlines() if not LEFT_OUT.match(line)])
    for pattern, replacement in RULES:
        lines = [pattern.sub(replacement, line) for line in lines]
    return lines


def matches(expected, actual):
    parts = []
    for line in expected:
        if line.strip() == "…":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append("[^\n]*".join(re.escape(part) for part in line.split("…")) + "\n")
    return re.fullmatch("".join(parts), "".join(line + "\n" for line in actual)) is not None


@dataclass
class Result:
    """The outcome of a block: `passed`, `skipped`, `not run`, or `failed` with a text."""

    page: object
    block: object
    state: str
    text: str = ""
    outputs: tuple = ()


def check_block(place, page, block):
    if "not-run" in block.attributes:
        if block.lines and block.lines[0].startswith(REASON):
            return Result(page, block, "not run")
        return Result(page, block, "failed", f"the first line must be `{REASON}…`")
    if place.lacks(block):
        return Result(page, block, "skipped", ", ".join(place.lacks(block)))
    try:
        outputs = run(place, page, block)
        commands = commands_of(block)
    except (subprocess.TimeoutExpired, ValueError) as error:
        return Result(page, block, "failed", str(error))
    if len(outputs) != len(commands):
        return Result(page, block, "failed", f"{len(commands)} commands, {len(outputs)} ended: {outputs}", outputs)
    problems = []
    for (command, expected), output in zip(commands, outputs):
        # A blank line between two commands separates them for the reader.
        wanted, actual = normal("\n".join(expected).strip("\n")), normal(output)
        if not matches(wanted, actual):
            difference = difflib.unified_diff(wanted, actual, "page", "program", lineterm="", n=2)
            problems.append("\n".join([f"$ {command}", *difference]))
    return Result(page, block, "failed" if problems else "passed", "\n".join(problems), outputs)


def check(place, pages, jobs):
    blocks = [(page, block) for page in pages for block in page.blocks if block.language == "console"]
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda each: check_block(place, *each), blocks))


def record(results):
    """Writes what the failed blocks print into their pages, one page at a time, from the last block to the first."""
    for result in sorted(results, key=lambda each: -each.block.start):
        if result.state != "failed" or not result.outputs:
            continue
        lines = []
        for (command, _), output in zip(commands_of(result.block), result.outputs):
            first, *rest = command.split("\n")
            lines += [
                f"$ {first}",
                *(f"> {line}" for line in rest),
                *ordered([line for line in output.splitlines() if not LEFT_OUT.match(line)]),
            ]
        page = result.page.path.read_text(encoding="utf-8").splitlines()
        start = result.block.start
        page[start : start + len(result.block.lines)] = [line.rstrip() for line in lines]
        result.page.path.write_text("\n".join(page) + "\n", encoding="utf-8")
        print(f"recorded: {result.page.name}:{start}")


def find_library(root):
    found = os.environ.get("REMUDA_LIBRARY") or next(root.glob("target/python/capi/*/libremuda.so"), "")
    return str(found)


def find_pytest():
    python = os.environ.get("PYTEST_PYTHON", sys.executable)
    found = subprocess.run([python, "-c", "import pytest"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    return python if found else ""


def find_pre_commit():
    return shutil.which(os.environ.get("PRE_COMMIT", "pre-commit")) or ""


def find_torch(root):
    found = os.environ.get("REMUDA_INTEGRATIONS") or str(root / "target/integrations/venv")
    python = os.path.join(found, "bin/python3")
    return python if shutil.which(python) else ""
