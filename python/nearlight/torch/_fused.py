# SPDX-License-Identifier: Apache-2.0
"""The fused operators: all_reduce_rms_norm, all_reduce_bias, gemv_all_reduce and all_gather_gemv. No call of theirs goes to the process group, and they have
no derivative."""

from __future__ import annotations

from typing import Any

import torch

from .. import _library
from .._library import check
from .._structs import RmsNorm
from ..errors import InvalidArgument
from . import _groups, _ops
from ._groups import _DTYPE_NUMBERS, DTYPES


def _dense(name: str, tensor: torch.Tensor, like: torch.Tensor, shape: tuple[int, ...] | torch.Size) -> torch.Tensor:
    """Contiguous, and at a multiple of 16 bytes."""
    if tensor.dtype != like.dtype or tensor.device != like.device or tuple(tensor.shape) != tuple(shape):
        raise InvalidArgument(f"{name} is {tuple(tensor.shape)} of {tensor.dtype} on {tensor.device}; it must be {tuple(shape)} of "
                              f"{like.dtype} on {like.device}")
    dense = tensor.contiguous()
    return dense.clone() if dense.data_ptr() % 16 else dense


def _rows(tensor: torch.Tensor) -> tuple[int, int]:
    if tensor.dim() == 0:
        raise InvalidArgument("tensor has no dimension; its last one is the hidden size")
    hidden = tensor.shape[-1]
    return (tensor.numel() // hidden if hidden else 0), hidden


def _group(tensor: torch.Tensor, name: str) -> Any:
    group = _groups.get(name)
    if tensor.device.type != group.device.type or (group.on_gpu and tensor.get_device() != group.device.index):
        raise InvalidArgument(f"tensor is on {tensor.device}, the group was enabled for {group.device}")
    if tensor.dtype not in DTYPES:
        raise InvalidArgument(f"nearlight has no type {tensor.dtype}")
    return group


def all_reduce_rms_norm(tensor: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None = None,
                        scale: torch.Tensor | None = None, eps: float = 1e-6, out_dtype: torch.dtype | None = None,
                        group: str = _groups.WORLD) -> tuple[torch.Tensor, torch.Tensor]:
    found = _group(tensor, group)
    out_dtype = out_dtype or tensor.dtype
    if out_dtype not in DTYPES:
        raise InvalidArgument(f"out_dtype is {out_dtype}, which nearlight has not")
    if scale is not None and (scale.dtype != torch.float32 or scale.numel() != 1 or scale.device != tensor.device):
        raise InvalidArgument(f"scale is {tuple(scale.shape)} of {scale.dtype} on {scale.device}; it must be one float32 on {tensor.device}")
    source = _dense("tensor", tensor, tensor, tensor.shape)
    norm = RmsNorm()
    norm.tokens, norm.hidden = _rows(source)
    weight = _dense("weight", weight, tensor, (norm.hidden,))
    added = None if residual is None else _dense("residual", residual, tensor, tensor.shape)
    total, out = torch.empty_like(source), torch.empty_like(source, dtype=out_dtype)
    norm.input, norm.weight, norm.residual_out, norm.out = source.data_ptr(), weight.data_ptr(), total.data_ptr(), out.data_ptr()
    norm.residual = None if added is None else added.data_ptr()
    norm.scale = None if scale is None else scale.data_ptr()
    norm.type, norm.out_type, norm.eps = _DTYPE_NUMBERS[tensor.dtype], _DTYPE_NUMBERS[out_dtype], eps
    check(_library.lib().nearlightAllReduceRmsNorm(norm, found.comm.handle, found._stream()))
    return out, total


def all_reduce_bias(tensor: torch.Tensor, bias: torch.Tensor, group: str = _groups.WORLD) -> torch.Tensor:
    found = _group(tensor, group)
    source = _dense("tensor", tensor, tensor, tensor.shape)
    tokens, hidden = _rows(source)
    added = _dense("bias", bias, tensor, (hidden,))
    out = torch.empty_like(source)
    check(_library.lib().nearlightAllReduceBias(source.data_ptr(), added.data_ptr(), out.data_ptr(), tokens, hidden,
                                                _DTYPE_NUMBERS[tensor.dtype], found.comm.handle, found._stream()))
    return out


def _product(call: str, tensor: torch.Tensor, weight: torch.Tensor, group: str, gathers: bool) -> torch.Tensor:
    found = _group(tensor, group)
    tokens, in_size = _rows(tensor)
    columns = in_size * found.comm.nranks if gathers else in_size
    if weight.dim() != 2:
        raise InvalidArgument(f"weight has {weight.dim()} dimensions; it must be (out_size, {columns})")
    source = _dense("tensor", tensor, tensor, tensor.shape)
    # A copy of a matrix in each call would cost more than the call.
    if not weight.is_contiguous() or weight.data_ptr() % 16:
        raise InvalidArgument("weight is not contiguous, or not at a multiple of 16 bytes")
    weight = _dense("weight", weight, tensor, (weight.shape[0], columns))
    out = tensor.new_empty((*tensor.shape[:-1], weight.shape[0]))
    check(getattr(_library.lib(), call)(source.data_ptr(), weight.data_ptr(), out.data_ptr(), tokens, in_size, weight.shape[0],
                                        _DTYPE_NUMBERS[tensor.dtype], found.comm.handle, found._stream()))
    return out


def gemv_all_reduce(tensor: torch.Tensor, weight: torch.Tensor, group: str = _groups.WORLD) -> torch.Tensor:
    return _product("nearlightGemvAllReduce", tensor, weight, group, gathers=False)


def all_gather_gemv(tensor: torch.Tensor, weight: torch.Tensor, group: str = _groups.WORLD) -> torch.Tensor:
    return _product("nearlightAllGatherGemv", tensor, weight, group, gathers=True)


def _fake_rms_norm(tensor: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None = None,
                   scale: torch.Tensor | None = None, eps: float = 1e-6, out_dtype: torch.dtype | None = None,
                   group: str = _groups.WORLD) -> tuple[torch.Tensor, torch.Tensor]:
    dense = torch.contiguous_format
    return torch.empty_like(tensor, dtype=out_dtype, memory_format=dense), torch.empty_like(tensor, memory_format=dense)


def _fake_bias(tensor: torch.Tensor, bias: torch.Tensor, group: str = _groups.WORLD) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _fake_gemv(tensor: torch.Tensor, weight: torch.Tensor, group: str = _groups.WORLD) -> torch.Tensor:
    return tensor.new_empty((*tensor.shape[:-1], weight.shape[0]))


_ops.define("all_reduce_rms_norm", "Tensor tensor, Tensor weight, Tensor? residual=None, Tensor? scale=None, float eps=1e-06, "
            "ScalarType? out_dtype=None", "(Tensor, Tensor)", all_reduce_rms_norm, _fake_rms_norm, in_place=False)
_ops.define("all_reduce_bias", "Tensor tensor, Tensor bias", "Tensor", all_reduce_bias, _fake_bias, in_place=False)
_ops.define("gemv_all_reduce", "Tensor tensor, Tensor weight", "Tensor", gemv_all_reduce, _fake_gemv, in_place=False)
_ops.define("all_gather_gemv", "Tensor tensor, Tensor weight", "Tensor", all_gather_gemv, _fake_gemv, in_place=False)
