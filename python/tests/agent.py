"""The agent of a worker, for tests: starts a program with a socket for notes, and reads them."""

import os
import socket
import struct
import subprocess
import sys

#: Names of notes by their places.
NAMES = {1: "step", 4: "phase", 5: "failed"}


def run(code, *arguments, python=sys.executable, **variables):
    """Runs a Python program as a worker; returns its notes and the finished process."""
    ours, its = socket.socketpair()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REMUDA_WATCH")}
    environment.update(REMUDA_RANK_FD=str(its.fileno()), **variables)
    line = [python, "-c", code, *arguments]
    # The buffer of the socket holds the notes of a short program.
    finished = subprocess.run(
        line, env=environment, pass_fds=[its.fileno()], capture_output=True, text=True, check=False
    )
    its.close()
    with ours, ours.makefile("rb") as file:
        received = file.read()
    return list(decoded(received)), finished


def decoded(received):
    while received:
        length, version = struct.unpack_from("<IB", received)
        assert version == 3, version
        note, received = received[5 : 5 + length], received[5 + length :]
        yield _note(Reader(note))


def _note(reader):
    name = NAMES[reader.integer()]
    if name == "step":
        return (
            name,
            reader.integer(),
            reader.optional(reader.integer),
            reader.optional(reader.float),
            reader.optional(reader.float),
        )
    return name, reader.optional(reader.text) if name == "phase" else reader.text()


class Reader:
    """Values in the encoding of postcard."""

    def __init__(self, data):
        self._data = data

    def _take(self, count):
        taken, self._data = self._data[:count], self._data[count:]
        return taken

    def integer(self):
        value, shift = 0, 0
        while True:
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def float(self):
        return struct.unpack("<d", self._take(8))[0]

    def text(self):
        return self._take(self.integer()).decode()

    def optional(self, read):
        return read() if self.integer() else None
