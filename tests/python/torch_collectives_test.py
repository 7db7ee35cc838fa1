#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""all_gather, reduce_scatter, all_to_all, broadcast_ and reduce_ of nearlight.torch, on CPU ranks."""

import unittest

import torch
import torch.distributed as dist

import nearlight
import nearlight.torch as nl
from torch_support import expect, run, same

DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int32, torch.int64,
          torch.float8_e4m3fn]


def values(rank, shape, dtype):
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 5 + rank * 3) % 4 + 1).reshape(shape).to(dtype)


def added(tensors):
    return torch.stack([one.float() for one in tensors]).sum(0).to(tensors[0].dtype)


def every_type(rank, nranks):
    for dtype in DTYPES:
        for rows in (1, 2, 700) if dtype in (torch.float32, torch.int8) else (3,):
            what = f"{dtype} {rows}"
            everybody = [values(other, (nranks * rows, 3), dtype) for other in range(nranks)]
            mine = everybody[rank]
            part = slice(rank * rows, (rank + 1) * rows)
            same(nl.all_gather(mine), torch.cat(everybody), what + " all_gather")
            same(nl.all_to_all(mine), torch.cat([one[part] for one in everybody]), what + " all_to_all")
            same(nl.reduce_scatter(mine), added(everybody)[part], what + " reduce_scatter")
            same(mine, values(rank, (nranks * rows, 3), dtype), what + ": the input")
            for root in range(nranks):
                same(nl.broadcast_(mine.clone(), root), everybody[root], what + f" broadcast from {root}")
                found = nl.reduce_(mine.clone(), root)
                same(found, added(everybody) if rank == root else mine, what + f" reduce to {root}")
    for op, wanted in (("max", 3), ("min", 1), ("prod", 6), ("product", 6), ("avg", 2)):
        mine = torch.full((3,), float(rank + 1))
        same(nl.reduce_scatter(mine, op), torch.full((1,), float(wanted)), op)
        same(nl.reduce_(mine.clone(), 1, op), torch.full((3,), float(wanted)) if rank == 1 else mine, op)
    assert nl.statistics().left == {}, nl.statistics()


def shapes(rank, nranks):
    same(nl.all_gather(torch.tensor(float(rank))), torch.arange(float(nranks)), "no dimension")
    base = torch.arange(2.0 * 4 * nranks).reshape(2 * nranks, 4) + rank
    total = [torch.arange(2.0 * 4 * nranks).reshape(2 * nranks, 4) + other for other in range(nranks)]
    same(nl.all_gather(base.t()), torch.cat([one.t() for one in total]), "transposed")
    storage = base.clone()
    nl.broadcast_(storage[:, 1], nranks - 1)
    same(storage[:, 1].contiguous(), total[-1][:, 1].contiguous(), "a column")
    same(storage[:, 2].contiguous(), base[:, 2].contiguous(), "beside it")
    for call in (nl.all_gather, nl.reduce_scatter, nl.all_to_all):
        assert call(torch.empty(0, 3)).shape == (0, 3)
    nl.broadcast_(torch.empty(0), 0)
    for call in (nl.reduce_scatter, nl.all_to_all):
        for bad in [torch.tensor(1.0)] + [torch.ones(nranks + 1)] * (nranks > 1):
            expect(nearlight.InvalidArgument, f"its first dimension must be a multiple of {nranks}", lambda: call(bad))
    for root in (-1, nranks):
        expect(nearlight.InvalidArgument, f"root is {root}", lambda: nl.broadcast_(torch.ones(3), root))
        expect(nearlight.InvalidArgument, f"root is {root}", lambda: nl.reduce_(torch.ones(3), root))
    expect(nearlight.InvalidArgument, "op is 'xor'", lambda: nl.reduce_scatter(torch.ones(nranks), "xor"))
    expect(nearlight.InvalidArgument, "share memory", lambda: nl.broadcast_(torch.ones(1).expand(3), 0))
    same(nl.all_gather(torch.ones(1)), torch.ones(nranks), "afterwards")


