#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The plug-in for vLLM, over CPU ranks and a stand-in with the interface of vLLM's communicator."""

import logging
import os
import re
import subprocess
import sys
import unittest

import torch
import torch.distributed as dist

HERE = os.path.dirname(os.path.abspath(__file__))
STUB = os.path.join(HERE, "vllm_stub")
sys.path.insert(0, STUB)

import nearlight
from nearlight import vllm as plugin
from nearlight.torch import _make
from vllm.distributed.device_communicators.cuda_communicator import CudaCommunicator
import ranks
from torch_support import expect, same, start


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []
        plugin._log.addHandler(self)
        plugin._log.setLevel(logging.INFO)

    def emit(self, record):
        self.lines.append(record.levelname + " " + record.getMessage())


def made(name, group=None, **options):
    everybody = group or dist.group.WORLD
    return CudaCommunicator(cpu_group=everybody, device=torch.device("cpu"), device_group=everybody, unique_name=name, **options)


def taken(rank, nranks, folder):
    start(rank, nranks, folder)
    log = Lines()
    plugin.DEVICE_TYPE = "cpu"
    plain = dict(CudaCommunicator.__dict__)
    plugin.register()
    plugin.register()
    communicator = made("tp:0")
    group = plugin.group_of(communicator)
    for shape in ((8, 64), (1, 7), (0, 4)):
        for dtype in (torch.bfloat16, torch.float32):
            x = torch.ones(shape, dtype=dtype) * (rank + 1)
            same(communicator.all_reduce(x), torch.ones(shape, dtype=dtype) * sum(range(1, nranks + 1)))
            same(x, torch.ones(shape, dtype=dtype) * (rank + 1), "the input")
    x = torch.arange(12.0).reshape(3, 4).t()
    same(communicator.all_reduce(x), x.contiguous() * nranks, "transposed")
    assert (group.taken, communicator.calls) == (7, 0)
    # Left to vLLM.
    same(communicator.all_reduce(torch.ones(3, dtype=torch.complex64)), torch.full((3,), nranks, dtype=torch.complex64))
    assert (group.taken, communicator.calls, dict(group.left)) == (7, 1, {"nearlight has no type torch.complex64": 1})
    # Limits that change: what was decided by the old ones is forgotten.
    same(communicator.all_reduce(torch.ones(2048, 16)), torch.full((2048, 16), float(nranks)))
    assert (group.taken, communicator.calls) == (8, 1)
    group.limits = group.limits._replace(max_bytes=1024)
    group.forget_decisions()
    for rows in (8, 2048):
        same(communicator.all_reduce(torch.ones(rows, 16)), torch.full((rows, 16), float(nranks)))
    assert (group.taken, communicator.calls) == (9, 2)
    if rank == 0:
        assert re.fullmatch(r"INFO nearlight takes the all-reduces of tp:0: %d ranks, .+" % nranks, "\n".join(log.lines)), log.lines
    else:
        assert log.lines == [], log.lines
    # Others of vLLM's communicators are none of ours, without a word.
    for name in ("pp:0", "ep:0", "dp:1", "world"):
        assert plugin.group_of(made(name)) is None
    alone = [dist.new_group([other]) for other in range(nranks)][rank]
    assert plugin.group_of(made("tp:1", alone)) is None
    assert len(log.lines) == (rank == 0), log.lines
    dist.barrier()
    communicator.destroy()
    assert communicator.destroyed and group.comm.closed and plugin.group_of(communicator) is None
    plugin.unregister()
    assert {name: CudaCommunicator.__dict__[name] for name in plugin.METHODS} == {name: plain[name] for name in plugin.METHODS}
    dist.destroy_process_group()


def left_with_one_line(rank, nranks, folder):
    start(rank, nranks, folder)
    log = Lines()
    plugin.register()
    communicator = made("tp:0")  # on a CPU, which the plug-in is not for
    assert log.lines == ["WARNING nearlight leaves the all-reduces of tp:0 to vLLM: its ranks are on cpu"], log.lines
    same(communicator.all_reduce(torch.ones(2)), torch.full((2,), float(nranks)))
    assert communicator.calls == 1
    plugin.DEVICE_TYPE, place = "cpu", _make.place
    _make.place = lambda: place() + str(rank)
    communicator = made("tp:0")
    assert len(log.lines) == 2 and log.lines[1].startswith("WARNING") and "rank 1 is on another host" in log.lines[1], log.lines
    same(communicator.all_reduce(torch.ones(2)), torch.full((2,), float(nranks)))
    communicator.destroy()
    plugin.unregister()
    dist.destroy_process_group()


class Plugin(unittest.TestCase):
    def test_taken(self):
        ranks.run(taken, 2)
        ranks.run(taken, 4)

    def test_left_with_one_line(self):
        ranks.run(left_with_one_line, 2)

    def test_variable(self):
        before = CudaCommunicator.all_reduce
        try:
            os.environ[plugin.VARIABLE] = "0"
            plugin.register()
            self.assertIs(CudaCommunicator.all_reduce, before)
            os.environ[plugin.VARIABLE] = "yes"
            expect(nearlight.InvalidArgument, 'NEARLIGHT_VLLM is "yes"; it takes 0 or 1', plugin.register)
            os.environ[plugin.VARIABLE] = "1"
            plugin.register()
            self.assertIsNot(CudaCommunicator.all_reduce, before)
            plugin.unregister()
            self.assertIs(CudaCommunicator.all_reduce, before)
        finally:
            os.environ.pop(plugin.VARIABLE, None)

    def test_another_vllm(self):
        log, plain = Lines(), CudaCommunicator.__init__
        try:
            CudaCommunicator.__init__ = lambda self, cpu_group, device: None
            plugin.register()
            self.assertIn("CudaCommunicator.__init__ takes self, cpu_group, device; the plug-in was written for another", log.lines[0])
        finally:
            CudaCommunicator.__init__ = plain
            plugin._log.removeHandler(log)

    def test_no_vllm_and_no_pytorch(self):
        """vLLM's loader imports the module and calls register; so does `import nearlight` with nothing else there."""
        code = "import logging; logging.basicConfig(); from nearlight.vllm import register; register()"
        ran = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=60,
                             env=dict(os.environ, PYTHONPATH=os.path.join(HERE, "..", "..", "python")), check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("nearlight's plug-in does nothing: No module named 'vllm'", ran.stderr)


if __name__ == "__main__":
    unittest.main()
