#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""enable and disable: what is replaced and given back, several groups, what is left to the process group, failures."""

import os
import signal
import time
import unittest

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.distributed_c10d as c10d

import nearlight
import nearlight.torch as nl
from nearlight.torch import _make, _nccl, _replace
import ranks
from torch_models import compare
from torch_support import CONFIG, expect, run, same, start

PLAIN = (dist.all_reduce, c10d.all_reduce, functional.all_reduce, dist.destroy_process_group)


def now():
    return (dist.all_reduce, c10d.all_reduce, functional.all_reduce, dist.destroy_process_group)


def replaced_and_given_back(rank, nranks, folder):
    start(rank, nranks, folder)
    expect(nearlight.InvalidUsage, "not enabled for the world", lambda: nl.all_reduce(torch.ones(2)))
    assert nl.explain(torch.ones(2)) == (False, "nearlight is not enabled for this group", "", "", 0, 0)
    for _ in range(3):
        assert not nl.enabled()
        nl.enable(config=CONFIG)
        assert nl.enabled() and now()[0] is _replace.all_reduce and now()[0] is now()[1] and now()[2] is not PLAIN[2]
        expect(nearlight.InvalidUsage, "enabled for", lambda: nl.enable())
        x = torch.full((4,), float(rank))
        dist.all_reduce(x)
        same(x, torch.full((4,), float(sum(range(nranks)))))
        assert nl.statistics() == nl.Statistics(1, {})
        same(functional.wait_tensor(functional.all_reduce(x, "sum", dist.group.WORLD)), x * nranks)
        assert nl.statistics().taken == 2
        dist.barrier()
        nl.disable()
        assert now() == PLAIN
        nl.disable()
        dist.all_reduce(x)
        same(x, torch.full((4,), float(sum(range(nranks)) * nranks)))
    nl.enable(replace=False, config=CONFIG)
    assert now() == PLAIN
    same(nl.all_reduce(torch.ones(2)), torch.full((2,), float(nranks)))
    dist.barrier()
    nl.disable()
    # A function put in front of ours stays.
    nl.enable(config=CONFIG)
    ours = dist.all_reduce
    dist.all_reduce = lambda *words, **named: ours(*words, **named)
    front = dist.all_reduce
    dist.barrier()
    nl.disable()
    assert dist.all_reduce is front and c10d.all_reduce is PLAIN[1]
    x = torch.ones(2)
    dist.all_reduce(x)
    same(x, torch.full((2,), float(nranks)))
    dist.all_reduce = PLAIN[0]
    # The end of the process group is ours, too; one of the same name is another one.
    nl.enable(config=CONFIG)
    dist.barrier()
    dist.destroy_process_group()
    assert now() == PLAIN and not nl.enabled()
    start(rank, nranks, folder, "store 2")
    assert not nl.enabled()
    x = torch.ones(2)
    dist.all_reduce(x)
    same(x, torch.full((2,), float(nranks)))
    dist.destroy_process_group()


def what_is_left(rank, nranks):
    cases = [(torch.ones(3, dtype=torch.int16), "sum", "no type torch.int16"),
             (torch.ones(3, dtype=torch.complex64), "sum", "no type torch.complex64"),
             (torch.ones(65, dtype=torch.float32), "sum", "more than max_bytes (256)"),
             (torch.ones(1, dtype=torch.float32), "sum", "fewer than min_bytes (8)"),
             (torch.ones(3).to_sparse(), "sum", "layout is torch.sparse_coo"),
             (torch.ones(3, device="meta"), "sum", "on meta")]
    for tensor, op, reason in cases:
        told = nl.explain(tensor, op)
        assert not told.taken and reason in told.reason, told
    expect(nearlight.InvalidArgument, "op is 'xor'", lambda: nl.all_reduce(torch.ones(3), "xor"))
    assert nl.explain(torch.ones(3), "xor").reason == "nearlight has no operator xor"
    told = nl.explain(torch.ones(64))
    assert told.taken and told.algorithm and told.protocol and told.grid == 1, told
    # The results are right whoever computes them.
    for tensor, _, reason in cases[1:4]:
        before = sum(nl.statistics().left.values())
        for call in (lambda t: nl.all_reduce(t), lambda t: nl.all_reduce_(t.clone()),
                     lambda t: (t := t.clone(), dist.all_reduce(t))[0]):
            same(call(tensor), tensor * nranks, reason)
        assert sum(nl.statistics().left.values()) == before + 3, nl.statistics()
        y = tensor.clone()
        dist.all_reduce(y, async_op=True).wait()
        same(y, tensor * nranks, reason)
    # Another path: asked for again, not remembered.
    same(nl.all_reduce(torch.ones(64)), torch.full((64,), float(nranks)))
    for path in ("ll", "simple"):
        nl.set_path(path)
        assert nl.explain(torch.ones(64)).protocol == path, nl.explain(torch.ones(64))
        same(nl.all_reduce(torch.ones(64)), torch.full((64,), float(nranks)), path)
    nl.set_path(None)
    assert nl.explain(torch.ones(64)) == told
    expect(nearlight.InvalidArgument, "path", lambda: nl.set_path("fast"))
    x = torch.full((3,), 5, dtype=torch.int32)
    dist.all_reduce(x, op=dist.ReduceOp.BAND)  # not ours: as it was
    same(x, torch.full((3,), 5, dtype=torch.int32))


