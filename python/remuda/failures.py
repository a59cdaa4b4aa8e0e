"""`record`: the launcher is told the exception that ends a program."""

import functools
import json
import os
import time
import traceback
from typing import Any, Callable, Optional, TypeVar, overload

from remuda import _stacks, notes

Function = TypeVar("Function", bound="Callable[..., Any]")


@overload
def record(function: Function) -> Function: ...


@overload
def record() -> Callable[[Function], Function]: ...


def record(function: Optional[Callable[..., Any]] = None) -> Any:
    """Decorates the main function of a program: an exception that leaves it is written into the error file of the
    worker, as ``torch.distributed.elastic.multiprocessing.errors.record`` does, and sent to the launcher.

    The launcher then names the exception as the cause although the output has other errors. A crash of the process
    prints where it happened. The exception is raised again; outside of a job, nothing else is done. `@record()` is
    the same as `@record`.
    """
    if function is None:
        return record
    if not callable(function):
        raise TypeError(f"record decorates a function, not {type(function).__name__}")

    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        if not (notes.is_worker() or notes.ERROR_FILE in os.environ):
            return function(*args, **kwargs)
        _stacks.prepare()
        _stacks.show_crashes()
        try:
            return function(*args, **kwargs)
        except Exception as error:
            report(error)
            raise

    return recorded


def report(error: BaseException) -> None:
    """Sends an exception that ends the program, and writes it into the error file. Raises nothing."""
    message = describe(error)
    notes.failed(message)
    path = os.environ.get(notes.ERROR_FILE)
    if path:
        try:
            _write(path, message, error)
        except OSError:
            # The note has the exception.
            return


def describe(error: BaseException) -> str:
    """Type and message of an exception, as the last line of a traceback has them."""
    if isinstance(error, SyntaxError):
        # Its first lines are the place and the text.
        return f"{type(error).__name__}: {error}"
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def _write(path: str, message: str, error: BaseException) -> None:
    stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    extra = {"py_callstack": stack, "timestamp": str(int(time.time()))}
    with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump({"message": {"message": message, "extraInfo": extra}}, file)
