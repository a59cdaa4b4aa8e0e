"""Counts the steps of torch's optimizers in a worker, so that the launcher shows the progress of any program.

Several optimizers, such as those of a generator and a discriminator, or one for each parameter, take one step
together: a step begins when one of them steps again. DeepSpeed's optimizers step an inner one once for each of their
groups, so the steps of its engine are counted. A program that calls `remuda.step` counts itself.
"""

import functools
import sys
from typing import Any, Optional, Set

from remuda.progress import steps

#: First steps that are held for a moment: a program that reports steps itself does so after them, from 1.
_HELD = 2
#: Most optimizers that take a step together; a program that makes a new one for each step has no more.
_TOGETHER_MAX = 4096


class Optimizers:
    """The optimizers that have taken the newest step."""

    def __init__(self) -> None:
        self._stepped: Set[int] = set()
        #: Whether DeepSpeed counts the steps; None before the first step.
        self._has_engine: Optional[bool] = None

    def on_step(self, optimizer: Any, *_: Any) -> None:
        """An optimizer has stepped. Runs in every step of a program, and raises nothing."""
        import torch

        # What is compiled is not traced into this.
        if torch.compiler.is_compiling():
            return
        try:
            self._count(optimizer)
        except Exception:
            # Progress is no reason to fail.
            return

    def _count(self, optimizer: Any) -> None:
        if self._has_engine is None:
            self._has_engine = watch_engine()
        if self._has_engine or steps.is_reported:
            return
        if id(optimizer) in self._stepped or _TOGETHER_MAX <= len(self._stepped):
            self._stepped.clear()
        if not self._stepped:
            number = steps.newest + 1
            if number <= _HELD:
                steps.hold(number)
            else:
                steps.end(number)
        self._stepped.add(id(optimizer))


def watch_engine() -> bool:
    """Counts the steps of DeepSpeed's engine, if the program is in one now."""
    module = sys.modules.get("deepspeed.runtime.engine")
    if module is None:
        return False
    engine = module.DeepSpeedEngine
    take_step = engine._take_model_step
    current = _caller(take_step.__code__)
    if current is None:
        return False

    @functools.wraps(take_step)
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = take_step(self, *args, **kwargs)
        if not steps.is_reported:
            steps.end(int(self.global_steps))
        return result

    engine._take_model_step = counted
    # The step that is being taken began without being counted.
    steps.end(int(current.global_steps) + 1)
    return True


def _caller(code: Any) -> Any:
    """The object in whose method the program is; None if it is not in it."""
    frame = sys._getframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else frame.f_locals.get("self")


@functools.lru_cache(maxsize=None)
def start() -> None:
    """Counts the steps of this process from now on, once.

    Python 3.9 lists an entry point for every path on which it finds the package, so that torch may call this again.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    register_optimizer_step_post_hook(Optimizers().on_step)
