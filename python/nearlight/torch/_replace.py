# SPDX-License-Identifier: Apache-2.0
"""What stands in the place of functions of torch.distributed while a group is enabled with replace=True.

Attributes of modules, no more: who imported a function by name before enable() keeps the one that he has, and C++ (DDP's
reducer) never comes by here.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.distributed_c10d as c10d

from . import _groups, _ops

# Groups whose calls come here, by name. Read by compiled code, which is compiled anew when it changes.
replaced: dict[str, bool] = {}

_plain_all_reduce = dist.all_reduce
_plain_functional = functional.all_reduce
_plain_destroy = dist.destroy_process_group

_NAMES = [(dist.ReduceOp.SUM, "sum"), (dist.ReduceOp.PRODUCT, "product"), (dist.ReduceOp.MIN, "min"),
          (dist.ReduceOp.MAX, "max"), (dist.ReduceOp.AVG, "avg")]


def _op_name(op: Any) -> str | None:
    """None for what nearlight does not have: bitwise ones, and operators that carry a factor."""
    for known, name in _NAMES:
        if op is known:
            return name
    if not torch.compiler.is_compiling():  # which cannot compare these, but knows one from another
        # Those with a factor are equal to PREMUL_SUM, which is not among the names.
        for known, name in _NAMES:
            if op == known:
                return name
    return None


def all_reduce(tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """torch.distributed.all_reduce, by nearlight where it is enabled for the group and takes the call."""
    # Ranks that are not in a group have a number in the place of it: PyTorch warns and returns.
    if group is not None and not isinstance(group, dist.ProcessGroup):
        return _plain_all_reduce(tensor, op=op, group=group, async_op=async_op)
    name = _groups.WORLD if group is None else group.group_name
    if name not in replaced or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return _plain_all_reduce(tensor, op=op, group=group, async_op=async_op)
    known = _op_name(op)
    if known is None or (async_op and torch.compiler.is_compiling()):
        return _plain_all_reduce(tensor, op=op, group=group, async_op=async_op)
    if not async_op:
        _ops.call_(tensor, known, name)
        return None
    return _async_all_reduce(tensor, op, known, group, name)


def _async_all_reduce(tensor: Any, op: Any, known: str, group: Any, name: str) -> Any:
    found = _groups.get(name)
    if tensor.layout != torch.strided or not found.explain(tensor.dtype, tensor.numel(), known, tensor.device.type).taken:
        found.take(tensor, known)
        return _plain_all_reduce(tensor, op=op, group=group, async_op=True)
    _ops.call_(tensor, known, name)
    # Enqueued on the current stream, which is what wait() would make it wait for.
    future: Any = torch.futures.Future(devices=[tensor.device] if tensor.device.type == "cuda" else None)
    future.set_result([tensor])
    return torch._C._distributed_c10d._create_work_from_future(future)


def functional_all_reduce(self: Any, reduceOp: str, group: Any, tag: str = "") -> Any:  # noqa: N803 (PyTorch's name)
    """The functional one, which tensor parallelism by DTensor takes."""
    name = functional._resolve_group_name(group, tag)
    if name not in replaced or type(self) not in (torch.Tensor, torch.nn.Parameter) or reduceOp.lower() not in _ops.OPS:
        return _plain_functional(self, reduceOp, group, tag)
    return _ops.call(self, reduceOp.lower(), name)


def destroy_process_group(group: Any = None) -> None:
    """Ends nearlight's part first: nobody may meet a group of the same name later."""
    if group is not None and not isinstance(group, dist.ProcessGroup):  # of ranks that are not in it
        return _plain_destroy(group)
    gone = _groups.names() if group is None or group is dist.group.WORLD else [group.group_name]
    for name in gone:
        forget(name)
    _plain_destroy(group)


_PLACES: list[tuple[Any, str, Any]] = [
    (dist, "all_reduce", all_reduce), (c10d, "all_reduce", all_reduce),
    (functional, "all_reduce", functional_all_reduce),
    (dist, "destroy_process_group", destroy_process_group), (c10d, "destroy_process_group", destroy_process_group),
]
_before: list[Any] = []


def replace(name: str) -> None:
    if not _before:
        for module, attribute, ours in _PLACES:
            _before.append(getattr(module, attribute))
            setattr(module, attribute, ours)
    replaced[name] = True
    if name == _groups.world_name():
        replaced[_groups.WORLD] = True


def restore(name: str) -> None:
    # The world stands there under both of its names.
    if replaced.pop(name, False) and dist.is_initialized() and name == _groups.world_name():
        replaced.pop(_groups.WORLD, None)
    if replaced or not _before:
        return
    for (module, attribute, ours), before in zip(_PLACES, _before):
        # Where somebody else has put his own in front, taking ours away would take his, too.
        if getattr(module, attribute) is ours:
            setattr(module, attribute, before)
    _before.clear()


def forget(name: str) -> None:
    """Everything of one group."""
    restore(name)
    group = _groups.remove(name)
    if group is not None:
        group.close()
