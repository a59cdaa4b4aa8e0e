#!/usr/bin/env python3
"""Pods without ssh: time to join, time to report a failure, a thousand nodes at once, memory.

Pods on loopback addresses, each with its own copy of the program, as from an image, so that pods share no
pages. The figures are the time from the start of the last pod to the program of the first worker, while
node 0 is waiting; the same if node 0 starts last, which the other pods notice when they next connect; the
time from the failure of a worker on one pod until all other workers receive SIGTERM; the time until 1,000
simulated nodes that connect at the same time have joined, with node 0 on one core; and the proportional
memory of one pod's own processes while its workers sleep.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import harness
from fail import WORKER, notes

LIMIT_S = 60


class Pods:
    """`count` pods with two workers each; the constructor starts none."""

    def __init__(self, program, directory, count):
        self.directory, self.count, self.running = directory, count, []
        self.port = find_three_ports()
        self.key = os.path.join(directory, "key")
        with open(self.key, "wb") as file:
            file.write(os.urandom(32))
        os.chmod(self.key, 0o600)
        self.programs = []
        for number in range(count):
            own = os.path.join(directory, f"pod{number}")
            os.mkdir(own)
            self.programs.append(shutil.copy(program, own))

    def start(self, number, *worker):
        command = [self.programs[number], "pod", "--accelerator", "cpu", "--num_gpus", "2"]
        command += ["--no_python", "--no_local_rank", "--quiet", "--", *worker]
        environment = {
            **os.environ,
            "REMUDA_NODES": str(self.count),
            "REMUDA_KEY_FILE": self.key,
            "REMUDA_MASTER_ADDR": "127.0.0.1",
            "REMUDA_MASTER_PORT": str(self.port),
            "REMUDA_RUN_DIR": os.path.join(self.directory, "runs"),
            "NODE_RANK": str(number),
        }
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        pod = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
        self.running.append(pod)
        return pod

    def start_recording(self, number, reaction="exit"):
        return self.start(number, sys.executable, "-c", WORKER, self.directory, reaction)

    def stop(self):
        for pod in self.running:
            if pod.poll() is None:
                pod.send_signal(signal.SIGTERM)
        for pod in self.running:
            pod.wait(LIMIT_S)


def find_three_ports():
    """The first of three consecutive free ports."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
        if all(is_free(port + step) for step in range(3)):
            return port


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
        return True


def wait_until(check, event):
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        if found := check():
            return found
        time.sleep(0.001)
    raise harness.Failed(f"{event}: timed out")


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def first_exec(pods, last):
    """Time from the start of the last pod to the first exec of a worker; excludes the start of Python."""
    for number in reversed(range(pods.count)):
        if number != last:
            pods.start(number, *record_exec(pods.directory))
    if last:
        wait_until(lambda: listens(pods.port + 1), "node 0")
    # All other pods have joined, or have failed to connect to node 0.
    time.sleep(1.5)
    start = time.monotonic()
    pods.start(last, *record_exec(pods.directory))
    at = wait_until(lambda: first_exec_time(pods.directory), "a worker")
    pods.stop()
    return {"s": at - start}


def record_exec(directory):
    """A shell, which starts fast; the time of its file is the time of the exec."""
    return ["sh", "-c", ': > "$0/exec.$RANK"; exec sleep 30', directory]


def first_exec_time(directory):
    stamps = []
    for entry in os.scandir(directory):
        if entry.name.startswith("exec."):
            stamps.append(entry.stat().st_mtime)
    # File times use the wall clock.
    return min(stamps) - time.time() + time.monotonic() if stamps else None


def kill_worker(pods):
    for number in range(pods.count):
        pods.start_recording(number)
    workers = notes(pods.directory, "up", 0, 2 * pods.count)
    killed = time.monotonic()
    os.kill(workers[-1][1], signal.SIGKILL)
    stopping = notes(pods.directory, "stopping", 0, 2 * pods.count - 1)
    for pod in pods.running:
        pod.wait(LIMIT_S)
    return {"s": max(at for at, _ in stopping) - killed}


def memory(pods):
    """Proportional memory of node 0 and of the largest other pod, without their workers."""
    for number in range(pods.count):
        pods.start(number, "sleep", "30")
    worker = os.path.realpath(shutil.which("sleep"))

    def own(pod):
        pids = harness.tree(pod.pid)
        found = [pid for pid in pids if harness.program_of(pid) != worker]
        return found if len(pids) - len(found) == 2 else None

    processes = [wait_until(lambda pod=pod: own(pod), "workers") for pod in pods.running]
    found = [harness.memory_kb(pids)[1] / 1000 for pids in processes]
    pods.stop()
    return {"node_0_mb": found[0], "others_mb": max(found[1:])}


