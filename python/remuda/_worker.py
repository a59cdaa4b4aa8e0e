"""A worker of `remuda.launch`: reads a call from a directory, and writes its result there.

Most of the time of a short call is the start of its workers, so this module imports little.
"""

import os
import pickle
import sys

# Importing `typing` would take as long as all else.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

#: Directory of this package; its frames are not those of the program.
PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: Whether the program that called `launch` is being imported here.
is_loading_program = False


def dumps_by_value() -> "Optional[Callable[[Any], bytes]]":
    """What makes bytes of objects that cannot be imported: that of cloudpickle, if it is installed."""
    try:
        import cloudpickle
    except ImportError:
        return None
    return cloudpickle.dumps  # type: ignore[no-any-return]


def dumps(value: "Any") -> bytes:
    """Bytes of an object, by value if it cannot be imported and ``cloudpickle`` is installed."""
    try:
        return pickle.dumps(value)
    except Exception:
        by_value = dumps_by_value()
        if by_value is None:
            raise
        return by_value(value)


def _dumps_result(value: "Any") -> bytes:
    try:
        return dumps(value)
    except Exception as error:
        raise TypeError(f"the result of the function cannot be sent: {error}") from None


def main(directory: str) -> int:
    """Makes the call; returns the exit status."""
    rank = os.environ["RANK"]
    try:
        value = {"value": _dumps_result(_call(directory))}
    except KeyboardInterrupt:
        raise
    except SystemExit as error:
        if error.code is not None and not isinstance(error.code, int):
            # The interpreter prints it, and exits with 1.
            _write(directory, rank, {"exit": str(error.code)})
        if error.code:
            raise
        value = {"value": pickle.dumps(None)}
    except BaseException as error:
        _write(directory, rank, _failure(error))
        return 1
    _write(directory, rank, value)
    return 0


def _call(directory: str) -> "Any":
    with open(os.path.join(directory, "call"), "rb") as file:
        call = pickle.load(file)
    sys.path[:] = call["paths"]
    if call["program"] is not None:
        _load_program(call["program"])
    function, args, kwargs = pickle.loads(call["payload"])
    if call["source"] is not None:
        _show_source(function, *call["source"])
    return function(*args, **kwargs)


def _show_source(function: "Any", name: str, lines: "List[str]") -> None:
    """Lets tracebacks show the lines of a function that was sent by value, which has no file here."""
    import linecache

    linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    function.__code__ = _renamed(function.__code__, name)


def _renamed(code: "Any", name: str) -> "Any":
    """Code, and that of the functions in it, under the name of a file."""
    inner = (_renamed(one, name) if isinstance(one, type(code)) else one for one in code.co_consts)
    return code.replace(co_filename=name, co_consts=tuple(inner))


def _load_program(path: str) -> None:
    """Imports the program that called `launch`, as multiprocessing does it."""
    global is_loading_program
    import runpy
    import types

    module = types.ModuleType("__mp_main__")
    is_loading_program = True
    module.__dict__.update(runpy.run_path(path, run_name="__mp_main__"))
    is_loading_program = False
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


def _failure(error: BaseException) -> "Dict[str, Any]":
    """What the program that called `launch` raises; prints the traceback, too."""
    import traceback

    from remuda import failures

    shown: "Optional[Any]" = error.__traceback__
    # The first frames are those of this package.
    while shown is not None and shown.tb_frame.f_code.co_filename.startswith(PACKAGE):
        shown = shown.tb_next
    error = error.with_traceback(shown)
    text = "".join(traceback.format_exception(type(error), error, shown)).rstrip()
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)
    failures.report(error)
    outcome: "Dict[str, Any]" = {"error": failures.describe(error), "traceback": text}
    try:
        outcome["exception"] = dumps(error)
    except Exception as problem:
        outcome["unsent"] = failures.describe(problem)
    return outcome


def _write(directory: str, rank: str, outcome: "Dict[str, Any]") -> None:
    path = os.path.join(directory, f"result.{rank}")
    with open(path + ".part", "wb") as file:
        pickle.dump(outcome, file)
    os.rename(path + ".part", path)
