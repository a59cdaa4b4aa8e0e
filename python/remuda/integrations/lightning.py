"""Callback of Lightning: ``Trainer(…, callbacks=[RemudaCallback()])``.

The launcher then shows the number of all steps, the loss, and the phase ``validation``. Steps are counted without it.
Outside of a job it does nothing.
"""

import importlib
import sys
from typing import Any, Optional

from remuda import progress


def _module() -> Any:
    """The package that the program uses: both names have classes of their own."""
    names = ("lightning.pytorch", "pytorch_lightning")
    for name in sorted(names, key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError("neither `lightning` nor `pytorch_lightning` is installed")


class RemudaCallback(_module().Callback):  # type: ignore[misc]
    """Reports the steps of a Trainer."""

    def __init__(self) -> None:
        super().__init__()
        self._step = 0
        self._validation: Optional[progress.phase] = None

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
        # A batch whose gradients are accumulated is no step.
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        steps = trainer.estimated_stepping_batches
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        progress.step(self._step, steps=int(steps) if 0 < steps < float("inf") else None, loss=loss)

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        self._validation = progress.phase("validation")

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        if self._validation is not None:
            self._validation.__exit__(None, None, None)
