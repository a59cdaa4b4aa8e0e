"""Notes of this worker for the launcher, over the socket to its agent.

A note is a frame: length (4 bytes, little endian), version (1 byte), and the note in the encoding of postcard. The
launcher shows notes, and nothing depends on them; so a note that cannot be sent is dropped, and nothing here raises
an error, blocks, or opens the C library. Outside of a job, nothing is sent.
"""

import atexit
import os
import struct
import threading
from typing import Any, Callable, Optional

#: Version of the frames.
VERSION = 3
#: Largest note in bytes.
NOTE_BYTES_MAX = 4096
#: Largest text of a note in bytes; the rest is cut off.
TEXT_BYTES_MAX = 1024

#: Places of the notes in the enumeration of the agent.
_STEP, _PHASE, _FAILED = 1, 4, 5

#: Descriptor of the socket.
VARIABLE = "REMUDA_RANK_FD"
#: File for the exception that ends the worker; torch's launchers read it, too.
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"

_lock = threading.RLock()
#: The socket after the first note; False where there is none.
_socket: Any = None


def is_worker() -> bool:
    """Whether remuda has started this process, or the process that started it."""
    return VARIABLE in os.environ


def step(
    number: int, steps: Optional[int] = None, loss: Optional[float] = None, tokens_per_s: Optional[float] = None
) -> None:
    """Sends that a training step has ended."""
    values = _optional(steps, _integer) + _optional(loss, _float) + _optional(tokens_per_s, _float)
    _send(bytes([_STEP]) + _integer(number) + values)


def phase(name: Optional[str]) -> None:
    """Sends what the program does instead of training steps; None: it trains again."""
    _send(bytes([_PHASE]) + _optional(name, _text))


def failed(exception: str) -> None:
    """Sends the exception that ends the program."""
    _send(bytes([_FAILED]) + _text(exception))


def frame(note: bytes) -> bytes:
    """The frame of a note."""
    return struct.pack("<IB", len(note), VERSION) + note


def _integer(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the highest bit of a byte is set if another byte follows."""
    value &= 2**64 - 1
    encoded = bytearray()
    while 0x7F < value:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _float(value: float) -> bytes:
    return struct.pack("<d", value)


def _text(value: str) -> bytes:
    # A character that is cut is dropped.
    encoded = value.encode(errors="replace")[:TEXT_BYTES_MAX].decode(errors="ignore").encode()
    return _integer(len(encoded)) + encoded


def _optional(value: Any, encode: "Callable[[Any], bytes]") -> bytes:
    return b"\0" if value is None else b"\1" + encode(value)


def _send(note: bytes) -> None:
    global _socket
    with _lock:
        if _socket is None:
            _socket = _connect()
        if _socket is False:
            return
        import socket

        # A socket of the kernel takes a small frame as a whole or not at all, so frames of other writers, such as
        # the C library, are not mixed with it. An agent that does not read loses notes.
        try:
            _socket.send(frame(note), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return
        except OSError:
            _socket = False


def _connect() -> Any:
    """The socket to the agent; False if this process has none."""
    try:
        descriptor = os.dup(int(os.environ[VARIABLE]))
    except (KeyError, ValueError, OSError):
        return False
    try:
        found = _open(descriptor)
    except OSError:
        found = None
    if found is None:
        os.close(descriptor)
        return False
    return found


def _open(descriptor: int) -> Any:
    """The socket of a descriptor; None if it is not that of an agent.

    A process that a worker has started has the variable, but often another file under its number.
    """
    import socket
    import stat

    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        return None
    # A timeout would make the socket non-blocking also for the C library, which has not read from it yet.
    default = socket.getdefaulttimeout()
    socket.setdefaulttimeout(None)
    try:
        opened = socket.socket(fileno=descriptor)
    finally:
        socket.setdefaulttimeout(default)
    is_agent = opened.family == socket.AF_UNIX and opened.type == socket.SOCK_STREAM
    if is_agent and opened.getsockname() == opened.getpeername() == "":
        return opened
    opened.detach()
    return None


def _close() -> None:
    """Ends the notes of this process."""
    global _socket
    opened, _socket = _socket, False
    if opened:
        opened.close()


def _forget() -> None:
    """A process that was forked is not the worker."""
    global _lock
    _lock = threading.RLock()
    _close()


os.register_at_fork(after_in_child=_forget)
# Functions that were registered later, such as the one that sends the newest step, run before it.
atexit.register(_close)
