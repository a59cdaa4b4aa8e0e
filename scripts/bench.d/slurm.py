#!/usr/bin/env python3
"""One worker on each of four nodes of a Slurm allocation: `srun` alone, and `remuda run`, whose agents srun starts.

A Slurm of its own runs on this machine: a controller and four nodes, on loopback, with their files in a
temporary directory. The figures are the time from the start of the command inside one allocation until the last
worker runs, and the wall time of the complete command, both as ratios to the complete `srun true` of the same
round. Needs root, because slurmd starts tasks as their users.
"""

import argparse
import os
import pathlib
import signal
import socket
import subprocess
import time

import harness

NODES = 4
PLAIN = "srun"
REMUDA = "remuda run"
# Creates a file of its own, whose time is that of the exec, give or take a tick of the kernel.
WORKER = ["sh", "-c", ': >"$0/$$"']
BAR = 1.3
LIMIT_S = 60

CONFIG = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={dir}/munge.socket
SlurmctldPort={ports[0]}
SlurmctldPidFile={dir}/slurmctld.pid
StateSaveLocation={dir}
SlurmdPidFile={dir}/%n.pid
SlurmdSpoolDir={dir}/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=5
TreeWidth=2
SwitchType=switch/none
"""


class Slurm:
    """Daemons of one controller and four nodes, and an allocation of all nodes."""

    def __init__(self, directory):
        self.dir, self.daemons = pathlib.Path(directory), []
        self.environment = {"SLURM_CONF": str(self.dir / "slurm.conf")}
        try:
            self.start()
            self.allocate()
        except BaseException:
            self.close()
            raise

    def start(self):
        self.dir.chmod(0o755)
        key = self.dir / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "seed-file": "seed"}
        options = [f"--{option}={self.dir / name}" for option, name in files.items()]
        self.spawn("/usr/sbin/munged", "--foreground", "--force", *options)
        self.wait_for("munge", (self.dir / "munge.socket").exists)
        host = socket.gethostname().split(".")[0]
        ports = free_ports(NODES + 1)
        text = CONFIG.format(host=host, dir=self.dir, ports=ports)
        for number, port in enumerate(ports[1:], 1):
            text += f"NodeName=node{number:02} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            text += "CPUs=2 RealMemory=100\n"
        text += "PartitionName=all Nodes=ALL Default=YES State=UP\n"
        (self.dir / "slurm.conf").write_text(text)
        (self.dir / "cgroup.conf").write_text("CgroupAutomount=no\n")
        common = ["-D", "-f", str(self.dir / "slurm.conf")]
        self.spawn("/usr/sbin/slurmctld", *common)
        for number in range(1, NODES + 1):
            (self.dir / f"node{number:02}").mkdir()
            self.spawn("/usr/sbin/slurmd", *common, "-N", f"node{number:02}")
        self.wait_for("idle nodes", lambda: self.ask("sinfo", "-hNo", "%T").split().count("idle") == NODES)

    def allocate(self):
        """Keeps an allocation of all nodes; its variables are those of commands in it."""
        names = self.dir / "variables"
        script = f'env -0 | grep -z ^SLURM >"{names}.new"; mv "{names}.new" "{names}"; exec sleep 1000000'
        self.spawn("salloc", "-Q", "-N", str(NODES), "--ntasks-per-node", "1", "sh", "-c", script)
        self.wait_for("the allocation", names.exists)
        pairs = names.read_text().rstrip("\0").split("\0")
        self.environment |= dict(pair.split("=", 1) for pair in pairs)

    def spawn(self, *words):
        with open(self.dir / "log", "a") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            environment = {**os.environ, **self.environment}
            daemon = subprocess.Popen(words, env=environment, start_new_session=True, **streams)
        self.daemons.append(daemon)

    def ask(self, *words):
        environment = {**os.environ, **self.environment}
        return subprocess.run(words, env=environment, capture_output=True, text=True).stdout

    def wait_for(self, what, check):
        limit = time.monotonic() + LIMIT_S
        while time.monotonic() < limit:
            if check():
                return
            time.sleep(0.05)
        log = (self.dir / "log").read_text()
        raise harness.Failed(f"no {what}\n{log[-2000:]}")

    def close(self):
        """Ends the allocation first, then the nodes, the controller and munge."""
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def free_ports(count):
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def commands(builds):
    found = {PLAIN: ["srun", f"-N{NODES}", "--ntasks-per-node=1"]}
    options = ["-q", "--launcher", "slurm", "--accelerator", "cpu", "--slots", "1", "--no_python", "--no_local_rank"]
    for name, program in builds.items():
        found[f"{name} run"] = [program, "run", *options]
    return found


def once(command, environment):
    """Runs the command with a worker that leaves a file."""
    with harness.scratch() as directory:
        os.chmod(directory, 0o755)
        start = time.time()
        times = harness.run([*command, *WORKER, directory], environment, limit_s=LIMIT_S)
        workers = [entry.stat().st_mtime for entry in os.scandir(directory)]
        if len(workers) != NODES:
            raise harness.Failed(f"{len(workers)} workers ran")
        return {**times, "worker_s": max(workers) - start}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    if os.geteuid() != 0 or not harness.peer("slurmctld", "slurm-wlm") or not harness.peer("munged", "munge"):
        print("left out: this benchmark needs root and Slurm (apt-get install slurm-wlm munge)")
        return
    launchers = commands(harness.builds())
    # The path of a socket has at most 107 bytes.
    with harness.scratch() as directory:
        slurm = Slurm(directory)
        try:
            environment = {**slurm.environment, "REMUDA_RUN_DIR": os.path.join(directory, "runs")}
            cases = {name: lambda line=line: once(line, environment) for name, line in launchers.items()}
            times = harness.interleaved(cases, options.rounds)
        finally:
            slurm.close()

    def to_worker(name):
        return harness.ratio(times, name, PLAIN, "worker_s", "wall_s")

    def row(name):
        share = to_worker(name)
        held = "–" if name != REMUDA else "yes" if share <= BAR else "no"
        worker, wall, cpu = (harness.spread(times[name], f"{figure}_s", 1000) for figure in ("worker", "wall", "cpu"))
        whole = harness.ratio(times, name, PLAIN)
        return [name, worker, f"{share:.2f}", f"{BAR:.2f}" if name == REMUDA else "–", held, wall, f"{whole:.2f}", cpu]

    print(f"{NODES} nodes × 1 worker, {options.rounds} rounds: median (minimum–maximum)\n")
    header = ["", "last worker ms", "/srun", "bar", "held", "complete ms", "/srun", "CPU ms"]
    harness.table(header, [row(name) for name in times])
    ratios = {"worker_to_srun": to_worker(REMUDA), "ratio_to_srun": harness.ratio(times, REMUDA, PLAIN)}
    harness.save("slurm", {"nodes": NODES, "times": times, **ratios})


if __name__ == "__main__":
    main()