def several_groups(rank, nranks, folder):
    start(rank, nranks, folder)
    first, second = dist.new_group([0, 1]), dist.new_group([1, 2, 3])
    if rank == 0:
        expect(nearlight.InvalidArgument, "that this rank is in", lambda: nl.enable(second))
    if rank <= 1:
        nl.enable(first, config=CONFIG)
    if rank >= 1:
        nl.enable(second, config=CONFIG)
    nl.enable(config=CONFIG)
    for turn in range(20):
        if rank <= 1:
            same(nl.all_reduce(torch.full((9,), rank + turn), group=first), torch.full((9,), 1 + 2 * turn))
        if rank >= 1:
            x = torch.full((700,), float(rank))
            dist.all_reduce(x, group=second)
            same(x, torch.full((700,), 6.0))
        else:  # PyTorch's own: a warning, and nothing else
            dist.all_reduce(torch.ones(3), group=second)
        x = torch.full((5,), rank + 1)
        dist.all_reduce(x)
        same(x, torch.full((5,), 10))
    if rank == 1:
        assert [nl.statistics(group).taken for group in (first, second, None)] == [20, 20, 20]
    dist.barrier()
    # One after the other: the others go on.
    if rank <= 1:
        nl.disable(first)
        assert dist.all_reduce is not PLAIN[0]
        x = torch.full((5,), rank + 1)
        dist.all_reduce(x, group=first)
        same(x, torch.full((5,), 3))
    if rank >= 1:
        same(nl.all_reduce(torch.ones(3), group=second.group_name), torch.full((3,), 3.0))
        dist.barrier(second)
        nl.disable(second)
    if rank == 0:
        dist.destroy_process_group(second)  # which this rank is not in
    same(nl.all_reduce(torch.ones(3)), torch.full((3,), 4.0))
    dist.barrier()
    nl.disable()
    assert now() == PLAIN
    dist.destroy_process_group()


def refused(rank, nranks, folder):
    start(rank, nranks, folder)

    def usable():
        assert not nl.enabled() and now() == PLAIN
        x = torch.ones(2)
        dist.all_reduce(x)
        same(x, torch.full((2,), float(nranks)))

    expect(nearlight.InvalidUsage, "limits is (0, 101) on rank 1 and (0, 100) on rank 0", lambda: nl.enable(max_bytes=100 + rank))
    usable()
    expect(nearlight.InvalidUsage, "config is", lambda: nl.enable(config=nearlight.Config(regions=1 + rank)))
    usable()
    expect(nearlight.InvalidArgument, "backend is 'fast'", lambda: nl.enable(backend="fast"))
    expect(nearlight.InvalidArgument, "backend cuda has no ranks on cpu", lambda: nl.enable(backend="cuda"))
    expect(nearlight.InvalidArgument, "min_bytes is 5, max_bytes 4", lambda: nl.enable(min_bytes=5, max_bytes=4))
    expect(nearlight.InvalidArgument, "it takes a ProcessGroup", lambda: nl.enable(42))
    usable()
    # One rank that cannot: all are told, by the text of that one.
    expect(nearlight.InvalidArgument, "rank 1: min_bytes is -1", lambda: nl.enable(min_bytes=-rank))
    expect(nearlight.InvalidArgument, "slots: 7", lambda: nl.enable(config=nearlight.Config(slots=7)))
    usable()
    place = _make.place
    _make.place = lambda: place() + (" elsewhere" if rank == 1 else "")
    told = expect(nearlight.Unsupported, "rank 1 is on another host or in another network namespace than rank 0", nl.enable)
    assert "\n" not in str(told)
    _make.place = place
    usable()
    version = _make.__version__
    _make.__version__ = version + (".1" if rank == 1 else "")
    expect(nearlight.InvalidUsage, "version is", nl.enable)
    _make.__version__ = version
    create = _make._create

    def fails(*words):
        if rank == 1:
            raise nearlight.SystemCallError("planted")
        return create(*words)

    _make._create = fails
    try:
        nl.enable(config=nearlight.Config(create_timeout_ms=500))
        raise AssertionError("enabled without rank 1")
    except (nearlight.SystemCallError, nearlight.Timeout) as error:
        assert "planted" in str(error) or "rank" in str(error), error
    _make._create = create
    usable()
    nl.enable(config=CONFIG)
    dist.barrier()
    dist.destroy_process_group()


