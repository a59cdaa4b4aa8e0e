"""`launch`: a function in the workers of a job that the executable ``remuda`` starts.

The call and its results are files of a private directory, which all hosts must see. The process that calls `launch`
is never forked, so it may have used a GPU, and may be a notebook.
"""

import contextlib
import json
import os
import pathlib
import pickle
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from remuda import _worker
from remuda.errors import BadArgument, EnvironmentMismatch, JobFailed

#: Path of the executable, for a program that does not find it.
EXECUTABLE = "REMUDA_EXECUTABLE"
#: Last bytes of standard error that an exception shows.
_TAIL_BYTES = 4096


def launch(
    function: "Callable[..., Any]",
    n: Optional[int] = None,
    hosts: "Union[None, str, Sequence[str]]" = None,
    *,
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    accelerator: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
    timeout: Optional[float] = None,
    python: Optional[str] = None,
    directory: Optional[str] = None,
    options: Sequence[str] = (),
) -> List[Any]:
    """Calls ``function(*args, **kwargs)`` in ``n`` workers and returns their results in the order of their ranks.

    ``n`` is the number of workers of each host, all slots without it. ``hosts`` are names, each with its slots if it
    has a colon, or one text, as after ``remuda run --hostfile``; without it, all workers run on this machine.
    ``accelerator`` is ``"cpu"`` or ``"cuda"``; ``env`` has variables for the workers, ``timeout`` is in seconds,
    ``python`` an interpreter in the place of this one, and ``options`` are further ones of ``remuda run``.
    With ``hosts``, all of them must see ``directory``, by default the working directory.

    The function is sent by its name if it can be imported, from a module or from a program with
    ``if __name__ == "__main__":``, else by value if ``cloudpickle`` is installed. What workers print is printed
    here. If a worker fails, `JobFailed` has its rank and its traceback, and the original exception as ``__cause__``.
    """
    if _worker.is_loading_program:
        hint = 'put the call of `remuda.launch` below `if __name__ == "__main__":`'
        raise BadArgument("a worker imports this program, which calls `remuda.launch` again", hint=hint)
    call = pack(function, args, dict(kwargs or {}))
    line = [*_place(n, hosts, accelerator), *_limit(timeout), *options]
    interpreter = python or sys.executable
    with _directory(directory, hosts) as path:
        job = Job(path, line, interpreter, dict(env or {}))
        return job.run(call, n if hosts is None else None)


def executable() -> str:
    """Path of the executable ``remuda``: that of ``REMUDA_EXECUTABLE``, the one beside this package or its Python, or
    the first one in ``PATH``."""
    named = os.environ.get(EXECUTABLE)
    if named:
        return named
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    with contextlib.suppress(KeyError):
        folders.append(sysconfig.get_path("scripts", f"{os.name}_user"))
    found = shutil.which("remuda", path=os.pathsep.join(folders)) or shutil.which("remuda")
    if found is None:
        hint = f"install the wheel of remuda, or set {EXECUTABLE} to the path of `remuda`"
        raise EnvironmentMismatch("the executable `remuda` is not installed", hint=hint)
    return found


# ---- the call -----------------------------------------------------------------------------------------------------


def pack(function: "Callable[..., Any]", args: Sequence[Any], kwargs: "Dict[str, Any]") -> bytes:
    """A call as the bytes that a worker reads. Raises `BadArgument` if it cannot be sent."""
    call = (function, tuple(args), kwargs)
    program, problem = None, "it is defined in a notebook, or in a program without `if __name__ == \"__main__\":`"
    try:
        payload = pickle.dumps(call)
        has_payload = b"__main__" not in payload
        if not has_payload:
            program = _program()
    except Exception as error:
        has_payload, problem = False, str(error)
    source = None
    if not has_payload and program is None:
        payload, source = _by_value(call, problem), _source(function)
    paths = [os.path.abspath(path) for path in sys.path]
    return pickle.dumps({"paths": paths, "program": program, "payload": payload, "source": source})


def _by_value(call: "Tuple[Any, ...]", problem: str) -> bytes:
    dumps = _worker.dumps_by_value()
    if dumps is None:
        hint = "define it in a module, or install `cloudpickle`"
        raise BadArgument(f"{_name(call[0])} cannot be sent to workers by its name: {problem}", hint=hint)
    try:
        return dumps(call)
    except Exception as error:
        raise BadArgument(f"{_name(call[0])} and its arguments cannot be sent to workers: {error}") from error


