# SPDX-License-Identifier: Apache-2.0
"""Addresses of what Python holds: anything with the buffer protocol, or with CUDA's array interface."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_ssize_t, c_void_p
from typing import Any

from .errors import InvalidArgument
from .types import DataType

_C_CONTIGUOUS, _FORMAT, _WRITABLE = 0x20 | 0x10 | 0x08, 0x04, 0x01  # of CPython's PyBUF_ flags
_KINDS = {("i", 1): DataType.int8, ("u", 1): DataType.uint8, ("i", 4): DataType.int32, ("u", 4): DataType.uint32,
          ("i", 8): DataType.int64, ("u", 8): DataType.uint64, ("f", 2): DataType.float16, ("f", 4): DataType.float32,
          ("f", 8): DataType.float64}
_LETTERS = dict.fromkeys("bhilqn", "i") | dict.fromkeys("BHILQN", "u") | dict.fromkeys("efd", "f")


class _PyBuffer(ctypes.Structure):
    _fields_ = [("buf", c_void_p), ("obj", ctypes.py_object), ("len", c_ssize_t), ("itemsize", c_ssize_t),
                ("readonly", c_int), ("ndim", c_int), ("format", c_char_p), ("shape", c_void_p), ("strides", c_void_p),
                ("suboffsets", c_void_p), ("internal", c_void_p)]


class Buffer:
    """Holds on to a contiguous buffer: `address`, `count`, `dtype`. To be released by `release()`."""

    def __init__(self, name: str, owner: Any, *, writable: bool, dtype: DataType | None = None) -> None:
        self._view: _PyBuffer | None = None
        self._owner = owner
        interface = getattr(owner, "__cuda_array_interface__", None)
        kind = self._of_cuda(name, interface, writable) if interface is not None else self._of_host(name, writable)
        if dtype is None:
            if kind is None:
                self.release()
                raise InvalidArgument(f"{name}: its elements are of no type that nearlight has; give dtype")
            dtype = kind
        self.dtype = dtype
        if self.bytes % dtype.itemsize != 0:
            self.release()
            raise InvalidArgument(f"{name}: {self.bytes} bytes are no whole number of elements of {dtype.name}")
        self.count = self.bytes // dtype.itemsize

    def _of_host(self, name: str, writable: bool) -> DataType | None:
        view = _PyBuffer()
        get = ctypes.pythonapi.PyObject_GetBuffer
        get.argtypes, get.restype = [ctypes.py_object, ctypes.c_void_p, c_int], c_int
        try:
            get(self._owner, ctypes.addressof(view), _C_CONTIGUOUS | _FORMAT | (_WRITABLE if writable else 0))
        except (BufferError, TypeError, ValueError) as error:
            raise InvalidArgument(f"{name}: no contiguous {'writable ' if writable else ''}buffer: {error}") from error
        self._view = view
        self.address, self.bytes = view.buf or 0, view.len
        letters = (view.format or b"B").decode()
        if len(letters) == 2 and letters[0] in "@=<":
            letters = letters[1]
        return _KINDS.get((_LETTERS.get(letters, ""), view.itemsize))

    def _of_cuda(self, name: str, interface: dict[str, Any], writable: bool) -> DataType | None:
        shape, text = interface["shape"], interface["typestr"]
        self.address, readonly = interface["data"]
        if writable and readonly:
            raise InvalidArgument(f"{name}: is read-only")
        itemsize, count = int(text[2:]), 1
        for extent in shape:
            count *= extent
        self.bytes = count * itemsize
        strides, expected = interface.get("strides"), itemsize
        if strides is not None and count > 0:
            for extent, stride in zip(reversed(shape), reversed(strides)):
                if extent != 1 and stride != expected:
                    raise InvalidArgument(f"{name}: is not contiguous")
                expected *= extent
        return _KINDS.get((text[1], itemsize))

    def release(self) -> None:
        if self._view is not None:
            free = ctypes.pythonapi.PyBuffer_Release
            free.argtypes, free.restype = [ctypes.c_void_p], None
            free(ctypes.addressof(self._view))
            self._view = None

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
