# SPDX-License-Identifier: Apache-2.0
"""nearlight's collectives as operators of PyTorch, and in the place of torch.distributed's.

    import nearlight.torch as nl
    nl.enable(group)             # collective; from here on torch.distributed.all_reduce(x, group=group) is nearlight's
    y = nl.all_reduce(x)         # the operator itself: eager, in CUDA graphs, in torch.compile(fullgraph=True)
    print(nl.explain(x))         # what runs, and why
    nl.disable(group)

docs/guide/python.md tells what is replaced and what is not. Groups are told as torch.distributed's: a ProcessGroup, or
None for the world; a group's name does as well.
"""

from __future__ import annotations

import atexit
import dataclasses
from typing import Any

import torch
import torch.distributed as dist

from ..communicator import Config
from ..errors import InvalidArgument, InvalidUsage
from ..types import Collective
from . import _collectives, _fused, _groups, _make, _ops, _replace
from ._groups import Explanation, Limits

__all__ = ["Explanation", "Statistics", "all_gather", "all_gather_gemv", "all_reduce", "all_reduce_", "all_reduce_bias", "all_reduce_rms_norm", "all_to_all", "broadcast_", "ddp_hook", "disable",
           "enable", "enabled", "explain", "gemv_all_reduce", "reduce_", "reduce_scatter", "set_path", "statistics"]

atexit.register(_groups.close_all)


def _process_group(group: Any) -> Any:
    if not dist.is_initialized():
        raise InvalidUsage("group: torch.distributed has no default process group: init_process_group first")
    if group is None:
        return dist.group.WORLD
    if isinstance(group, str):
        return dist.distributed_c10d._resolve_process_group(group)
    if not isinstance(group, dist.ProcessGroup):
        raise InvalidArgument(f"group is {group!r}; it takes a ProcessGroup that this rank is in, its name, or None")
    return group


def enable(group: Any = None, *, replace: bool = True, device: torch.device | str | None = None, backend: str = "auto",
           min_bytes: int = 0, max_bytes: int | None = None, config: Config = Config()) -> None:
    """Makes nearlight's communicator of a process group's ranks. Collective over the group.

    replace: calls of torch.distributed.all_reduce for this group go to nearlight's operator until `disable`.
    device: the rank's, by default the current GPU where the group's backend is NCCL, else the CPU.
    backend: "host" (CPU), "nccl" (GPUs, over an NCCL communicator of its own), "cuda" (GPUs, without NCCL), or "auto".
    min_bytes, max_bytes: what is smaller or larger is left to the process group.
    config: of the communicator; its limits are in ms. All but `device` must be the same on all ranks.

    Raises, on all ranks of the group: InvalidArgument, InvalidUsage (enabled already; ranks that differ), Unsupported
    (several hosts, more than 8 ranks, GPUs that do not reach each other), Timeout, RemoteError. Nothing is changed then.
    """
    found = _process_group(group)
    made = _make.make_group(found, device=None if device is None else torch.device(device), backend=backend,
                            limits=Limits(min_bytes, max_bytes), config=config, replace=replace)
    _groups.add(made)
    if replace:
        _replace.replace(found.group_name)


def disable(group: Any = None) -> None:
    """Ends what `enable` made, and gives torch.distributed its functions back when no group needs them any more.

    Every rank calls it, when its calls are done; nobody waits for the others. For a group that is not enabled: nothing.
    """
    _replace.forget(_process_group(group).group_name)


def enabled(group: Any = None) -> bool:
    """Whether nearlight is enabled for the group."""
    return dist.is_initialized() and _groups.find(_groups.name_of(group)) is not None


def all_reduce(tensor: torch.Tensor, op: str = "sum", group: Any = None) -> torch.Tensor:
    """A new contiguous tensor: the reduction of all ranks' `tensor`, which has the same shape and type on all of them.

    op: sum, prod (or product), max, min, avg. Any strides. Differentiable for sum and avg. GPU: on the current stream.
    What nearlight does not take goes to the process group; `explain` tells. Raises InvalidArgument, InvalidUsage (not
    enabled), and, once a rank has failed or did not come, RemoteError or Timeout.
    """
    return _ops.call(tensor, op, _groups.name_of(group))


def all_reduce_(tensor: torch.Tensor, op: str = "sum", group: Any = None) -> torch.Tensor:
    """The same in place, without a derivative. Raises InvalidArgument for a tensor whose elements share memory."""
    _ops.call_(tensor, op, _groups.name_of(group))
    return tensor


