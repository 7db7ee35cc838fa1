#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of `nearlight bench --against torch_symm_mem`, which starts it, a process for each GPU.

Brings PyTorch's all-reduces over symmetric memory (one-shot, two-shot) and of its NCCL process group as peers to
nearlight's benchmark, which comes as a library: the same turns, timers, checks and result files as for all others.

    nearlight_torch_bench.py --look     says what is there; exit status 3 where PyTorch cannot do it
"""

import argparse
import ctypes
import datetime
import os
import sys

UNFIT = 3
LIMIT_S = 120  # of everything that waits for other ranks while it is set up
FLOAT32, BFLOAT16, SUM = 7, 9, 0  # NCCL's numbers
OPERATIONS = ("one_shot_all_reduce_out", "two_shot_all_reduce_")

BUFFERS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p),
                           ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_size_t)
ALL_REDUCE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                              ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Peer(ctypes.Structure):
    """nearlightBenchPeer of rank_library.h."""
    _fields_ = [("impl", ctypes.c_char_p), ("settings", ctypes.c_char_p), ("in_place_only", ctypes.c_int),
                ("roundings", ctypes.c_int), ("self", ctypes.c_void_p), ("buffers", BUFFERS), ("all_reduce", ALL_REDUCE)]


def load_torch():
    """PyTorch with all that is measured, or a RuntimeError that says what is missing."""
    try:
        import torch
        import torch.distributed
        from torch.distributed import _symmetric_memory as symm_mem
    except ImportError as error:
        raise RuntimeError(f"PyTorch is not there: {error}") from error
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        raise RuntimeError(f"this PyTorch ({torch.__version__}) has no torch.distributed with NCCL")
    for name in OPERATIONS:
        if not hasattr(torch.ops.symm_mem, name):
            raise RuntimeError(f"this PyTorch ({torch.__version__}) has no torch.ops.symm_mem.{name}")
    return torch, symm_mem


class Memory:
    """One buffer, and tensors that look into it."""

    def __init__(self, tensor):
        self.tensor = tensor  # of bytes
        self.address = tensor.data_ptr()
        self.views = {}

    def view(self, address, count, dtype):
        key = (address, count, dtype)
        if key not in self.views:
            begin = address - self.address
            self.views[key] = self.tensor[begin:begin + count * dtype.itemsize].view(dtype)
        return self.views[key]


class Implementation:
    """One all-reduce of PyTorch's. Its inputs and outputs lie where it wants them."""
    in_place_only = False
    symmetric_input = symmetric_output = False

    def __init__(self, torch, symm_mem, device, group):
        self.torch, self.symm_mem, self.device, self.group = torch, symm_mem, device, group
        self.dtypes = {FLOAT32: torch.float32, BFLOAT16: torch.bfloat16}
        self.send = self.recv = self.stream = None

    def memory(self, size, symmetric):
        if not symmetric:
            return Memory(self.torch.empty(size, dtype=self.torch.uint8, device=self.device))
        tensor = self.symm_mem.empty(size, dtype=self.torch.uint8, device=self.device)
        self.symm_mem.rendezvous(tensor, self.group)
        return Memory(tensor)

    def buffers(self, size):
        self.send = self.memory(size, self.symmetric_input)
        self.recv = self.memory(size, self.symmetric_output)
        self.torch.cuda.synchronize(self.device)
        return self.send.address, self.recv.address

    def all_reduce(self, send, recv, count, dtype, op, stream):
        if op != SUM or dtype not in self.dtypes:
            raise RuntimeError(f"{self.impl} has sums of float and bfloat16 alone")
        if stream != self.stream:
            self.torch.cuda.set_stream(self.torch.cuda.ExternalStream(stream or 0, device=self.device))
            self.stream = stream
        dtype = self.dtypes[dtype]
        # In place both are the output's.
        source = self.recv if send == recv else self.send
        self.run(source.view(send, count, dtype), self.recv.view(recv, count, dtype))


