"""Steps of programs of torch that report nothing, and the callbacks of training loops."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import textwrap
import unittest

import agent
import test_torch

EVERY_STEP = (
    "import torch, remuda.progress; remuda.progress.STEP_PAUSE = 0; remuda.progress.HOLD_PAUSE = 3600\n"
)
OPTIMIZER = "new = lambda: torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)\n"


class Watched(test_torch.WithTorch):
    def steps(self, code, **variables):
        """Runs a program as a worker; returns the numbers of its steps, and what it printed."""
        path = self.environment["PYTHONPATH"]
        found, finished = agent.run(EVERY_STEP + OPTIMIZER + textwrap.dedent(code), PYTHONPATH=path, **variables)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        self.assertEqual({note[0] for note in found} - {"step"}, set())
        return [note[1] for note in found], finished.stdout


class Optimizers(Watched):
    def test_steps_of_a_program_are_counted(self):
        code = """
            first, second = new(), new()
            for _ in range(3): first.step()
            for _ in range(2): first.step(); first.step(); second.step()
            third = new()
            for _ in range(3): third.step()
            # Optimizers of a program that makes one for each step.
            for _ in range(10): kept = new(); kept.step()
        """
        found, _ = self.steps(code)
        # The first step of another optimizer belongs to the step before it, and the first two are not sent.
        self.assertEqual(found[:7], list(range(3, 10)))
        self.assertEqual(found, sorted(set(found)))

    def test_first_step_of_a_program_that_hangs_is_sent(self):
        code = """
            import os, time
            remuda.progress.HOLD_PAUSE = 0
            new().step()
            while remuda.progress.steps._sent != 1: time.sleep(0.01)
            # Nothing is sent at the end.
            os._exit(0)
        """
        self.assertEqual(self.steps(code)[0], [1])

    def test_package_that_is_found_twice_counts_once(self):
        code = "import remuda._autoload; remuda._autoload.load(); new().step()"
        self.assertEqual(self.steps(code)[0], [1])

    def test_variable_switches_it_off(self):
        code = "new().step(); import sys; print('remuda._watch' in sys.modules)"
        self.assertEqual(self.steps(code, REMUDA_WATCH="0"), ([], "False\n"))
        self.assertEqual(self.steps(code), ([1], "True\n"))

    def test_nothing_is_loaded_outside_of_a_job(self):
        self.environment.pop("REMUDA_RANK_FD", None)
        code = (
            "import sys, torch\n"
            "from torch.optim import optimizer\n"
            "print([name for name in sys.modules if name.startswith('remuda')])\n"
            "print(len(optimizer._global_optimizer_post_hooks))"
        )
        self.assertEqual(self.run_python(code).stdout, "['remuda', 'remuda._autoload']\n0\n")

    def test_steps_that_a_program_reports_are_not_counted(self):
        code = """
            import remuda
            own = new()
            own.step()
            for _ in range(3): own.step(); remuda.step(loss=torch.ones(1, requires_grad=True))
        """
        # Two were counted before the program reported one.
        self.assertEqual(self.steps(code)[0], [1, 2, 3])

    def test_compiled_programs_are_counted_and_not_broken(self):
        code = """
            model = torch.compile(torch.nn.Linear(2, 2), backend="eager")
            own = torch.optim.AdamW(model.parameters())
            for _ in range(3):
                own.zero_grad(); model(torch.ones(1, 2)).sum().backward(); own.step()
            compiled = torch.compile(own.step, backend="eager")
            for _ in range(2):
                model(torch.ones(1, 2)).sum().backward(); compiled()
            print("done")
        """
        found, output = self.steps(code)
        self.assertEqual((found[:1], output), ([3], "done\n"))

    def test_steps_of_an_engine_of_deepspeed_are_counted(self):
        code = """
            import sys, types
            module = types.ModuleType("deepspeed.runtime.engine")
            class DeepSpeedEngine:
                def __init__(self): self.global_steps, self.parts = 0, new()
                def _take_model_step(self, lr_kwargs):
                    for _ in range(3): self.parts.step()
                    self.global_steps += 1
            module.DeepSpeedEngine = DeepSpeedEngine
            sys.modules[module.__name__] = module
            engine = DeepSpeedEngine()
            for _ in range(4): engine._take_model_step({})
        """
        self.assertEqual(self.steps(code)[0], [1, 2, 3, 4])
        # A program that only imports it.
        code = code[: code.rindex("for _")] + "other = new(); other.step(); other.step()"
        self.assertEqual(self.steps(code)[0], [2])

    def test_failure_of_the_watch_does_not_reach_a_program(self):
        code = "remuda.progress.Steps.end = remuda.progress.Steps.hold = None; new().step(); print('done')"
        self.assertEqual(self.steps(code), ([], "done\n"))

    @unittest.skipUnless(test_torch.LAUNCHER, "REMUDA_EXECUTABLE is not set")
    def test_record_of_an_unmodified_program_has_its_steps(self):
        # Without a group of gloo, with which torch aborts one process of ten at its end.
        code = (
            "import torch\n"
            "model = torch.nn.Linear(2, 2)\n"
            "own = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "for _ in range(34):\n"
            "    own.zero_grad(); model(torch.ones(1, 2)).sum().backward(); own.step()\n"
        )
        options = ["--no_local_rank", "--accelerator", "cpu", "--run_dir", self.directory, "--no_python"]
        line = [test_torch.LAUNCHER, "run", "-n", "2", *options, sys.executable, "-c", code]
        finished = subprocess.run(line, env=self.environment, capture_output=True, text=True, check=False)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        (record,) = pathlib.Path(self.directory).glob("2*/run.json")
        workers = json.loads(record.read_text())["workers"]
        self.assertEqual([worker["step"] for worker in workers], [34, 34])


class Callbacks(Watched):
    def notes(self, code):
        path = self.environment["PYTHONPATH"]
        variables = {"HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true"}
        code = EVERY_STEP + textwrap.dedent(code)
        found, finished = agent.run(code, self.directory, PYTHONPATH=path, **variables)
        self.assertEqual(finished.returncode, 0, finished.stderr)
        return found

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
    def test_trainer_of_transformers(self):
        found = self.notes(
            """
            import sys, transformers
            from remuda.integrations.transformers import RemudaCallback

            class Model(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = torch.nn.Linear(8, 4)
                def forward(self, x=None, labels=None):
                    logits = self.layer(x)
                    return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

            data = [{"x": torch.randn(8), "labels": torch.tensor(at % 4)} for at in range(64)]
            options = dict(max_steps=5, use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True)
            given = transformers.TrainingArguments(sys.argv[1], logging_steps=1, **options)
            transformers.Trainer(Model(), given, train_dataset=data, callbacks=[RemudaCallback()]).train()
            """
        )
        steps = [note for note in found if note[0] == "step" and note[2] is not None]
        self.assertEqual([note[1:3] for note in steps], [(number, 5) for number in range(1, 6)])
        self.assertGreater(steps[-1][3], 0)

    @unittest.skipUnless(
        importlib.util.find_spec("pytorch_lightning") or importlib.util.find_spec("lightning"),
        "Lightning is not installed",
    )
    def test_trainer_of_lightning(self):
        found = self.notes(
            """
            import sys
            try: import pytorch_lightning as lightning
            except ImportError: import lightning.pytorch as lightning
            from remuda.integrations.lightning import RemudaCallback

            class Model(lightning.LightningModule):
                def __init__(self):
                    super().__init__()
                    self.layer = torch.nn.Linear(8, 4)
                def training_step(self, batch, at): return self.layer(batch).square().mean()
                def validation_step(self, batch, at): self.layer(batch)
                def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)

            data = torch.utils.data.DataLoader(torch.randn(8, 8), batch_size=2)
            options = dict(accelerator="cpu", devices=1, logger=False, enable_checkpointing=False)
            options.update(enable_progress_bar=False, enable_model_summary=False, default_root_dir=sys.argv[1])
            trainer = lightning.Trainer(
                max_epochs=2, accumulate_grad_batches=2, callbacks=[RemudaCallback()], **options
            )
            trainer.fit(Model(), data, data)
            """
        )
        steps = [note for note in found if note[0] == "step" and note[2] is not None]
        self.assertEqual([note[1:3] for note in steps], [(number, 4) for number in range(1, 5)])
        self.assertGreater(steps[-1][3], 0)
        phases = [note[1] for note in found if note[0] == "phase"]
        self.assertEqual(phases, ["validation", None] * 3)


if __name__ == "__main__":
    unittest.main()