def all_reduce_rms_norm(tensor: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None = None, *, eps: float = 1e-6,
                        out_dtype: torch.dtype | None = None, scale: torch.Tensor | None = None,
                        group: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, total) in one kernel: total = all_reduce(tensor) + residual, out = total / sqrt(mean(total^2) + eps) * weight.

    The last dimension, 1024 to 16384 and a multiple of 8, is normalised; bfloat16 or float16. out_dtype: float8_e4m3fn or
    int8, with `scale`, one float32 on the tensor's device, by which it is divided. Weight, residual and scale are the same on
    all ranks. Not differentiable; nothing of it goes to the process group. Raises InvalidArgument, which names what it is,
    and the failure of the communicator."""
    return torch.ops.nearlight.all_reduce_rms_norm(tensor, weight, residual, scale, eps, out_dtype, _groups.name_of(group))


def all_reduce_bias(tensor: torch.Tensor, bias: torch.Tensor, group: Any = None) -> torch.Tensor:
    """A new tensor: all_reduce(tensor) + bias, which has the length of the last dimension. Otherwise as all_reduce_rms_norm."""
    return torch.ops.nearlight.all_reduce_bias(tensor, bias, _groups.name_of(group))


def gemv_all_reduce(tensor: torch.Tensor, weight: torch.Tensor, group: Any = None) -> torch.Tensor:
    """A new tensor: all_reduce(tensor @ weight.T) in one kernel, a linear layer whose columns are spread over the ranks.

    tensor: (..., in_size), at most 16 rows in all; weight: (out_size, in_size), contiguous, at a multiple of 16 bytes; bfloat16 or
    float16, both sizes multiples of 8; in_size may differ between the ranks. Products and ranks are added up in float32 and
    rounded once. Not differentiable; nothing of it goes to the process group. Raises InvalidArgument, which names what it is, and the
    failure of the communicator."""
    return torch.ops.nearlight.gemv_all_reduce(tensor, weight, _groups.name_of(group))


def all_gather_gemv(tensor: torch.Tensor, weight: torch.Tensor, group: Any = None) -> torch.Tensor:
    """A new tensor: all ranks' `tensor`, side by side along the last dimension, @ weight.T, in one kernel: a linear layer whose
    rows are spread over the ranks, of vectors that are, too.

    tensor: (..., in_size); weight: (out_size, in_size of all ranks). Both sizes are the same on all ranks. On a GPU the gathered
    rows must fit the shared memory of a CTA (16 of 4672 elements on an H200). Otherwise as gemv_all_reduce."""
    return torch.ops.nearlight.all_gather_gemv(tensor, weight, _groups.name_of(group))


def all_gather(tensor: torch.Tensor, group: Any = None) -> torch.Tensor:
    """A new tensor: all ranks' `tensor`, of the same shape and type, one behind the other along the first dimension.
    Differentiable. Otherwise as `all_reduce`; so are the next."""
    return torch.ops.nearlight.all_gather(tensor, _groups.name_of(group))


def reduce_scatter(tensor: torch.Tensor, op: str = "sum", group: Any = None) -> torch.Tensor:
    """A new tensor: this rank's part, along the first dimension, of the reduction of all ranks' `tensor`. Raises
    InvalidArgument where the ranks do not divide that dimension. Differentiable for sum and avg."""
    return torch.ops.nearlight.reduce_scatter(tensor, op, _groups.name_of(group))


def all_to_all(tensor: torch.Tensor, group: Any = None) -> torch.Tensor:
    """A new tensor: the parts, along the first dimension, that all ranks' `tensor` has for this one. Differentiable."""
    return torch.ops.nearlight.all_to_all(tensor, _groups.name_of(group))


def broadcast_(tensor: torch.Tensor, root: int, group: Any = None) -> torch.Tensor:
    """Writes rank `root`'s tensor, a rank of the group, into all others'."""
    torch.ops.nearlight.broadcast_(tensor, root, _groups.name_of(group))
    return tensor


def reduce_(tensor: torch.Tensor, root: int, op: str = "sum", group: Any = None) -> torch.Tensor:
    """Writes the reduction of all ranks' tensors into that of rank `root` of the group; the others' stay as they are."""
    torch.ops.nearlight.reduce_(tensor, root, op, _groups.name_of(group))
    return tensor


def explain(tensor: torch.Tensor, op: str = "sum", group: Any = None, collective: str = "all_reduce") -> Explanation:
    """Whether nearlight takes a call with such a tensor, what it then runs, and why. Not collective.

    collective: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or reduce; `op` counts where there is one.
    Raises InvalidArgument for another one.
    """
    if collective not in Collective.__members__:
        raise InvalidArgument(f"collective is {collective!r}; it takes {', '.join(Collective.__members__)}")
    found = _groups.find(_groups.name_of(group))
    if found is None:
        return Explanation(False, "nearlight is not enabled for this group")
    if tensor.layout != torch.strided:
        return Explanation(False, f"the tensor's layout is {tensor.layout}")
    # The C API counts by the part of one rank, which for these two is that of the result.
    parts = found.comm.nranks if collective in ("reduce_scatter", "all_to_all") else 1
    return found.explain(tensor.dtype, tensor.numel() // parts, op, tensor.device.type, Collective[collective])


def set_path(path: str | None, group: Any = None) -> None:
    """Moves nearlight's calls of this group from now on to a path that NEARLIGHT_FORCE_PATH takes ("fallback" among them);
    None: the route's choice. Every rank does so between the same two calls; graphs keep the path they were captured with."""
    _groups.get(_groups.name_of(group)).set_path(path)


@dataclasses.dataclass(frozen=True)
class Statistics:
    """How many calls nearlight took, and how many it left to the process group, by reason."""

    taken: int
    left: dict[str, int]


def statistics(group: Any = None) -> Statistics:
    """What was done since `enable`. Replays of graphs are not seen."""
    found = _groups.get(_groups.name_of(group))
    return Statistics(found.taken, dict(found.left))


def ddp_hook(state: Any, bucket):  # type: ignore[no-untyped-def]  # DDP looks at annotations, and not at texts
    """A communication hook for DistributedDataParallel, whose own all-reduces are made in C++ and cannot be replaced:
    `model.register_comm_hook(group, nearlight.torch.ddp_hook)`, the group or None for the world."""
    tensor = all_reduce_(bucket.buffer(), "avg", state)
    future: Any = torch.futures.Future(devices=[tensor.device] if tensor.device.type == "cuda" else None)
    future.set_result(tensor)
    return future
