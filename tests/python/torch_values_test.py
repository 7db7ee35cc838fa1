#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What nearlight.torch computes, on CPU ranks, against torch.distributed over gloo."""

import unittest

import torch
import torch.distributed as dist

import nearlight
import nearlight.torch as nl
from nearlight.torch import _ops
from torch_support import expect, run, same

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]
OPS = {"sum": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
COUNTS = [1, 2, 3, 17, 255, 1000, 33000]


def values(rank, count, dtype):
    """Small whole numbers, which every type adds and multiplies exactly in whatever order."""
    return ((torch.arange(count) * 7 + rank * 3) % 4 + 1).to(dtype)


def every_type_and_op(rank, nranks):
    for dtype in FLOATS + INTEGERS:
        for op, theirs in OPS.items():
            for count in COUNTS if dtype in (torch.float32, torch.bfloat16) else COUNTS[2:5]:
                what = f"{dtype} {op} {count}"
                wanted = values(rank, count, dtype)
                _ops.plain_all_reduce(wanted, op=theirs)
                given = values(rank, count, dtype)
                same(nl.all_reduce(given, op), wanted, what)
                same(given, values(rank, count, dtype), what + ": the input")
                in_place = values(rank, count, dtype)
                assert nl.all_reduce_(in_place, op) is in_place
                same(in_place, wanted, what + " in place")
                out = torch.zeros_like(given)
                torch.ops.nearlight.all_reduce_out(given, out, op)
                same(out, wanted, what + " out")
                replaced = values(rank, count, dtype)
                assert dist.all_reduce(replaced, op=theirs) is None
                same(replaced, wanted, what + " by torch.distributed")
                later = values(rank, count, dtype)
                work = dist.all_reduce(later, op=theirs, async_op=True)
                work.wait()
                assert work.is_completed()
                same(later, wanted, what + " async")
    assert nl.statistics().left == {}, nl.statistics()
    return nl.statistics().taken


def what_gloo_has_not(rank, nranks):
    for dtype in FLOATS:
        same(nl.all_reduce(torch.full((5,), float(rank), dtype=dtype), "avg"),
             torch.full((5,), (nranks - 1) / 2, dtype=dtype))
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.uint32):
        given = torch.tensor([1.0, 2.0]).to(dtype)
        found = nl.all_reduce(given)
        assert found.dtype == dtype
        same(found.to(torch.float32), torch.tensor([1.0, 2.0]) * nranks, str(dtype))


def layouts(rank, nranks):
    base = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5) + rank
    total = base * nranks - rank * nranks + sum(range(nranks))
    made = {
        "transposed": lambda t: t.transpose(1, 3),
        "sliced": lambda t: t[:, :, ::2],
        "a column": lambda t: t[..., 1],
        "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
        "no dimension": lambda t: t[0, 0, 0, 0],
        "an offset": lambda t: t.view(-1)[7:],
        "flipped": lambda t: t.flip(0),
    }
    for what, view in made.items():
        wanted = view(total).contiguous()
        given = view(base.clone())
        found = nl.all_reduce(given)
        assert found.is_contiguous()
        same(found, wanted, what)
        same(given, view(base), what + ": the input")
        # The tensor that the caller holds, and the storage behind it, are what is written.
        storage = base.clone()
        target = view(storage)
        dist.all_reduce(target)
        same(target.contiguous(), wanted, what + " in place")
        if what in ("transposed", "sliced", "a column"):
            same(view(storage).contiguous(), wanted, what + ": the storage")
        out = view(torch.zeros_like(base))
        torch.ops.nearlight.all_reduce_out(view(base), out)
        same(out.contiguous(), wanted, what + " out")
    # What no stride may tell: layouts that differ between ranks.
    mine = base if rank == 0 else base.transpose(0, 3).contiguous().transpose(0, 3)
    same(nl.all_reduce(mine), total, "a layout of its own on each rank")
    # Expanded: fine to read, nothing to write to. All ranks fail alike, and go on.
    one = torch.full((1,), float(rank + 1)).expand(6)
    same(nl.all_reduce(one), torch.full((6,), float(sum(range(1, nranks + 1)))), "expanded")
    expect(nearlight.InvalidArgument, "tensor has elements that share memory", lambda: nl.all_reduce_(one))
    expect(nearlight.InvalidArgument, "tensor has elements that share memory", lambda: dist.all_reduce(one))
    expect(nearlight.InvalidArgument, "out has elements that share memory",
           lambda: torch.ops.nearlight.all_reduce_out(torch.zeros(6), one))
    expect(nearlight.InvalidArgument, "out is (5,)", lambda: torch.ops.nearlight.all_reduce_out(torch.zeros(6), torch.zeros(5)))
    expect(nearlight.InvalidArgument, "out is (6,) of torch.float64",
           lambda: torch.ops.nearlight.all_reduce_out(torch.zeros(6), torch.zeros(6, dtype=torch.float64)))
    expect(nearlight.InvalidArgument, "op is 'xor'", lambda: nl.all_reduce(torch.zeros(3), "xor"))
    expect(nearlight.InvalidUsage, "not enabled for nobody", lambda: nl.all_reduce(torch.zeros(3), group="nobody"))
    same(nl.all_reduce(torch.ones(3)), torch.full((3,), float(nranks)), "afterwards")