def left(rank, nranks):
    """More than max_bytes: by the process group, with the same results."""
    mine = torch.arange(40.0 * nranks) + rank
    total = [torch.arange(40.0 * nranks) + other for other in range(nranks)]
    part = slice(40 * rank, 40 * rank + 40)
    same(nl.all_gather(mine), torch.cat(total))
    same(nl.reduce_scatter(mine), sum(total)[part])
    same(nl.all_to_all(mine), torch.cat([one[part] for one in total]))
    same(nl.broadcast_(mine.clone(), 1), total[1])
    reduced = nl.reduce_(mine.clone(), 1)
    same(reduced, sum(total) if rank == 1 else mine)
    assert nl.statistics().taken == 0 and sum(nl.statistics().left.values()) == 5, nl.statistics()
    for name in ("all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"):
        told = [nl.explain(torch.ones(size), collective=name).taken for size in (8, 40 * nranks)]
        assert told == [True, False], (name, told)
    expect(nearlight.InvalidArgument, "collective is 'gather'; it takes all_reduce", lambda: nl.explain(mine, collective="gather"))
    # A rank's part counts as many times as there are ranks.
    nl.all_gather(torch.ones(8))
    nl.all_gather(torch.ones(9))
    assert nl.statistics().taken == 1 and sum(nl.statistics().left.values()) == 6, nl.statistics()


def derivatives(rank, nranks):
    weights = torch.arange(1.0, 2 * nranks + 1, dtype=torch.float64)

    def loss(call, x):
        result = call(x)
        return (result * weights[:result.numel()] * (rank + 1)).sum()

    ranks_sum = sum(range(1, nranks + 1))
    wanted = {"all_gather": weights[2 * rank:2 * rank + 2] * ranks_sum}
    for name, call, count in (("all_gather", nl.all_gather, 2), ("reduce_scatter", nl.reduce_scatter, 2 * nranks),
                              ("all_to_all", nl.all_to_all, 2 * nranks)):
        x = torch.ones(count, dtype=torch.float64, requires_grad=True)
        loss(call, x).backward()
        y = torch.ones(count, dtype=torch.float64, requires_grad=True)
        torch.compile(loss, fullgraph=True, backend="aot_eager")(call, y).backward()
        same(y.grad, x.grad, name + " compiled")
        if name == "reduce_scatter":
            wanted[name] = torch.cat([weights[:2] * (other + 1) for other in range(nranks)])
        if name == "all_to_all":
            # What went to rank r stands there at this rank's place.
            wanted[name] = torch.cat([weights[2 * rank:2 * rank + 2] * (other + 1) for other in range(nranks)])
        same(x.grad, wanted[name], name)
    x = torch.ones(nranks, dtype=torch.float64, requires_grad=True)
    nl.reduce_scatter(x, "avg").sum().backward()
    same(x.grad, torch.full((nranks,), 1 / nranks, dtype=torch.float64), "avg")


def checked_by_pytorch(rank, nranks):
    x = torch.arange(2.0 * nranks).reshape(nranks, 2)
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic", "test_autograd_registration")
    ops = torch.ops.nearlight
    for op, arguments in ((ops.all_gather, (x, "")), (ops.reduce_scatter, (x, "max", "")), (ops.all_to_all, (x, "")),
                          (ops.broadcast_, (x.clone(), 1, "")), (ops.reduce_, (x.clone(), 0, "max", ""))):
        torch.library.opcheck(op.default, arguments, test_utils=tests[:3] if op in (ops.broadcast_, ops.reduce_) else tests)


class Collectives(unittest.TestCase):
    def test_every_type(self):
        run(every_type, 3)

    def test_shapes(self):
        for nranks in (1, 2, 4):
            with self.subTest(nranks=nranks):
                run(shapes, nranks)

    def test_left(self):
        run(left, 2, max_bytes=64)

    def test_derivatives(self):
        run(derivatives, 2)

    def test_checked_by_pytorch(self):
        run(checked_by_pytorch, 2)


if __name__ == "__main__":
    # What takes the compiler seconds to begin with, once for all ranks.
    torch.compile(lambda x: x + 1, backend="aot_eager", fullgraph=True)(torch.ones(1))
    unittest.main()
