"""Plugin of pytest: a test with ``@pytest.mark.remuda(n=4)`` runs in four workers of a job.

It passes if it passes in all of them. The failure of the rank that is the cause is shown with its traceback.
Fixtures are made once, in the process of pytest, and their values are sent to the workers.
"""

import inspect
import marshal
from typing import Any, Dict, Optional, Tuple

import pytest

#: Workers and kind of device of a test that names none.
_DEFAULTS: Dict[str, Any] = {"n": 2, "accelerator": "cpu"}
_MARKER = "remuda(n=2, **options): run the test in n workers of remuda; the options are those of `remuda.launch`"


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> Optional[bool]:
    marker = pyfuncitem.get_closest_marker("remuda")
    if marker is None:
        return None
    problem = _problem(marker) or _problem_of(pyfuncitem)
    if problem is not None:
        pytest.fail(problem, pytrace=False)
    options = {**_DEFAULTS, **dict(zip(["n"], marker.args)), **marker.kwargs}
    _run(pyfuncitem, options)
    return True


def _problem(marker: Any) -> Optional[str]:
    """What is wrong with the options of a mark."""
    from remuda.launcher import launch

    known = [name for name in inspect.signature(launch).parameters if name not in ("function", "args", "kwargs")]
    unknown = [name for name in marker.kwargs if name not in known]
    if unknown:
        return f"the mark `remuda` has no option `{unknown[0]}`; its options are {', '.join(known)}"
    if 1 < len(marker.args):
        return f"the mark `remuda` has {len(marker.args)} values without a name; only `n` needs none"
    return None


def _problem_of(item: Any) -> Optional[str]:
    """Why a test cannot run in workers."""
    if inspect.iscoroutinefunction(item.obj) or inspect.isasyncgenfunction(item.obj):
        return "the mark `remuda` runs no `async def`: call `asyncio.run` in the test"
    for name in inspect.signature(item.obj).parameters:
        if type(item.funcargs[name]).__module__.partition(".")[0] == "_pytest":
            return f"the fixture `{name}` belongs to the process of pytest, and cannot be sent to workers"
    return None


def _run(item: Any, options: "Dict[str, Any]") -> None:
    from remuda.errors import RemudaError
    from remuda.integrations._test_worker import run_test
    from remuda.launcher import launch

    test, problem, original = _test(item), None, None
    try:
        results = launch(run_test, args=(test,), **options)
    except RemudaError as error:
        problem, original = str(error), error.__cause__
    if original is not None and _is_expected(item, original):
        raise original
    # Outside of the handler, so that the report is not that of a chain of exceptions.
    if problem is not None:
        pytest.fail(problem, pytrace=False)
    for kind, reason in filter(None, results):
        if kind == "Skipped":
            pytest.skip(reason)
        pytest.xfail(reason)


def _is_expected(item: Any, error: BaseException) -> bool:
    """Whether a mark `xfail` names the class of an exception."""
    expected = [marker.kwargs.get("raises") for marker in item.iter_markers("xfail")]
    return any(isinstance(error, classes) for classes in expected if classes is not None)


def _test(item: Any) -> "Dict[str, Any]":
    """What a worker needs to run a test."""
    from remuda import _worker

    def sent(what: str, value: Any) -> bytes:
        try:
            return _worker.dumps(value)
        except Exception as error:
            problem = str(error)
        # Outside of the handler, as above.
        pytest.fail(f"{what} of this test cannot be sent to workers: {problem}", pytrace=False)

    values = {name: item.funcargs[name] for name in inspect.signature(item.obj).parameters}
    return {
        "module": item.module.__name__,
        "path": str(item.path),
        "code": _rewritten(item),
        "name": item.obj.__qualname__,
        "verbosity": item.config.option.verbose,
        "values": sent("a fixture", values),
        "attributes": sent("an attribute of the class", _attributes(getattr(item.obj, "__self__", None))),
    }


def _attributes(test_object: Any) -> "Tuple[Dict[str, Any], Dict[str, Any]]":
    """What `setup_class` and `setup_method` may have set: the values of a class, and those of an object."""
    if test_object is None:
        return {}, {}
    of_class = {} if not hasattr(test_object, "setup_class") else _values(type(test_object))
    return of_class, vars(test_object)


def _values(test_class: type) -> "Dict[str, Any]":
    """The attributes of a class that are neither functions nor other descriptors."""
    named = (pair for pair in vars(test_class).items() if not pair[0].startswith("__") and pair[0] != "pytestmark")
    return {name: value for name, value in named if not callable(value) and not hasattr(value, "__get__")}


def _rewritten(item: Any) -> Optional[bytes]:
    """Code of the module of a test, whose assertions show values; None: workers compile the file."""
    if item.config.getoption("assertmode", "rewrite") != "rewrite":
        return None
    try:
        from _pytest.assertion.rewrite import _rewrite_test

        return marshal.dumps(_rewrite_test(item.path, item.config)[1])
    except Exception:
        # No public function has it; assertions then fail without values.
        return None
