"""The real DeepSpeed launcher as an oracle: one JSON object per line as input and as output.

    python3 reference.py DIRECTORY-OF-deepspeed SCRATCH-DIRECTORY

The modules `runner`, `launch`, `multinode_runner` and `numa` of the package are loaded unchanged. Code
that needs torch, a GPU or a network is replaced by stubs: the `__init__` of the package, its logger, the
accelerator (a number of devices), and the calls that start processes, which are only recorded. Bytes are
base64.

    {"kind": "hostfile", "text": B64}
    {"kind": "select", "pool": [[HOST, SLOTS], …], "include": TEXT, "exclude": TEXT}
    {"kind": "parse", "argv": [B64, …]}
    {"kind": "command", "argv": [B64, …], "env": {NAME: B64}, "cwd": PATH, "devices": N}
    {"kind": "reparse", "words": [B64, …]}
    {"kind": "bind", "cores": N, "hardware": TEXT, "list": TEXT or null, "workers": N}
"""

import base64
import contextlib
import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import types

# Output of `hostname -I` on every host: the first word is the address of the master.
HOST_ADDRESSES = b"10.0.0.7 172.17.0.1 \n"
# Limit of the workers of a node: DeepSpeed accepts more, but this machine would run out of memory.
WORKERS_MAX = 100_000
# Sockets of the machine; with the CPU as accelerator, DeepSpeed uses one slot for each.
MEMORY_NODES = 3
# The environment of a remote shell.
REMOTE_ENVIRONMENT = {"HOME": "/home/remote", "PATH": "/usr/bin:/bin"}
# Replaces Python on a remote node: records its arguments and its environment.
RECORDER = """#!/bin/sh
{ printf '%s\\0' "$@"; printf '\\001\\0'; env -0; } >"$REFERENCE_RECORD"
"""
# Timeout of a remote shell, in seconds.
SHELL_SECONDS_MAX = 10


class Log:
    """Stub of the package's logger, which needs torch."""

    def __init__(self):
        self.level = None
        self.lines = []

    def log(self, text, *values):
        self.lines.append(str(text) % values if values else str(text))

    debug = info = warning = error = critical = log


class Accelerator:
    """Stub of an accelerator: CUDA devices, or sockets if `DS_ACCELERATOR` is `cpu`."""

    devices = 0

    def is_cpu(self):
        return os.environ.get("DS_ACCELERATOR") == "cpu"

    def device_name(self):
        return "cpu" if self.is_cpu() else "cuda"

    def device_count(self):
        if not self.is_cpu():
            return self.devices
        # Counts like the CPU accelerator of the package.
        return int(os.environ.get("LOCAL_SIZE", 0)) or MEMORY_NODES

    def visible_devices_envs(self):
        return ["CUDA_VISIBLE_DEVICES"]

    def set_visible_devices_envs(self, env, ids):
        for name in self.visible_devices_envs():
            env[name] = ",".join(map(str, ids))

    def export_envs(self):
        return [] if self.is_cpu() else ["NCCL"]


class Replaced:
    """A module with some of its names replaced."""

    def __init__(self, module, **names):
        self.__dict__.update(names)
        self.__dict__["_module"] = module

    def __getattr__(self, name):
        return getattr(self._module, name)


class ProcessStub:
    """Stub of a process that has exited with 0; its command is recorded."""

    pid = 4711
    returncode = 0

    def __init__(self, calls, command, env):
        if not command[0]:
            raise FileNotFoundError(2, "No such file or directory", "")
        calls.append((list(command), dict(env)))

    def poll(self):
        return 0

    def wait(self):
        return 0


def stub(name, path=None, **names):
    module = types.ModuleType(name)
    module.__dict__.update(names)
    if path:
        module.__path__ = [path]
    sys.modules[name] = module
    return module


def load(root):
    """Loads the launcher's modules, with stubs for their imports."""
    package = os.path.join(root, "deepspeed")
    log, accelerator = Log(), Accelerator()

    def set_level(level):
        log.level = level

    stub("psutil", cpu_count=lambda logical=True: 8, Error=OSError, NoSuchProcess=OSError)
    stub("deepspeed", package)
    stub("deepspeed.launcher", os.path.join(package, "launcher"))
    stub("deepspeed.accelerator", get_accelerator=lambda: accelerator)
    stub("deepspeed.autotuning", Autotuner=object)
    stub("deepspeed.utils", os.path.join(package, "utils"))
    numa = importlib.import_module("deepspeed.utils.numa")
    stub(
        "deepspeed.utils",
        os.path.join(package, "utils"),
        logger=log,
        set_log_level_from_string=set_level,
        get_numactl_cmd=numa.get_numactl_cmd,
    )
    importlib.import_module("deepspeed.constants")
    runner = importlib.import_module("deepspeed.launcher.runner")
    launch = importlib.import_module("deepspeed.launcher.launch")
    backends = importlib.import_module("deepspeed.launcher.multinode_runner")
    return types.SimpleNamespace(
        log=log, accelerator=accelerator, runner=runner, launch=launch, backends=backends, numa=numa
    )