def zero_size(rank, nranks):
    for shape in ((0,), (3, 0), (0, 4, 5)):
        for dtype in FLOATS + INTEGERS:
            empty = torch.empty(shape, dtype=dtype)
            assert nl.all_reduce(empty).shape == shape
            dist.all_reduce(empty)
            torch.ops.nearlight.all_reduce_out(empty, torch.empty(shape, dtype=dtype))
    same(nl.all_reduce(torch.ones(3)), torch.full((3,), float(nranks)), "afterwards")


def derivatives(rank, nranks):
    x = torch.arange(3, dtype=torch.float64, requires_grad=True)
    nl.all_reduce(x * (rank + 1)).sum().backward()
    same(x.grad, torch.full((3,), float((rank + 1) * nranks), dtype=torch.float64), "sum")
    x.grad = None
    nl.all_reduce(x, "avg").sum().backward()
    same(x.grad, torch.ones(3, dtype=torch.float64), "avg")
    expect(RuntimeError, "no derivative for op 'max'", lambda: nl.all_reduce(x, "max").sum().backward())
    # In place: as torch.distributed's, no part of the graph, and saved tensors know that they were written.
    leaf = torch.ones(2, requires_grad=True)
    dist.all_reduce(leaf)
    same(leaf.detach(), torch.full((2,), float(nranks)), "a leaf")
    y = torch.ones(2, requires_grad=True)
    saved = y.exp()
    result = saved * saved
    nl.all_reduce_(saved.detach())
    expect(RuntimeError, "modified by an inplace operation", lambda: result.sum().backward())


def ways(rank, nranks):
    """The short way of eager calls and the dispatcher's give the same, and who must not be passed by is not."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.arange(4.0) + rank
    same(nl.all_reduce(x), torch.ops.nearlight.all_reduce(x), "eager")
    with torch.inference_mode():
        y = torch.ones(3)
        dist.all_reduce(y)
        same(y, torch.full((3,), float(nranks)), "inference mode")
        same(nl.all_reduce_(nl.all_reduce(y)), torch.full((3,), float(nranks) ** 3), "inference mode")
        torch.ops.nearlight.all_reduce_(y)
    same(nl.all_reduce_(y.clone()), nl.all_reduce(y), "out of inference mode")
    dist.all_reduce(y)
    taken = nl.statistics().taken
    with FakeTensorMode():
        fake = torch.empty(5, 2)
        assert nl.all_reduce(fake).shape == (5, 2)
        dist.all_reduce(fake)
    graph = make_fx(lambda t: nl.all_reduce(t * 2) + 1)(x)
    assert nl.statistics().taken - taken == 1, "fake tensors were sent"  # by make_fx, which runs what it traces
    assert any("nearlight.all_reduce" in str(node.target) for node in graph.graph.nodes), graph.graph
    same(graph(x), nl.all_reduce(x * 2) + 1, "traced")
    parameter = torch.nn.Parameter(torch.ones(2))
    dist.all_reduce(parameter)
    assert parameter.is_leaf and parameter.requires_grad
    same(parameter.detach(), torch.full((2,), float(nranks)), "a parameter")
    same(torch.vmap(nl.all_reduce)(torch.ones(2, 3)), torch.full((2, 3), float(nranks)), "batched")


class Values(unittest.TestCase):
    def test_every_type_and_op(self):
        for nranks in (2, 3, 4):
            with self.subTest(nranks=nranks):
                taken = run(every_type_and_op, nranks)
                self.assertGreater(min(taken), 500)

    def test_what_gloo_has_not(self):
        run(what_gloo_has_not, 3)

    def test_layouts(self):
        run(layouts, 2)
        run(layouts, 3)

    def test_zero_size(self):
        run(zero_size, 2)

    def test_derivatives(self):
        run(derivatives, 2)

    def test_ways(self):
        run(ways, 2)

    def test_one_rank(self):
        run(zero_size, 1)
        run(layouts, 1)


if __name__ == "__main__":
    unittest.main()
