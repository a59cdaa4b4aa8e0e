"""``remuda run --torch_backend remuda``: programs that say ``gloo`` get groups of remuda, without a change.

torch's `init_process_group` and `new_group` are replaced by functions that change the name of the backend and call
them. So the programs of accelerate, the Trainer or DeepSpeed, which choose the name themselves, run over remuda.
"""

import functools
import inspect
from typing import Any, Callable, Optional

_NAMES = ("init_process_group", "new_group")


def name_instead(backend: Optional[str], device: Optional[str], mixes: bool) -> Optional[str]:
    """The name in the place of one that a program says.

    ``None`` is torch's own choice: gloo, beside NCCL on a machine whose ``device`` is ``cuda``. ``mixes`` says whether
    this version of torch lets remuda be the backend of one device.
    """
    beside_nccl = "cpu:remuda,cuda:nccl"
    if backend is None or not backend:
        return {None: "remuda", "cuda": beside_nccl if mixes else backend}.get(device, backend)
    parts = str(backend).lower().split(",")
    if parts in (["gloo"], ["cpu:gloo"]):
        return "remuda"
    if not mixes or "cpu:gloo" not in parts:
        return backend
    return ",".join("cpu:remuda" if part == "cpu:gloo" else part for part in parts)


def install() -> None:
    """Replaces gloo."""
    replace_names(lambda said, inherits: said if inherits else name_instead(said, _device(), _mixes()))


def replace_names(name_for: "Callable[[Optional[str], bool], Optional[str]]") -> None:
    """Replaces torch's functions by some that make a group with the name that `name_for` returns.

    It gets the name that the program says, and whether the group has that of the default group without one.
    """
    import torch.distributed as dist

    modules = [dist, dist.distributed_c10d, getattr(dist, "device_mesh", None)]
    for name in _NAMES:
        function = _with_other_name(getattr(dist, name), name_for, name == "new_group")
        for module in modules:
            if hasattr(module, name):
                setattr(module, name, function)


def _with_other_name(
    function: "Callable[..., Any]", name_for: "Callable[[Optional[str], bool], Optional[str]]", can_inherit: bool
) -> "Callable[..., Any]":
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        bound = signature.bind(*given, **named)
        said = bound.arguments.get("backend")
        bound.arguments["backend"] = name_for(said, can_inherit and not said)
        return function(*bound.args, **bound.kwargs)

    return call


def _device() -> Optional[str]:
    """Kind of the accelerators of this machine; ``None``: it has none."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    accelerator = getattr(torch, "accelerator", None)
    return str(accelerator.current_accelerator()) if accelerator is not None and accelerator.is_available() else None


def _mixes() -> bool:
    import torch.distributed as dist

    return hasattr(dist.Backend, "_ensure_backend_registered")