class Oracle:
    def __init__(self, root, scratch):
        self.scratch = scratch
        self.modules = load(root)
        self.hostfile_path = os.path.join(scratch, "hostfile")
        self.calls = []
        # Variables that the launcher exports to other nodes, before quoting.
        self.exported = {}
        self.replace_calls()

    def replace_calls(self):
        def popen(command, env=None, **_):
            return ProcessStub(self.calls, command, env if env is not None else os.environ)

        def check_output(command, **_):
            if command[0] == "ssh":
                return HOST_ADDRESSES
            return b"MVAPICH2-GDR" if command[0] == "mpiname" else b""

        modules = self.modules
        recorded = Replaced(
            subprocess,
            Popen=popen,
            check_call=lambda *_, **__: 0,
            check_output=check_output,
        )
        quiet = {"signal": Replaced(sys.modules["signal"], signal=lambda *_: None)}
        quiet["time"] = Replaced(sys.modules["time"], sleep=lambda _: None)
        for module in (modules.runner, modules.launch, modules.backends):
            module.subprocess = recorded
        for name, module in quiet.items():
            setattr(modules.runner, name, module)
            setattr(modules.launch, name, module)
        modules.launch.PID_FILE_BASEPATH = self.scratch
        modules.backends.shutil = Replaced(shutil, which=lambda name, **_: f"/usr/bin/{name}")
        modules.backends.MVAPICH_TMP_HOSTFILE = os.path.join(self.scratch, "mvapich")
        modules.runner.run_autotuning = lambda args, resources: self.calls.append(("autotuning", {}))
        add_export = modules.backends.MultiNodeRunner.add_export

        def record_export(backend, key, value):
            self.exported[key.strip()] = value.strip()
            add_export(backend, key, value)

        modules.backends.MultiNodeRunner.add_export = record_export
        # Binding has its own request, `bind`; here it would read the cores of this machine.
        modules.launch.get_numactl_cmd = lambda cores, processes, rank: (1, [])

    def hostfile(self, request):
        with open(self.hostfile_path, "wb") as file:
            file.write(base64.b64decode(request["text"]))
        pool = self.modules.runner.fetch_hostfile(self.hostfile_path)
        return {"pool": [[host, str(slots)] for host, slots in pool.items()]}

    def select(self, request):
        pool = dict(request["pool"])
        found = self.modules.runner.parse_inclusion_exclusion(
            pool, request["include"], request["exclude"]
        )
        return {"pool": [[host, slots] for host, slots in found.items()]}

    def bind(self, request):
        """The command before each worker of a node, for the given output of `numactl --hardware`."""
        numa = self.modules.numa
        hardware = request["hardware"].encode()
        numa.subprocess = Replaced(subprocess, check_output=lambda *_, **__: hardware)
        numa.shutil = Replaced(shutil, which=lambda *_, **__: None)
        numa.psutil.cpu_count = lambda logical=True: request["cores"]
        ranks = range(request["workers"])
        commands = [numa.get_numactl_cmd(request["list"], len(ranks), rank)[1] for rank in ranks]
        return {"numactl": commands}

    def parse(self, request):
        argv = [os.fsdecode(base64.b64decode(word)) for word in request["argv"]]
        sys.argv = ["deepspeed", *argv]
        args = vars(self.modules.runner.parse_args(argv))
        for name, value in args.items():
            if isinstance(value, list):
                args[name] = [encode(word) for word in value]
            elif isinstance(value, (str, int)) and not isinstance(value, bool):
                args[name] = encode(str(value))
        return {"args": args}

    def command(self, request):
        os.chdir(request["cwd"])
        os.environ.clear()
        for name, value in request["env"].items():
            os.environ[name] = os.fsdecode(base64.b64decode(value))
        runner = self.modules.runner
        self.modules.accelerator.devices = request["devices"]
        runner.DEEPSPEED_ENVIRONMENT_NAME = os.getenv("DS_ENV_FILE", ".deepspeed_env")
        runner.DEEPSPEED_ENVIRONMENT_PATHS = [os.path.expanduser("~"), "."]
        argv = [os.fsdecode(base64.b64decode(word)) for word in request["argv"]]
        sys.argv = ["deepspeed", *argv]
        if runner.parse_args(argv).num_gpus > WORKERS_MAX:
            raise MemoryError("out of memory")
        runner.main(argv)
        (command, env), = self.calls
        if command == "autotuning":
            return {"backend": "autotuning"}
        local = [sys.executable, "-u", "-m", "deepspeed.launcher.launch"]
        if command[:4] == local:
            return {"backend": "local", "nodes": [self.node(command[4:], env)]}
        if command[0] == "pdsh":
            return self.fan_out(command, env, argv)
        return {"backend": command[0]}

    def reparse(self, request):
        """The script and its arguments, as parsed by the launcher of a node."""
        sys.argv = ["launch.py", *(os.fsdecode(base64.b64decode(word)) for word in request["words"])]
        args = self.modules.launch.parse_args()
        words = [encode(word) for word in (args.training_script, *args.training_script_args)]
        flags = {name: getattr(args, name) for name in ("module", "no_python", "no_local_rank")}
        return {"words": words, **flags}

    def fan_out(self, command, env, argv):
        """The workers of every node with pdsh: through a shell, and with the arguments as typed."""
        hosts = command[command.index("-w") + 1].split(",")
        split = self.modules.backends.split(self.modules.runner.parse_args(argv).launcher_args)
        remote = command[command.index("-w") + 2 + len(split) :]
        start = remote.index("deepspeed.launcher.launch") + 1
        args = self.modules.runner.parse_args(argv)
        typed = [args.user_script, *args.user_args]
        plain_words = remote[start : len(remote) - len(typed)] + typed
        exported = dict(self.exported)
        nodes = []
        for index, host in enumerate(hosts):
            here = [word.replace("%n", str(index)) if "--node_rank" in word else word for word in plain_words]
            nodes.append(
                {
                    "shell": self.through_shell(remote, start, host, index),
                    "typed": self.try_node(here, {**REMOTE_ENVIRONMENT, **exported}),
                }
            )
        exported = {key: as_bytes(value) for key, value in exported.items()}
        return {"backend": "pdsh", "hosts": hosts, "nodes": nodes, "exported": exported}

    def through_shell(self, remote, start, host, index):
        """The workers of a node through a shell; None if its launcher does not start."""
        # pdsh drops the command from the first empty word, and expands placeholders.
        if "" in remote[1:]:
            remote = remote[: remote.index("", 1)]
        known = {"%n": str(index), "%h": host, "%u": "user", "%%": "%"}
        remote = [re.sub("%[nhu%]", lambda found: known[found[0]], word) for word in remote]
        python = os.path.join(self.scratch, "recorder")
        if not os.path.exists(python):
            with open(os.open(python, os.O_WRONLY | os.O_CREAT, 0o755), "w") as file:
                file.write(RECORDER)
        record = os.path.join(self.scratch, "record")
        line = " ".join([*remote[: start - 4], python, *remote[start - 3 :]]) + "\nwait"
        env = {**REMOTE_ENVIRONMENT, "REFERENCE_RECORD": record}
        with contextlib.suppress(FileNotFoundError):
            os.remove(record)
        subprocess.run(
            ["sh", "-c", line],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=SHELL_SECONDS_MAX,
        )
        try:
            with open(record, "rb") as file:
                words, _, variables = file.read().partition(b"\1\0")
        except FileNotFoundError:
            return None
        found = dict(entry.split(b"=", 1) for entry in variables.split(b"\0") if b"=" in entry)
        found = {os.fsdecode(name): os.fsdecode(value) for name, value in found.items()}
        for name in ("REFERENCE_RECORD", "PWD", "OLDPWD", "_", "SHLVL"):
            found.pop(name, None)
        words = [os.fsdecode(word) for word in words.split(b"\0")[:-1]]
        return self.try_node(words[3:], found)

    def try_node(self, words, env):
        """The workers of a node; None if its launcher refuses the command line."""
        try:
            return self.node(words, env)
        except (SystemExit, Exception):
            return None

    def node(self, words, env):
        """The workers that the launcher of one node starts."""
        before = dict(os.environ)
        os.environ.clear()
        os.environ.update(env)
        self.calls.clear()
        sys.argv = ["launch.py", *words]
        try:
            self.modules.launch.main()
        finally:
            os.environ.clear()
            os.environ.update(before)
            for name in os.listdir(self.scratch):
                if name.endswith(".deepspeed"):
                    os.remove(os.path.join(self.scratch, name))
        workers = []
        for command, worker_env in self.calls:
            if command[:1] == [sys.executable]:
                command = ["PYTHON", *command[1:]]
            workers.append(
                {
                    "argv": [as_bytes(word) for word in command],
                    "env": {name: as_bytes(value) for name, value in worker_env.items()},
                }
            )
        return workers

    def answer(self, request):
        self.calls.clear()
        self.exported.clear()
        self.modules.log.lines.clear()
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                return getattr(self, request["kind"])(request)
        except SystemExit as error:
            lines = [line for line in output.getvalue().splitlines() if line]
            return {"refused": {"status": error.code or 0, "type": "exit", "text": (lines or [""])[-1]}}
        # With any other exception, DeepSpeed prints a stack trace and exits with 1.
        except Exception as error:
            return {"refused": {"status": 1, "type": type(error).__name__, "text": str(error)}}


def encode(word):
    return base64.b64encode(os.fsencode(word)).decode("ascii")


def as_bytes(word):
    return {"base64": encode(word)}


def main():
    root, scratch = sys.argv[1:]
    oracle = Oracle(root, scratch)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in requests:
        answer = oracle.answer(json.loads(line))
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
