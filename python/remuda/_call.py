"""The call of `remuda.launch` as bytes for its workers: by the names of its functions and classes, else by value."""

import ast
import io
import os
import pathlib
import pickle
import sys
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from remuda import _worker
from remuda.errors import BadArgument

#: Names of the module of a program; the second one is that in a worker, which may call `launch` itself.
_PROGRAM = ("__main__", "__mp_main__")


def pack(function: "Callable[..., Any]", args: Sequence[Any], kwargs: "Dict[str, Any]") -> bytes:
    """A call as the bytes that a worker reads. Raises `BadArgument` if it cannot be sent."""
    call = (function, tuple(args), kwargs)
    program, source = None, None
    try:
        payload, program = _by_name(call)
    except Exception as error:
        payload, source = _by_value(call, str(error)), _source(function)
    paths = [os.path.abspath(path) for path in sys.path]
    return pickle.dumps({"paths": paths, "program": program, "payload": payload, "source": source})


def _by_name(call: "Tuple[Any, ...]") -> "Tuple[bytes, Optional[str]]":
    """A call with the names of its functions and classes, and the path of the program, if it defines some of them.

    Raises an error if workers cannot import them.
    """
    names: "Set[str]" = set()

    class Pickler(pickle.Pickler):
        def reducer_override(self, value: Any) -> Any:
            if getattr(value, "__module__", None) in _PROGRAM and hasattr(value, "__qualname__"):
                names.add(value.__qualname__.partition(".")[0])
            return NotImplemented

    written = io.BytesIO()
    Pickler(written).dump(call)
    if not names:
        return written.getvalue(), None
    program = _program()
    if program is None:
        raise BadArgument('it is defined in a notebook, or in a program without `if __name__ == "__main__":`')
    below = names & program.below_guard
    if below:
        raise BadArgument(f'`{min(below)}` is defined below `if __name__ == "__main__":`')
    return written.getvalue(), program.path


def _by_value(call: "Tuple[Any, ...]", problem: str) -> bytes:
    dumps = _worker.dumps_by_value()
    if dumps is None:
        hint = "define it in a module, or above the guard of the program, or install `cloudpickle`"
        what = f"{_name(call[0])} or one of its arguments"
        raise BadArgument(f"{what} cannot be sent to workers by its name: {problem}", hint=hint)
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


class _Program(NamedTuple):
    """A program that workers can import without running it, and the names that they do not find there."""

    path: str
    below_guard: "Set[str]"


def _program() -> Optional[_Program]:
    """The program, if workers can import it without running it. Its functions are then sent by their names, and
    tracebacks have their lines."""
    path = str(getattr(sys.modules["__main__"], "__file__", None) or "")
    try:
        parts = ast.parse(pathlib.Path(path).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return None
    guards = [part for part in parts if isinstance(part, ast.If) and "__name__" in _names(part.test)]
    if not guards:
        return None
    # As multiprocessing does: results of its classes are those of the program.
    sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
    others = [part for part in parts if part not in guards]
    below = _defined(part for guard in guards for part in guard.body)
    return _Program(os.path.abspath(path), below - _defined(others))


def _names(tree: ast.AST) -> "Set[str]":
    return {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)}


def _defined(parts: "Iterable[ast.AST]") -> "Set[str]":
    """Functions and classes that statements define, without those inside of others."""
    found: "Set[str]" = set()
    for part in parts:
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(part.name)
        else:
            found |= _defined(ast.iter_child_nodes(part))
    return found


def _name(function: Any) -> str:
    return f"`{getattr(function, '__qualname__', function)}`"