class OneShot(Implementation):
    impl = "torch_symm_mem_one_shot"
    settings = "torch.ops.symm_mem.one_shot_all_reduce_out, symmetric input"
    symmetric_input = True

    def run(self, send, recv):
        self.torch.ops.symm_mem.one_shot_all_reduce_out(send, "sum", self.group, recv)


class TwoShot(Implementation):
    impl = "torch_symm_mem_two_shot"
    settings = "torch.ops.symm_mem.two_shot_all_reduce_, in place in symmetric memory"
    in_place_only = symmetric_output = True

    def run(self, send, recv):
        self.torch.ops.symm_mem.two_shot_all_reduce_(recv, "sum", self.group)


class ProcessGroup(Implementation):
    impl = "torch_nccl"
    settings = "torch.distributed.all_reduce of an NCCL process group, in place"
    in_place_only = True

    def run(self, send, recv):
        self.torch.distributed.all_reduce(recv)


def guarded(call):
    """`call` as a C function: 0, or 1 with the failure's text in the caller's memory."""

    def function(*arguments):
        *arguments, error, room = arguments
        try:
            call(*arguments)
            return 0
        except Exception as failure:  # whatever it is, the benchmark tells it
            text = " ".join(f"{type(failure).__name__}: {failure}".split()).encode()[:room - 1] + b"\0"
            ctypes.memmove(error, text, len(text))
            return 1

    return function


def peer_of(implementation, version, nranks):
    """`implementation` for the library; keep the result alive."""

    def buffers(_, size, send, recv):
        send[0], recv[0] = implementation.buffers(size)

    def all_reduce(_, send, recv, count, dtype, op, stream):
        implementation.all_reduce(send, recv, count, dtype, op, stream)

    settings = f"PyTorch {version}, {implementation.settings}"
    return Peer(implementation.impl.encode(), settings.encode(), int(implementation.in_place_only), nranks, None,
                BUFFERS(guarded(buffers)), ALL_REDUCE(guarded(all_reduce)))


def run_rank(args):
    torch, symm_mem = load_torch()
    devices = [int(device) for device in args.devices.split(",")]
    device = torch.device("cuda", devices[args.rank])
    torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl", init_method="file://" + args.store, rank=args.rank, world_size=len(devices),
                                         timeout=datetime.timedelta(seconds=LIMIT_S))
    group = torch.distributed.group.WORLD.group_name
    implementations = [kind(torch, symm_mem, device, group) for kind in (OneShot, TwoShot, ProcessGroup)]
    peers = (Peer * len(implementations))(*[peer_of(one, torch.__version__, len(devices)) for one in implementations])

    library = ctypes.CDLL(args.library)
    words = [word.encode() for word in args.arguments]
    return library.nearlightBenchRank(len(words), (ctypes.c_char_p * len(words))(*words), args.rank, len(devices),
                                      args.key.encode(), (ctypes.c_int * len(devices))(*devices), args.attach,
                                      peers, len(implementations))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--look", action="store_true")
    parser.add_argument("--library", help="libnearlight_bench.so")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--devices", help="of each rank, by commas")
    parser.add_argument("--attach", type=int, default=0, help="1: nearlight attaches to an NCCL communicator")
    parser.add_argument("--key", help="by which nearlight's ranks meet")
    parser.add_argument("--store", help="file over which PyTorch's ranks meet")
    parser.add_argument("arguments", nargs="*", help="those of the benchmark")
    args = parser.parse_args()
    try:
        if args.look:
            load_torch()
            return 0
        return run_rank(args)
    except RuntimeError as error:
        print(f"nearlight: --against torch_symm_mem: {error}", file=sys.stderr)
        return UNFIT if args.look else 1


if __name__ == "__main__":
    CODE = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without the teardown of PyTorch and CUDA, which may wait for ranks that have failed.
    os._exit(CODE)
