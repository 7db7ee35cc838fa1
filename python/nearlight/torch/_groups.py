# SPDX-License-Identifier: Apache-2.0
"""Groups that nearlight was enabled for, and what it takes of their calls."""

from __future__ import annotations

import collections
import threading
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ..communicator import Communicator
from ..errors import InvalidArgument, InvalidUsage, NearlightError
from ..types import Collective, DataType, ReduceOp

DTYPES: dict[torch.dtype, DataType] = {
    torch.int8: DataType.int8, torch.uint8: DataType.uint8, torch.int32: DataType.int32, torch.int64: DataType.int64,
    torch.float16: DataType.float16, torch.float32: DataType.float32, torch.float64: DataType.float64,
    torch.bfloat16: DataType.bfloat16, torch.float8_e4m3fn: DataType.float8e4m3, torch.float8_e5m2: DataType.float8e5m2,
    torch.uint32: DataType.uint32, torch.uint64: DataType.uint64,
}

# Names that operators of PyTorch take, "product" being the one of torch.distributed.
OPS: dict[str, ReduceOp] = {"sum": ReduceOp.sum, "prod": ReduceOp.prod, "product": ReduceOp.prod, "max": ReduceOp.max,
                            "min": ReduceOp.min, "avg": ReduceOp.avg}
