# SPDX-License-Identifier: Apache-2.0
"""The ways a decode step's partial sums become one, besides those that any all-reduce gives (decoder.py): the variants of run.py."""

from __future__ import annotations

import torch
import torch.distributed as dist

import nearlight
import nearlight.torch as nl
from nearlight.torch import _ops
from decoder import EPS, Joins, Shape

# none: partial sums go on unreduced. nccl: torch.distributed's, in place. nccl_direct: ncclAllReduce on the step's own
# stream, without the process group's stream beside it, as vLLM calls it. nearlight: the operator, out of place.
# nearlight_norm: each all-reduce together with the residual and the norm behind it. nearlight_gemv: each all-reduce but
# the embedding's together with the linear layer before it.
FUSED = ("nearlight_norm", "nearlight_gemv")
VARIANTS = ("none", "nccl", "nccl_direct", "nearlight", *FUSED)
# What the fused operations take: see nearlight.torch.
LEAST_HIDDEN, MOST_HIDDEN, MOST_TOKENS, STEP = 1024, 16384, 16, 8


class Direct:
    """ncclAllReduce on the current stream, by a communicator of its own."""

    def __init__(self, rank: int, nranks: int, device: torch.device) -> None:
        import ctypes

        from nearlight.torch import _nccl
        identity = [_nccl.unique_id() if rank == 0 else b""]
        dist.broadcast_object_list(identity, src=0)
        self.comm = _nccl.NcclCommunicator(identity[0], rank, nranks, device, 60_000)
        self.call = _nccl.load().ncclAllReduce
        self.call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
                              ctypes.c_void_p]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        result = torch.empty_like(x)
        code = self.call(x.data_ptr(), result.data_ptr(), x.numel(), nearlight.DataType[str(x.dtype).removeprefix("torch.")], 0,
                         self.comm.comm, torch.cuda.current_stream().cuda_stream)
        if code != 0:
            raise RuntimeError(f"ncclAllReduce: {code}")
        return result


def in_place(x: torch.Tensor) -> torch.Tensor:
    _ops.plain_all_reduce(x)
    return x


class FusedNorm(Joins):
    """The all-reduce, the residual and the norm in one kernel."""

    def __init__(self) -> None:
        super().__init__(nl.all_reduce)

    def joined(self, part: torch.Tensor, residual: torch.Tensor | None, norm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return nl.all_reduce_rms_norm(part, norm, residual, eps=EPS)


class FusedProduct(Joins):
    """The linear layer and the all-reduce in one kernel."""

    fused_product = True

    def __init__(self) -> None:
        super().__init__(nl.all_reduce)

    def linear(self, x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor,
               norm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.normed(residual + nl.gemv_all_reduce(x, weight), norm)


def left_out_of(names: list[str], shape: Shape, batch: int, nranks: int, dtype: str, device: str) -> dict[str, str]:
    """Which of these variants a row cannot have, and why."""
    found = {}
    for name in names:
        if name in ("nccl", "nccl_direct") and nranks == 1:
            found[name] = "one rank has nothing to reduce"
        elif name == "nccl_direct" and device != "cuda":
            found[name] = "NCCL has no ranks on CPUs"
        elif name in FUSED and dtype != "bf16":
            found[name] = f"fused operations take no {dtype}"
        elif name == "nearlight_norm" and (not LEAST_HIDDEN <= shape.hidden <= MOST_HIDDEN or shape.hidden % STEP):
            found[name] = f"all_reduce_rms_norm takes a hidden size of {LEAST_HIDDEN} to {MOST_HIDDEN} in steps of {STEP}, not {shape.hidden}"
        elif name == "nearlight_gemv" and batch > MOST_TOKENS:
            found[name] = f"gemv_all_reduce takes {MOST_TOKENS} tokens at most, not {batch}"
        elif name == "nearlight_gemv" and any(size % STEP for size in (shape.hidden, shape.inner // nranks,
                                                                       shape.heads // nranks * shape.head_size)):
            found[name] = f"gemv_all_reduce takes sizes that are multiples of {STEP}"
    return found
