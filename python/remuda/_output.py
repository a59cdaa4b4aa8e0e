"""What the launcher of `remuda.launch` prints: on the descriptors of the process, or on streams that stand for them, such
as those of a notebook or of pytest."""

import codecs
import contextlib
import functools
import os
import re
import selectors
import subprocess
import sys
from typing import Any, Callable, Optional

#: First line of what remuda prints at the end of a job that fails.
_REPORT = re.compile(rb"^error\[[A-Z]\d{3}\]: ", re.MULTILINE)
#: Longest report that is held back, and the end of other output that an exception has, in bytes.
_BYTES_MAX = 4096


class Output:
    """Prints what the launcher writes into pipes. The report at its end is held back: an exception may have it."""

    def __init__(self) -> None:
        #: The standard output of the launcher: None is that of the process.
        self.stdout: Optional[int] = None if _is_own(sys.stdout, 1) else subprocess.PIPE
        self._print = _writer(sys.stderr, 2)
        self._report = self._tail = b""

    def forward(self, process: "subprocess.Popen[bytes]") -> None:
        """Prints until the pipes end."""
        with selectors.DefaultSelector() as selector:
            for pipe, on_output in ((process.stdout, _writer(sys.stdout, 1)), (process.stderr, self._on_error_output)):
                if pipe is not None:
                    selector.register(pipe, selectors.EVENT_READ, on_output)
            while selector.get_map():
                for key, _ in selector.select():
                    written = os.read(key.fd, 1 << 16)
                    key.data(written)
                    if not written:
                        selector.unregister(key.fileobj)

    def report(self) -> Optional[str]:
        """What remuda has printed at the end; else the end of what the workers have printed."""
        return (self._report or self._tail).decode(errors="replace").strip() or None

    def release(self) -> None:
        """Prints the report."""
        self._print(self._report)
        self._report = b""

    def _on_error_output(self, written: bytes) -> None:
        self._tail = (self._tail + written)[-_BYTES_MAX:]
        found = None if self._report else _REPORT.search(written)
        begin = 0 if self._report else found.start() if found else len(written)
        self._print(written[:begin])
        self._report += written[begin:]
        if _BYTES_MAX < len(self._report):
            # A worker has printed what looks like it.
            self.release()


def _is_own(stream: Any, descriptor: int) -> bool:
    """Whether a stream is that of the process, and not that of a notebook or of pytest."""
    try:
        return bool(stream.fileno() == descriptor)
    except (AttributeError, OSError, ValueError):
        return False


def _writer(stream: Any, descriptor: int) -> "Callable[[bytes], None]":
    """What prints bytes to a stream."""
    if _is_own(stream, descriptor):
        return functools.partial(_write_all, descriptor)
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def write(written: bytes) -> None:
        stream.write(decoder.decode(written))

    return write


def _write_all(descriptor: int, written: bytes) -> None:
    with contextlib.suppress(OSError):
        while written:
            written = written[os.write(descriptor, written) :]
