"""The C library, by ctypes: ``remuda.h`` documents its functions."""

import ctypes
import os
import pathlib
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Optional

from remuda.errors import KINDS, EnvironmentMismatch, RemudaError

#: Version of the interface that this package calls.
ABI = 1

OK = 0
IN_PROGRESS = 100
FOREVER = 2**64 - 1

F32, F64, I32, I64, U8, F16, BF16 = range(1, 8)
SUM, PROD, MIN, MAX, AVG = range(1, 6)
ORDER_CANONICAL, ORDER_ANY = range(2)


class Options(Structure):
    """``remuda_options``."""

    _fields_ = [
        ("size", c_uint32),
        ("streams", c_uint32),
        ("timeout_ms", c_uint64),
        ("order", c_uint32),
        ("reserved", c_uint32),
    ]


class Message(Structure):
    """``remuda_message``."""

    _fields_ = [("data", c_void_p), ("count", c_size_t), ("dtype", c_uint32), ("peer", c_uint32)]


#: Functions of ``remuda_store``.
SetFunction = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_char_p)
GetFunction = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_void_p, c_size_t)


class Store(Structure):
    """``remuda_store``."""

    _fields_ = [("context", c_void_p), ("set", SetFunction), ("get", GetFunction)]


_GROUP = _WORK = _DATA = c_void_p
_PLACE = POINTER(c_void_p)
_COUNTS = POINTER(c_size_t)

#: Results and parameters of the functions.
PROTOTYPES: "dict[str, tuple[Any, list[Any]]]" = {
    "remuda_abi": (c_uint32, []),
    "remuda_version": (c_char_p, []),
    "remuda_last_error": (c_size_t, [c_char_p, c_size_t, POINTER(c_int32), POINTER(c_int64)]),
    "remuda_last_hint": (c_char_p, []),
    "remuda_hint": (c_char_p, [c_int32]),
    "remuda_is_worker": (c_int32, []),
    "remuda_init": (c_int32, [POINTER(Options), _PLACE]),
    "remuda_meet": (c_int32, [POINTER(Store), c_char_p, c_uint32, c_uint32, POINTER(Options), _PLACE]),
    "remuda_threads": (c_int32, [c_uint32, POINTER(Options), _PLACE]),
    "remuda_group_of": (c_int32, [_GROUP, POINTER(c_uint32), c_size_t, c_char_p, POINTER(Options), _PLACE]),
    "remuda_free": (c_int32, [_GROUP]),
    "remuda_rank": (c_uint32, [_GROUP]),
    "remuda_size": (c_uint32, [_GROUP]),
    "remuda_set_timeout": (c_int32, [_GROUP, c_uint64]),
    "remuda_check": (c_int32, [_GROUP]),
    "remuda_abort": (c_int32, [_GROUP, c_char_p]),
    "remuda_note_step": (c_int32, [_GROUP, c_uint64, c_uint64, c_double, c_double]),
    "remuda_all_reduce": (c_int32, [_GROUP, _DATA, c_size_t, c_uint32, c_uint32, _PLACE]),
    "remuda_reduce": (c_int32, [_GROUP, _DATA, c_size_t, c_uint32, c_uint32, c_uint32, _PLACE]),
    "remuda_broadcast": (c_int32, [_GROUP, _DATA, c_size_t, c_uint32, c_uint32, _PLACE]),
    "remuda_all_gather": (c_int32, [_GROUP, _DATA, _DATA, c_size_t, c_uint32, _PLACE]),
    "remuda_reduce_scatter": (c_int32, [_GROUP, _DATA, _DATA, c_size_t, c_uint32, c_uint32, _PLACE]),
    "remuda_gather": (c_int32, [_GROUP, _DATA, _DATA, c_size_t, c_uint32, c_uint32, _PLACE]),
    "remuda_scatter": (c_int32, [_GROUP, _DATA, _DATA, c_size_t, c_uint32, c_uint32, _PLACE]),
    "remuda_all_to_all": (c_int32, [_GROUP, _DATA, _DATA, c_size_t, c_uint32, _PLACE]),
    "remuda_all_to_all_v": (c_int32, [_GROUP, _DATA, _COUNTS, _DATA, _COUNTS, c_uint32, _PLACE]),
    "remuda_barrier": (c_int32, [_GROUP, _PLACE]),
    "remuda_monitored_barrier": (c_int32, [_GROUP, c_uint64]),
    "remuda_send": (c_int32, [_GROUP, _DATA, c_size_t, c_uint32, c_uint32, _PLACE]),
    "remuda_recv": (c_int32, [_GROUP, _DATA, c_size_t, c_uint32, c_uint32, _PLACE]),
    "remuda_exchange": (c_int32, [_GROUP, POINTER(Message), c_size_t, POINTER(Message), c_size_t, _PLACE]),
    "remuda_wait": (c_int32, [_WORK, c_uint64]),
    "remuda_test": (c_int32, [_WORK, POINTER(c_int32)]),
    "remuda_alloc": (c_int32, [_GROUP, c_size_t, _PLACE]),
    "remuda_release": (c_int32, [_DATA]),
}

