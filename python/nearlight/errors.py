# SPDX-License-Identifier: Apache-2.0
"""What goes wrong, as exceptions: one class for each result of the C API (docs/reference/errors.md)."""

from __future__ import annotations

from typing import ClassVar


class NearlightError(RuntimeError):
    """A call that failed. The text names the call, the rank where there is one, the argument, and what is wrong.

    `code` is the number of the C API (0 to 7 as NCCL's), `name` its name.
    """

    code: ClassVar[int] = -1
    name: ClassVar[str] = "unknown"


class CudaError(NearlightError):
    """A CUDA call failed; the text names it and has CUDA's own text."""

    code = 1
    name = "nearlightCudaError"


class SystemCallError(NearlightError):
    """A system call failed, or memory is short."""

    code = 2
    name = "nearlightSystemError"


class InternalError(NearlightError):
    """Something that nearlight relies on does not hold: please report it."""

    code = 3
    name = "nearlightInternalError"


class InvalidArgument(NearlightError, ValueError):
    """The text names the argument. Nothing was written, and the communicator can be used as before."""

    code = 4
    name = "nearlightInvalidArgument"


class InvalidUsage(NearlightError):
    """The arguments are fine, the moment or the other ranks' are not."""

    code = 5
    name = "nearlightInvalidUsage"


class RemoteError(NearlightError):
    """Another rank failed or left; the text names it."""

    code = 6
    name = "nearlightRemoteError"


class Timeout(NearlightError, TimeoutError):
    """A rank did not come within the limit; the text names it."""

    code = 8
    name = "nearlightTimeout"


class Unsupported(NearlightError):
    """This version, build or machine cannot do it; the text says why."""

    code = 100
    name = "nearlightUnsupported"


class Aborted(NearlightError):
    """The communicator was told to stop."""

    code = 101
    name = "nearlightAborted"


CLASSES: dict[int, type[NearlightError]] = {
    kind.code: kind
    for kind in (CudaError, SystemCallError, InternalError, InvalidArgument, InvalidUsage, RemoteError, Timeout,
                 Unsupported, Aborted)
}


def error_of(code: int, text: str) -> NearlightError:
    """The exception for a result of the C API that is not success."""
    kind = CLASSES.get(code)
    return kind(text) if kind is not None else NearlightError(f"result {code}: {text}")
