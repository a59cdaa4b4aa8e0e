"""Runs a table of lines with torchrun, accelerate and remuda, and compares what the workers see.

    run_lines.py --remuda FILE --python PYTHON [--only NAME] [--record FILE]
    run_lines.py --remuda FILE --replay FILE

The workers write their arguments, their environment and their working directory. The first form runs each
line with the real launcher too; the second one compares with what was recorded, and needs neither torch nor
accelerate. `EXPECTED` in run_table.py lists the variables that differ; everything else must be equal.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import run_table

# Limit of one line, in seconds.
LIMIT = 120
# Variables of a shell and of the comparison itself.
IGNORED = {"_", "SHLVL", "PWD", "OLDPWD", "DUMP", "LC_CTYPE", "HF_HOME", "PATH", "HOME", "HF_HUB_OFFLINE"}

WORKER = """\
import json, os, signal, sys, time
rank, attempt = os.environ.get("RANK", "alone"), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
seen = {"argv": sys.argv[1:], "options": sys.orig_argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}
path = os.path.join(os.environ["DUMP"], f"{rank}.{attempt}.json")
with open(path + ".new", "w") as file:
    json.dump(seen, file)
os.write(1, f"out {rank}\\n".encode())
os.write(2, f"err {rank}\\n".encode())
os.rename(path + ".new", path)
workers = int(os.environ.get("WORLD_SIZE", 1))
if "--fail" in sys.argv and attempt == "0":
    # All workers have been seen before one fails.
    while sum(name.endswith(".0.json") for name in os.listdir(os.environ["DUMP"])) < workers:
        time.sleep(0.01)
    sys.exit(3)
"""

# Runs one line in a fork of a process that has imported the launchers once.
REAL = """\
import json, os, sys
import torch.distributed.run, torch.distributed.launch
import accelerate.commands.launch
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        os.setsid()
        os.chdir(job["cwd"])
        os.environ.clear()
        os.environ.update(job["env"])
        out = os.open(job["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        err = os.open(job["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0), os.dup2(out, 1), os.dup2(err, 2)
        sys.argv = [job["kind"], *job["argv"]]
        status = 1
        try:
            if job["kind"] == "torchrun":
                torch.distributed.run.main(job["argv"])
            elif job["kind"] == "distributed_launch":
                torch.distributed.launch.launch(torch.distributed.launch.parse_args(job["argv"]))
            else:
                launch = accelerate.commands.launch
                launch.default_config_file = "/nonexistent"
                launch.launch_command(launch.launch_command_parser().parse_args(job["argv"]))
            status = 0
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(status)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True) if job["wait"] else None
"""


def free_port():
    """A port that is free together with the one for agents of remuda, and that the kernel gives to no connection."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first, end = 10_240, max(int(file.read().split()[0]), 14_240)
    while True:
        port = random.randrange(first, end)
        try:
            with socket.socket() as master, socket.socket() as agents:
                master.bind(("127.0.0.1", port))
                agents.bind(("127.0.0.1", port - 4999))
            return port
        except OSError:
            continue


class Place:
    """The directory of one run of one line."""

    def __init__(self, line):
        self.root = tempfile.mkdtemp(prefix="remuda-run-")
        self.dump = os.path.join(self.root, "dump")
        os.mkdir(self.dump)
        self.port = free_port()
        self.write("worker.py", WORKER)
        self.write("worker.sh", '#!/bin/sh\nexec python3 worker.py "$@"\n', 0o755)
        self.write("ds.json", "{}\n")
        if line.get("config"):
            self.write("config.yaml", line["config"])
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": self.root,
            "LC_ALL": "C.UTF-8",
            "DUMP": self.dump,
            "REMUDA_RUN_DIR": os.path.join(self.root, "runs"),
            **line.get("env", {}),
        }

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.root, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)

    def words(self, argv):
        return [word.replace("@port@", str(self.port)) for word in argv]

    def seen(self, status, out):
        """What workers saw, with the names of this run replaced."""
        workers = {}
        for name in sorted(os.listdir(self.dump)):
            with open(os.path.join(self.dump, name), encoding="utf-8") as file:
                workers[name.removesuffix(".json")] = self.worker(json.load(file))
        # The report of a failure quotes lines after a bar.
        lines = [line for line in out.splitlines() if not line.lstrip().startswith("|")]
        lines = sorted(line for line in lines if re.search(r"\b(out|err) (\d|alone)", line))
        return {"status": status, "workers": workers, "lines": lines, "files": self.files()}

    def worker(self, seen):
        base = {**self.env}
        env = {k: self.shown(v) for k, v in seen["env"].items() if k not in IGNORED and base.get(k) != v}
        lost = sorted(k for k in base if k not in seen["env"] and not k.startswith("PET_"))
        return {"argv": [self.shown(word) for word in seen["argv"]], "env": env, "lost": lost,
                "options": [self.shown(word) for word in seen["options"]], "cwd": self.shown(seen["cwd"])}

    def shown(self, text):
        return text.replace(self.root, "@here@").replace(str(self.port), "@port@")

    def files(self):
        """Files below `logs`, without the random parts of their names."""
        found = []
        for root, _, names in os.walk(os.path.join(self.root, "logs")):
            for name in names:
                path = os.path.relpath(os.path.join(root, name), os.path.join(self.root, "logs"))
                found.append(path.partition(os.sep)[2])
        return sorted(found)

    def remove(self):
        shutil.rmtree(self.root, ignore_errors=True)


