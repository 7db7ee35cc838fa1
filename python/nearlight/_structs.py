# SPDX-License-Identifier: Apache-2.0
"""The structs of nearlight.h. A test compares them with the header and with what a C compiler makes of it."""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

TEXT_BYTES = 512
MOST_ROUTES = 16


class Sized(ctypes.Structure):
    """Begins with its own size, as the C API wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.size = ctypes.sizeof(self)


class Config(Sized):
    _fields_ = [("size", c_size_t), ("timeout_ms", c_int64), ("create_timeout_ms", c_int64), ("check", c_int32),
                ("regions", c_uint32), ("slots", c_uint32), ("chunk_bytes", c_uint32), ("packets", c_uint32),
                ("max_ctas", c_uint32), ("deterministic", c_int32), ("lines", c_uint32),
                ("early_launch", c_int32), ("reserved", c_uint32)]


class CommInfo(Sized):
    _fields_ = [("size", c_size_t), ("rank", c_int32), ("nranks", c_int32), ("backend", c_char_p), ("memory", c_char_p),
                ("scratch_bytes", c_uint64), ("early_launch", c_int32), ("reserved", c_uint32), ("memory_reason", c_char_p)]


class CommStatus(Sized):
    _fields_ = [("size", c_size_t), ("result", c_int), ("rank", c_int32), ("peer", c_int32), ("epoch", c_uint32),
                ("region", c_uint32), ("slot", c_uint32), ("expected", c_uint32), ("seen", c_uint32),
                ("time_ns", c_uint64), ("text", c_char * TEXT_BYTES)]


class Route(Sized):
    _fields_ = [("size", c_size_t), ("algorithm", c_char_p), ("protocol", c_char_p), ("reason", c_char_p),
                ("grid", c_uint32), ("threads", c_uint32)]


class RouteCounters(ctypes.Structure):
    _fields_ = [("algorithm", c_char_p), ("protocol", c_char_p), ("operations", c_uint64), ("bytes", c_uint64)]


class Counters(Sized):
    _fields_ = [("size", c_size_t), ("all_reduces", c_uint64), ("barriers", c_uint64), ("bytes", c_uint64),
                ("captured", c_uint64), ("failures", c_uint64), ("routes", c_uint64),
                ("route", RouteCounters * MOST_ROUTES), ("all_gathers", c_uint64), ("reduce_scatters", c_uint64),
                ("broadcasts", c_uint64), ("reduces", c_uint64), ("all_to_alls", c_uint64),
                ("send_recvs", c_uint64), ("all_reduce_rms_norms", c_uint64), ("all_reduce_biases", c_uint64), ("gemv_all_reduces", c_uint64),
                ("all_gather_gemvs", c_uint64)]


class RmsNorm(Sized):
    _fields_ = [("size", c_size_t), ("input", c_void_p), ("residual", c_void_p), ("weight", c_void_p),
                ("residual_out", c_void_p), ("out", c_void_p), ("scale", c_void_p), ("tokens", c_size_t),
                ("hidden", c_size_t), ("type", c_int), ("out_type", c_int), ("eps", c_float), ("reserved", c_uint32)]


# Name in nearlight.h -> class.
STRUCTS: dict[str, type[ctypes.Structure]] = {
    "nearlightConfig_t": Config, "nearlightCommInfo_t": CommInfo, "nearlightCommStatus_t": CommStatus,
    "nearlightRoute_t": Route, "nearlightRouteCounters_t": RouteCounters, "nearlightCounters_t": Counters,
    "nearlightRmsNorm_t": RmsNorm,
}