def _source(function: Any) -> "Optional[Tuple[str, List[str]]]":
    """Name and lines of the cell that defines a function, for tracebacks in workers."""
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    import linecache

    lines = linecache.getlines(code.co_filename, getattr(function, "__globals__", None))
    return (code.co_filename, lines) if lines else None


def _program() -> Optional[str]:
    """Path of the program, if workers can import it without running it. Its functions are then sent by their names,
    and tracebacks have their lines."""
    path = str(getattr(sys.modules["__main__"], "__file__", None) or "")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            has_guard = any(line.startswith("if __name__") for line in file)
    except OSError:
        return None
    if not has_guard:
        return None
    # As multiprocessing does: results of its classes are those of the program.
    sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
    return os.path.abspath(path)


def _name(function: Any) -> str:
    return f"`{getattr(function, '__qualname__', function)}`"


# ---- the command line ---------------------------------------------------------------------------------------------


def _place(
    n: Optional[int], hosts: "Union[None, str, Sequence[str]]", accelerator: Optional[str]
) -> "List[str]":
    if n is not None and n < 1:
        raise BadArgument(f"{n} workers cannot be started", hint="`n` is at least 1")
    line = [] if n is None else ["-n", str(n)]
    if hosts is not None and not isinstance(hosts, str):
        if n is None and not all(":" in host for host in hosts):
            raise BadArgument("the number of workers is not set", hint="pass `n`, or hosts such as `node1:8`")
        # A single name would be that of a file.
        hosts = ",".join(host if ":" in host else f"{host}:{n}" for host in hosts)
    if hosts is not None:
        line += ["--hostfile", hosts]
    if accelerator is not None:
        line += ["--accelerator", accelerator]
    return line


def _limit(timeout: Optional[float]) -> "List[str]":
    return [] if timeout is None else ["--timeout", f"{max(1, round(timeout * 1000))}ms"]


@contextlib.contextmanager
def _directory(named: Optional[str], hosts: Any) -> "Iterator[pathlib.Path]":
    """A private directory for the files of a call."""
    parent = named if named is not None or hosts is None else os.getcwd()
    path = tempfile.mkdtemp(prefix=".remuda-" if parent else "remuda-", dir=parent)
    try:
        yield pathlib.Path(os.path.abspath(path))
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _kept_runs() -> Optional[pathlib.Path]:
    """Where the logs of calls that fail are kept; `remuda` removes the oldest. They do not replace those of jobs."""
    named = os.environ.get("REMUDA_RUN_DIR")
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    path = pathlib.Path(named) if named else pathlib.Path(state, "remuda", "runs")
    try:
        (path / "calls").mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return path / "calls"


# ---- the job ------------------------------------------------------------------------------------------------------


