#!/usr/bin/env python3
"""From a death to the end of everybody else: a worker's, and the launcher's.

Simulated nodes on this machine, a worker on each, which notes on the kernel's monotonic clock when it
is asked to stop. A worker is killed: the figure is the time until the last of the others was asked. The
launcher is killed while its workers ignore SIGTERM: the figure is the time until the last process of the
job is gone, less the grace. A restart: the time from the death until every worker runs anew, less the
pause.
"""

import argparse
import glob
import os
import signal
import subprocess
import sys
import time

import harness

GRACE_S = 1.0
PAUSE_S = 1.0
LIMIT_S = 60

WORKER = """
import os, signal, sys, time
rank, epoch = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
def note(what):
    with open(f"{sys.argv[1]}/{what}.{epoch}.{rank}.new", "w") as file:
        file.write(f"{time.monotonic()} {os.getpid()}")
    os.rename(file.name, file.name[:-4])
def asked(*_):
    note("asked")
    if sys.argv[2] == "ends":
        os._exit(0)
signal.signal(signal.SIGTERM, asked)
note("up")
while True:
    signal.pause()
"""


def start(program, directory, nodes, how, *options):
    hosts = os.path.join(directory, "hosts")
    with open(hosts, "w") as file:
        file.writelines(f"n{number} slots=1\n" for number in range(nodes))
    command = [program, "run", "-H", hosts, "--launcher", "local", "--accelerator", "cpu"]
    command += ["--no_python", "--no_local_rank", "--grace", f"{GRACE_S}s", *options, "--"]
    command += [sys.executable, "-c", WORKER, directory, how]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, "REMUDA_RUN_DIR": os.path.join(directory, "runs")}
    return subprocess.Popen(command, env=environment, start_new_session=True, **quiet)


def notes(directory, what, epoch, count):
    """Times and pids of so many workers, as soon as they are there."""
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        paths = glob.glob(f"{directory}/{what}.{epoch}.*[0-9]")
        if count <= len(paths):
            found = [open(path).read().split() for path in sorted(paths)]
            return [(float(at), int(pid)) for at, pid in found]
        time.sleep(0.002)
    raise harness.Failed(f"{count} × {what}.{epoch} did not come")


def worker_dies(program, directory, nodes):
    job = start(program, directory, nodes, "ends")
    workers = notes(directory, "up", 0, nodes)
    killed = time.monotonic()
    os.kill(workers[-1][1], signal.SIGKILL)
    asked = notes(directory, "asked", 0, nodes - 1)
    job.wait(LIMIT_S)
    return {"s": max(at for at, _ in asked) - killed}


def launcher_dies(program, directory, nodes):
    job = start(program, directory, nodes, "stays")
    notes(directory, "up", 0, nodes)
    everybody = harness.tree(job.pid)
    killed = time.monotonic()
    job.kill()
    job.wait()
    left = set(everybody) - {job.pid}
    limit = killed + LIMIT_S
    while left and time.monotonic() < limit:
        left = {pid for pid in left if os.path.exists(f"/proc/{pid}/cwd")}
        time.sleep(0.002)
    if left:
        raise harness.Failed(f"{len(left)} processes outlived the launcher")
    return {"s": time.monotonic() - killed - GRACE_S}


def restarts(program, directory, nodes):
    job = start(program, directory, nodes, "ends", "--max_restarts", "1")
    workers = notes(directory, "up", 0, nodes)
    killed = time.monotonic()
    os.kill(workers[-1][1], signal.SIGKILL)
    again = notes(directory, "up", 1, nodes)
    job.terminate()
    job.wait(LIMIT_S)
    return {"s": max(at for at, _ in again) - killed - PAUSE_S}


CASES = {
    "worker killed → all others asked to stop": worker_dies,
    "launcher killed → all gone, after the grace": launcher_dies,
    "worker killed → all run anew, after the pause": restarts,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    program = harness.remuda()

    def once(case):
        def run():
            with harness.scratch() as directory:
                return case(program, directory, options.nodes)

        return run

    cases = {name: once(case) for name, case in CASES.items()}
    results = harness.interleaved(cases, options.rounds)
    print(f"{options.nodes} nodes, {options.rounds} rounds: median (least–greatest)\n")
    rows = [[name, harness.spread(found, "s", 1000)] for name, found in results.items()]
    harness.table(["", "ms"], rows)
    harness.save("fail", {"nodes": options.nodes, "results": results})


if __name__ == "__main__":
    main()
