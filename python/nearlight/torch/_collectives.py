# SPDX-License-Identifier: Apache-2.0
"""The operators beyond all_reduce: all_gather, reduce_scatter, all_to_all, broadcast_, reduce_.

The first three give a new contiguous tensor and put ranks one behind the other along the first dimension; the last two
write to the tensor that they are given. What nearlight does not take goes to the process group.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ..errors import InvalidArgument
from ..types import Collective
from . import _groups, _ops
from ._groups import DIST_OPS, Group

plain_all_gather = dist.all_gather_into_tensor
plain_reduce_scatter = dist.reduce_scatter_tensor
plain_all_to_all = dist.all_to_all_single
plain_broadcast, plain_reduce = dist.broadcast, dist.reduce


def _parts(tensor: torch.Tensor, nranks: int) -> list[int]:
    """The shape of one rank's part of the first dimension."""
    if tensor.dim() == 0 or tensor.shape[0] % nranks != 0:
        raise InvalidArgument(f"tensor is {tuple(tensor.shape)}; its first dimension must be a multiple of {nranks}, the ranks")
    return [tensor.shape[0] // nranks, *tensor.shape[1:]]


def _gathered(tensor: torch.Tensor, nranks: int) -> list[int]:
    return [nranks * tensor.shape[0], *tensor.shape[1:]] if tensor.dim() > 0 else [nranks]


def _check_root(root: int, group: Group) -> None:
    if not 0 <= root < group.comm.nranks:
        raise InvalidArgument(f"root is {root}; it takes 0 to {group.comm.nranks - 1}, a rank of the group")


def _taken(group: Group, collective: Collective, send: torch.Tensor, recv: torch.Tensor, count: int, op: str = "sum",
           root: int = 0) -> bool:
    if not group.take(send, op, collective, count):
        return False
    if count > 0:
        group.call(collective, send, recv, count, op, root)
    return True


def all_gather(tensor: torch.Tensor, group: str = _groups.WORLD) -> torch.Tensor:
    found, source = _groups.get(group), tensor.contiguous()
    result = source.new_empty(_gathered(source, found.comm.nranks))
    if not _taken(found, Collective.all_gather, source, result, source.numel()):
        plain_all_gather(result, source.reshape(-1) if source.dim() == 0 else source, group=found.process_group)
    return result


def reduce_scatter(tensor: torch.Tensor, op: str = "sum", group: str = _groups.WORLD) -> torch.Tensor:
    _ops._check_op(op)
    found, source = _groups.get(group), tensor.contiguous()
    result = source.new_empty(_parts(source, found.comm.nranks))
    if not _taken(found, Collective.reduce_scatter, source, result, result.numel(), op):
        plain_reduce_scatter(result, source, op=DIST_OPS[op], group=found.process_group)
    return result


def all_to_all(tensor: torch.Tensor, group: str = _groups.WORLD) -> torch.Tensor:
    found, source = _groups.get(group), tensor.contiguous()
    _parts(source, found.comm.nranks)
    result = torch.empty_like(source)
    if not _taken(found, Collective.all_to_all, source, result, source.numel() // found.comm.nranks):
        plain_all_to_all(result, source, group=found.process_group)
    return result


def _in_place(tensor: torch.Tensor, call: Any) -> None:
    if tensor.is_contiguous():
        call(tensor)
    else:
        _ops._check_target("tensor", tensor)
        dense = tensor.contiguous()
        call(dense)
        tensor.copy_(dense)
    _ops._written(tensor)


def broadcast_(tensor: torch.Tensor, root: int, group: str = _groups.WORLD) -> None:
    found = _groups.get(group)
    _check_root(root, found)

    def call(dense: torch.Tensor) -> None:
        if not _taken(found, Collective.broadcast, dense, dense, dense.numel(), root=root):
            plain_broadcast(dense, dist.get_global_rank(found.process_group, root), group=found.process_group)

    _in_place(tensor, call)


def reduce_(tensor: torch.Tensor, root: int, op: str = "sum", group: str = _groups.WORLD) -> None:
    _ops._check_op(op)
    found = _groups.get(group)
    _check_root(root, found)

    def call(dense: torch.Tensor) -> None:
        if not _taken(found, Collective.reduce, dense, dense, dense.numel(), op, root):
            # gloo leaves sums of some ranks in the tensors of those that are not the root.
            mine = dense if found.comm.rank == root else dense.clone()
            plain_reduce(mine, dist.get_global_rank(found.process_group, root), op=DIST_OPS[op], group=found.process_group)

    _in_place(tensor, call)


def _nranks(group: str) -> int:
    return _groups.get(group).comm.nranks


def _fake_all_gather(tensor: torch.Tensor, group: str = _groups.WORLD) -> torch.Tensor:
    return tensor.new_empty(_gathered(tensor, _nranks(group)))


def _fake_reduce_scatter(tensor: torch.Tensor, op: str = "sum", group: str = _groups.WORLD) -> torch.Tensor:
    _ops._check_op(op)
    return tensor.new_empty(_parts(tensor, _nranks(group)))


def _fake_all_to_all(tensor: torch.Tensor, group: str = _groups.WORLD) -> torch.Tensor:
    _parts(tensor, _nranks(group))
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


_ops.define("all_gather", "Tensor tensor", "Tensor", all_gather, _fake_all_gather, in_place=False)
_ops.define("reduce_scatter", "Tensor tensor, str op='sum'", "Tensor", reduce_scatter, _fake_reduce_scatter, in_place=False)
_ops.define("all_to_all", "Tensor tensor", "Tensor", all_to_all, _fake_all_to_all, in_place=False)
_ops.define("broadcast_", "Tensor(a!) tensor, int root", "()", broadcast_, _ops._fake_nothing, in_place=True)
_ops.define("reduce_", "Tensor(a!) tensor, int root, str op='sum'", "()", reduce_, _ops._fake_nothing, in_place=True)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.group = inputs[-1]
    ctx.op = inputs[1] if len(inputs) == 3 else "sum"
    ctx.scalar = inputs[0].dim() == 0


def _of_all_gather(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    mine = torch.ops.nearlight.reduce_scatter(gradient, "sum", ctx.group)
    return mine.reshape(()) if ctx.scalar else mine, None


def _of_reduce_scatter(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    if ctx.op not in ("sum", "avg"):
        raise RuntimeError(f"nearlight::reduce_scatter has no derivative for op {ctx.op!r}")
    whole = torch.ops.nearlight.all_gather(gradient, ctx.group)
    return whole / _nranks(ctx.group) if ctx.op == "avg" else whole, None, None


def _of_all_to_all(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    return torch.ops.nearlight.all_to_all(gradient, ctx.group), None


_ops.derive("all_gather", _of_all_gather, _keep)
_ops.derive("reduce_scatter", _of_reduce_scatter, _keep)
_ops.derive("all_to_all", _of_all_to_all, _keep)
