"""torchrun and `accelerate launch` as oracles: one JSON object per line as input and as output.

    PYTHON launchers.py SCRATCH-DIRECTORY

PYTHON has torch and accelerate. Both launchers run unchanged up to the point where they would start an agent
or a process; that call is recorded instead. Three more calls are replaced, because their results belong to
the machine: the check whether a port is in use, the search for a free one, and the number of CPUs.

    {"kind": "torchrun", "argv": [WORD, …], "env": {NAME: VALUE}}
    {"kind": "distributed_launch", …}    python -m torch.distributed.launch
    {"kind": "accelerate", "argv": …, "env": …, "config": TEXT or null}

The answer is one of

    {"agent": SETTINGS, "env": {NAME: VALUE}}    what torch's agent gets, and its environment
    {"command": [WORD, …], "env": …}             the process that accelerate starts
    {"text": true}                               help was printed
    {"refused": {"status": N, "type": NAME, "text": TEXT}}
"""

import contextlib
import importlib
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings

# CPUs of the machine that both launchers see, and a port that is free.
CPUS = 8
FREE_PORT = 40404


class Started(BaseException):
    """A launcher has called what would start workers."""

    def __init__(self, answer):
        self.answer = answer


def stream_set(value):
    """The streams of `--redirects` or `--tee` as numbers."""
    if isinstance(value, dict):
        return {str(rank): int(streams) for rank, streams in value.items()}
    return int(value)


class Oracle:
    def __init__(self, scratch):
        self.scratch = scratch
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        import psutil
        import torch
        import torch.distributed.launch
        import torch.distributed.run
        from torch.distributed.elastic.agent.server import WorkerSpec
        from torch.distributed.elastic.rendezvous import RendezvousParameters
        from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
        from torch.distributed.launcher import api

        self.run, self.launch = torch.distributed.run, torch.distributed.launch
        self.worker_spec, self.parameters = WorkerSpec, RendezvousParameters
        self.parse_endpoint, self.api = parse_rendezvous_endpoint, api
        self.run.elastic_launch = self.record_agent
        torch._utils.cpu_count = lambda: CPUS
        psutil.cpu_count = lambda logical=True: CPUS

    def accelerate_launch(self):
        """accelerate's launcher, imported anew: it reads its environment when it is imported."""
        names = [name for name in sys.modules if name.startswith("accelerate.commands")]
        for name in names:
            del sys.modules[name]
        launch = importlib.import_module("accelerate.commands.launch")
        utils = importlib.import_module("accelerate.utils.launch")
        utils.is_port_in_use = lambda port=None: False
        utils.get_free_port = lambda: FREE_PORT
        replaced = type("subprocess", (), {**vars(subprocess), "Popen": self.record_process})
        launch.subprocess = replaced
        return launch

    def record_agent(self, config, entrypoint):
        """Takes the place of `elastic_launch`, and makes the checks that an agent makes first."""

        def start(*args):
            parameters = self.parameters(
                backend=config.rdzv_backend,
                endpoint=config.rdzv_endpoint,
                run_id=config.run_id,
                min_nodes=config.min_nodes,
                max_nodes=config.max_nodes,
                local_addr=config.local_addr,
                **config.rdzv_configs,
            )
            address, port = self.api._get_addr_and_port(parameters)
            if config.rdzv_backend == "c10d":
                address, port = self.parse_endpoint(parameters.endpoint, default_port=29400)
            elif config.rdzv_backend != "static":
                raise ValueError(f"the rendezvous backend {config.rdzv_backend} has no server here")
            self.worker_spec(
                role=config.role,
                local_world_size=config.nproc_per_node,
                entrypoint=entrypoint,
                args=args,
                rdzv_handler=None,
                max_restarts=config.max_restarts,
                monitor_interval=config.monitor_interval,
            )
            command = [entrypoint if isinstance(entrypoint, str) else "run_path", *args]
            if command[0] == sys.executable:
                command[0] = "PYTHON"
            logs = config.logs_specs
            settings = {
                "nodes": [config.min_nodes, config.max_nodes],
                "workers": config.nproc_per_node,
                "run_id": config.run_id,
                "role": config.role,
                "backend": config.rdzv_backend,
                "address": address,
                "port": port,
                "conf": {key: str(value) for key, value in config.rdzv_configs.items()},
                "max_restarts": config.max_restarts,
                "shutdown_timeout": config.shutdown_timeout,
                "prefix": config.log_line_prefix_template,
                "signals": config.signals_to_handle,
                "log_dir": getattr(logs, "_root_log_dir", None) and self.typed_log_dir,
                "redirects": stream_set(logs._redirects),
                "tee": stream_set(logs._tee),
                "shown": sorted(logs._local_ranks_filter) if logs._local_ranks_filter else None,
                "stdout_filters": config.duplicate_stdout_filters,
                "stderr_filters": config.duplicate_stderr_filters,
                "numa": config.numa_options and config.numa_options.affinity_mode.value,
                "virtual": config.virtual_local_rank,
                "command": command,
            }
            raise Started({"agent": settings, "env": dict(os.environ)})

        return start

    def record_process(self, command, env=None, **_):
        command = ["PYTHON" if word == sys.executable else word for word in command]
        raise Started({"command": command, "env": dict(env or os.environ)})

    def torchrun(self, request, parser=None):
        sys.argv = ["torchrun", *request["argv"]]
        args = self.run.parse_args(request["argv"])
        self.typed_log_dir = args.log_dir
        self.run.run(args)

    def distributed_launch(self, request):
        sys.argv = ["launch.py", *request["argv"]]
        args = self.launch.parse_args(request["argv"])
        self.typed_log_dir = args.log_dir
        self.launch.launch(args)

    def accelerate(self, request):
        sys.argv = ["accelerate-launch", *request["argv"]]
        launch = self.accelerate_launch()
        args = launch.launch_command_parser().parse_args(request["argv"])
        self.typed_log_dir = args.log_dir
        launch.launch_command(args)

    def answer(self, request):
        os.chdir(self.scratch)
        before = dict(os.environ)
        if request.get("config") is not None:
            with open("config.yaml", "w", encoding="utf-8") as file:
                file.write(request["config"])
        os.environ.clear()
        os.environ.update(request["env"])
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                getattr(self, request["kind"])(request)
            return {"refused": {"status": 0, "type": "nothing", "text": "nothing was started"}}
        except Started as started:
            return started.answer
        except SystemExit as error:
            if not error.code:
                return {"text": True}
            lines = [line for line in output.getvalue().splitlines() if line]
            return {"refused": {"status": error.code, "type": "exit", "text": (lines or [""])[-1]}}
        # With any other exception, both launchers print a stack trace and exit with 1.
        except Exception as error:
            return {"refused": {"status": 1, "type": type(error).__name__, "text": str(error)}}
        finally:
            os.environ.clear()
            os.environ.update(before)
            # accelerate appends its environment to this file, which remuda would read.
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self.scratch, ".deepspeed_env"))


def main():
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # torchrun makes a directory for the logs of every line, and leaves it.
    tempfile.tempdir = sys.argv[1]
    oracle = Oracle(sys.argv[1])
    for line in sys.stdin.buffer:
        answer = oracle.answer(json.loads(line))
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
