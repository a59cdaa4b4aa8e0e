"""Callback of Hugging Face's Trainer: ``Trainer(…, callbacks=[RemudaCallback()])``.

The launcher then shows the number of all steps, the loss that the Trainer logs, and the tokens per second if
``include_num_input_tokens_seen`` is set. Steps are counted without it. Outside of a job it does nothing.
"""

from typing import Any, Dict, Optional

from transformers import TrainerCallback

from remuda import progress


class RemudaCallback(TrainerCallback):  # type: ignore[misc]
    """Reports the steps of a Trainer."""

    def __init__(self) -> None:
        self._loss: Optional[float] = None
        self._tokens = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        seen = int(getattr(state, "num_input_tokens_seen", 0) or 0)
        # The Trainer sums the tokens of all ranks.
        tokens, self._tokens = seen - self._tokens, seen
        steps = state.max_steps if 0 < state.max_steps else None
        progress.step(state.global_step, steps=steps, loss=self._loss, tokens=tokens or None)

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Dict[str, Any]] = None, **_: Any) -> None:
        loss = (logs or {}).get("loss")
        if loss is not None:
            self._loss = float(loss)
