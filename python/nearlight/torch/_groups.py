# SPDX-License-Identifier: Apache-2.0
"""Groups that nearlight was enabled for, and what it takes of their calls."""

from __future__ import annotations

import collections
import threading
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from .. import _library
from .._library import check
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

# Collectives whose count is of one rank's part: AllGather's of its input, ReduceScatter's and AllToAll's of the output.
PER_RANK = (Collective.all_gather, Collective.reduce_scatter, Collective.all_to_all)

# Plain numbers for the calls: enumerators take their time.
_DTYPE_NUMBERS = {dtype: int(number) for dtype, number in DTYPES.items()}
_OP_NUMBERS = {name: int(number) for name, number in OPS.items()}

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


# PyTorch's short way to the current stream as a number, where it has one.
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
    lambda index: torch.cuda.current_stream(index).cuda_stream)


class Group:
    """A process group with nearlight's communicator of the same ranks.

    One thread at a time may be in a call of it, as with the communicator.
    """

    def __init__(self, name: str, process_group: Any, comm: Communicator, device: torch.device, limits: Limits,
                 owned: Any = None) -> None:
        self.name, self.process_group, self.comm, self.device, self.limits = name, process_group, comm, device, limits
        self.on_gpu = device.type == "cuda"
        self._owned = owned  # what the communicator stands on: closed after it
        self._decisions: dict[tuple[Any, ...], Explanation] = {}
        self._known: dict[tuple[Any, ...], Explanation] = {}  # the part of it that calls look at
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
                self.forget_decisions()
            made = self._decisions[key] = self._explain(dtype, count, op, device_type, collective)
        return made

    def _explain(self, dtype: torch.dtype, count: int, op: str, device_type: str, collective: Collective) -> Explanation:
        if device_type != self.device.type:
            return Explanation(False, f"the tensor is on {device_type}, the group was enabled for {self.device.type}")
        if dtype not in DTYPES:
            return Explanation(False, f"nearlight has no type {dtype}")
        if op not in OPS:
            return Explanation(False, f"nearlight has no operator {op}")
        size = count * dtype.itemsize * (self.comm.nranks if collective in PER_RANK else 1)
        if size < self.limits.min_bytes:
            return Explanation(False, f"fewer than min_bytes ({self.limits.min_bytes}) bytes")
        if self.limits.max_bytes is not None and size > self.limits.max_bytes:
            return Explanation(False, f"more than max_bytes ({self.limits.max_bytes}) bytes")
        route = self.comm.explain(count, DTYPES[dtype], OPS[op], collective)
        if route.algorithm == "nccl":
            # The process group has an NCCL of its own, with its watchdog and its stream.
            return Explanation(False, f"the route hands it to NCCL: {route.reason}")
        return Explanation(True, route.reason, route.algorithm, route.protocol, route.grid, route.threads)

    def take(self, tensor: torch.Tensor, op: str, collective: Collective = Collective.all_reduce, count: int = -1) -> bool:
        """Whether this call is nearlight's, counted; InvalidArgument for a tensor of another GPU than the group's.
        `count`: as in the call, where it is not the tensor's."""
        if count < 0:
            count = tensor.numel()
        if self.on_gpu and tensor.is_cuda and tensor.get_device() != self.device.index:
            raise InvalidArgument(f"tensor is on {tensor.device}, the group was enabled for {self.device}")
        # What is known is of a strided tensor on the group's kind of device.
        made = self._known.get((collective.value, tensor.dtype, count, op))
        if made is None or tensor.layout is not torch.strided or not (tensor.is_cuda if self.on_gpu else tensor.is_cpu):
            if tensor.layout != torch.strided:
                made = Explanation(False, f"the tensor's layout is {tensor.layout}")
            else:
                made = self.explain(tensor.dtype, count, op, tensor.device.type, collective)
                if tensor.device.type == self.device.type:
                    self._known[(collective.value, tensor.dtype, count, op)] = made
        if made.taken:
            self.taken += 1
        else:
            self.left[made.reason] += 1
        return made.taken

    def set_path(self, path: str | None) -> None:
        self.comm.set_path(path)
        self.forget_decisions()

    def forget_decisions(self) -> None:
        """After something that they follow from has changed."""
        self._decisions.clear()
        self._known.clear()

    # ---- calls

    def all_reduce(self, send: torch.Tensor, recv: torch.Tensor, op: str) -> None:
        """Both contiguous, of one type, count and device; the same tensor: in place. On the current stream."""
        count = send.numel()
        if count == 0:
            return
        check(_library.lib().nearlightAllReduce(send.data_ptr(), recv.data_ptr(), count, _DTYPE_NUMBERS[send.dtype], _OP_NUMBERS[op],
                                                self.comm.handle, self._stream()))

    def call(self, collective: Collective, send: torch.Tensor, recv: torch.Tensor, count: int, op: str, root: int) -> None:
        """The other collectives, of contiguous tensors; `count` is as in the C API. On the current stream."""
        library, handle = _library.lib(), self.comm.handle
        words: list[int] = [send.data_ptr(), recv.data_ptr(), count, _DTYPE_NUMBERS[send.dtype]]
        function, rest = {
            Collective.all_gather: (library.nearlightAllGather, []),
            Collective.reduce_scatter: (library.nearlightReduceScatter, [_OP_NUMBERS[op]]),
            Collective.broadcast: (library.nearlightBroadcast, [root]),
            Collective.reduce: (library.nearlightReduce, [_OP_NUMBERS[op], root]),
            Collective.all_to_all: (library.nearlightAllToAll, []),
        }[collective]
        check(function(*words, *rest, handle, self._stream()))

    def _stream(self) -> int | None:
        """The current stream, behind what this communicator has on another one."""
        if not self.on_gpu:
            return None
        raw = _raw_stream(self.device.index)
        if raw != self._last_raw or self._last_stream is None:
            self._join(torch.cuda.current_stream(self.device))
            self._last_raw = raw
        return raw or None

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
            if self.on_gpu and not failed:
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
    if not isinstance(group, dist.ProcessGroup):
        raise InvalidArgument(f"group: {group!r} is none that this rank is in")
    return group.group_name


def world_name() -> str:
    if not dist.is_initialized():
        raise InvalidUsage("group: torch.distributed has no default process group: init_process_group first")
    return dist.group.WORLD.group_name


def find(name: str) -> Group | None:
    """The world stands there under both of its names."""
    return _enabled.get(name)


def get(name: str) -> Group:
    found = _enabled.get(name)
    if found is None:
        world_name()  # says so where there is no process group at all
        raise InvalidUsage(f"group: nearlight is not enabled for {name or 'the world'}: nearlight.torch.enable first")
    return found


def add(group: Group) -> None:
    with _lock:
        _enabled[group.name] = group
        if group.process_group is dist.group.WORLD:
            _enabled[WORLD] = group


def remove(name: str) -> Group | None:
    with _lock:
        group = _enabled.pop(name, None)
        if group is not None and _enabled.get(WORLD) is group:
            del _enabled[WORLD]
        return group


def names() -> list[str]:
    with _lock:
        return [name for name in _enabled if name != WORLD]


def close_all() -> None:
    """At the end of the process: before the interpreter takes PyTorch and CUDA apart."""
    for name in names():
        group = remove(name)
        if group is not None:
            try:
                group.comm.close()
            except NearlightError:
                pass  # another thread is still in a call; the process ends anyway
