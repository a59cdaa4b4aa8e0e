"""Entry point ``torch.backends``: torch calls it when it is imported.

An error here would make ``import torch`` fail, so none leaves `load`.
"""

import os
import sys
from typing import Any

#: What ``remuda run --torch_backend NAME`` sets: the backend of groups that a program makes with ``gloo``.
VARIABLE = "REMUDA_TORCH_BACKEND"


def load() -> None:
    """Makes the name ``remuda`` known to a version of torch that does not look for it, counts the steps of a worker,
    and replaces gloo by remuda if a variable asks for it."""
    for action in (_register, _watch):
        try:
            action()
        except Exception:
            # `init_process_group("remuda")` then says that it does not know the name; progress is not needed.
            continue
    try:
        _swap()
    except Exception as error:
        print(f"warning: {VARIABLE}: gloo is not replaced by remuda: {error}", file=sys.stderr)


def _register() -> None:
    import torch.distributed as dist

    # torch 2.14 and newer find the backend by its entry point.
    if dist.is_available() and not hasattr(dist.Backend, "_ensure_backend_registered"):
        dist.Backend.register_backend("remuda", _create, extended_api=True, devices=["cpu", "cuda"])


def _swap() -> None:
    name = os.environ.get(VARIABLE, "gloo")
    if name in ("remuda", "swap"):
        from remuda import _swap

        _swap.install()
    elif name not in ("gloo", ""):
        print(f"warning: {VARIABLE} is `{name}`, and not `remuda` or `gloo`: gloo is not replaced", file=sys.stderr)


def _create(options: Any, backend_options: Any = None) -> Any:
    from remuda.torch.backend import create

    return create(options, backend_options)


def _watch() -> None:
    if "REMUDA_RANK_FD" in os.environ and os.environ.get("REMUDA_WATCH") != "0":
        from remuda import _stacks, _watch

        _stacks.prepare()
        _watch.start()
