# SPDX-License-Identifier: Apache-2.0
"""One rank's end of a group."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from . import _structs as structs
from ._buffer import Buffer
from ._library import check, lib
from .errors import InvalidArgument, NearlightError, error_of
from .types import Collective, DataType, ReduceOp


@dataclasses.dataclass(frozen=True)
class Config:
    """What a communicator is to be like, the same on all ranks; 0 in a field: the default. See nearlightConfig_t.

    timeout_ms: how long one wait lasts before the communicator fails, ms. create_timeout_ms: how long creation may
    take, ms. check: 1 check mode, -1 none. deterministic and early_launch: 1 or -1. The others are sizes of the scratch.
    """

    timeout_ms: int = 0
    create_timeout_ms: int = 0
    check: int = 0
    regions: int = 0
    slots: int = 0
    chunk_bytes: int = 0
    packets: int = 0
    max_ctas: int = 0
    deterministic: int = 0
    lines: int = 0
    early_launch: int = 0

    def _as_struct(self) -> structs.Config:
        made = structs.Config()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            setattr(made, field.name, value)
            # ctypes cuts off what does not fit.
            if not isinstance(value, int) or getattr(made, field.name) != value:
                raise InvalidArgument(f"config.{field.name} is {value!r}; it takes a whole number that fits")
        return made


class Info(NamedTuple):
    """What a communicator is made of."""

    rank: int
    nranks: int
    backend: str
    memory: str
    scratch_bytes: int
    early_launch: bool
    memory_reason: str  # "": there was no choice


class Status(NamedTuple):
    """Whether a communicator has failed: `error` is None, or what its calls raise. `peer` -1: nobody in particular."""

    error: NearlightError | None
    rank: int
    peer: int
    text: str


class Route(NamedTuple):
    """What a call runs, and why. `grid` and `threads` are CTAs and threads of a CTA, 1 on a CPU."""

    algorithm: str
    protocol: str
    reason: str
    grid: int
    threads: int


class RouteCount(NamedTuple):
    """How many calls took a way, and the bytes of their inputs."""

    algorithm: str
    protocol: str
    operations: int
    bytes: int


class Counters(NamedTuple):
    """What a communicator has done. See nearlightCounters_t."""

    all_reduces: int
    barriers: int
    bytes: int
    captured: int
    failures: int
    routes: tuple[RouteCount, ...]
    all_gathers: int
    reduce_scatters: int
    broadcasts: int
    reduces: int
    all_to_alls: int
    send_recvs: int
    all_reduce_rms_norms: int
    all_reduce_biases: int
    gemv_all_reduces: int
    all_gather_gemvs: int


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def _key(key: str | None, name: str = "key") -> bytes | None:
    if key is None:
        return None
    if not isinstance(key, str):
        raise InvalidArgument(f"{name} is {key!r}; it takes a str or None")
    if "\0" in key:
        raise InvalidArgument(f"{name} has a control character in it")
    return key.encode()


class Communicator:
    """One rank's end of a group of CPUs or GPUs. Made by `host`, `host_group`, `cuda`, `cuda_group`, `attach_nccl`.

    Every rank makes the same collective calls in the same order; one thread at a time is in one. Nothing waits
    without a limit. `close()` ends it and everything of it that still runs; a `with` block does so at its end.
    """

    def __init__(self, handle: int) -> None:
        """Takes over a live nearlightComm_t. Use one of the class methods."""
        self._handle: int | None = handle
        self._pid = os.getpid()
        info = self.info()
        self.rank, self.nranks = info.rank, info.nranks

    # ---- making one

    @classmethod
    def host(cls, rank: int = -1, nranks: int = -1, key: str | None = None, config: Config = Config()) -> Communicator:
        """A CPU rank of a group whose ranks are processes of this host, 1 to 8. Collective.

        They find each other by `key`, a text that no other group uses at the same time. Left out: from
        NEARLIGHT_RANK, NEARLIGHT_NRANKS and NEARLIGHT_KEY, else torchrun, Open MPI, PMI or Slurm.
        Raises InvalidArgument, Timeout (names who did not come), RemoteError, InvalidUsage, Unsupported.
        """
        made = ctypes.c_void_p()
        check(lib().nearlightCommCreateHost(ctypes.byref(made), rank, nranks, _key(key), config._as_struct()))
        return cls(made.value or 0)

    @classmethod
    def host_group(cls, nranks: int, config: Config = Config()) -> list[Communicator]:
        """All CPU ranks of a group in this process; each is then used by a thread of its own."""
        made = (ctypes.c_void_p * max(nranks, 1))()
        check(lib().nearlightCommCreateHostGroup(made, nranks, config._as_struct()))
        return [cls(handle or 0) for handle in made[:nranks]]

    @classmethod
    def cuda(cls, device: int, rank: int = -1, nranks: int = -1, key: str | None = None,
             config: Config = Config()) -> Communicator:
        """A GPU rank of a group whose ranks are processes of this host, on CUDA device `device`. NCCL is not needed.
        Collective. Otherwise as `host`; raises CudaError, too."""
        made = ctypes.c_void_p()
        check(lib().nearlightCommCreateCuda(ctypes.byref(made), device, rank, nranks, _key(key), config._as_struct()))
        return cls(made.value or 0)

    @classmethod
    def cuda_group(cls, devices: Sequence[int], config: Config = Config()) -> list[Communicator]:
        """All GPU ranks of a group in this process, rank i on CUDA device devices[i]."""
        numbers = (ctypes.c_int * max(len(devices), 1))(*devices)
        made = (ctypes.c_void_p * max(len(devices), 1))()
        check(lib().nearlightCommCreateCudaGroup(made, len(devices), numbers, config._as_struct()))
        return [cls(handle or 0) for handle in made[:len(devices)]]

    @classmethod
    def attach_nccl(cls, nccl_comm: int, config: Config = Config()) -> Communicator:
        """A GPU rank on top of an NCCL communicator, given as the number that its ncclComm_t is. Collective over it;
        it stays the caller's, must be idle during the call and must outlive this one."""
        made = ctypes.c_void_p()
        check(lib().nearlightCommAttachNccl(ctypes.byref(made), nccl_comm, config._as_struct()))
        return cls(made.value or 0)

    # ---- its life

    @property
    def handle(self) -> int:
        """The nearlightComm_t. InvalidArgument once it is closed."""
        if self._handle is None:
            raise InvalidArgument("comm: this communicator is closed")
        return self._handle

    @property
    def closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Ends it and frees what it holds. What still runs is ended, not awaited. Not collective; again: nothing."""
        handle, self._handle = self._handle, None
        # A child made by fork() has no part in it.
        if handle is not None and os.getpid() == self._pid:
            try:
                check(lib().nearlightCommDestroy(handle))
            except NearlightError:
                self._handle = handle
                raise

    def abort(self) -> None:
        """Ends every wait of this rank, now and later: the communicator has then failed. Any thread."""
        check(lib().nearlightCommAbort(self.handle))

    def reset(self, timeout_ms: int = 0) -> None:
        """Brings it back after a failure, with all its ranks. Collective. See nearlightCommReset."""
        check(lib().nearlightCommReset(self.handle, timeout_ms))

    def shrink(self, members: Sequence[int], timeout_ms: int = 0) -> Communicator:
        """A new communicator of the ranks `members` alone, when the others are gone. See nearlightCommShrink."""
        numbers, made = (ctypes.c_int * max(len(members), 1))(*members), ctypes.c_void_p()
        check(lib().nearlightCommShrink(self.handle, numbers, len(members), timeout_ms, ctypes.byref(made)))
        return Communicator(made.value or 0)

    def set_path(self, path: str | None) -> None:
        """Moves all calls from now on to a path that NEARLIGHT_FORCE_PATH takes; None: the route's choice."""
        check(lib().nearlightCommSetPath(self.handle, _key(path, "path")))

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not sys.is_finalizing() and os.getpid() == self._pid:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)
            self.close()

    def __repr__(self) -> str:
        state = "closed " if self.closed else ""
        return f"<{state}nearlight.Communicator, rank {self.rank} of {self.nranks}>"

    # ---- asking

    def info(self) -> Info:
        """What it is made of. Any thread."""
        info = structs.CommInfo()
        check(lib().nearlightCommGetInfo(self.handle, ctypes.byref(info)))
        return Info(info.rank, info.nranks, _text(info.backend), _text(info.memory), info.scratch_bytes,
                    bool(info.early_launch), _text(info.memory_reason))

    def status(self) -> Status:
        """Whether it has failed as far as is known now, and how. Never blocks; any thread."""
        status = structs.CommStatus()
        check(lib().nearlightCommGetStatus(self.handle, ctypes.byref(status)))
        text = _text(status.text)
        return Status(None if status.result == 0 else error_of(status.result, text), status.rank, status.peer, text)

    def explain(self, count: int, dtype: DataType, op: int = ReduceOp.sum,
                collective: Collective = Collective.all_reduce) -> Route:
        """What a call of `count` elements would run, and why: the same on all ranks. Not collective; any thread."""
        route = structs.Route()
        _not_negative("count", count)
        check(lib().nearlightExplain(self.handle, collective, count, dtype, op, ctypes.byref(route)))
        return Route(_text(route.algorithm), _text(route.protocol), _text(route.reason), route.grid, route.threads)

    def explain_fused(self, collective: Collective, tokens: int, hidden: int, dtype: DataType) -> Route:
        """The same of a fused call on `tokens` rows of `hidden` elements."""
        route = structs.Route()
        _not_negative("tokens", tokens)
        _not_negative("hidden", hidden)
        check(lib().nearlightExplainFused(self.handle, collective, tokens, hidden, dtype, ctypes.byref(route)))
        return Route(_text(route.algorithm), _text(route.protocol), _text(route.reason), route.grid, route.threads)

    def explain_gemv(self, collective: Collective, tokens: int, in_size: int, out_size: int, dtype: DataType) -> Route:
        """The same of a product of `tokens` vectors, sizes as in the call (nearlight.torch's gemv_all_reduce: the columns
        of this rank and the rows; all_gather_gemv: a rank's part of a vector, and its rows)."""
        route = structs.Route()
        for name, size in (("tokens", tokens), ("in_size", in_size), ("out_size", out_size)):
            _not_negative(name, size)
        check(lib().nearlightExplainGemv(self.handle, collective, tokens, in_size, out_size, dtype, ctypes.byref(route)))
        return Route(_text(route.algorithm), _text(route.protocol), _text(route.reason), route.grid, route.threads)

    def counters(self) -> Counters:
        """What it has done since it was made. Never blocks; any thread."""
        c = structs.Counters()
        check(lib().nearlightCommGetCounters(self.handle, ctypes.byref(c)))
        routes = tuple(RouteCount(_text(one.algorithm), _text(one.protocol), one.operations, one.bytes)
                       for one in c.route[:min(c.routes, structs.MOST_ROUTES)])
        return Counters(c.all_reduces, c.barriers, c.bytes, c.captured, c.failures, routes, c.all_gathers,
                        c.reduce_scatters, c.broadcasts, c.reduces, c.all_to_alls, c.send_recvs,
                        c.all_reduce_rms_norms, c.all_reduce_biases, c.gemv_all_reduces,
                        c.all_gather_gemvs)

    # ---- operators

    def pre_mul_sum(self, scalar: bytes, dtype: DataType) -> int:
        """The operator "multiply this rank's input by `scalar` (the bytes of one element), then sum", for calls of
        this communicator with that type. Freed by `free_op`, or with the communicator."""
        if len(scalar) != DataType(dtype).itemsize:
            raise InvalidArgument(f"scalar has {len(scalar)} bytes, an element of {dtype.name} {dtype.itemsize}")
        made = ctypes.c_int()
        check(lib().nearlightRedOpCreatePreMulSum(ctypes.byref(made), scalar, dtype, 1, self.handle))
        return made.value

    def free_op(self, op: int) -> None:
        """Frees such an operator. What was enqueued or captured with it stays as it is."""
        check(lib().nearlightRedOpDestroy(op, self.handle))

    # ---- collectives

    def all_reduce(self, send: Any, recv: Any = None, op: int = ReduceOp.sum, *, dtype: DataType | None = None,
                   stream: int = 0) -> None:
        """recv[i] = op over all ranks of send[i]; without `recv` in place.

        Both are contiguous and have the buffer protocol (array.array, NumPy; CPU ranks) or CUDA's array interface (GPU
        ranks), and the same type and count. `dtype`: for types that these cannot tell, as bfloat16. CPU ranks: the
        result is there when the call returns. GPU ranks: enqueued on `stream`, a cudaStream_t as a number.
        Raises InvalidArgument (nothing was written), InvalidUsage, and, once the communicator has failed, that.
        """
        with Buffer("send", send, writable=recv is None, dtype=dtype) as source:
            if recv is None:
                self.all_reduce_raw(source.address, source.address, source.count, source.dtype, op, stream)
                return
            with Buffer("recv", recv, writable=True, dtype=dtype) as target:
                if (target.count, target.dtype) != (source.count, source.dtype):
                    raise InvalidArgument(f"recv has {target.count} elements of {target.dtype.name}, send {source.count} "
                                          f"of {source.dtype.name}")
                self.all_reduce_raw(source.address, target.address, source.count, source.dtype, op, stream)

    def all_reduce_raw(self, send: int, recv: int, count: int, dtype: int, op: int = ReduceOp.sum, stream: int = 0) -> None:
        """The same by addresses and a count of elements: nearlightAllReduce itself."""
        _not_negative("count", count)
        check(lib().nearlightAllReduce(send, recv, count, dtype, op, self.handle, stream or None))

    def all_gather_raw(self, send: int, recv: int, send_count: int, dtype: int, stream: int = 0) -> None:
        """recv = every rank's `send`, by rank. Addresses and a count of elements, as nearlightAllGather's; so the next."""
        _not_negative("send_count", send_count)
        check(lib().nearlightAllGather(send, recv, send_count, dtype, self.handle, stream or None))

    def reduce_scatter_raw(self, send: int, recv: int, recv_count: int, dtype: int, op: int = ReduceOp.sum,
                           stream: int = 0) -> None:
        """recv = this rank's part of the reduction of all ranks' `send`, which has recv_count elements for each."""
        _not_negative("recv_count", recv_count)
        check(lib().nearlightReduceScatter(send, recv, recv_count, dtype, op, self.handle, stream or None))

    def broadcast_raw(self, send: int, recv: int, count: int, dtype: int, root: int, stream: int = 0) -> None:
        """recv on every rank = `send` of rank `root`."""
        _not_negative("count", count)
        check(lib().nearlightBroadcast(send, recv, count, dtype, root, self.handle, stream or None))

    def reduce_raw(self, send: int, recv: int, count: int, dtype: int, op: int, root: int, stream: int = 0) -> None:
        """recv on rank `root` = the reduction of all ranks' `send`."""
        _not_negative("count", count)
        check(lib().nearlightReduce(send, recv, count, dtype, op, root, self.handle, stream or None))

    def all_to_all_raw(self, send: int, recv: int, count: int, dtype: int, stream: int = 0) -> None:
        """recv = the parts that all ranks' `send` has for this one, by rank; `count` elements each. Not in place."""
        _not_negative("count", count)
        check(lib().nearlightAllToAll(send, recv, count, dtype, self.handle, stream or None))

    def all_gather_v_raw(self, send: int, recv: int, recv_counts: Sequence[int], recv_places: Sequence[int] | None, dtype: int,
                         stream: int = 0) -> None:
        """As all_gather_raw with parts of different sizes: counts and places (None: one behind the other) of an entry a rank,
        in elements, as nearlightAllGatherV's; so the next."""
        check(lib().nearlightAllGatherV(send, recv, self._sizes("recv_counts", recv_counts),
                                        self._sizes("recv_places", recv_places), dtype, self.handle, stream or None))

    def reduce_scatter_v_raw(self, send: int, recv: int, recv_counts: Sequence[int], dtype: int, op: int = ReduceOp.sum,
                             stream: int = 0) -> None:
        """As reduce_scatter_raw with parts of different sizes."""
        check(lib().nearlightReduceScatterV(send, recv, self._sizes("recv_counts", recv_counts), dtype, op, self.handle,
                                            stream or None))

    def all_to_all_v_raw(self, send: int, send_counts: Sequence[int], send_places: Sequence[int], recv: int,
                         recv_counts: Sequence[int], recv_places: Sequence[int], dtype: int, stream: int = 0) -> None:
        """As all_to_all_raw with parts of different sizes, whose places have to be given."""
        check(lib().nearlightAllToAllV(send, self._sizes("send_counts", send_counts), self._sizes("send_places", send_places),
                                       recv, self._sizes("recv_counts", recv_counts),
                                       self._sizes("recv_places", recv_places), dtype, self.handle, stream or None))

    def _sizes(self, name: str, sizes: Sequence[int] | None) -> Any:
        if sizes is None:
            return None
        if len(sizes) != self.nranks:
            raise InvalidArgument(f"{name} has {len(sizes)} entries, and there are {self.nranks} ranks")
        for size in sizes:
            _not_negative(name, size)
        return (ctypes.c_size_t * len(sizes))(*sizes)

    def send_raw(self, send: int, count: int, dtype: int, peer: int, stream: int = 0) -> None:
        """Sends `count` elements from an address to rank `peer`, which receives them. See nearlightSend."""
        _not_negative("count", count)
        check(lib().nearlightSend(send, count, dtype, peer, self.handle, stream or None))

    def recv_raw(self, recv: int, count: int, dtype: int, peer: int, stream: int = 0) -> None:
        """Receives what rank `peer` sends, to an address."""
        _not_negative("count", count)
        check(lib().nearlightRecv(recv, count, dtype, peer, self.handle, stream or None))

    def barrier(self, *, stream: int = 0) -> None:
        """No rank goes through before all ranks have come to theirs. GPU ranks: on `stream`; the host does not wait."""
        check(lib().nearlightBarrier(self.handle, stream or None))


@contextlib.contextmanager
def together() -> Iterator[None]:
    """The sends and receives that this thread makes inside go together and start with the end, all at once; none of them
    where an exception leaves it. See nearlightGroupStart."""
    check(lib().nearlightGroupStart())
    try:
        yield
    except BaseException:
        lib().nearlightGroupDrop()
        raise
    check(lib().nearlightGroupEnd())


def _not_negative(name: str, value: int) -> None:
    # ctypes would make a large number of it.
    if not 0 <= value < 1 << 64:
        raise InvalidArgument(f"{name} is {value}; it takes 0 to 2^64 - 1")
