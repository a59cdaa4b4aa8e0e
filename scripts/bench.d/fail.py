#!/usr/bin/env python3
"""Time from the failure of a worker or of the launcher until all other processes have reacted.

Simulated nodes on this machine with one worker each, which records on the kernel's monotonic clock when
it receives SIGTERM. If a worker is killed, the figure is the time until the last of the other workers
receives SIGTERM. If the launcher is killed while its workers ignore SIGTERM, it is the time until the
last process of the job has exited, less the grace. For a restart it is the time from the kill until every
worker runs again, less the pause. With --ssh the nodes are hosts on loopback with real sshds, and the
processes of the job include the sshds of its connections and their descendants.
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
def note(event):
    with open(f"{sys.argv[1]}/{event}.{epoch}.{rank}.new", "w") as file:
        file.write(f"{time.monotonic()} {os.getpid()}")
    os.rename(file.name, file.name[:-4])
def on_sigterm(*_):
    note("stopping")
    if sys.argv[2] == "exit":
        os._exit(0)
signal.signal(signal.SIGTERM, on_sigterm)
note("up")
while True:
    signal.pause()
"""


class Simulated:
    """Nodes on this machine, without a connection to them."""

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
    """Nodes on loopback, reached over ssh."""

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


def start(program, directory, nodes, reaction, *options):
    command = [program, "run", *nodes.options, "--accelerator", "cpu"]
    command += ["--no_python", "--no_local_rank", "--grace", f"{GRACE_S}s", *options, "--"]
    command += [sys.executable, "-c", WORKER, directory, reaction]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, "REMUDA_RUN_DIR": os.path.join(directory, "runs")}
    return subprocess.Popen(command, env=environment, start_new_session=True, **quiet)


def notes(directory, event, epoch, count):
    """Waits for the notes of `count` workers; returns their times and pids."""
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        paths = glob.glob(f"{directory}/{event}.{epoch}.*[0-9]")
        if count <= len(paths):
            found = [open(path).read().split() for path in sorted(paths)]
            return [(float(at), int(pid)) for at, pid in found]
        time.sleep(0.002)
    raise harness.Failed(f"{count} × {event}.{epoch} timed out")


def kill_worker(program, directory, nodes, count):
    job = start(program, directory, nodes, "exit")
    workers = notes(directory, "up", 0, count)
    killed = time.monotonic()
    os.kill(workers[-1][1], signal.SIGKILL)
    stopping = notes(directory, "stopping", 0, count - 1)
    job.wait(LIMIT_S)
    return {"s": max(at for at, _ in stopping) - killed}


def kill_launcher(program, directory, nodes, count):
    job = start(program, directory, nodes, "stay")
    notes(directory, "up", 0, count)
    processes = nodes.processes(job.pid)
    killed = time.monotonic()
    job.kill()
    job.wait()
    remaining = set(processes) - {job.pid}
    limit = killed + LIMIT_S
    while remaining and time.monotonic() < limit:
        remaining = {pid for pid in remaining if os.path.exists(f"/proc/{pid}/cwd")}
        time.sleep(0.002)
    if remaining:
        raise harness.Failed(f"{len(remaining)} processes were still running after the launcher had exited")
    return {"s": time.monotonic() - killed - GRACE_S}


def restart(program, directory, nodes, count):
    job = start(program, directory, nodes, "exit", "--max_restarts", "1")
    workers = notes(directory, "up", 0, count)
    killed = time.monotonic()
    os.kill(workers[-1][1], signal.SIGKILL)
    restarted = notes(directory, "up", 1, count)
    job.terminate()
    job.wait(LIMIT_S)
    return {"s": max(at for at, _ in restarted) - killed - PAUSE_S}


CASES = {
    "worker killed → all others got SIGTERM": kill_worker,
    "launcher killed → all exited, after the grace": kill_launcher,
    "worker killed → all restarted, after the pause": restart,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--ssh", action="store_true", help="use nodes on loopback over ssh")
    options = parser.parse_args()
    program, nodes_class = harness.remuda(), OverSsh if options.ssh else Simulated

    def once(case):
        def run():
            with harness.scratch() as directory:
                nodes = nodes_class(directory, options.nodes)
                try:
                    return case(program, directory, nodes, options.nodes)
                finally:
                    nodes.close()

        return run

    cases = {name: once(case) for name, case in CASES.items()}
    results = harness.interleaved(cases, options.rounds)
    suffix = " over ssh" if options.ssh else ""
    print(f"{options.nodes} nodes{suffix}, {options.rounds} rounds: median (minimum–maximum)\n")
    rows = [[name, harness.spread(found, "s", 1000)] for name, found in results.items()]
    harness.table(["", "ms"], rows)
    harness.save("fail-ssh" if options.ssh else "fail", {"nodes": options.nodes, "results": results})


if __name__ == "__main__":
    main()
