"""Entry point ``torch.backends``: older versions of torch call it when they are imported.

torch 2.14 and newer find the backend by its name; there is nothing to do then. An error here would make
``import torch`` fail, so none leaves `load`.
"""

from typing import Any


def load() -> None:
    """Makes the name ``remuda`` known to a version of torch that does not look for entry points."""
    try:
        import torch.distributed as dist

        if dist.is_available() and not hasattr(dist.Backend, "_ensure_backend_registered"):
            dist.Backend.register_backend("remuda", _create, extended_api=True, devices=["cpu"])
    except Exception:
        # `init_process_group("remuda")` then says that it does not know the name.
        return


def _create(options: Any, backend_options: Any = None) -> Any:
    from remuda.torch.backend import create

    return create(options, backend_options)
