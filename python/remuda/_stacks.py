"""A worker that is asked to stop writes where it is: so the launcher can say where a rank that hangs waits.

The stack of the main thread goes into a file beside the error file, and not to standard error, because most workers that
are stopped have nothing to tell. Then whatever SIGTERM does in the program happens as ever.
"""

import os
from typing import Any

from remuda import notes

#: The open file, which the handler writes.
_file: Any = None


def prepare() -> None:
    """Prepares a worker of `remuda run`, once. Raises nothing."""
    global _file
    path = os.environ.get(notes.ERROR_FILE, "")
    name = f"rank{os.environ.get('RANK')}.error.json"
    # The workers of a launcher that a worker has started have error files of its own.
    if _file is not None or not notes.is_worker() or os.path.basename(path) != name:
        return
    import faulthandler
    import signal

    try:
        _file = open(path[: -len("json")] + "stack", "wb", buffering=0)
        faulthandler.register(signal.SIGTERM, _file, all_threads=False, chain=True)
        os.register_at_fork(after_in_child=_forget)
    except (OSError, RuntimeError, ValueError):
        # A report has less to say then.
        return


def _forget() -> None:
    """Leaves the file to the process that has opened it."""
    import faulthandler
    import signal

    faulthandler.unregister(signal.SIGTERM)