def argvs(line):
    return line.get("nodes") or [line["argv"]]


class Remuda:
    COMMANDS = {
        "torchrun": ["torchrun"],
        "distributed_launch": ["torch.distributed.launch"],
        "accelerate": ["accelerate", "launch"],
    }

    def __init__(self, program):
        self.program = program

    def run(self, line):
        place = Place(line)
        place.env["HF_HOME"] = "/nonexistent"
        processes = []
        for argv in argvs(line):
            command = [self.program, *self.COMMANDS[line["kind"]], *place.words(argv)]
            processes.append(
                subprocess.Popen(command, cwd=place.root, env=place.env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            )
        texts, status = [], []
        for process in processes:
            out, err = process.communicate(timeout=LIMIT)
            texts += [out, err]
            status.append(process.returncode)
        seen = place.seen(max(status), "".join(texts))
        seen["screen"] = texts[1][-800:]
        place.remove()
        return seen


class Real:
    """The real launchers."""

    def __init__(self, python):
        self.processes = [self.start(python) for _ in range(2)]

    def start(self, python):
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
        return subprocess.Popen([python, "-B", "-c", REAL], env=env, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True)

    def run(self, line):
        place = Place(line)
        outputs = []
        for number, (argv, process) in enumerate(zip(argvs(line), self.processes)):
            out, err = (os.path.join(place.root, f"{name}{number}.txt") for name in ("stdout", "stderr"))
            outputs += [out, err]
            job = {"kind": line["kind"], "argv": place.words(argv), "env": place.env, "cwd": place.root,
                   "out": out, "err": err, "wait": True}
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            job["pid"] = int(process.stdout.readline())
        status = [int(process.stdout.readline()) for _, process in zip(argvs(line), self.processes)]
        text = ""
        for path in outputs:
            with open(path, encoding="utf-8", errors="replace") as file:
                text += file.read()
        seen = place.seen(max(status), text)
        seen["screen"] = text[-800:]
        place.remove()
        return seen

    def end(self):
        for process in self.processes:
            process.stdin.close()
            process.wait()


def differences(line, ours, theirs):
    """Texts of what differs and is not expected, and the names of what is expected."""
    found, expected = [], set()
    if (ours["status"] == 0) != (theirs["status"] == 0):
        found.append(f"status: remuda {ours['status']}, peer {theirs['status']}: {ours['screen']}")
    for key in ("lines", "files"):
        if ours[key] != theirs[key] and key not in line.get("skip", []):
            found.append(f"{key}: remuda {ours[key]}, peer {theirs[key]}")
    if sorted(ours["workers"]) != sorted(theirs["workers"]):
        found.append(f"workers: remuda {sorted(ours['workers'])}, peer {sorted(theirs['workers'])}: {ours['screen']}")
        return found, expected
    for name, mine in ours["workers"].items():
        other = theirs["workers"][name]
        for key in ("argv", "options", "cwd", "lost"):
            if mine[key] != other[key] and key not in line.get("skip", []):
                found.append(f"{name} {key}: remuda {mine[key]}, peer {other[key]}")
        for variable in sorted({*mine["env"], *other["env"]}):
            one, two = mine["env"].get(variable, "-"), other["env"].get(variable, "-")
            if one == two:
                continue
            if run_table.is_expected(line, variable, one, two):
                expected.add(variable)
            else:
                found.append(f"{name} {variable}: remuda {one!r}, peer {two!r}")
    return found, expected


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remuda", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default="")
    parser.add_argument("--record")
    parser.add_argument("--replay")
    options = parser.parse_args()
    remuda = Remuda(os.path.abspath(options.remuda))
    lines = [line for line in run_table.lines() if options.only in line["name"]]
    if options.replay:
        lines = [line for line in lines if line["name"] not in run_table.OF_MACHINE]
    recorded = {}
    if options.replay:
        with open(options.replay, encoding="utf-8") as file:
            recorded = {found["name"]: found["seen"] for found in map(json.loads, file)}
    real = None if options.replay else Real(options.python)
    failed, expected, kept = 0, set(), []
    for line in lines:
        theirs = recorded[line["name"]] if options.replay else real.run(line)
        kept.append({"name": line["name"], "seen": {**theirs, "screen": ""}})
        found, names = differences(line, remuda.run(line), theirs)
        expected |= names
        if found:
            failed += 1
            print(f"{line['name']}: {line.get('argv') or line['nodes']}", *found, sep="\n    ", flush=True)
    if real:
        real.end()
    if options.record:
        with open(options.record, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(one, sort_keys=True) + "\n" for one in kept)
    print(f"{len(lines)} lines, {failed} differ; expected differences: {' '.join(sorted(expected))}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