class Job:
    """A call in the workers of a job, whose files are in a directory."""

    def __init__(
        self, directory: pathlib.Path, line: "List[str]", python: str, variables: "Dict[str, str]"
    ) -> None:
        self.directory = directory
        self._line = line
        self._python = python
        self._variables = variables
        self._tail = b""
        self._runs = _kept_runs() or directory / "runs"

    def run(self, call: bytes, n: Optional[int]) -> List[Any]:
        """Runs the call and returns the results; ``n`` is the number of workers, if it is known."""
        (self.directory / "call").write_bytes(call)
        process = self._start()
        try:
            self._tail = _forward(process)
            status = process.wait()
        except KeyboardInterrupt:
            _interrupt(process)
            raise
        finally:
            _stop(process)
        place, record = self._record(process.pid)
        if status != 0:
            raise self._failure(status, record)
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)
        workers = record.get("workers", [])
        return [self._result(rank) for rank in range(len(workers) or n or 0)]

    def _start(self) -> "subprocess.Popen[bytes]":
        options = [*self._line, "--quiet", "--run_dir", str(self._runs), "--no_local_rank"]
        # The values are in the environment of the launcher, where other users cannot read them.
        names = [word for name in self._variables for word in ("--env", name)]
        # `-m` would import more.
        code = "import sys; from remuda._worker import main; sys.exit(main(sys.argv[1]))"
        program = ["--no_python", self._python, "-u", "-c", code, str(self.directory)]
        environment = {**os.environ, **self._variables, **_search_path()}
        sys.stdout.flush()
        sys.stderr.flush()
        return subprocess.Popen(
            [executable(), "run", *options, *names, *program],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=None if _is_own(sys.stdout, 1) else subprocess.PIPE,
            stderr=None if _is_own(sys.stderr, 2) else subprocess.PIPE,
        )

    def _record(self, launcher: int) -> "Tuple[Optional[pathlib.Path], Dict[str, Any]]":
        """The run directory and `run.json` of a launcher; none if no worker was started."""
        # The names begin with the time.
        for path in sorted(self._runs.glob("*-*/run.json"), reverse=True):
            with contextlib.suppress(OSError, ValueError):
                record = dict(json.loads(path.read_text(encoding="utf-8")))
                if record.get("pid") == launcher:
                    return path.parent, record
        return None, {}

    def _result(self, rank: int) -> Any:
        outcome = self._outcome(rank)
        if outcome is None or "value" not in outcome:
            hint = f"return from the function, and let all hosts see `{self.directory.parent}`"
            raise JobFailed(f"rank {rank} exited with 0, but left no result", rank, hint=hint)
        try:
            return pickle.loads(outcome["value"])
        except Exception as error:
            raise JobFailed(f"the result of rank {rank} cannot be read: {error}", rank) from error

    def _outcome(self, rank: int) -> "Optional[Dict[str, Any]]":
        try:
            return dict(pickle.loads((self.directory / f"result.{rank}").read_bytes()))
        except (OSError, EOFError):
            return None

    def _failure(self, status: int, record: "Dict[str, Any]") -> JobFailed:
        cause = record.get("cause") or {}
        rank = cause.get("rank")
        outcome = None if rank is None else self._outcome(rank)
        if outcome is None or "error" not in outcome:
            return self._failure_without_exception(status, cause)
        problem = f"rank {rank} on {cause.get('host')} failed: {outcome['error']}"
        failure = JobFailed(f"{problem}\n\n{outcome['traceback']}", rank, status=status)
        failure.traceback = outcome["traceback"]
        with contextlib.suppress(Exception):
            failure.__cause__ = pickle.loads(outcome["exception"])
        return failure

    def _failure_without_exception(self, status: int, cause: "Dict[str, Any]") -> JobFailed:
        rank, host = cause.get("rank"), cause.get("host")
        if rank is None:
            problem = f"`remuda` exited with {status}" if host is None else f"host {host} was lost"
        elif cause.get("signal") is not None:
            problem = f"signal {cause['signal']} ended rank {rank} on {host}"
        elif cause.get("code") is not None:
            problem = f"rank {rank} on {host} exited with {cause['code']}"
        else:
            problem = f"rank {rank} on {host} failed ({cause.get('kind')})"
        tail = self._tail.decode(errors="replace").strip()
        return JobFailed(f"{problem}\n\n{tail}" if tail else problem, rank, status=status)


def _search_path() -> "Dict[str, str]":
    """What lets a worker import this package, if it is not installed. Variables of Python are sent to all hosts."""
    parent = pathlib.Path(__file__).resolve().parent.parent
    if parent.name in ("site-packages", "dist-packages"):
        return {}
    return {"PYTHONPATH": os.pathsep.join([str(parent), *filter(None, [os.environ.get("PYTHONPATH")])])}


def _is_own(stream: Any, descriptor: int) -> bool:
    """Whether a stream is that of the process, and not that of a notebook or of pytest."""
    try:
        return bool(stream.fileno() == descriptor)
    except (AttributeError, OSError, ValueError):
        return False


def _forward(process: "subprocess.Popen[bytes]") -> bytes:
    """Prints what the launcher writes into pipes, until their end; returns the end of standard error."""
    import codecs

    decode = codecs.getincrementaldecoder("utf-8")
    tail = b""
    with selectors.DefaultSelector() as selector:
        for pipe, target in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, (target, decode(errors="replace")))
        while selector.get_map():
            for key, _ in selector.select():
                written = os.read(key.fd, 1 << 16)
                target, decoder = key.data
                target.write(decoder.decode(written, not written))
                if not written:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stderr:
                    tail = (tail + written)[-_TAIL_BYTES:]
    return tail


def _interrupt(process: "subprocess.Popen[bytes]") -> None:
    """Stops a job on ^C. A terminal sends the signal to the launcher, too, and a second one would kill the
    workers."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            has_signal = os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        has_signal = False
    if not has_signal:
        process.send_signal(signal.SIGINT)
    process.wait()


def _stop(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
