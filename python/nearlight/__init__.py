# SPDX-License-Identifier: Apache-2.0
"""Low-latency collectives of GPUs and CPUs of one host.

`Communicator` is the C API (nearlight.h) for Python. `nearlight.torch` has the collectives as operators of PyTorch and
puts them in the place of torch.distributed's; `nearlight.vllm` is a plug-in for vLLM. docs/guide/python.md shows all.
"""

from ._version import __version__
from .communicator import Communicator, Config, Counters, Info, Route, RouteCount, Status, together
from .errors import (Aborted, CudaError, InternalError, InvalidArgument, InvalidUsage, NearlightError, RemoteError,
                     SystemCallError, Timeout, Unsupported)
from .types import Collective, DataType, ReduceOp

__all__ = ["Aborted", "Collective", "Communicator", "Config", "Counters", "CudaError", "DataType", "Info", "InternalError",
           "InvalidArgument", "InvalidUsage", "NearlightError", "ReduceOp", "RemoteError", "Route", "RouteCount", "Status",
           "SystemCallError", "Timeout", "Unsupported", "__version__", "together"]
