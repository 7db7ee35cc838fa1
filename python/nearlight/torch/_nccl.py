# SPDX-License-Identifier: Apache-2.0
"""An NCCL communicator of nearlight's own, by the copy of NCCL that PyTorch has loaded."""

from __future__ import annotations

import ctypes
import os
import re
import threading

import torch

from ..errors import InternalError, InvalidUsage, Timeout, Unsupported

ID_BYTES = 128


class _UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * ID_BYTES)]


def loaded_copies() -> list[str]:
    """The files of NCCL that this process has mapped."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        found = re.findall(r"(/\S*/libnccl\.so[.\d]*)$", maps.read(), re.MULTILINE)
    return sorted(set(found))


def load() -> ctypes.CDLL:
    """NCCL as PyTorch has it, or the file that NEARLIGHT_NCCL_LIB names."""
    told = os.environ.get("NEARLIGHT_NCCL_LIB")
    copies = loaded_copies()
    if not told and len(copies) > 1:
        raise InvalidUsage("several copies of NCCL are loaded: " + ", ".join(copies) + "; NEARLIGHT_NCCL_LIB says which to use")
    name = told or (copies[0] if copies else "libnccl.so.2")
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise Unsupported(f"NCCL cannot be loaded: {error}") from error
    try:
        library.ncclGetErrorString.restype = ctypes.c_char_p
        library.ncclGetUniqueId.argtypes = [ctypes.POINTER(_UniqueId)]
        library.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, _UniqueId, ctypes.c_int]
        library.ncclCommDestroy.argtypes = library.ncclCommAbort.argtypes = [ctypes.c_void_p]
    except AttributeError as error:
        raise Unsupported(f"{name} is no NCCL: {error}") from error
    return library


def _check(library: ctypes.CDLL, call: str, result: int) -> None:
    if result != 0:
        raise InternalError(f"{call}: {library.ncclGetErrorString(result).decode(errors='replace')} ({result})")


def unique_id() -> bytes:
    """What rank 0 makes and gives to the others."""
    library, made = load(), _UniqueId()
    _check(library, "ncclGetUniqueId", library.ncclGetUniqueId(ctypes.byref(made)))
    return ctypes.string_at(ctypes.addressof(made), ID_BYTES)


class NcclCommunicator:
    """An ncclComm_t of its own. Collective over the ranks with one id; waits at most `timeout_ms` for them."""

    def __init__(self, identity: bytes, rank: int, nranks: int, device: torch.device, timeout_ms: int) -> None:
        self._library = load()
        unique, made = _UniqueId(), ctypes.c_void_p()
        outcome: list[int] = []
        errors: list[BaseException] = []
        ctypes.memmove(ctypes.addressof(unique), identity, ID_BYTES)

        def create() -> None:
            try:
                torch.cuda.set_device(device)  # is the thread's own
                outcome.append(self._library.ncclCommInitRank(ctypes.byref(made), nranks, unique, rank))
            except BaseException as error:  # raised where somebody can hear it
                errors.append(error)

        # NCCL waits for the others without a limit: on a thread, which is left behind when they do not come.
        thread = threading.Thread(target=create, daemon=True, name="nearlight ncclCommInitRank")
        thread.start()
        thread.join(timeout_ms / 1000)
        if errors:
            raise errors[0]
        if not outcome:
            raise Timeout(f"ncclCommInitRank on rank {rank}: not all {nranks} ranks came within {timeout_ms} ms")
        _check(self._library, "ncclCommInitRank", outcome[0])
        self.comm: int | None = made.value

    def close(self, failed: bool = False) -> None:
        comm, self.comm = self.comm, None
        if comm is not None:
            (self._library.ncclCommAbort if failed else self._library.ncclCommDestroy)(comm)
