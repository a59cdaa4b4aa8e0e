#!/usr/bin/env python3
"""Changes of the members of a job: a node joins, a node is lost, a node is silent.

Two of at most three nodes with one worker each, on loopback, started one by one. `join` is the time from the
end of the last old worker to the start of the last new one, after a third node was started; `arrival` begins at
the start of the third node. `lost` begins when the process of a node is killed, and `silent` when all processes
of a node are suspended, less the lease; both end when the last worker of the remaining nodes runs.

torchrun is no peer: that of torch 2.15 does not notice that a node has left, and a third node waits in vain for
the address of the first (`wait timeout after 60000ms, keys: …/MASTER_ADDR`).
"""

import argparse
import os
import pathlib
import signal
import subprocess
import time

import harness
import pods

LEASE_S = 3
LIMIT_S = 120
# In seconds.
BARS = {"join": 1.0, "lost": 1.0, "silent": 1.0}

# Notes when it starts, with the number of workers, and when it is asked to end.
WORKER = """\
echo "up $(date +%s.%N) $WORLD_SIZE" >"$1/$$"
trap 'kill $!; echo "ended $(date +%s.%N) $WORLD_SIZE" >>"$1/$$"; exit 143' TERM
sleep 1000 &
wait
"""


class Nodes:
    """The nodes of one job; the constructor starts none."""

    def __init__(self, directory, program):
        self.directory, self.program = pathlib.Path(directory), program
        self.notes = self.directory / "notes"
        self.notes.mkdir()
        self.worker = self.directory / "worker.sh"
        self.worker.write_text(WORKER)
        self.port = pods.find_three_ports()
        self.running = []
        self.key, self.hosts = self.directory / "key", self.directory / "hosts"
        self.key.write_bytes(os.urandom(32))
        self.key.chmod(0o600)
        self.hosts.write_text("".join(f"n{number} slots=1\n" for number in range(3)))

    def line(self, number):
        words = [self.program, "run", "--no_ssh", "--node_rank", str(number), "-H", str(self.hosts)]
        words += ["--key_file", str(self.key), "--master_addr", "127.0.0.1", "--master_port", str(self.port)]
        words += ["--accelerator", "cpu", "--no_python", "--no_local_rank", "--min_nodes", "2"]
        return [*words, "--last_call", "100ms", "--lease", f"{LEASE_S}s", "--grace", "5s", "--"]

    def start(self, number):
        environment = {**os.environ, "REMUDA_RUN_DIR": str(self.directory / "runs"), "OMP_NUM_THREADS": "1"}
        words = [*self.line(number), "sh", str(self.worker), str(self.notes)]
        with open(self.directory / f"log{number}", "w") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            node = subprocess.Popen(words, env=environment, start_new_session=True, **streams)
        self.running.append(node)
        return node

    def times(self, event, world):
        """Times of this event in workers of a job of this size."""
        found = []
        for path in self.notes.iterdir():
            words = [line.split() for line in path.read_text().splitlines()]
            found += [float(at) for name, at, size in filter(lambda it: len(it) == 3, words)
                      if (name, int(size)) == (event, world)]  # fmt: skip
        return found

    def wait_for(self, world, before=0):
        """Waits until so many workers run that were not there before; returns the times of their starts."""
        limit = time.monotonic() + LIMIT_S
        while time.monotonic() < limit:
            found = sorted(self.times("up", world))[before:]
            if world <= len(found):
                return found
            time.sleep(0.01)
        logs = "\n".join(path.read_text() for path in sorted(self.directory.glob("log*")))
        raise harness.Failed(f"there are not {world} workers\n{logs[-3000:]}")

    def stop(self):
        for node in self.running:
            for pid in harness.tree(node.pid) if node.poll() is None else []:
                signal_if_there(pid, signal.SIGCONT)
            if node.poll() is None:
                node.send_signal(signal.SIGTERM)
        for node in self.running:
            try:
                node.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()


def signal_if_there(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def join(nodes):
    nodes.start(0)
    nodes.start(1)
    nodes.wait_for(2)
    started = time.time()
    nodes.start(2)
    up = nodes.wait_for(3)[-1]
    return {"join": up - max(nodes.times("ended", 2)), "arrival": up - started}


def lose(nodes, act, less):
    """A job of three nodes goes on with two after `act` on the third one."""
    for number in range(3):
        nodes.start(number)
    nodes.wait_for(3)
    before = len(nodes.times("up", 2))
    at = time.time()
    act(nodes.running[2])
    return nodes.wait_for(2, before)[-1] - at - less


def suspend(node):
    for pid in harness.tree(node.pid):
        signal_if_there(pid, signal.SIGSTOP)


CASES = {
    "join": join,
    "lost": lambda nodes: {"lost": lose(nodes, lambda node: node.kill(), 0)},
    "silent": lambda nodes: {"silent": lose(nodes, suspend, LEASE_S)},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    program = harness.remuda()

    def once(measure):
        def run():
            with harness.scratch() as directory:
                nodes = Nodes(directory, program)
                try:
                    return measure(nodes)
                finally:
                    nodes.stop()

        return run

    results = harness.interleaved({name: once(case) for name, case in CASES.items()}, options.rounds)
    rows = []
    for case, runs in results.items():
        for figure in runs[0]:
            bar = BARS.get(figure)
            held = ["–", "–"]
            if bar is not None:
                held = [f"{bar * 1000:.0f}", "yes" if harness.median(runs, figure) <= bar else "no"]
            rows.append([figure, harness.spread(runs, figure, 1000, 0), *held])
    print(f"{options.rounds} rounds, lease {LEASE_S} s: median (minimum–maximum)\n")
    harness.table(["", "ms", "bar", "held"], rows)
    harness.save("elastic", {"lease_s": LEASE_S, "results": results})


if __name__ == "__main__":
    main()
