#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nearlight.torch on two GPUs, a process each, against NCCL: ./run.sh -- python3 python/tests/torch_gpu_test.py

Needs PyTorch with NCCL and two GPUs; fails, rather than skipping, where there are fewer. With NEARLIGHT_REQUIRE_GPUS=1, which
run.sh sets on a machine with one GPU, both ranks have that one, and take turns on it.
"""

import datetime
import os
import signal
import subprocess
import sys
import time
import unittest

import torch
import torch.distributed as dist

# Beside this file in the GPU bundle.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import nearlight
import nearlight.torch as nl
from nearlight.torch import _ops
import ranks
import shared_gpu
from torch_models import compare
from torch_support import expect, same

NRANKS = 2
SHARED = os.environ.get("NEARLIGHT_REQUIRE_GPUS") == "1"
LIMIT_S = 90
CONFIG = nearlight.Config(timeout_ms=30_000)
OPS = {"sum": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX,
       "avg": dist.ReduceOp.AVG}
FLOATS = [torch.bfloat16, torch.float16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]


def start(rank, nranks, folder):
    if SHARED:
        os.environ.update(shared_gpu.variables_of(rank))
    device = torch.device("cuda", 0 if SHARED else rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", init_method="file://" + os.path.join(folder, "store"), rank=rank, world_size=nranks,
                            timeout=datetime.timedelta(seconds=100), device_id=device)


def finish():
    torch.cuda.synchronize()
    dist.barrier()
    nl.disable()
    dist.destroy_process_group()


def values(rank, count, dtype):
    return ((torch.arange(count, device="cuda") * 7 + rank * 3) % 4 + 1).to(dtype)


def by_nccl(x, op=dist.ReduceOp.SUM, group=None):
    wanted = x.clone()
    _ops.plain_all_reduce(wanted, op=op, group=group)
    return wanted


def every_type(rank, nranks, folder, backend):
    start(rank, nranks, folder)
    nl.enable(backend=backend, config=CONFIG)
    info = nl._groups.get("").comm.info()
    assert (info.backend, info.memory) == ("cuda", "nccl_window" if backend == "nccl" and not SHARED else "cuda_vmm"), info
    for dtype in FLOATS + INTEGERS:
        for op, theirs in OPS.items():
            for count in (1, 7, 1000, 16384, 300001) if op in ("sum", "max") else (33,):
                what = f"{dtype} {op} {count}"
                x = values(rank, count, dtype)
                wanted = by_nccl(x, theirs)
                same(nl.all_reduce(x, op), wanted, what)
                same(x, values(rank, count, dtype), what + ": the input")
                same(nl.all_reduce_(x.clone(), op), wanted, what + " in place")
                out = torch.zeros_like(x)
                torch.ops.nearlight.all_reduce_out(x, out, op)
                same(out, wanted, what + " out")
                dist.all_reduce(y := x.clone(), op=theirs)
                same(y, wanted, what + " by torch.distributed")
                dist.all_reduce(y := x.clone(), op=theirs, async_op=True).wait()
                same(y, wanted, what + " async")
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        same(nl.all_reduce(torch.ones(100, device="cuda").to(dtype)).float(), torch.full((100,), 2.0, device="cuda"), str(dtype))
    base = torch.arange(2 * 3 * 64 * 65, dtype=torch.float32, device="cuda").reshape(2, 3, 64, 65) + rank
    for what, view in (("transposed", lambda t: t.transpose(1, 3)), ("sliced", lambda t: t[:, :, ::2]),
                       ("a column", lambda t: t[..., 1]), ("no dimension", lambda t: t[0, 0, 0, 0]),
                       ("channels last", lambda t: t.contiguous(memory_format=torch.channels_last)),
                       ("an odd address", lambda t: t.view(-1)[3:])):
        wanted = by_nccl(view(base).contiguous())
        same(nl.all_reduce(view(base)), wanted, what)
        storage = base.clone()
        dist.all_reduce(target := view(storage))
        same(target.contiguous(), wanted, what + " in place")
    for shape in ((0,), (3, 0)):
        assert nl.all_reduce(torch.empty(shape, device="cuda")).shape == shape
    one = torch.ones(1, device="cuda").expand(6)
    expect(nearlight.InvalidArgument, "share memory", lambda: nl.all_reduce_(one))
    # What is not ours goes to NCCL, and is right.
    same(nl.all_reduce(torch.ones(5, dtype=torch.complex64, device="cuda")), torch.full((5,), 2 + 0j, device="cuda"))
    assert nl.statistics().taken > 300, nl.statistics()
    told = nl.explain(torch.empty(4096, dtype=torch.bfloat16, device="cuda"))
    finish()
    return str(told)


def other_collectives(rank, nranks, folder, backend):
    start(rank, nranks, folder)
    nl.enable(backend=backend, config=CONFIG)

    def by_the_process_group(x):
        gathered, part, swapped = x.new_empty(nranks * len(x), 3), x.new_empty(len(x) // nranks, 3), torch.empty_like(x)
        dist.all_gather_into_tensor(gathered, x)
        dist.reduce_scatter_tensor(part, x)
        dist.all_to_all_single(swapped, x)
        dist.broadcast(sent := x.clone(), 1)
        dist.reduce(reduced := x.clone(), 0)
        return [gathered, part, swapped, sent, reduced if rank == 0 else x]

    def by_nearlight(x):
        return [nl.all_gather(x), nl.reduce_scatter(x), nl.all_to_all(x), nl.broadcast_(x.clone(), 1), nl.reduce_(x.clone(), 0)]

    for dtype in FLOATS + INTEGERS:
        for rows in (2, 1000, 50_000):
            x = values(rank, rows * 3, dtype).reshape(rows, 3)
            for index, (found, wanted) in enumerate(zip(by_nearlight(x), by_the_process_group(x))):
                same(found, wanted, f"{dtype} {rows} rows, collective {index}")
    x = values(rank, 3000, torch.bfloat16).reshape(1000, 3)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = by_nearlight(x)
    for turn in range(20):
        x.fill_(rank + turn)
        graph.replay()
        if turn % 5 == 0:
            for index, (found, wanted) in enumerate(zip(captured, by_the_process_group(x))):
                same(found, wanted, f"replay {turn}, collective {index}")
    told = nl.statistics()
    assert told.taken > 100, told
    finish()
    return str(told)


def graphs(rank, nranks, folder, backend):
    start(rank, nranks, folder)
    nl.enable(backend=backend, config=CONFIG)
    sizes = (64, 4096, 64, 100_000, 8192)
    inputs = [torch.zeros(size, dtype=torch.bfloat16, device="cuda") for size in sizes]

    def chain():
        done = []
        for turn, x in enumerate(inputs):
            y = nl.all_reduce(x + turn)
            dist.all_reduce(y, op=dist.ReduceOp.MAX)
            done.append(y * 2)
        return done

    def wanted():
        return [by_nccl(by_nccl(x + turn), dist.ReduceOp.MAX) * 2 for turn, x in enumerate(inputs)]

    # What one rank has seen before and the other has not changes nothing: buffers are not registered.
    if rank == 0:
        for x in inputs:
            same(x, torch.zeros_like(x))
    chain()
    torch.cuda.synchronize()
    first = torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        one = chain()
    # Pieces: a graph is replayed before the next one is captured, with eager calls in between.
    for turn in range(3):
        for x in inputs:
            x.fill_(rank + turn)
        first.replay()
        for found, right in zip(one, wanted()):
            same(found, right, f"replay {turn}")
        same(nl.all_reduce(inputs[0]), by_nccl(inputs[0]), "eager between replays")
    second = torch.cuda.CUDAGraph()
    with torch.cuda.graph(second):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            left = nl.all_reduce(inputs[1] + 1)
        # The operator joins the two streams: operations of one group are in order.
        right = nl.all_reduce(inputs[1] + 2)
        torch.cuda.current_stream().wait_stream(side)
    for turn in range(200):
        for x in inputs:
            x.fill_((rank + turn) % 7)
        first.replay()
        second.replay()
        if turn % 50 == 0:
            same(left, by_nccl(inputs[1] + 1), "the side stream")
            same(right, by_nccl(inputs[1] + 2), "beside it")
            for found, right_one in zip(one, wanted()):
                same(found, right_one, f"turn {turn}")
    torch.cuda.synchronize()
    # A graph of before, after the group's end: it does nothing, and nothing waits.
    dist.barrier()
    nl.disable()
    first.replay()
    torch.cuda.synchronize()
    nl.enable(backend=backend, config=CONFIG)
    finish()


def side_streams(rank, nranks, folder):
    start(rank, nranks, folder)
    nl.enable(config=CONFIG)
    streams = [torch.cuda.Stream() for _ in range(3)]
    xs = [torch.full((size,), float(rank + 1), device="cuda") for size in (100, 50_000, 1_000_000)]
    torch.cuda.synchronize()
    for turn in range(100):
        for stream, x in zip(streams, xs):
            with torch.cuda.stream(stream):
                if turn % 10 == 0:
                    x.fill_(rank + 1)
                dist.all_reduce(x, op=dist.ReduceOp.SUM if turn % 10 == 0 else dist.ReduceOp.MAX)
    torch.cuda.synchronize()
    for x in xs:
        same(x, torch.full_like(x, 3.0))
    assert nl.statistics().taken + sum(nl.statistics().left.values()) == 300
    finish()


def compiled(rank, nranks, folder):
    start(rank, nranks, folder)
    nl.enable(config=CONFIG, max_bytes=64 * 1024)

    def layer(x):
        y = nl.all_reduce(torch.relu(x) * 2)
        z = y + 1
        dist.all_reduce(z)
        nl.all_reduce_(z[0], "max")
        return z.sum(0), y

    for mode in (None, "reduce-overhead"):
        torch._dynamo.reset()
        program = torch.compile(layer, fullgraph=True, dynamic=mode is None, mode=mode)
        for rows in (8, 2048, 8, 8, 8):
            x = ((torch.arange(rows * 16, device="cuda").reshape(rows, 16) + rank) % 5).float()
            for found, right in zip(program(x.clone()), layer(x.clone())):
                same(found, right, f"{mode} {rows}")
    assert nl.statistics().left, nl.statistics()
    finish()


def expandable(rank, nranks, folder):
    start(rank, nranks, folder)
    nl.enable(config=CONFIG)
    big = torch.full((24 * 1024 * 1024,), float(rank + 1), dtype=torch.bfloat16, device="cuda")  # 48 MiB: several pieces
    assert any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot()), "the segments are not expandable"
    for count in (5, 1000, 3_000_001, big.numel()):
        for begin in (0, big.numel() - count):
            x = big[begin:begin + count]
            same(nl.all_reduce(x), torch.full((count,), 3.0, dtype=torch.bfloat16, device="cuda"), f"{count} from {begin}")
    graph, x = torch.cuda.CUDAGraph(), big[:4096]
    nl.all_reduce(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = nl.all_reduce(x)
    for _ in range(3):
        graph.replay()
    same(y, torch.full((4096,), 3.0, dtype=torch.bfloat16, device="cuda"), "in a graph")
    finish()


def two_groups(rank, nranks, folder):
    start(rank, nranks, folder)
    groups = [dist.new_group(list(range(nranks))) for _ in range(2)]
    for group in groups:
        nl.enable(group, config=CONFIG)
    x = torch.full((5000,), float(rank + 1), device="cuda")
    for turn in range(50):
        for group in groups:
            same(nl.all_reduce(x + turn, group=group), torch.full((5000,), 3.0 + 2 * turn, device="cuda"), f"turn {turn}")
        dist.all_reduce(y := x.clone())  # the world's, which is not enabled
        same(y, torch.full((5000,), 3.0, device="cuda"))
    assert [nl.statistics(group).taken for group in groups] == [50, 50]
    finish()


def train(rank, nranks, folder):
    start(rank, nranks, folder)
    taken = compare(rank, nranks, "cuda", CONFIG)
    finish()
    return str(taken)


def reset_and_shrink(rank, nranks, folder):
    """Of a communicator that is attached to NCCL's: with memory of its own it can do both, in windows of NCCL it cannot shrink."""
    start(rank, nranks, folder)
    nl.enable(config=CONFIG)
    comm = nl._groups.get("").comm
    x = torch.full((5000,), float(rank + 1), device="cuda")

    def reduced(by):
        by.all_reduce_raw(x.data_ptr(), (y := torch.empty_like(x)).data_ptr(), len(x), nearlight.DataType.float32,
                          stream=torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        same(y, torch.full_like(x, 3.0))

    reduced(comm)
    for _ in range(3):
        comm.reset()
        reduced(comm)
    assert comm.info().memory_reason, comm.info()
    if comm.info().memory == "nccl_window":
        expect(nearlight.Unsupported, "NCCL", lambda: comm.shrink([0, 1]))
    else:
        with comm.shrink([0, 1]) as smaller:
            reduced(smaller)
            assert smaller.info().memory_reason == comm.info().memory_reason
            dist.barrier()
    nl.disable()
    dist.destroy_process_group()


def capture_fails_on_one(rank, nranks, folder):
    """Rank 1 raises in the middle of a capture. Its own error is what it sees; the other one is told within the limit."""
    start(rank, nranks, folder)
    nl.enable(config=nearlight.Config(timeout_ms=3000))
    x = torch.ones(100, device="cuda")
    nl.all_reduce(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            y = nl.all_reduce(x)
            if rank == 1:
                raise KeyError("planted")
    except KeyError as error:
        assert rank == 1 and "planted" in str(error)
    told = ""
    if rank == 0:
        graph.replay()
        torch.cuda.synchronize()
        told = str(expect(nearlight.Timeout, "rank 1", lambda: nl.all_reduce(x)))
        del y
    dist.barrier()
    nl.disable()
    dist.destroy_process_group()
    return told


def one_dies(rank, nranks, folder):
    start(rank, nranks, folder)
    nl.enable(backend="cuda", config=nearlight.Config(timeout_ms=5000))
    x = torch.ones(100, device="cuda")
    nl.all_reduce(x)
    torch.cuda.synchronize()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()

    def calls():
        for _ in range(1000):
            nl.all_reduce(x)
            torch.cuda.synchronize()

    error = expect(nearlight.NearlightError, "rank", calls)
    return f"{type(error).__name__} after {time.monotonic() - begin:.1f} s: {error}"


def call_cost(rank, nranks, folder):
    """What an eager call costs the host, us: nothing is demanded of it."""
    start(rank, nranks, folder)
    nl.enable(config=CONFIG)
    x, told = torch.ones(1024, dtype=torch.bfloat16, device="cuda"), {}
    group = nl._groups.get("")
    for name, call in (("nl.all_reduce_", lambda: nl.all_reduce_(x, "max")), ("nl.all_reduce", lambda: nl.all_reduce(x, "max")),
                       ("dist.all_reduce", lambda: dist.all_reduce(x, op=dist.ReduceOp.MAX)),
                       ("Group.all_reduce", lambda: group.all_reduce(x, x, "max")),
                       ("the process group's", lambda: _ops.plain_all_reduce(x, op=dist.ReduceOp.MAX))):
        for _ in range(50):
            call()
        torch.cuda.synchronize()
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(500):
            call()
        told[name] = round((time.perf_counter() - begin) / 500 * 1e6, 1)
        torch.cuda.synchronize()
    finish()
    return told


def run(function, *arguments, **options):
    return ranks.run(function, NRANKS, *arguments, limit_s=LIMIT_S, start="spawn", **options)


class OnGpus(unittest.TestCase):
    def test_every_type_over_nccl(self):
        print(run(every_type, "nccl")[0])

    def test_every_type_without_nccl(self):
        print(run(every_type, "cuda")[0])

    def test_other_collectives_over_nccl(self):
        print(run(other_collectives, "nccl")[0])

    def test_other_collectives_without_nccl(self):
        print(run(other_collectives, "cuda")[0])

    def test_graphs_over_nccl(self):
        run(graphs, "nccl")

    def test_graphs_without_nccl(self):
        run(graphs, "cuda")

    def test_side_streams(self):
        run(side_streams)

    def test_compiled(self):
        run(compiled)

    def test_two_groups(self):
        run(two_groups)

    def test_models(self):
        print(run(train)[0])

    def test_reset_and_shrink(self):
        run(reset_and_shrink)

    def test_capture_fails_on_one(self):
        self.assertIn("rank 1", run(capture_fails_on_one)[0])

    def test_one_dies(self):
        print(run(one_dies, dying=[1])[0])

    def test_call_cost(self):
        print("us a call:", run(call_cost)[0])

    def test_expandable_segments(self):
        # PyTorch reads it as it is loaded.
        environment = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
        ran = subprocess.run([sys.executable, "-B", os.path.abspath(__file__), "WithExpandableSegments"], env=environment,
                             capture_output=True, text=True, timeout=LIMIT_S + 30, check=False)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)


class WithExpandableSegments(unittest.TestCase):
    def test_expandable(self):
        run(expandable)


def load_tests(loader, tests, pattern):
    return loader.loadTestsFromTestCase(OnGpus)


if __name__ == "__main__":
    unittest.main(verbosity=2)
