"""`launch`: a function in the workers of a job that the executable ``remuda`` starts.

The call and its results are files of a private directory, which all hosts must see. The process that calls `launch`
is never forked, so it may have used a GPU, and may be a notebook.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from remuda import _worker, failures
from remuda._call import pack
from remuda._output import Output
from remuda.errors import BadArgument, EnvironmentMismatch, JobFailed

#: Path of the executable, for a program that does not find it.
EXECUTABLE = "REMUDA_EXECUTABLE"

#: Status of a job that has reached its time limit.
_TIMED_OUT = 124
#: File of a call that its program locks.
_LOCK = "lock"


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
    _check(function, n, args, env, timeout, options)
    _check_places(hosts, directory)
    call = pack(function, args, dict(kwargs or {}))
    line = [*_place(n, hosts, accelerator), *_limit(timeout), *options]
    interpreter = python or sys.executable
    with _ended_by_signals(), _directory(directory, hosts) as path:
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


def _check(function: Any, n: Any, args: Any, env: Any, timeout: Any, options: Any) -> None:
    """Raises `BadArgument` for what no call can have."""
    if not callable(function):
        raise BadArgument(f"{function!r} cannot be called", hint="pass a function, and its arguments as `args=(…,)`")
    if n is not None and (isinstance(n, bool) or not isinstance(n, int)):
        raise BadArgument(f"`n` is {n!r}", hint="pass the number of workers, such as `n=4`")
    if isinstance(args, (str, bytes)) or not isinstance(args, Sequence):
        raise BadArgument(f"`args` is {args!r}", hint="pass a tuple, such as `args=(1,)`")
    is_number = isinstance(timeout, (int, float)) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and 0 < timeout):
        raise BadArgument(f"`timeout` is {timeout!r}", hint="pass seconds above 0, such as `timeout=60`")
    if env is not None and not all(isinstance(text, str) for pair in dict(env).items() for text in pair):
        raise BadArgument(f"`env` is {env!r}", hint="pass names and values as texts")
    if isinstance(options, str):
        hint = f"pass a list of words: `options={options.split()!r}`"
        raise BadArgument("`options` is one text", hint=hint)


def _check_places(hosts: Any, directory: Optional[str]) -> None:
    if hosts is not None and not hosts:
        raise BadArgument(f"`hosts` is {hosts!r}", hint="name at least one host; without `hosts`, workers run here")
    if directory is not None and not os.path.isdir(directory):
        hint = "pass a directory that exists; the files of the call are made in it"
        raise BadArgument(f"`directory` is {directory!r}", hint=hint)


# ---- the command line ---------------------------------------------------------------------------------------------


def _place(
    n: Optional[int], hosts: "Union[None, str, Sequence[str]]", accelerator: Optional[str]
) -> "List[str]":
    if n is not None and n < 1:
        raise BadArgument(f"{n} workers cannot be started", hint="`n` is at least 1")
    line = [] if n is None else ["-n", str(n)]
    if isinstance(hosts, str):
        # Those of hosts for which the text has none.
        line += [] if n is None else ["--slots", str(n)]
    elif hosts is not None:
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
    """A private directory for the files of a call; those of calls whose programs were killed are removed."""
    parent = named if named is not None or hosts is None else os.getcwd()
    prefix = ".remuda-call-" if parent else "remuda-call-"
    _remove_abandoned(pathlib.Path(parent or tempfile.gettempdir()), prefix)
    path = pathlib.Path(os.path.abspath(tempfile.mkdtemp(prefix=prefix, dir=parent)))
    lock = _lock(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _lock(path: pathlib.Path) -> Optional[int]:
    """A descriptor whose lock lasts as long as this process; None where files cannot be locked."""
    lock = os.open(path / "new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Under this name the file is always locked, unless its process has ended.
        os.rename(path / "new", path / _LOCK)
    except OSError:
        os.close(lock)
        return None
    return lock


def _remove_abandoned(parent: pathlib.Path, prefix: str) -> None:
    """Removes the files of calls of this user that no process waits for."""
    for path in parent.glob(f"{prefix}*/{_LOCK}"):
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path.parent, ignore_errors=True)
            finally:
                os.close(lock)


class _Terminated(BaseException):
    """A signal has arrived that ends the process."""

    def __init__(self, number: int) -> None:
        self.number = number


@contextlib.contextmanager
def _ended_by_signals() -> "Iterator[None]":
    """Ends the job and removes its files before SIGTERM or SIGHUP ends this process, unless the program handles it."""
    is_main = threading.current_thread() is threading.main_thread()
    both = (signal.SIGTERM, signal.SIGHUP)
    own = [number for number in both if is_main and signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _: Any) -> None:
        for one in own:
            signal.signal(one, signal.SIG_IGN)
        raise _Terminated(number)

    for number in own:
        signal.signal(number, end)
    try:
        yield
    except _Terminated as ended:
        signal.signal(ended.number, signal.SIG_DFL)
        os.kill(os.getpid(), ended.number)
    finally:
        for number in own:
            signal.signal(number, signal.SIG_DFL)


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
        self._has_hosts = "--hostfile" in line
        self._runs = _kept_runs() or directory / "runs"

    def run(self, call: bytes, n: Optional[int]) -> List[Any]:
        """Runs the call and returns the results; ``n`` is the number of workers, if it is known."""
        (self.directory / "call").write_bytes(call)
        output = Output()
        process = self._start(output)
        try:
            output.forward(process)
            status = process.wait()
        except KeyboardInterrupt:
            _interrupt(process)
            output.forward(process)
            output.release()
            process.wait()
            raise
        finally:
            _stop(process)
        place, record = self._record(process.pid)
        if status != 0:
            raise self._failure(status, record, output)
        output.release()
        if place is not None:
            _remove_run(place)
        workers = record.get("workers", [])
        return [self._result(rank) for rank in range(len(workers) or n or 0)]

    def _start(self, output: Output) -> "subprocess.Popen[bytes]":
        options = [*self._line, "--quiet", "--run_dir", str(self._runs), "--no_local_rank"]
        # The values are in the environment of the launcher, where other users cannot read them.
        names = [word for name in self._variables for word in ("--env", name)]
        # `-m` would import more. A crash prints where it happened.
        code = "import sys; from remuda._worker import main; sys.exit(main(sys.argv[1]))"
        program = ["--no_python", self._python, "-X", "faulthandler", "-u", "-c", code, str(self.directory)]
        environment = {**os.environ, **self._variables, **_search_path()}
        # If this process is killed, the job ends too.
        environment["REMUDA_ENDS_WITH"] = str(os.getpid())
        sys.stdout.flush()
        sys.stderr.flush()
        return subprocess.Popen(
            [executable(), "run", *options, *names, *program],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output.stdout,
            stderr=subprocess.PIPE,
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
            hint = "let the function return, without `os._exit` and without options that start no worker"
            if self._has_hosts:
                hint += f", and let all hosts see `{self.directory.parent}`"
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

    def _failure(self, status: int, record: "Dict[str, Any]", output: Output) -> JobFailed:
        cause = record.get("cause") or {}
        rank = cause.get("rank")
        outcome = {} if rank is None else self._outcome(rank) or {}
        if "error" in outcome:
            output.release()
            return _exception(status, cause, outcome)
        report = output.report()
        problem = _problem(status, cause, outcome.get("exit")) + _place_of(cause)
        if rank is not None:
            # The report is about the worker, and is long.
            output.release()
        message = f"{problem}\n\n{report}" if rank is None and report else problem
        failure = JobFailed(message, rank, status=status)
        failure.report = report
        return failure


def _exception(status: int, cause: "Dict[str, Any]", outcome: "Dict[str, Any]") -> JobFailed:
    """The failure of a job in which a worker has raised an exception."""
    rank = cause["rank"]
    message = f"rank {rank} on {cause.get('host')} failed: {outcome['error']}\n\n{outcome['traceback']}"
    original, unread = _original(outcome)
    if original is None:
        message += f"\n\nThe exception itself cannot be sent: {unread}"
    failure = JobFailed(message, rank, status=status)
    failure.traceback, failure.__cause__ = outcome["traceback"], original
    return failure


def _problem(status: int, cause: "Dict[str, Any]", said: Optional[str]) -> str:
    """How a job failed in which no worker has raised an exception; ``said`` is the argument of ``sys.exit``."""
    rank, host = cause.get("rank"), cause.get("host")
    if rank is None:
        ending = _signal(status)
        if ending is not None:
            return f"`remuda` was stopped by {ending}"
        if status == _TIMED_OUT:
            return "the call did not end in time"
        return f"`remuda` exited with {status}" if host is None else f"host {host} was lost"
    if cause.get("signal") is not None:
        return f"signal {cause['signal']} ended rank {rank} on {host}"
    if cause.get("code") is not None:
        return f"rank {rank} on {host} exited with {cause['code']}" + (f": {said}" if said else "")
    return f"rank {rank} on {host} failed ({cause.get('kind')})"


def _place_of(cause: "Dict[str, Any]") -> str:
    """Where the worker failed in its program; empty if that is not known."""
    place = cause.get("place")
    return "\n  at {file}:{line} in {function}".format(**place) if place else ""


def _signal(status: int) -> Optional[str]:
    """The signal of an exit status, if it is that of one."""
    try:
        return signal.Signals(status - 128).name
    except ValueError:
        return None


def _original(outcome: "Dict[str, Any]") -> "Tuple[Optional[BaseException], str]":
    """The exception of a worker, or why there is none here."""
    if "exception" not in outcome:
        return None, outcome["unsent"]
    try:
        return pickle.loads(outcome["exception"]), ""
    except Exception as error:
        return None, failures.describe(error)


def _search_path() -> "Dict[str, str]":
    """What lets a worker import this package, if it is not installed. Variables of Python are sent to all hosts."""
    parent = pathlib.Path(__file__).resolve().parent.parent
    if parent.name in ("site-packages", "dist-packages"):
        return {}
    return {"PYTHONPATH": os.pathsep.join([str(parent), *filter(None, [os.environ.get("PYTHONPATH")])])}


def _remove_run(place: pathlib.Path) -> None:
    """Removes the run directory of a call that has succeeded, and the link to the newest one if it points there."""
    shutil.rmtree(place, ignore_errors=True)
    newest = place.with_name("latest")
    with contextlib.suppress(OSError):
        if not newest.exists():
            newest.unlink()


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


def _stop(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.terminate()
        # A launcher whose pipe is full would wait.
        process.communicate()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
