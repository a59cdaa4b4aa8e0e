"""The real DeepSpeed launcher as an oracle: a JSON object a line in, a JSON object a line out.

    python3 reference.py DIRECTORY-THAT-HOLDS-deepspeed SCRATCH-DIRECTORY

The modules `runner`, `launch`, `multinode_runner` and `numa` of the package are loaded as they are.
Everything around them that needs torch, a GPU or a network is a stand-in: the package's own
`__init__`, its logger, the accelerator (a number of devices), and the few calls that start
processes, which are recorded and not made. Bytes travel as base64.

    {"kind": "hostfile", "text": B64}
    {"kind": "select", "pool": [[HOST, SLOTS], …], "include": TEXT, "exclude": TEXT}
    {"kind": "parse", "argv": [B64, …]}
    {"kind": "command", "argv": [B64, …], "env": {NAME: B64}, "cwd": PATH, "devices": N}
    {"kind": "bind", "cores": N, "hardware": TEXT, "list": TEXT or null, "workers": N}
"""

import base64
import contextlib
import importlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import types

# What `hostname -I` says on every host: the first word is the address of the master.
HOST_ADDRESSES = b"10.0.0.7 172.17.0.1 \n"
# More workers on a node than this: DeepSpeed would try, and this machine would run out of memory.
WORKERS_MAX = 100_000
# Arguments that a remote shell and pdsh hand on as they are.
PLAIN = re.compile(r"[\w@+=:,./ -]+", re.ASCII)


class Log:
    """Stands in for the package's logger, which needs torch."""

    def __init__(self):
        self.level = None
        self.lines = []

    def note(self, text, *values):
        self.lines.append(str(text) % values if values else str(text))

    debug = info = warning = error = critical = note


class Accelerator:
    """CUDA devices that only have a number."""

    devices = 0

    def device_name(self):
        return "cuda"

    def device_count(self):
        return self.devices

    def visible_devices_envs(self):
        return ["CUDA_VISIBLE_DEVICES"]

    def set_visible_devices_envs(self, env, ids):
        for name in self.visible_devices_envs():
            env[name] = ",".join(map(str, ids))

    def export_envs(self):
        return ["NCCL"]


class Instead:
    """A module with some of its names replaced."""

    def __init__(self, module, **names):
        self.__dict__.update(names)
        self.__dict__["_module"] = module

    def __getattr__(self, name):
        return getattr(self._module, name)


class Started:
    """A process that was not started and has ended well."""

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


def stand_in(name, path=None, **names):
    module = types.ModuleType(name)
    module.__dict__.update(names)
    if path:
        module.__path__ = [path]
    sys.modules[name] = module
    return module


def load(root):
    """The launcher's modules, beside stand-ins for what they import."""
    package = os.path.join(root, "deepspeed")
    log, accelerator = Log(), Accelerator()

    def set_level(level):
        log.level = level

    stand_in("psutil", cpu_count=lambda logical=True: 8, Error=OSError, NoSuchProcess=OSError)
    stand_in("deepspeed", package)
    stand_in("deepspeed.launcher", os.path.join(package, "launcher"))
    stand_in("deepspeed.accelerator", get_accelerator=lambda: accelerator)
    stand_in("deepspeed.autotuning", Autotuner=object)
    stand_in("deepspeed.utils", os.path.join(package, "utils"))
    numa = importlib.import_module("deepspeed.utils.numa")
    stand_in(
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
        self.runner_object = None
        self.replace_the_world()

    def replace_the_world(self):
        def popen(command, env=None, **_):
            return Started(self.calls, command, env if env is not None else os.environ)

        def check_output(command, **_):
            if command[0] == "ssh":
                return HOST_ADDRESSES
            return b"MVAPICH2-GDR" if command[0] == "mpiname" else b""

        modules = self.modules
        recorded = Instead(
            subprocess,
            Popen=popen,
            check_call=lambda *_, **__: 0,
            check_output=check_output,
        )
        quiet = {"signal": Instead(sys.modules["signal"], signal=lambda *_: None)}
        quiet["time"] = Instead(sys.modules["time"], sleep=lambda _: None)
        for module in (modules.runner, modules.launch, modules.backends):
            module.subprocess = recorded
        for name, module in quiet.items():
            setattr(modules.runner, name, module)
            setattr(modules.launch, name, module)
        modules.launch.PID_FILE_BASEPATH = self.scratch
        modules.backends.shutil = Instead(shutil, which=lambda name, **_: f"/usr/bin/{name}")
        modules.backends.MVAPICH_TMP_HOSTFILE = os.path.join(self.scratch, "mvapich")
        modules.runner.run_autotuning = lambda args, resources: self.calls.append(("autotuning", {}))
        # Binding is compared through `cores`; here it would ask this machine.
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
        """The command before every worker of a node, on a machine that numactl would tell of."""
        numa = self.modules.numa
        hardware = request["hardware"].encode()
        numa.subprocess = Instead(subprocess, check_output=lambda *_, **__: hardware)
        numa.shutil = Instead(shutil, which=lambda *_, **__: None)
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

    def fan_out(self, command, env, argv):
        """What every node of pdsh runs, as far as no shell changes it on the way."""
        hosts = command[command.index("-w") + 1].split(",")
        start = command.index("deepspeed.launcher.launch") + 1
        words = command[start:]
        args = self.modules.runner.parse_args(argv)
        typed = [args.user_script, *args.user_args]
        exports = command[start - 6]
        # Blanks are quoted in arguments, and not in the name of the script.
        plain = all(PLAIN.fullmatch(word) for word in typed) and " " not in args.user_script
        if plain:
            words = shlex.split(" ".join(words))
        else:
            words = words[: len(words) - len(typed)] + typed
        nodes = []
        for index, _ in enumerate(hosts):
            here = [word.replace("%n", str(index)) if "--node_rank" in word else word for word in words]
            nodes.append(self.node(here, env))
        exported = dict(
            line.split("=", 1) for line in re.findall(r"export (.*?=.*?); ", exports, re.DOTALL)
        )
        return {"backend": "pdsh", "hosts": hosts, "nodes": nodes, "plain": plain, "exports": exported}

    def node(self, words, env):
        """What the launcher of one node starts."""
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
            names = (
                "RANK LOCAL_RANK WORLD_SIZE LOCAL_SIZE CROSS_RANK CROSS_SIZE MASTER_ADDR MASTER_PORT "
                "CUDA_VISIBLE_DEVICES"
            ).split()
            workers.append(
                {
                    "argv": [{"base64": encode(word)} for word in command],
                    "env": {name: worker_env[name] for name in names if name in worker_env},
                }
            )
        return workers

    def answer(self, request):
        self.calls.clear()
        self.modules.log.lines.clear()
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                return getattr(self, request["kind"])(request)
        except SystemExit as leave:
            lines = [line for line in said.getvalue().splitlines() if line]
            return {"refused": {"status": leave.code or 0, "type": "exit", "text": (lines or [""])[-1]}}
        # Whatever it is, DeepSpeed would end with a stack trace and status 1.
        except Exception as error:
            return {"refused": {"status": 1, "type": type(error).__name__, "text": str(error)}}


def encode(word):
    return base64.b64encode(os.fsencode(word)).decode("ascii")


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
