"""A cascade of three ranks without torch: what rank 2 does, and what becomes of ranks 0 and 1.

    cascade.py MODE DIRECTORY

Ranks wait for each other by files in DIRECTORY, never by time.
"""

import atexit
import json
import os
import signal
import sys
import time
import traceback

mode, directory = sys.argv[1:3]
rank = int(os.environ["RANK"])
GLOO = "[third_party/gloo/gloo/transport/tcp/"
CLOSED = GLOO + "pair.cc:561] Connection closed by peer [127.0.0.1]:8090"
TIMED_OUT = GLOO + "unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation to complete"


def tell(what):
    open(os.path.join(directory, what), "w").close()


def wait_for(*what):
    while not all(os.path.exists(os.path.join(directory, one)) for one in what):
        time.sleep(0.01)


def record(error):
    """As torch's @record does it."""
    data = {
        "message": {
            "message": f"{type(error).__name__}: {error}",
            "extraInfo": {
                "py_callstack": traceback.format_exc(),
                "timestamp": str(int(time.time())),
            },
        }
    }
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump(data, file)


def wait_for_exit():
    """Waits until the process of rank 2 has exited and was reaped."""
    with open(os.path.join(directory, "pid")) as file:
        pid = int(file.read())
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.01)


def leave_slowly():
    """As an upload or a profiler does it, after the traceback was printed."""
    sys.stderr.flush()
    tell("failed")
    time.sleep(1000)


def fail():
    if mode in ("recorded", "printed", "malformed"):
        atexit.register(leave_slowly)
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    if mode == "message":
        atexit.register(leave_slowly)
        sys.exit("config: no data set `c4x`")
    if mode == "hang":
        tell("failed")
        time.sleep(1000)
    if mode == "left":
        with open(os.path.join(directory, "pid"), "w") as file:
            file.write(str(os.getpid()))
        tell("failed")
        os._exit(0)
    if mode == "killed":
        tell("failed")
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "exit":
        tell("failed")
        os._exit(5)


def lose_peer():
    wait_for("failed")
    if mode == "left":
        wait_for_exit()
    other = 1 - rank

    # Both have printed before one of them exits.
    def leave():
        sys.stderr.flush()
        tell(f"told-{rank}")
        wait_for(f"told-{other}")

    atexit.register(leave)
    raise RuntimeError(TIMED_OUT if mode == "hang" else CLOSED)


try:
    fail() if rank == 2 else lose_peer()
except RuntimeError as error:
    if mode == "recorded":
        record(error)
    if mode == "malformed":
        with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
            file.write('{"message": [')
    raise
