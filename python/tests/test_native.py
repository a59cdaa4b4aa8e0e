"""The C library and its header, without a launcher."""

import ctypes
import os
import pathlib
import re
import subprocess
import sys
import unittest

import remuda
from remuda import native

HEADER = pathlib.Path(__file__).parents[2] / "src" / "capi" / "remuda.h"
INTEGERS = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64}
INTEGERS.update(size_t=ctypes.c_size_t, double=ctypes.c_double)


def declared():
    """Functions of the header: result, and parameters without their names."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)
    found = re.findall(r"^([a-z_0-9 ]+ \*?)(remuda_\w+)\(([^)]*)\);", text, flags=re.MULTILINE)
    for result, name, parameters in found:
        words = [] if parameters == "void" else [re.sub(r"\w+$", "", one).strip() for one in parameters.split(",")]
        yield name, result.strip(), [re.sub(r"\s+", " ", one) for one in words]


def expected(kind):
    """The ctypes that stand for a type of C."""
    kind = kind.replace("const ", "").replace(" ", "")
    of_ints = {f"{name}*": [ctypes.POINTER(of)] for name, of in INTEGERS.items()}
    of_ints["int64_t*"] = [ctypes.POINTER(ctypes.c_int64)]
    pointers = {
        "char*": [ctypes.c_char_p],
        "void*": [ctypes.c_void_p],
        "remuda_group*": [ctypes.c_void_p],
        "remuda_work*": [ctypes.c_void_p],
        "remuda_options*": [ctypes.POINTER(native.Options)],
        "remuda_store*": [ctypes.POINTER(native.Store)],
        "remuda_devices*": [ctypes.c_void_p],
        "remuda_message*": [ctypes.POINTER(native.Message)],
    }
    names = ("void**", "remuda_group**", "remuda_work**", "remuda_devices**")
    places = {name: [ctypes.POINTER(ctypes.c_void_p)] for name in names}
    return {**{name: [of] for name, of in INTEGERS.items()}, **of_ints, **pointers, **places}[kind]


class Header(unittest.TestCase):
    def test_prototypes_are_those_of_the_header(self):
        functions = list(declared())
        prototypes = {**native.PROTOTYPES, **native.DEVICE_PROTOTYPES}
        self.assertEqual(sorted(prototypes), sorted(name for name, _, _ in functions))
        for name, result, parameters in functions:
            own_result, own_parameters = prototypes[name]
            self.assertIn(own_result, expected(result), name)
            self.assertEqual(len(own_parameters), len(parameters), name)
            for own, kind in zip(own_parameters, parameters):
                self.assertIn(own, expected(kind), f"{name}: {kind}")

    def test_constants_are_those_of_the_header(self):
        constants = dict(re.findall(r"^#define REMUDA_(\w+) (\d+)$", HEADER.read_text(), flags=re.MULTILINE))
        own = {name: str(getattr(native, name)) for name in constants if hasattr(native, name)}
        kinds = {name: number for name, number in constants.items() if name not in own}
        self.assertEqual(own, {name: constants[name] for name in own})
        self.assertEqual(len(own), 17)
        self.assertEqual({int(number) for number in kinds.values()}, {*remuda.errors.KINDS, 9})

    def test_structs_have_the_sizes_of_the_header(self):
        sizes = [ctypes.sizeof(kind) for kind in (native.Options, native.Message, native.Store)]
        self.assertEqual(sizes, [24, 24, 24])


class Loading(unittest.TestCase):
    def run_python(self, code, **variables):
        environment = {**os.environ, **variables}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )

    def test_import_opens_no_library(self):
        code = "import remuda, sys; print('ctypes' in sys.modules, remuda.PeerLost('x', 3).rank)"
        finished = self.run_python(code, REMUDA_LIBRARY="/nowhere.so")
        self.assertEqual(finished.stdout, "False 3\n", finished.stderr)

    def test_missing_library_is_named(self):
        finished = self.run_python("import remuda; remuda.version()", REMUDA_LIBRARY="/nowhere.so")
        self.assertIn("cannot open the C library `/nowhere.so`", finished.stderr)
        self.assertIn("hint: install the wheel of remuda, or set REMUDA_LIBRARY", finished.stderr)

    def test_other_library_is_named(self):
        finished = self.run_python("import remuda; remuda.version()", REMUDA_LIBRARY="libc.so.6")
        self.assertIn("cannot open the C library `libc.so.6`", finished.stderr)

    def test_older_library_is_named(self):
        code = "import remuda.native as native; native.PROTOTYPES['remuda_newer'] = (None, []); native.library()"
        finished = self.run_python(code)
        self.assertRegex(finished.stderr, "the C library `.*` is older than this package: no `remuda_newer`\n")
        self.assertIn("hint: install the package and the library of the same version", finished.stderr)

    def test_library_is_of_this_version(self):
        self.assertRegex(remuda.version(), r"^\d+\.\d+\.\d+$")
        self.assertEqual(remuda.__version__, remuda.version())
        self.assertLessEqual({"init", "launch", "PeerLost"}, set(dir(remuda)))
        with self.assertRaises(AttributeError):
            remuda.nothing


if __name__ == "__main__":
    unittest.main()
