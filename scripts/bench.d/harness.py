"""Common code of the benchmarks: the program, peers, timed runs, memory of a process tree, tables."""

import json
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "target" / "bench"


# ---- the program and its peers -------------------------------------------------------------------


def remuda():
    """Path of the program: REMUDA_BIN, or a release build of this tree."""
    configured = os.environ.get("REMUDA_BIN")
    if configured:
        return str(pathlib.Path(configured).resolve())
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet"], cwd=ROOT, check=True)
    return str(ROOT / "target" / "release" / "remuda")


def builds():
    """Paths of the builds to measure, by name: this tree's, and an older one if REMUDA_BEFORE names its directory
    of release executables (`target/release` of a checkout)."""
    found = {"remuda": remuda()}
    older = os.environ.get("REMUDA_BEFORE")
    if older:
        found["remuda before"] = str(pathlib.Path(older, "remuda").resolve())
    return found


def peer(program, package):
    """Whether a peer is installed; as root, a missing one is first installed from its Debian package."""
    if shutil.which(program):
        return True
    if os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], env=environment, **quiet)
        subprocess.run(["apt-get", "install", "-y", "-qq", package], env=environment, **quiet)
    if shutil.which(program):
        return True
    print(f"left out: {program} is missing (apt-get install {package})")
    return False


def torch_python():
    """An interpreter with torch: this one, that of scripts/integrations, or a new virtual environment."""
    shared = os.environ.get("REMUDA_INTEGRATIONS", ROOT / "target" / "integrations" / "venv")
    own = ROOT / "target" / "peers" / "torch"
    for python in (sys.executable, f"{shared}/bin/python", f"{own}/bin/python"):
        if has_torch(python):
            return python
    requirements = (ROOT / "scripts" / "integrations.d" / "requirements.txt").read_text()
    torch = next(line for line in requirements.splitlines() if line.startswith("torch=="))
    print(f"installing {torch} into {own.relative_to(ROOT)}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", own], check=True)
    subprocess.run([own / "bin" / "pip", "install", "--quiet", torch])
    if has_torch(f"{own}/bin/python"):
        return f"{own}/bin/python"
    print(f"left out: torch is missing (pip install {torch})")
    return None


