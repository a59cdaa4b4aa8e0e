"""The package needs no newer Python than `requires-python` of pyproject.toml says: a cheap check on any version."""

import ast
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(__file__).parent
PROJECT = (HERE.parents[1] / "pyproject.toml").read_text()
OLDEST = tuple(map(int, re.search(r'^requires-python = ">=(\d+)\.(\d+)"$', PROJECT, flags=re.MULTILINE).groups()))

#: What 3.10 to 3.13 have added to the standard library, by module, as far as such a package would use it.
NEWER = {
    "asyncio": {"Runner", "TaskGroup", "timeout"},
    "contextlib": {"aclosing", "chdir"},
    "dataclasses": {"KW_ONLY"},
    "datetime": {"UTC"},
    "enum": {"StrEnum", "verify"},
    "hashlib": {"file_digest"},
    "inspect": {"get_annotations"},
    "itertools": {"batched", "pairwise"},
    "os": {"process_cpu_count"},
    "sys": {"exception", "orig_argv", "stdlib_module_names"},
    "types": {"EllipsisType", "NoneType", "UnionType"},
    "typing": {"Concatenate", "LiteralString", "Never", "ParamSpec", "Self", "TypeAlias", "TypeGuard", "Unpack"},
}
NEWER_MODULES = {"tomllib"}
NEWER_NAMES = {"ExceptionGroup", "BaseExceptionGroup", "aiter", "anext"}
NEWER_METHODS = {"add_note", "bit_count"}
#: Arguments of functions.
NEWER_ARGUMENTS = {
    "dataclass": {"kw_only", "slots", "weakref_slot"},
    "entry_points": {"group", "name"},
    "zip": {"strict"},
}
#: These took the type of an exception first.
NAMED_EXCEPTION = {"format_exception", "print_exception", "format_exception_only"}


def is_union(node):
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)


def problem_of(node):
    """What makes a part of a program newer than 3.9, or None."""
    # A union in quotes is never evaluated.
    if is_union(getattr(node, "annotation", None)) or is_union(getattr(node, "returns", None)):
        return "a union with `|` in an annotation"
    if isinstance(node, ast.Import) and NEWER_MODULES & {one.name for one in node.names}:
        return "a newer module"
    if isinstance(node, ast.ImportFrom) and NEWER.get(node.module, set()) & {one.name for one in node.names}:
        return f"a newer name of {node.module}"
    if isinstance(node, ast.Name) and node.id in NEWER_NAMES:
        return f"`{node.id}`"
    if isinstance(node, ast.Attribute):
        of_module = isinstance(node.value, ast.Name) and node.attr in NEWER.get(node.value.id, ())
        return f"`{node.attr}`" if of_module or node.attr in NEWER_METHODS else None
    return problem_of_call(node) if isinstance(node, ast.Call) else None


def problem_of_call(node):
    name = getattr(node.func, "attr", getattr(node.func, "id", None))
    named = {one.arg for one in node.keywords}
    if NEWER_ARGUMENTS.get(name, set()) & named:
        return f"a newer argument of {name}"
    if name in NAMED_EXCEPTION and len(node.args) == 1 and not isinstance(node.args[0], ast.Starred):
        return f"{name} of an exception alone"
    if name == "isinstance" and any(map(is_union, node.args)):
        return "a union with `|` in isinstance"
    return None


def problems(text):
    """Lines of a program that need a newer Python."""
    try:
        tree = ast.parse(text, feature_version=OLDEST)
    except SyntaxError as error:
        return [f"{error.lineno}: {error.msg}"]
    found = ((node, problem_of(node)) for node in ast.walk(tree))
    return [f"{node.lineno}: {problem}" for node, problem in found if problem]


class OldestPython(unittest.TestCase):
    def test_package_uses_nothing_newer(self):
        files = sorted([*HERE.parent.joinpath("remuda").rglob("*.py"), *HERE.glob("*.py")])
        self.assertGreater(len(files), 20)
        found = {str(file): problems(file.read_text()) for file in files}
        self.assertEqual({file: lines for file, lines in found.items() if lines}, {})

    def test_newer_programs_are_found(self):
        programs = [
            "import itertools\nitertools.pairwise([])",
            "from typing import Self",
            "import tomllib",
            "def f(x: int | None): pass",
            "def f() -> int | None: pass",
            "x: int | None = None",
            "isinstance(1, int | str)",
            "zip([], [], strict=True)",
            "(5).bit_count()",
            "traceback.format_exception(error)",
            "raise ExceptionGroup('', [])",
        ]
        # Older interpreters do not know the syntax at all.
        if (3, 10) <= sys.version_info:
            programs.append("match 1:\n    case 1: pass")
        self.assertEqual([program for program in programs if not problems(program)], [])
        self.assertEqual(problems("def f(x: 'int | None', y: list[int]): return zip(x, y)"), [])


if __name__ == "__main__":
    unittest.main()
