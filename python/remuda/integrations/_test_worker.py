"""A test in a worker: its module is imported without pytest, which would take most of the time of a short test.

`pytest` is imported at the first use of anything but marks and fixtures, or when an assertion fails.
"""

import functools
import importlib
import importlib.util
import marshal
import os
import pickle
import sys
import types

# Importing `typing` would take as long as all else.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Tuple

#: Modules that a module with rewritten assertions imports; parents first.
_DELAYED = ("pytest", "_pytest", "_pytest.assertion", "_pytest.assertion.rewrite")
#: Exceptions with which a test ends itself, other than by a failure.
_ENDINGS = ("Skipped", "XFailed")


def run_test(test: "Dict[str, Any]") -> "Optional[Tuple[str, str]]":
    """Runs a test; returns the class and the reason of the exception with which it has ended itself, or None."""
    _delay_pytest(test["verbosity"])
    try:
        module = _import(test["module"], test["path"], test["code"])
        _function(module, test["name"], test["attributes"])(**pickle.loads(test["values"]))
    except BaseException as error:
        if type(error).__name__ in _ENDINGS and not isinstance(error, Exception):
            return type(error).__name__, str(error)
        raise
    return None


def _function(module: "Any", name: str, attributes: bytes) -> "Any":
    """The function of a name; a method is that of an object of its class with what its setup has set."""
    *owners, last = name.split(".")
    found = module
    for part in owners:
        found = getattr(found, part)
    if isinstance(found, type):
        of_class, of_object = pickle.loads(attributes)
        for key, value in of_class.items():
            setattr(found, key, value)
        found = found()
        found.__dict__.update(of_object)
    return getattr(found, last)


def _import(name: str, path: str, code: "Optional[bytes]") -> "Any":
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"`{path}` cannot be imported", name=name, path=path)
    if spec.parent:
        importlib.import_module(spec.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if code is None:
        spec.loader.exec_module(module)
    else:
        exec(marshal.loads(code), module.__dict__)
    return module


def _delay_pytest(verbosity: int) -> None:
    if "pytest" in sys.modules:
        return
    for name in _DELAYED:
        module = sys.modules[name] = _Delayed(name)
        module.__dict__["_verbosity"] = verbosity
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
        # What makes `import a.b` look for `b`.
        module.__path__ = []
    sys.modules["pytest"].__dict__.update(mark=_Mark(), fixture=_Mark(), param=lambda *_, **__: None)


class _Delayed(types.ModuleType):
    """A module that is imported when something of it is used."""

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            # The import system asks for them.
            raise AttributeError(name)
        for delayed in _DELAYED:
            if isinstance(sys.modules.get(delayed), _Delayed):
                del sys.modules[delayed]
        loaded = importlib.import_module(self.__name__)
        _show_differences(self.__dict__["_verbosity"])
        return getattr(loaded, name)


def _show_differences(verbosity: int) -> None:
    """Lets an assertion of two values that fails show where they differ, as in the process of pytest."""
    from _pytest.assertion import util

    def explain(op: str, left: "Any", right: "Any") -> "Optional[str]":
        try:
            config = _configuration(verbosity)
            found = config.hook.pytest_assertrepr_compare(config=config, op=op, left=left, right=right)
            lines = [line.replace("\n", "\\n") for line in next(filter(None, found), [])]
        except Exception:
            # No public function makes a configuration; the values are then shown alone.
            return None
        return "\n~".join(lines).replace("%", "%%") or None

    util._reprcompare = explain


@functools.lru_cache(maxsize=None)
def _configuration(verbosity: int) -> "Any":
    """That of a pytest without files."""
    from _pytest.config import _prepareconfig

    return _prepareconfig(["-c", os.devnull, *["-v"] * verbosity])


class _Mark:
    """Marks and fixtures: decorators that change nothing, with or without arguments."""

    def __getattr__(self, name: str) -> "_Mark":
        return self

    def __call__(self, *args: "Any", **kwargs: "Any") -> "Any":
        is_decorator = len(args) == 1 and not kwargs and callable(args[0])
        return args[0] if is_decorator else self
