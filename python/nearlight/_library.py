# SPDX-License-Identifier: Apache-2.0
"""libnearlight.so: where it is found, and its functions.

It is looked for, in this order: where NEARLIGHT_LIB says (a file); beside this file, where `pip install` puts it; as
the system finds it. Whichever is found must fit this package's version.
"""

from __future__ import annotations

import ctypes
import glob
import os
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from typing import Any

from . import _structs as structs
from ._version import __version__
from .errors import Unsupported, error_of

_HERE = os.path.dirname(os.path.abspath(__file__))
_MAJOR, _MINOR, _PATCH = (int(part) for part in __version__.split("."))
VERSION_CODE = _MAJOR * 10000 + _MINOR * 100 + _PATCH

# Handles, streams and buffers are addresses; an enum is an int. Name -> (result, arguments).
_COMM, _STREAM, _ADDRESS = c_void_p, c_void_p, c_void_p
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "nearlightGetErrorString": (c_char_p, [c_int]),
    "nearlightGetLastError": (c_char_p, []),
    "nearlightGetVersion": (c_int, [POINTER(c_int)]),
    "nearlightCheckVersion": (c_int, [c_int]),
    "nearlightCommCreateHostGroup": (c_int, [POINTER(_COMM), c_int, POINTER(structs.Config)]),
    "nearlightCommCreateCudaGroup": (c_int, [POINTER(_COMM), c_int, POINTER(c_int), POINTER(structs.Config)]),
    "nearlightCommCreateHost": (c_int, [POINTER(_COMM), c_int, c_int, c_char_p, POINTER(structs.Config)]),
    "nearlightCommCreateCuda": (c_int, [POINTER(_COMM), c_int, c_int, c_int, c_char_p, POINTER(structs.Config)]),
    "nearlightCommAttachNccl": (c_int, [POINTER(_COMM), c_void_p, POINTER(structs.Config)]),
    "nearlightCommDestroy": (c_int, [_COMM]),
    "nearlightCommAbort": (c_int, [_COMM]),
    "nearlightCommReset": (c_int, [_COMM, c_int64]),
    "nearlightCommShrink": (c_int, [_COMM, POINTER(c_int), c_int, c_int64, POINTER(_COMM)]),
    "nearlightCommSetPath": (c_int, [_COMM, c_char_p]),
    "nearlightCommRank": (c_int, [_COMM, POINTER(c_int)]),
    "nearlightCommCount": (c_int, [_COMM, POINTER(c_int)]),
    "nearlightCommGetInfo": (c_int, [_COMM, POINTER(structs.CommInfo)]),
    "nearlightCommGetStatus": (c_int, [_COMM, POINTER(structs.CommStatus)]),
    "nearlightExplain": (c_int, [_COMM, c_int, c_size_t, c_int, c_int, POINTER(structs.Route)]),
    "nearlightExplainFused": (c_int, [_COMM, c_int, c_size_t, c_size_t, c_int, POINTER(structs.Route)]),
    "nearlightExplainGemv": (c_int, [_COMM, c_int, c_size_t, c_size_t, c_size_t, c_int, POINTER(structs.Route)]),
    "nearlightCommGetCounters": (c_int, [_COMM, POINTER(structs.Counters)]),
    "nearlightRedOpCreatePreMulSum": (c_int, [POINTER(c_int), c_void_p, c_int, c_int, _COMM]),
    "nearlightRedOpDestroy": (c_int, [c_int, _COMM]),
    "nearlightAllReduce": (c_int, [_ADDRESS, _ADDRESS, c_size_t, c_int, c_int, _COMM, _STREAM]),
    "nearlightAllGather": (c_int, [_ADDRESS, _ADDRESS, c_size_t, c_int, _COMM, _STREAM]),
    "nearlightReduceScatter": (c_int, [_ADDRESS, _ADDRESS, c_size_t, c_int, c_int, _COMM, _STREAM]),
    "nearlightBroadcast": (c_int, [_ADDRESS, _ADDRESS, c_size_t, c_int, c_int, _COMM, _STREAM]),
    "nearlightReduce": (c_int, [_ADDRESS, _ADDRESS, c_size_t, c_int, c_int, c_int, _COMM, _STREAM]),
    "nearlightAllToAll": (c_int, [_ADDRESS, _ADDRESS, c_size_t, c_int, _COMM, _STREAM]),
    "nearlightAllGatherV": (c_int, [_ADDRESS, _ADDRESS, POINTER(c_size_t), POINTER(c_size_t), c_int, _COMM, _STREAM]),
    "nearlightReduceScatterV": (c_int, [_ADDRESS, _ADDRESS, POINTER(c_size_t), c_int, c_int, _COMM, _STREAM]),
    "nearlightAllToAllV": (c_int, [_ADDRESS, POINTER(c_size_t), POINTER(c_size_t), _ADDRESS, POINTER(c_size_t),
                                   POINTER(c_size_t), c_int, _COMM, _STREAM]),
    "nearlightAllReduceRmsNorm": (c_int, [POINTER(structs.RmsNorm), _COMM, _STREAM]),
    "nearlightAllReduceBias": (c_int, [_ADDRESS, _ADDRESS, _ADDRESS, c_size_t, c_size_t, c_int, _COMM, _STREAM]),
    "nearlightAllGatherGemv": (c_int, [_ADDRESS, _ADDRESS, _ADDRESS, c_size_t, c_size_t, c_size_t, c_int, _COMM, _STREAM]),
    "nearlightGemvAllReduce": (c_int, [_ADDRESS, _ADDRESS, _ADDRESS, c_size_t, c_size_t, c_size_t, c_int, _COMM, _STREAM]),
    "nearlightSend": (c_int, [_ADDRESS, c_size_t, c_int, c_int, _COMM, _STREAM]),
    "nearlightRecv": (c_int, [_ADDRESS, c_size_t, c_int, c_int, _COMM, _STREAM]),
    "nearlightGroupStart": (c_int, []),
    "nearlightGroupEnd": (c_int, []),
    "nearlightGroupDrop": (c_int, []),
    "nearlightBarrier": (c_int, [_COMM, _STREAM]),
}