DIST_OPS: dict[str, Any] = {"sum": dist.ReduceOp.SUM, "prod": dist.ReduceOp.PRODUCT, "product": dist.ReduceOp.PRODUCT,
                            "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN, "avg": dist.ReduceOp.AVG}

# The world's name where none is given: the name that it has is looked up at run time.
WORLD = ""


class Explanation(NamedTuple):
    """Whether nearlight takes a call, and why; the same on all ranks. What it leaves goes to the process group."""

    taken: bool
    reason: str
    algorithm: str = ""
    protocol: str = ""
    grid: int = 0
    threads: int = 0


class Limits(NamedTuple):
    """Which messages are taken, in bytes; the same on all ranks."""

    min_bytes: int = 0
    max_bytes: int | None = None


class Group:
    """A process group with nearlight's communicator of the same ranks.

    One thread at a time may be in a call of it, as with the communicator.
    """

    def __init__(self, name: str, process_group: Any, comm: Communicator, device: torch.device, limits: Limits,
                 owned: Any = None) -> None:
        self.name, self.process_group, self.comm, self.device, self.limits = name, process_group, comm, device, limits
        self._owned = owned  # what the communicator stands on: closed after it
        self._decisions: dict[tuple[Any, ...], Explanation] = {}
        self.taken = 0
        self.left: collections.Counter[str] = collections.Counter()
        self._last_stream: Any = None
        self._last_raw = 0

    # ---- what is taken

    def explain(self, dtype: torch.dtype, count: int, op: str, device_type: str,
                collective: Collective = Collective.all_reduce) -> Explanation:
        """By facts that are equal on all ranks: nothing about addresses, strides or storage."""
        key = (collective, dtype, count, op, device_type)
        made = self._decisions.get(key)
        if made is None:
            if len(self._decisions) >= 4096:  # programs with ever new sizes
                self._decisions.clear()
            made = self._decisions[key] = self._explain(dtype, count, op, device_type, collective)
        return made

    def _explain(self, dtype: torch.dtype, count: int, op: str, device_type: str, collective: Collective) -> Explanation:
        if device_type != self.device.type:
            return Explanation(False, f"the tensor is on {device_type}, the group was enabled for {self.device.type}")
        if dtype not in DTYPES:
            return Explanation(False, f"nearlight has no type {dtype}")
        if op not in OPS:
            return Explanation(False, f"nearlight has no operator {op}")
        size = count * dtype.itemsize
        if size < self.limits.min_bytes:
            return Explanation(False, f"fewer than min_bytes ({self.limits.min_bytes}) bytes")
        if self.limits.max_bytes is not None and size > self.limits.max_bytes:
            return Explanation(False, f"more than max_bytes ({self.limits.max_bytes}) bytes")
        route = self.comm.explain(count, DTYPES[dtype], OPS[op], collective)
        if route.algorithm == "nccl":
            # The process group has an NCCL of its own, with its watchdog and its stream.
            return Explanation(False, f"the route hands it to NCCL: {route.reason}")
        return Explanation(True, route.reason, route.algorithm, route.protocol, route.grid, route.threads)

    def take(self, tensor: torch.Tensor, op: str, collective: Collective = Collective.all_reduce) -> bool:
        """Whether this call is nearlight's, counted; InvalidArgument for a tensor of another GPU than the group's."""
        if tensor.device.type == "cuda" and self.device.type == "cuda" and tensor.device != self.device:
            raise InvalidArgument(f"tensor is on {tensor.device}, the group was enabled for {self.device}")
        if tensor.layout != torch.strided:
            made = Explanation(False, f"the tensor's layout is {tensor.layout}")
        else:
            made = self.explain(tensor.dtype, tensor.numel(), op, tensor.device.type, collective)
        if made.taken:
            self.taken += 1
        else:
            self.left[made.reason] += 1
        return made.taken

    def set_path(self, path: str | None) -> None:
        self.comm.set_path(path)
        self._decisions.clear()

    # ---- calls

    def all_reduce(self, send: torch.Tensor, recv: torch.Tensor, op: str) -> None:
        """Both contiguous, of one type, count and device; the same tensor: in place. On the current stream."""
        count = send.numel()
        if count == 0:
            return
        self.comm.all_reduce_raw(send.data_ptr(), recv.data_ptr(), count, DTYPES[send.dtype], OPS[op], self._stream())

    def _stream(self) -> int:
        """The current stream, behind what this communicator has on another one."""
        if self.device.type != "cuda":
            return 0
        raw = torch.cuda.current_stream(self.device).cuda_stream
        if raw != self._last_raw or self._last_stream is None:
            self._join(torch.cuda.current_stream(self.device))
            self._last_raw = raw
        return raw

    def _join(self, current: Any) -> None:
        # Operations of one communicator must be ordered, and a program that changes streams need not know that it
        # has one. Captured work cannot wait for what is not captured; there the order is that of the replays.
        last, self._last_stream = self._last_stream, current
        if last is None:
            return
        capturing = torch.cuda.is_current_stream_capturing()
        with torch.cuda.stream(last):
            if torch.cuda.is_current_stream_capturing() != capturing:
                return
        current.wait_stream(last)

    # ---- its end

    def close(self) -> None:
        """Waits for what this rank's device still does, unless the communicator has failed, and ends it."""
        failed = False
        if not self.comm.closed:
            failed = self.comm.status().error is not None
            if self.device.type == "cuda" and not failed:
                torch.cuda.synchronize(self.device)
            self.comm.close()
        owned, self._owned = self._owned, None
        if owned is not None:
            owned.close(failed)


_lock = threading.Lock()
# By the process group's name. Read without the lock, also by compiled code.
_enabled: dict[str, Group] = {}


def name_of(group: Any) -> str:
    """The name by which operators are told a group: of a process group, or a name itself; None: the world."""
    if group is None:
        return WORLD
    if isinstance(group, str):
        return group
    return group.group_name


def world_name() -> str:
    if not dist.is_initialized():
        raise InvalidUsage("group: torch.distributed has no default process group: init_process_group first")
    return dist.group.WORLD.group_name


def find(name: str) -> Group | None:
    return _enabled.get(name if name != WORLD else world_name())


def get(name: str) -> Group:
    found = find(name)
    if found is None:
        raise InvalidUsage(f"group: nearlight is not enabled for {name or 'the world'}: nearlight.torch.enable first")
    return found


def add(group: Group) -> None:
    with _lock:
        _enabled[group.name] = group


def remove(name: str) -> Group | None:
    with _lock:
        return _enabled.pop(name, None)


def names() -> list[str]:
    with _lock:
        return list(_enabled)


def close_all() -> None:
    """At the end of the process: before the interpreter takes PyTorch and CUDA apart."""
    for name in names():
        group = remove(name)
        if group is not None:
            try:
                group.comm.close()
            except NearlightError:
                pass  # another thread is still in a call; the process ends anyway
