"""Where a worker was when a signal ended it: the launcher names the line of a rank that hangs or crashes.

A worker that is asked to stop writes the stack of its main thread into a file beside its error file, and not to standard
error, because most workers that are stopped have nothing to tell. Then whatever SIGTERM does in the program happens as
ever. A crash has a stack on standard error, as with ``python -X faulthandler``.
"""

import os
from typing import Any

from remuda import notes

#: The open file, which the handler writes.
_file: Any = None


def prepare() -> None:
    """Prepares a worker of `remuda run`, once. Raises nothing."""
    if not notes.is_worker():
        return
    show_crashes()
    try:
        _show_stops()
    except (OSError, RuntimeError, ValueError):
        # A report has less to say then.
        return


def show_crashes() -> None:
    """Lets a crash of this process print where it happened. Raises nothing."""
    import faulthandler

    try:
        if not faulthandler.is_enabled():
            faulthandler.enable(all_threads=True)
    except Exception:
        # Standard error has no descriptor.
        return


def _show_stops() -> None:
    global _file
    path = os.environ.get(notes.ERROR_FILE, "")
    # The workers of a launcher that a worker has started have error files of its own.
    if _file is not None or os.path.basename(path) != f"rank{os.environ.get('RANK')}.error.json":
        return
    import faulthandler
    import signal

    # It is that of the first process that has prepared: the worker, and not one that it has started.
    _file = open(path[: -len("json")] + "stack", "xb", buffering=0)
    faulthandler.register(signal.SIGTERM, _file, all_threads=False, chain=True)
    os.register_at_fork(after_in_child=_forget)


def _forget() -> None:
    """Leaves the file to the process that has opened it."""
    import faulthandler
    import signal

    faulthandler.unregister(signal.SIGTERM)
