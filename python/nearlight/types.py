# SPDX-License-Identifier: Apache-2.0
"""Element types, reductions and collectives. The numbers are those of the C API, which are NCCL's."""

from __future__ import annotations

import enum


class DataType(enum.IntEnum):
    """Type of an element. Every collective takes all of them."""

    int8 = 0
    uint8 = 1
    int32 = 2
    uint32 = 3
    int64 = 4
    uint64 = 5
    float16 = 6
    float32 = 7
    float64 = 8
    bfloat16 = 9
    float8e4m3 = 10
    float8e5m2 = 11

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _BYTES[self]


_BYTES = {DataType.int8: 1, DataType.uint8: 1, DataType.int32: 4, DataType.uint32: 4, DataType.int64: 8,
          DataType.uint64: 8, DataType.float16: 2, DataType.float32: 4, DataType.float64: 8, DataType.bfloat16: 2,
          DataType.float8e4m3: 1, DataType.float8e5m2: 1}


class ReduceOp(enum.IntEnum):
    """How elements are put together; docs/concepts/numerics.md says what is rounded where."""

    sum = 0
    prod = 1
    max = 2
    min = 3
    avg = 4


class Collective(enum.IntEnum):
    """What `Communicator.explain` can be asked about."""

    all_reduce = 1
    all_gather = 3
    reduce_scatter = 4
    broadcast = 5
    reduce = 6
    all_to_all = 7
    all_gather_v = 8
    reduce_scatter_v = 9
    all_to_all_v = 10
    send_recv = 11
    # Fused: `Communicator.explain_fused`.
    all_reduce_rms_norm = 16
    all_reduce_bias = 17
    # Products: `Communicator.explain_gemv`.
    gemv_all_reduce = 18
    all_gather_gemv = 19
