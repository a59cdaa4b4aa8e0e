"""torch over remuda: jobs of `remuda run` with the scenarios of `torch_worker.py`."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
LAUNCHER = os.environ.get("REMUDA_EXECUTABLE")


def installed(directory):
    """Writes the metadata of an installed package, with the entry points of the project."""
    groups = re.findall(
        r'^\[project\.entry-points\."(.*)"\]\n(.*)$', (HERE.parents[1] / "pyproject.toml").read_text(), flags=re.MULTILINE
    )
    info = pathlib.Path(directory) / "remuda-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: remuda\nVersion: 0\n")
    lines = (f"[{name}]\n{line.replace(chr(34), '')}\n" for name, line in groups)
    (info / "entry_points.txt").write_text("\n".join(lines))


class WithTorch(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        installed(self.directory)
        paths = [self.directory, os.environ.get("PYTHONPATH", "")]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "GLOO_SOCKET_IFNAME": "lo"}
        self.environment["TORCH_WORKER_DIRECTORY"] = self.directory

    def run_python(self, code):
        line = [sys.executable, "-c", code]
        return subprocess.run(line, env=self.environment, capture_output=True, text=True, check=False)

    def job(self, ranks, scenario, kind="backend"):
        """Runs a scenario; every rank that does not leave must have finished every case."""
        options = ["--no_local_rank", "--accelerator", "cpu", "--quiet", "--python", sys.executable]
        program = [str(HERE / "torch_worker.py"), scenario, kind]
        line = [LAUNCHER, "run", "-n", str(ranks), *options, "--", *program]
        finished = subprocess.run(line, env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual(finished.returncode, 0, finished.stdout + finished.stderr)
        text = (HERE / "torch_worker.py").read_text()
        cases = re.findall(rf'^@case\("{scenario}"\)\ndef (\w+)', text, flags=re.MULTILINE)
        self.assertTrue(cases)
        for name in cases:
            expected = ranks if scenario != "lost" else 1
            self.assertEqual(finished.stdout.count(f"ok {name}\n"), expected, finished.stdout)


class EntryPoints(WithTorch):
    def test_name_is_found_without_an_import(self):
        code = (
            "import sys, torch, torch.distributed as dist; print('remuda.torch' in sys.modules, end=' ');"
            "getattr(dist.Backend, '_ensure_backend_registered', str)('remuda'); print(dist.Backend('remuda'))"
        )
        finished = self.run_python(code)
        self.assertEqual(finished.stdout, "False remuda\n", finished.stderr)

    def test_older_torch_learns_the_name_at_its_import(self):
        code = (
            "import torch.distributed as dist, remuda._autoload, sys\n"
            "if hasattr(dist.Backend, '_ensure_backend_registered'): del dist.Backend._ensure_backend_registered\n"
            "remuda._autoload.load(); print('remuda' in dist.Backend.backend_list, 'remuda.torch' in sys.modules);"
            "print(dist.Backend.default_device_backend_map['cpu'])"
        )
        finished = self.run_python(code)
        self.assertEqual(finished.stdout, "True False\ngloo\n", finished.stderr)

    def test_group_of_one_process_needs_no_launcher(self):
        code = (
            "import torch, torch.distributed as dist\n"
            "dist.init_process_group('remuda', store=dist.HashStore(), rank=0, world_size=1)\n"
            "one = torch.ones(2); dist.all_reduce(one); print(one.tolist())"
        )
        finished = self.without_a_job(code)
        self.assertEqual(finished.stdout, "[1.0, 1.0]\n", finished.stderr)

    def test_operations_that_torch_checks(self):
        code = (
            "import gc, torch, torch.distributed as dist\n"
            "dist.init_process_group('remuda', store=dist.HashStore(), rank=0, world_size=1)\n"
            "group = dist.new_group([0]); gc.collect(); found = [None]; one = torch.ones(2)\n"
            "dist.all_reduce(one, group=group); dist.all_reduce(one, async_op=True).wait()\n"
            "dist.all_gather_object(found, 5, group=group); dist.barrier(); print(found, one.tolist())\n"
            "dist.destroy_process_group()"
        )
        self.environment["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
        finished = self.without_a_job(code)
        self.assertEqual((finished.stdout, finished.returncode), ("[5] [1.0, 1.0]\n", 0), finished.stderr)

    def test_subgroup_alone_is_refused(self):
        code = (
            "import torch.distributed as dist\n"
            "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
            "try: dist.new_group([0], backend='remuda')\n"
            "except dist.DistBackendError as error: print(type(error).__name__, error.hint)"
        )
        finished = self.without_a_job(code)
        # gloo of torch 2.9 prints a line of its own.
        self.assertIn("EnvironmentMismatch initialize the default group", finished.stdout, finished.stderr)

    def test_swap_replaces_gloo(self):
        code = (
            "import torch, torch.distributed as dist\n"
            "from torch.distributed import init_process_group\n"
            "init_process_group(GLOO, store=dist.HashStore(), rank=0, world_size=1)\n"
            "groups = [dist.group.WORLD, dist.new_group([0]), dist.new_group([0], backend='gloo')]\n"
            "one = torch.ones(2); [dist.all_reduce(one, group=group) for group in groups]\n"
            "print([dist.get_backend(group) for group in groups], one.tolist())"
        )
        cases = (("'gloo'", "remuda", "remuda"), ("'gloo'", "swap", "remuda"), ("None", "remuda", "remuda"), ("'gloo'", "gloo", "gloo"), ("'gloo'", "", "gloo"))
        for said, variable, name in cases:
            self.environment["REMUDA_TORCH_BACKEND"] = variable
            finished = self.without_a_job(code.replace("GLOO", said))
            # gloo of torch 2.9 prints a line of its own.
            self.assertIn(f"{[name] * 3} [1.0, 1.0]\n", finished.stdout, finished.stderr)

    def test_swap_that_fails_is_a_warning(self):
        code = "import remuda, sys; sys.modules['remuda._swap'] = None; import torch; print(torch.ones(1).tolist())"
        self.environment["REMUDA_TORCH_BACKEND"] = "remuda"
        finished = self.run_python(code)
        self.assertEqual(finished.stdout, "[1.0]\n", finished.stderr)
        self.assertIn("warning: REMUDA_TORCH_BACKEND: gloo is not replaced by remuda: ", finished.stderr)

    def test_unknown_name_in_the_variable_is_a_warning(self):
        self.environment["REMUDA_TORCH_BACKEND"] = "remuta"
        finished = self.run_python("import torch; print(torch.ones(1).tolist())")
        self.assertEqual(finished.stdout, "[1.0]\n", finished.stderr)
        warning = "warning: REMUDA_TORCH_BACKEND is `remuta`, and not `remuda` or `gloo`: gloo is not replaced\n"
        self.assertEqual(finished.stderr, warning)

    def test_names_that_the_swap_replaces(self):
        from remuda._swap import name_instead

        cases = {
            ("gloo", None, True): "remuda",
            ("GLOO", "cuda", False): "remuda",
            ("nccl", "cuda", True): "nccl",
            ("cpu:gloo,cuda:nccl", "cuda", True): "cpu:remuda,cuda:nccl",
            ("cpu:gloo,cuda:nccl", "cuda", False): "cpu:gloo,cuda:nccl",
            ("cpu:gloo", None, False): "remuda",
            (None, None, True): "remuda",
            (None, "cuda", True): "cpu:remuda,cuda:nccl",
            (None, "cuda", False): None,
            (None, "xpu", True): None,
        }
        for case, name in cases.items():
            self.assertEqual(name_instead(*case), name, case)

    def without_a_job(self, code):
        for name in ("RANK", "WORLD_SIZE", "REMUDA_RANK_FD", "REMUDA_KEY_FILE"):
            self.environment.pop(name, None)
        return self.run_python(code)


class OtherLaunchers(WithTorch):
    """Ranks that meet through torch's store."""

    def test_torchrun(self):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "3", "--standalone"]
        program = [str(HERE / "torch_worker.py"), "met", "backend"]
        line = [*torchrun, *program]
        finished = subprocess.run(line, env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual(finished.returncode, 0, finished.stdout + finished.stderr)
        self.assertEqual(finished.stdout.count("ok ranks_share_memory"), 3, finished.stdout + finished.stderr)

    def test_spawned_processes(self):
        program = [sys.executable, str(HERE / "torch_worker.py"), "spawn", "backend"]
        environment = {**self.environment, "RANK": "0", "WORLD_SIZE": "2"}
        finished = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual(finished.returncode, 0, finished.stdout + finished.stderr)
        self.assertEqual(finished.stdout.count("spawned rank"), 2, finished.stdout)


@unittest.skipUnless(LAUNCHER, "REMUDA_EXECUTABLE is not set")
class Jobs(WithTorch):
    def test_option_replaces_gloo(self):
        script = pathlib.Path(self.directory, "unchanged.py")
        script.write_text(
            "import torch, torch.distributed as dist\n"
            "dist.init_process_group('gloo'); one = torch.ones(1); dist.all_reduce(one)\n"
            "print('made', dist.get_backend(), one.item()); dist.destroy_process_group()"
        )
        quiet = ["--quiet", "--accelerator", "cpu", "--no_local_rank", "--python", sys.executable]
        # Lines of other launchers run the first Python of PATH.
        paths = [os.path.dirname(sys.executable), os.environ.get("PATH", "")]
        environment = {**self.environment, "PATH": os.pathsep.join(paths)}
        for line, name in (
            (["run", "-n", "2", *quiet, "--torch_backend", "remuda"], "remuda"),
            (["run", "-n", "2", *quiet, "--torch_backend", "swap"], "remuda"),
            (["run", "-n", "2", *quiet, "--torch_backend", "gloo"], "gloo"),
            (["torchrun", "--nproc-per-node", "2", "--torch-backend", "remuda"], "remuda"),
            (["accelerate", "launch", "--cpu", "--num_processes", "2", "--torch_backend", "remuda"], "remuda"),
        ):
            words = [LAUNCHER, *line, str(script)]
            finished = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
            self.assertEqual(finished.stdout.count(f"made {name} 2.0\n"), 2, f"{line}: {finished}")

    def test_operations_of_a_backend(self):
        self.job(3, "operations")

    def test_operations_of_a_process_group(self):
        self.job(3, "operations", "group")

    def test_groups_of_a_backend(self):
        self.job(4, "groups")

    def test_groups_of_a_process_group(self):
        self.job(4, "groups", "group")

    def test_training_over_a_backend(self):
        self.job(2, "training")

    def test_training_over_a_process_group(self):
        self.job(2, "training", "group")

    def test_errors(self):
        self.job(2, "errors")

    def test_processes_that_workers_start(self):
        self.job(2, "children")

    def test_rank_that_names_another_backend(self):
        self.job(2, "names")

    def test_lost_rank(self):
        self.job(2, "lost")


if __name__ == "__main__":
    try:
        import torch  # noqa: F401
    except ImportError:
        sys.exit("torch is not installed")
    unittest.main()