def candidates() -> list[str]:
    """The files, or names for the system's loader, that are tried in turn."""
    told = os.environ.get("NEARLIGHT_LIB")
    if told:
        return [told]
    beside = sorted(glob.glob(os.path.join(_HERE, "libnearlight.so*")), key=len)
    # The loader's name carries what may not differ: below 1.0 the minor number, too.
    return beside[:1] or ["libnearlight.so." + (f"0.{_MINOR}" if _MAJOR == 0 else str(_MAJOR))]


def load() -> ctypes.CDLL:
    """The library with all its functions declared; Unsupported where there is none or another version."""
    tried = []
    for name in candidates():
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            tried.append(f"{name} ({error})")
            continue
        try:
            for function, (result, arguments) in FUNCTIONS.items():
                entry = getattr(library, function)
                entry.restype, entry.argtypes = result, arguments
        except AttributeError as error:
            raise Unsupported(f"nearlight {__version__} for Python needs more than {name} has: {error}") from error
        code = library.nearlightCheckVersion(VERSION_CODE)
        if code != 0:
            raise error_of(code, f"{name}: {library.nearlightGetLastError().decode()}")
        return library
    raise Unsupported("libnearlight.so cannot be loaded: tried " + ", ".join(tried) +
                      "; NEARLIGHT_LIB names the file to load")


_loaded: ctypes.CDLL | None = None


def lib() -> ctypes.CDLL:
    """The library, loaded by the first call that needs it."""
    global _loaded
    if _loaded is None:
        _loaded = load()
    return _loaded


def check(code: int) -> None:
    """Raises what a result that is not success means."""
    if code != 0:
        raise error_of(code, lib().nearlightGetLastError().decode(errors="replace"))
