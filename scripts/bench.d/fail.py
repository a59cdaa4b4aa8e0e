#!/usr/bin/env python3
"""From a death to the end of everybody else: a worker's, and the launcher's.

Simulated nodes on this machine, a worker on each, which notes on the kernel's monotonic clock when it
is asked to stop. A worker is killed: the figure is the time until the last of the others was asked. The
launcher is killed while its workers ignore SIGTERM: the figure is the time until the last process of the
job is gone, less the grace. A restart: the time from the death until every worker runs anew, less the
pause. With --ssh the nodes are hosts of the loopback behind real sshds; what the launcher's death must
end are also the sshds of its connections and everything below them.
"""

import argparse
import glob
import os
import signal
import subprocess
import sys
import time

import harness
import ssh

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


class Simulated:
    """Nodes that are this machine, without a way to them."""

    def __init__(self, directory, count):
        hostfile = os.path.join(directory, "hosts")
        with open(hostfile, "w") as file:
            file.writelines(f"n{number} slots=1\n" for number in range(count))
        self.options = ["-H", hostfile, "--launcher", "local"]

    def processes(self, launcher):
        return harness.tree(launcher)

    def close(self):
        pass


class OverSsh:
    """Nodes behind sshds."""

    def __init__(self, directory, count):
        self.hosts = ssh.Hosts(directory, count)
        config = self.hosts.dir / "ssh_config"
        self.options = ["-H", str(self.hosts.dir / "hostfile"), "--ssh_config", str(config)]

    def processes(self, launcher):
        listeners = {sshd.pid for sshd in self.hosts.sshds}
        below = [pid for listener in listeners for pid in harness.tree(listener)]
        return [*harness.tree(launcher), *(pid for pid in below if pid not in listeners)]

    def close(self):
        self.hosts.close()


def start(program, directory, nodes, how, *options):
    command = [program, "run", *nodes.options, "--accelerator", "cpu"]
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


def worker_dies(program, directory, nodes, count):
    job = start(program, directory, nodes, "ends")
    workers = notes(directory, "up", 0, count)
    killed = time.monotonic()
    os.kill(workers[-1][1], signal.SIGKILL)
    asked = notes(directory, "asked", 0, count - 1)
    job.wait(LIMIT_S)
    return {"s": max(at for at, _ in asked) - killed}


def launcher_dies(program, directory, nodes, count):
    job = start(program, directory, nodes, "stays")
    notes(directory, "up", 0, count)
    everybody = nodes.processes(job.pid)
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


def restarts(program, directory, nodes, count):
    job = start(program, directory, nodes, "ends", "--max_restarts", "1")
    workers = notes(directory, "up", 0, count)
    killed = time.monotonic()
    os.kill(workers[-1][1], signal.SIGKILL)
    again = notes(directory, "up", 1, count)
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
    parser.add_argument("--ssh", action="store_true", help="nodes behind sshds of the loopback")
    options = parser.parse_args()
    program, way = harness.remuda(), OverSsh if options.ssh else Simulated

    def once(case):
        def run():
            with harness.scratch() as directory:
                nodes = way(directory, options.nodes)
                try:
                    return case(program, directory, nodes, options.nodes)
                finally:
                    nodes.close()

        return run

    cases = {name: once(case) for name, case in CASES.items()}
    results = harness.interleaved(cases, options.rounds)
    behind = " over ssh" if options.ssh else ""
    print(f"{options.nodes} nodes{behind}, {options.rounds} rounds: median (least–greatest)\n")
    rows = [[name, harness.spread(found, "s", 1000)] for name, found in results.items()]
    harness.table(["", "ms"], rows)
    harness.save("fail-ssh" if options.ssh else "fail", {"nodes": options.nodes, "results": results})


if __name__ == "__main__":
    main()