def without_a_usable_nccl(rank, nranks, folder):
    """Here NCCL is a stand-in without functions. Rank 0, which needs it first, tells the others."""
    start(rank, nranks, folder)
    expect(nearlight.Unsupported, "libnccl.so.2 is no NCCL: ", lambda: nl.enable(device="cuda:0"))
    _nccl.loaded_copies = lambda: ["/a/libnccl.so.2", "/b/libnccl.so.2"]
    told = expect(nearlight.InvalidUsage, "several copies of NCCL are loaded: /a/libnccl.so.2, /b/libnccl.so.2",
                  lambda: nl.enable(device="cuda:0"))
    assert "NEARLIGHT_NCCL_LIB says which" in str(told)
    os.environ["NEARLIGHT_NCCL_LIB"] = "/nowhere/libnccl.so.2"
    expect(nearlight.Unsupported, "NCCL cannot be loaded: /nowhere/libnccl.so.2", lambda: nl.enable(device="cuda:0"))
    assert not nl.enabled() and now() == PLAIN
    nl.enable(config=CONFIG)  # by CPUs
    same(nl.all_reduce(torch.ones(2)), torch.full((2,), float(nranks)))
    dist.barrier()
    dist.destroy_process_group()


def one_dies(rank, nranks, folder):
    start(rank, nranks, folder)
    nl.enable(config=CONFIG)
    same(nl.all_reduce(torch.ones(3)), torch.full((3,), float(nranks)))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    x = torch.ones(1000)
    told = expect(nearlight.NearlightError, "rank", lambda: [dist.all_reduce(x) for _ in range(100)])
    seconds = time.monotonic() - begin
    # And so does what comes after, at once.
    expect(type(told), "", lambda: nl.all_reduce(x))
    nl.disable()
    assert now() == PLAIN
    return type(told).__name__, seconds


def one_does_not_come(rank, nranks, folder):
    start(rank, nranks, folder)
    nl.enable(config=nearlight.Config(timeout_ms=500))
    told = None
    if rank == 0:
        told = str(expect(nearlight.Timeout, "rank 1", lambda: nl.all_reduce(torch.ones(3))))
    dist.barrier()
    nl.disable()
    dist.destroy_process_group()
    return told


def models(rank, nranks, folder):
    start(rank, nranks, folder)
    taken = compare(rank, nranks, "cpu", CONFIG)
    dist.barrier()
    dist.destroy_process_group()
    return taken


class Models(unittest.TestCase):
    def test_spread_as_pytorch_spreads_them(self):
        for taken in ranks.run(models, 2):
            self.assertGreater(taken["tp"], 0)


class Groups(unittest.TestCase):
    def test_replaced_and_given_back(self):
        ranks.run(replaced_and_given_back, 2)

    def test_what_is_left(self):
        run(what_is_left, 2, min_bytes=8, max_bytes=256)

    def test_several_groups(self):
        ranks.run(several_groups, 4)

    def test_refused(self):
        ranks.run(refused, 2)

    def test_without_a_usable_nccl(self):
        ranks.run(without_a_usable_nccl, 2)

    def test_too_many_ranks(self):
        facts = [{"failure": None, "place": ""} for _ in range(9)]
        self.assertIn("group has 9 ranks; nearlight has groups of 1 to 8", str(_make._difference(facts)))

    def test_without_process_groups(self):
        self.assertFalse(nl.enabled())
        for call in (nl.enable, nl.disable, lambda: nl.all_reduce(torch.ones(2))):
            with self.assertRaisesRegex(nearlight.InvalidUsage, "init_process_group"):
                call()


class Failures(unittest.TestCase):
    def test_death(self):
        results = ranks.run(one_dies, 3, dying=[1])
        for rank in (0, 2):
            self.assertIn(results[rank][0], ("RemoteError", "Timeout"))
            self.assertLess(results[rank][1], 30)

    def test_one_does_not_come(self):
        self.assertIn("rank 1", ranks.run(one_does_not_come, 2)[0])


if __name__ == "__main__":
    unittest.main()
