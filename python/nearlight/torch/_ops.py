# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.nearlight.*, with fake kernels and derivatives.

Which calls nearlight takes is decided inside them, so that one compiled graph serves all sizes. `group` is the name of a
process group, "" the world's.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ..errors import InvalidArgument
from . import _groups
from ._groups import DIST_OPS, OPS, Group

# The process group's own function, whatever stands in its place.
plain_all_reduce = dist.all_reduce

_library = torch.library.Library("nearlight", "DEF")
_TAGS = (torch.Tag.pt2_compliant_tag,)


def _check_op(op: str) -> None:
    if op not in OPS:
        raise InvalidArgument(f"op is {op!r}; it takes {', '.join(OPS)}")


def _check_target(name: str, tensor: torch.Tensor) -> None:
    # Writing through such a view has no meaning, and is found out here rather than after the others have gone on.
    if any(stride == 0 and extent > 1 for stride, extent in zip(tensor.stride(), tensor.shape)):
        raise InvalidArgument(f"{name} has elements that share memory (an expanded tensor)")


def _written(tensor: torch.Tensor) -> None:
    """As every operator that writes: what autograd had saved of it is known to be gone."""
    if not tensor.is_inference():  # which have no version, and with older PyTorch refuse one
        torch.autograd.graph.increment_version(tensor)


def _reduced(group: Group, source: torch.Tensor, target: torch.Tensor, op: str) -> None:
    """target = the reduction of source, both contiguous, by nearlight or by the process group."""
    if group.take(source, op):
        group.all_reduce(source, target, op)
        return
    if target is not source:
        target.copy_(source)
    plain_all_reduce(target, op=DIST_OPS[op], group=group.process_group)


def all_reduce(tensor: torch.Tensor, op: str = "sum", group: str = _groups.WORLD) -> torch.Tensor:
    _check_op(op)
    found = _groups.get(group)
    source = tensor.contiguous()
    result = torch.empty_like(source)
    _reduced(found, source, result, op)
    return result


def all_reduce_(tensor: torch.Tensor, op: str = "sum", group: str = _groups.WORLD) -> None:
    _check_op(op)
    found = _groups.get(group)
    if tensor.is_contiguous():
        _reduced(found, tensor, tensor, op)
    else:
        _check_target("tensor", tensor)
        dense = tensor.contiguous()
        _reduced(found, dense, dense, op)
        tensor.copy_(dense)
    _written(tensor)


def all_reduce_out(tensor: torch.Tensor, out: torch.Tensor, op: str = "sum", group: str = _groups.WORLD) -> None:
    _check_op(op)
    found = _groups.get(group)
    if out.shape != tensor.shape or out.dtype != tensor.dtype or out.device != tensor.device:
        raise InvalidArgument(f"out is {tuple(out.shape)} of {out.dtype} on {out.device}, "
                              f"tensor {tuple(tensor.shape)} of {tensor.dtype} on {tensor.device}")
    _check_target("out", out)
    source = tensor.contiguous()
    dense = out if out.is_contiguous() else torch.empty_like(source)
    _reduced(found, source, dense, op)
    if dense is not out:
        out.copy_(dense)
    _written(out)


def _fake_all_reduce(tensor: torch.Tensor, op: str = "sum", group: str = _groups.WORLD) -> torch.Tensor:
    _check_op(op)
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _fake_nothing(*_: Any, **__: Any) -> None:
    return None


def define(name: str, arguments: str, result: str, kernel: Any, fake: Any, *, in_place: bool) -> None:
    """torch.ops.nearlight.NAME, whose last argument is the group."""
    _library.define(f"{name}({arguments}, str group='') -> {result}", tags=_TAGS)
    for key in ("CPU", "CUDA"):
        _library.impl(name, kernel, key)
    if in_place:
        # As torch.distributed's: what is written is no function of what was there, to autograd.
        _library.impl(name, torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake(f"nearlight::{name}", fake, lib=_library)


# Name, arguments, result, kernel, fake kernel. The other collectives: _collectives.py.
define("all_reduce", "Tensor tensor, str op='sum'", "Tensor", all_reduce, _fake_all_reduce, in_place=False)
define("all_reduce_", "Tensor(a!) tensor, str op='sum'", "()", all_reduce_, _fake_nothing, in_place=True)
define("all_reduce_out", "Tensor tensor, Tensor(a!) out, str op='sum'", "()", all_reduce_out, _fake_nothing, in_place=True)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _, ctx.op, ctx.group = inputs


def _backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    # Every rank's result depends on every rank's input; the gradient of a sum is the sum of the gradients.
    if ctx.op not in ("sum", "avg"):
        raise RuntimeError(f"nearlight::all_reduce has no derivative for op {ctx.op!r}")
    return torch.ops.nearlight.all_reduce(gradient, ctx.op, ctx.group), None, None


def derive(name: str, backward: Any, setup: Any) -> None:
    torch.library.register_autograd(f"nearlight::{name}", backward, setup_context=setup, lib=_library)


derive("all_reduce", _backward, _keep)


# ---- eager calls --------------------------------------------------------------------------------------

# The way through PyTorch's dispatcher to a kernel in Python takes some ten microseconds, with a derivative forty. An
# eager call of a plain tensor that nothing looks at has no need of it.
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_dispatch_modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
_transforms = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None)


def _direct(tensor: torch.Tensor) -> bool:
    return (type(tensor) in _PLAIN and _dispatch_modes is not None and _transforms is not None and _dispatch_modes() == 0
            and _transforms() is None and (tensor.is_cpu or tensor.is_cuda))


def call(tensor: torch.Tensor, op: str, group: str) -> torch.Tensor:
    """torch.ops.nearlight.all_reduce, by the short way where there is one."""
    if torch.compiler.is_compiling() or not _direct(tensor) or (tensor.requires_grad and torch.is_grad_enabled()):
        return torch.ops.nearlight.all_reduce(tensor, op, group)
    return all_reduce(tensor, op, group)


def call_(tensor: torch.Tensor, op: str, group: str) -> None:
    """torch.ops.nearlight.all_reduce_, likewise."""
    if torch.compiler.is_compiling() or not _direct(tensor):
        torch.ops.nearlight.all_reduce_(tensor, op, group)
    elif tensor.requires_grad:
        with torch.no_grad():
            all_reduce_(tensor, op, group)
    else:
        all_reduce_(tensor, op, group)