def has_torch(python):
    if not os.access(python, os.X_OK):
        return False
    return subprocess.run([python, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0


def mpirun(workers, *options):
    """Command line of Open MPI up to the worker."""
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return ["mpirun", "-np", str(workers), "--oversubscribe", *as_root, *options]


def compile_c(name):
    """Compiles scripts/bench.d/NAME.c; the path of the executable."""
    OUT.mkdir(parents=True, exist_ok=True)
    program = OUT / name
    source = ROOT / "scripts" / "bench.d" / f"{name}.c"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-o", program, source], check=True)
    return str(program)


def scratch():
    """A temporary directory, in memory if /dev/shm is writable."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="remuda-bench-", dir=memory)


# ---- runs ----------------------------------------------------------------------------------------


class Failed(Exception):
    """A run that did not return 0."""


def run(command, environment=None, stdout=None, watch=None, watch_every_s=0.01, limit_s=300):
    """Runs a command until it exits; returns its wall time and CPU time in seconds.

    The command runs in its own session. `watch` is called with its pid every `watch_every_s` seconds;
    frequent calls slow the command down.
    """
    with tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=stdout or subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        watcher = Watcher(process.pid, watch, watch_every_s) if watch else None
        timeout = threading.Timer(limit_s, process.kill)
        timeout.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        timeout.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if watcher:
            watcher.stop()
        if process.returncode != 0:
            errors.seek(0)
            tail = errors.read()[-2000:].decode(errors="replace")
            raise Failed(f"{' '.join(command)} returned {process.returncode}\n{tail}")
    cpu = usage.ru_utime + usage.ru_stime
    return {"wall_s": wall, "cpu_s": cpu}


class Watcher:
    """Thread that calls a function with a pid until it is stopped."""

    def __init__(self, pid, function, period_s):
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.loop, args=(pid, function, period_s))
        self.thread.start()

    def loop(self, pid, function, period_s):
        while not self.stopped.wait(period_s):
            function(pid)

    def stop(self):
        self.stopped.set()
        self.thread.join()


class BusyLoops:
    """Processes that keep a core busy, each in its own session."""

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        loop = ["sh", "-c", "while :; do :; done"]
        self.processes = [
            subprocess.Popen(loop, start_new_session=True) for _ in range(self.count)
        ]
        time.sleep(0.2)

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
        for process in self.processes:
            process.wait()


def interleaved(cases, rounds):
    """Runs every case once per round, so that other load on the machine affects all cases alike.

    `cases` maps a name to a function that runs it once; the first round is a warm-up.
    """
    results = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, once in cases.items():
            result = once()
            if number:
                results[name].append(result)
    return results


# ---- memory of a process tree --------------------------------------------------------------------


def tree(root):
    """Pids of a process and all its descendants."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            parent = parent_of(entry)
            children.setdefault(parent, []).append(int(entry))
    found, pending = [], [root]
    while pending:
        pid = pending.pop()
        found.append(pid)
        pending += children.get(pid, [])
    return found


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return int(stat.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


def program_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None


def memory_kb(pids):
    """Sums of resident and of proportional memory, in kilobytes."""
    rss = pss = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as lines:
                for line in lines:
                    if line.startswith("Rss:"):
                        rss += int(line.split()[1])
                    elif line.startswith("Pss:"):
                        pss += int(line.split()[1])
        except OSError:
            pass
    return rss, pss


def peak_kb(pid):
    """Peak resident memory of a process, as the kernel reports it."""
    try:
        with open(f"/proc/{pid}/status") as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)
    except OSError:
        return None


class OwnMemory:
    """Memory of a launcher without its workers while these run; a function for `run(watch=…)`.

    Samples count only when `workers` processes run `worker`, so that a process between fork and exec is not
    counted as a process of the launcher. The sums are medians of the samples: the first and the last sample may
    find one process before, another after it has released what it needed to start.
    """

    def __init__(self, worker, workers):
        self.worker = os.path.realpath(shutil.which(worker) or worker)
        self.workers = workers
        self.samples_kb, self.processes = [], 0
        self.peaks_kb = {}

    def __call__(self, root):
        pids = tree(root)
        own = [pid for pid in pids if program_of(pid) != self.worker]
        if len(pids) - len(own) < self.workers:
            return
        self.samples_kb.append(memory_kb(own))
        self.processes = max(self.processes, len(own))
        self.peaks_kb.update((pid, peak) for pid in own if (peak := peak_kb(pid)))

    def result(self):
        """Medians of the sums over the processes, and the sum of the kernel's peak of each process."""
        rss, pss = (statistics.median(kb) for kb in zip(*self.samples_kb or [(0, 0)]))
        return {
            "rss_mb": rss / 1000,
            "pss_mb": pss / 1000,
            "peak_mb": sum(self.peaks_kb.values()) / 1000,
            "processes": self.processes,
        }


# ---- output --------------------------------------------------------------------------------------


def median(results, key):
    return statistics.median(result[key] for result in results)


def ratio(results, name, peer, key="wall_s", peer_key=None):
    """Median of the ratios of consecutive runs of two cases; `None` if the peer is missing. The peer's figure may
    have another key."""
    if peer not in results:
        return None
    pairs = zip(results[name], results[peer])
    return statistics.median(own[key] / other[peer_key or key] for own, other in pairs)


def spread(results, key, scale=1.0, digits=1):
    """`12.3 (11.9–14.0)`: median, minimum and maximum."""
    values = [result[key] * scale for result in results]
    minimum, maximum = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({minimum:.{digits}f}–{maximum:.{digits}f})"


def table(header, rows):
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for number, row in enumerate(cells):
        padded = [cell.ljust(width) for cell, width in zip(row, widths)]
        print("  ".join(padded).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def machine():
    """Facts about the machine and the build that are needed to compare two results."""
    return {
        "cpus": os.cpu_count(),
        "cpu": cpu_model(),
        "kernel": platform.release(),
        "load": os.getloadavg()[0],
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit(),
    }


def cpu_model():
    with open("/proc/cpuinfo") as lines:
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit():
    git = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    return git.stdout.strip() or None


def save(name, result):
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / f"{name}.json"
    path.write_text(json.dumps({"version": 1, "machine": machine(), **result}, indent=1) + "\n")
    print(f"\nwritten to {path.relative_to(ROOT)}", file=sys.stderr)