def crowd(program, simulator, directory, count):
    """Node 0 on one core, simulated nodes on the others; time until all have joined, processor time and peak memory
    of node 0."""
    port = find_three_ports()
    key, hosts = os.path.join(directory, "key"), os.path.join(directory, "hosts")
    with open(key, "wb") as file:
        file.write(os.urandom(32))
    os.chmod(key, 0o600)
    with open(hosts, "w") as file:
        file.writelines(f"n{number} slots=1\n" for number in range(count))
    own, *others = sorted(os.sched_getaffinity(0))
    command = ["taskset", "-c", str(own), program, "run", "--no_ssh", "--node_rank", "0", "-H", hosts, "--quiet"]
    command += ["--key_file", key, "--master_addr", "127.0.0.1", "--master_port", str(port)]
    command += ["--accelerator", "cpu", "--no_python", "--no_local_rank", "--", "true"]
    environment = {**os.environ, "REMUDA_RUN_DIR": os.path.join(directory, "runs")}
    node_0 = subprocess.Popen(command, env=environment, start_new_session=True)
    wait_until(lambda: listens(port + 1), "node 0")
    peak = {"kb": 0}

    def watch(_):
        peak["kb"] = max(peak["kb"], harness.peak_kb(node_0.pid) or 0)

    watcher = harness.Watcher(node_0.pid, watch, 0.05)
    cores = ["taskset", "-c", ",".join(map(str, others or [own]))]
    simulated = subprocess.run(
        [*cores, simulator, str(count), str(port), key], check=True, capture_output=True, text=True
    )
    _, status, usage = os.wait4(node_0.pid, 0)
    node_0.returncode = os.waitstatus_to_exitcode(status)
    watcher.stop()
    if node_0.returncode != 0:
        raise harness.Failed(f"node 0 returned {node_0.returncode}")
    times = dict(line.split() for line in simulated.stdout.splitlines())
    joined, over = float(times["joined"]), float(times["over"])
    cpu = usage.ru_utime + usage.ru_stime
    return {"s": joined, "over_s": over, "cpu_s": cpu, "peak_mb": peak["kb"] / 1000}


def example():
    """Path of the simulated nodes. They are not measured, so a debug build is sufficient."""
    build = ["cargo", "build", "--locked", "--quiet", "--example", "crowd"]
    subprocess.run(build, cwd=harness.ROOT, check=True)
    return str(harness.ROOT / "target" / "debug" / "examples" / "crowd")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--crowd", type=int, default=1000, help="number of nodes that connect at the same time")
    options = parser.parse_args()
    program, simulator = harness.remuda(), example()

    def once(case, *more):
        def run():
            with harness.scratch() as directory:
                pods = Pods(program, directory, options.pods)
                try:
                    return case(pods, *more)
                finally:
                    pods.stop()

        return run

    def connect_crowd():
        with harness.scratch() as directory:
            return crowd(program, simulator, directory, options.crowd)

    cases = {
        "last pod started → first worker's program": once(first_exec, options.pods - 1),
        "node 0 started last → first worker's program": once(first_exec, 0),
        "worker killed → all others got SIGTERM": once(kill_worker),
        f"{options.crowd} nodes connect at once → all have joined": connect_crowd,
    }
    results = harness.interleaved(cases, options.rounds)
    memories = [once(memory)() for _ in range(3)]
    print(f"{options.pods} pods × 2 workers, {options.rounds} rounds: median (minimum–maximum)\n")
    rows = [[name, harness.spread(found, "s", 1000)] for name, found in results.items()]
    crowds = results[f"{options.crowd} nodes connect at once → all have joined"]
    rows.append(["… → all workers have run and the job is complete", harness.spread(crowds, "over_s", 1000)])
    harness.table(["", "ms"], rows)
    print()
    harness.table(
        ["", "MB"],
        [
            ["processes of a pod, PSS", harness.spread(memories, "others_mb")],
            ["processes of pod 0, PSS", harness.spread(memories, "node_0_mb")],
            [f"node 0 of {options.crowd}, peak resident", harness.spread(crowds, "peak_mb")],
        ],
    )
    harness.save("pods", {"pods": options.pods, "results": results, "memory": memories})


if __name__ == "__main__":
    main()