_REDUCED = [_GROUP, c_uint64, c_size_t, c_uint32, c_uint32]
_MOVED = [_GROUP, c_uint64, c_uint64, c_size_t, c_uint32]
_STREAM = c_void_p

#: Those for GPUs, which a library has if it was built with the feature ``nccl``.
DEVICE_PROTOTYPES: "dict[str, tuple[Any, list[Any]]]" = {
    "remuda_devices_connect": (c_int32, [_GROUP, c_uint32, _PLACE]),
    "remuda_devices_free": (c_int32, [_GROUP]),
    "remuda_devices_nccl": (c_int32, [_GROUP]),
    "remuda_device_all_reduce": (c_int32, [*_REDUCED, _STREAM, _PLACE]),
    "remuda_device_reduce": (c_int32, [*_REDUCED, c_uint32, _STREAM, _PLACE]),
    "remuda_device_broadcast": (c_int32, [*_REDUCED, _STREAM, _PLACE]),
    "remuda_device_all_gather": (c_int32, [*_MOVED, _STREAM, _PLACE]),
    "remuda_device_reduce_scatter": (c_int32, [*_MOVED, c_uint32, _STREAM, _PLACE]),
    "remuda_device_gather": (c_int32, [*_MOVED, c_uint32, _STREAM, _PLACE]),
    "remuda_device_scatter": (c_int32, [*_MOVED, c_uint32, _STREAM, _PLACE]),
    "remuda_device_all_to_all": (c_int32, [*_MOVED, _STREAM, _PLACE]),
    "remuda_device_exchange": (
        c_int32,
        [_GROUP, POINTER(Message), c_size_t, POINTER(Message), c_size_t, _STREAM, _PLACE],
    ),
    "remuda_device_send": (c_int32, [*_REDUCED, _STREAM, _PLACE]),
    "remuda_device_recv": (c_int32, [*_REDUCED, _STREAM, _PLACE]),
    "remuda_device_wait": (c_int32, [_WORK, _STREAM]),
    "remuda_device_release": (c_int32, [_WORK]),
}

_library: Optional[ctypes.CDLL] = None


def path() -> pathlib.Path:
    """Path of the C library: that of ``REMUDA_LIBRARY``, else ``libremuda.so`` beside this file."""
    named = os.environ.get("REMUDA_LIBRARY")
    return pathlib.Path(named) if named else pathlib.Path(__file__).with_name("libremuda.so")


def library() -> ctypes.CDLL:
    """The C library, opened at the first call.

    Raises `EnvironmentMismatch` if it is missing, cannot be opened, or has another version of the interface.
    """
    global _library
    if _library is None:
        _library = _open(path())
    return _library


def _open(file: pathlib.Path) -> ctypes.CDLL:
    try:
        opened = ctypes.CDLL(str(file))
        found = opened.remuda_abi()
    except (AttributeError, OSError) as error:
        hint = "install the wheel of remuda, or set REMUDA_LIBRARY to the path of `libremuda.so`"
        reason = str(error).removeprefix(f"{file}: ")
        raise EnvironmentMismatch(f"cannot open the C library `{file}`: {reason}", hint=hint) from error
    same = "install the package and the library of the same version of remuda"
    if found != ABI:
        problem = f"the C library `{file}` has version {found} of the interface, this package uses version {ABI}"
        raise EnvironmentMismatch(problem, hint=same)
    prototypes = {**PROTOTYPES, **(DEVICE_PROTOTYPES if has_devices(opened) else {})}
    for name, (result, parameters) in prototypes.items():
        function = getattr(opened, name, None)
        if function is None:
            raise EnvironmentMismatch(f"the C library `{file}` is older than this package: no `{name}`", hint=same)
        function.restype, function.argtypes = result, parameters
    return opened


def has_devices(opened: ctypes.CDLL) -> bool:
    """Whether a library has functions for GPUs, with started operations."""
    return hasattr(opened, "remuda_device_exchange")


def check(status: int, kinds: "dict[int, type[RemudaError]]" = KINDS) -> None:
    """Raises the error of a call that did not return `OK`; ``kinds`` has its class."""
    if status != OK:
        raise last_error(kinds)


def last_error(kinds: "dict[int, type[RemudaError]]" = KINDS) -> RemudaError:
    """The last error of this thread."""
    opened = library()
    kind, rank = c_int32(), c_int64()
    length = opened.remuda_last_error(None, 0, kind, rank)
    message = ctypes.create_string_buffer(length + 1)
    opened.remuda_last_error(message, length + 1, None, None)
    hint = opened.remuda_last_hint()
    return kinds.get(kind.value, RemudaError)(
        message.value.decode(errors="replace"),
        rank.value if 0 <= rank.value else None,
        hint.decode() if hint else None,
    )


def options(timeout_s: Optional[float] = None, streams: int = 0, order: int = ORDER_CANONICAL) -> Options:
    """Options of a group; ``timeout_s`` is in seconds."""
    return Options(ctypes.sizeof(Options), streams, milliseconds(timeout_s), order, 0)


def milliseconds(timeout_s: Optional[float]) -> int:
    """A deadline as the functions of the library take it: 0 would mean that of the group, or the default."""
    return 0 if timeout_s is None else max(1, round(timeout_s * 1000))
