#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operators under torch.compile: whole graphs, one graph for all sizes, the same results as eager."""

import unittest

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import nearlight.torch as nl
from torch_support import run, same


class Counting:
    """A backend that counts graphs and otherwise runs them as they are traced by autograd's compiler."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, module, inputs):
        self.graphs += 1
        from torch._dynamo.backends.debugging import aot_eager
        return aot_eager(module, inputs)


def operator(x):
    return nl.all_reduce(x * 2, "max") + 1


def in_place(x):
    y = x + 1
    nl.all_reduce_(y)
    return y * y


def replaced(x):
    y = x * 3
    dist.all_reduce(y)
    dist.all_reduce(y, op=dist.ReduceOp.MAX, group=dist.group.WORLD)
    return y - 1


def functional_one(x):
    return functional.wait_tensor(functional.all_reduce(x * 2, "sum", dist.group.WORLD)) + 1


def aliases(x):
    # What is written through a view is seen through the others, before and after.
    y = x.clone()
    row, column = y[1], y[:, 1]
    before = column.sum()
    nl.all_reduce_(row)
    dist.all_reduce(y[0])
    return y, column + row.sum(), before


def unused(x):
    nl.all_reduce_(x.clone())
    nl.all_reduce(x)
    return x + 1


FUNCTIONS = [operator, in_place, replaced, functional_one, aliases, unused]


def compiled(rank, nranks, backend):
    torch.manual_seed(0)
    for function in FUNCTIONS:
        torch._dynamo.reset()
        program = torch.compile(function, fullgraph=True, backend=backend)
        for shape in ((3, 4), (3, 4), (6, 8)):
            x = torch.randint(1, 9, shape).float() + rank
            wanted, found = function(x.clone()), program(x.clone())
            for one, other in zip(found if isinstance(found, tuple) else (found,),
                                  wanted if isinstance(wanted, tuple) else (wanted,)):
                same(one, other, f"{function.__name__} {shape}")


def one_graph_for_all_sizes(rank, nranks):
    """8 rows are nearlight's, 2048 are left to the process group; the graph does not know."""
    counting = Counting()
    program = torch.compile(replaced, fullgraph=True, backend=counting, dynamic=True)
    before = nl.statistics()
    for rows in (8, 2048, 8, 2048):
        x = torch.ones(rows, 16) + rank
        same(program(x), replaced(x), f"{rows} rows")
    after = nl.statistics()
    assert counting.graphs == 1, counting.graphs
    assert after.taken - before.taken == 8 and sum(after.left.values()) == 8, after
    assert set(after.left) == {"more than max_bytes (1024) bytes"}, after


def compiled_again_when_disabled(rank, nranks):
    counting = Counting()
    program = torch.compile(replaced, fullgraph=True, backend=counting)
    x = torch.ones(4) + rank
    wanted = program(x)
    taken = nl.statistics().taken
    assert taken == 2, taken
    dist.barrier()
    nl.disable()
    same(program(x), wanted, "disabled")
    nl.enable()
    same(program(x), wanted, "enabled again")
    assert nl.statistics().taken == 2, nl.statistics()


def derivative(rank, nranks):
    def loss(x):
        return (nl.all_reduce(x * (rank + 1)) ** 2).sum()

    x, y = (torch.arange(4, dtype=torch.float64).requires_grad_() for _ in range(2))
    loss(x).backward()
    torch.compile(loss, fullgraph=True, backend="aot_eager")(y).backward()
    same(y.grad, x.grad)


def checked_by_pytorch(rank, nranks):
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic", "test_autograd_registration")
    for arguments in ((x, "sum", ""), (x.t(), "max", ""), (x.clone().requires_grad_(), "sum", "")):
        torch.library.opcheck(torch.ops.nearlight.all_reduce.default, arguments, test_utils=tests)
    for tensor in (x.clone(), x.clone().t()):
        torch.library.opcheck(torch.ops.nearlight.all_reduce_.default, (tensor, "max", ""), test_utils=tests[:3])
        torch.library.opcheck(torch.ops.nearlight.all_reduce_out.default, (tensor, tensor.clone(), "max", ""),
                              test_utils=tests[:3])


class Compiled(unittest.TestCase):
    def test_whole_graphs(self):
        run(compiled, 2, "aot_eager")

    def test_one_graph_for_all_sizes(self):
        run(one_graph_for_all_sizes, 2, max_bytes=1024)

    def test_compiled_again_when_disabled(self):
        run(compiled_again_when_disabled, 2)

    def test_derivative(self):
        run(derivative, 2)

    def test_checked_by_pytorch(self):
        run(checked_by_pytorch, 2)


class Inductor(unittest.TestCase):
    """Compiles C++ for minutes."""

    def test_whole_graphs(self):
        run(compiled, 2, "inductor", limit_s=280)


if __name__ == "__main__":
    # What takes the compiler seconds to begin with, once for all ranks.
    torch.compile(lambda x: x + 1, backend="aot_eager", fullgraph=True)(torch.ones(1))
    unittest.main()
