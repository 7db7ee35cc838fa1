"""As much of PyTorch as nearlight_torch_bench.py calls, for one rank in CPU memory. FAKE_TORCH spoils something."""

import ctypes
import os
import types

__version__ = "0.0.fake"
SPOILT = os.environ.get("FAKE_TORCH", "")


class DType:
    def __init__(self, itemsize):
        self.itemsize = itemsize


uint8, float32, bfloat16 = DType(1), DType(4), DType(2)


class Tensor:
    def __init__(self, memory, begin, size):
        self.memory, self.begin, self.size, self.symmetric = memory, begin, size, False

    def data_ptr(self):
        return ctypes.addressof(self.memory) + self.begin

    def __getitem__(self, part):
        assert 0 <= part.start <= part.stop <= self.size, "outside of the buffer"
        piece = Tensor(self.memory, self.begin + part.start, part.stop - part.start)
        piece.symmetric = self.symmetric
        return piece

    def view(self, dtype):
        assert self.size % dtype.itemsize == 0
        return self


def empty(size, dtype, device):
    assert dtype is uint8 and device.index == 0
    return Tensor((ctypes.c_char * size)(), 0, size)


def device(kind, index):
    return types.SimpleNamespace(kind=kind, index=index)


def _reduce(send, recv):
    if SPOILT == "raises":
        raise ValueError("a planted failure")
    ctypes.memmove(recv.data_ptr(), send.data_ptr(), send.size - (4 if SPOILT == "short" else 0))


def _one_shot(send, op, group, recv):
    assert send.symmetric and op == "sum" and group == "world" and send.data_ptr() != recv.data_ptr()
    _reduce(send, recv)


def _two_shot(both, op, group):
    assert both.symmetric and op == "sum" and group == "world"


cuda = types.SimpleNamespace(set_device=lambda device: None, set_stream=lambda stream: None, synchronize=lambda device: None,
                             ExternalStream=lambda pointer, device: (pointer, device))
ops = types.SimpleNamespace(symm_mem=types.SimpleNamespace(one_shot_all_reduce_out=_one_shot))
if SPOILT != "old":
    ops.symm_mem.two_shot_all_reduce_ = _two_shot
