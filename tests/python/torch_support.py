# SPDX-License-Identifier: Apache-2.0
"""What the tests of the PyTorch binding share."""

import datetime
import os

import torch
import torch.distributed as dist

import nearlight
import nearlight.torch as nl
import ranks

CONFIG = nearlight.Config(timeout_ms=20_000, create_timeout_ms=20_000)


def start(rank, nranks, folder, name="store"):
    """gloo over a file; torch.distributed's limits are shorter than the test's."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, name), rank=rank, world_size=nranks,
                            timeout=datetime.timedelta(seconds=40))


def enabled_rank(rank, nranks, folder, function, *arguments, **options):
    start(rank, nranks, folder)
    nl.enable(config=CONFIG, **options)
    result = function(rank, nranks, *arguments)
    dist.barrier()
    nl.disable()
    dist.destroy_process_group()
    return result


def run(function, nranks, *arguments, limit_s=ranks.LIMIT_S, **options):
    """function(rank, nranks, *arguments) on each rank, with nearlight enabled for the world by `options`."""
    return ranks.run(_enabled, nranks, function, arguments, options, limit_s=limit_s)


def _enabled(rank, nranks, folder, function, arguments, options):
    return enabled_rank(rank, nranks, folder, function, *arguments, **options)


def same(found, wanted, what=""):
    assert found.shape == wanted.shape and found.dtype == wanted.dtype, (what, found.shape, wanted.shape, found.dtype)
    assert torch.equal(found.view(torch.uint8) if found.dtype.itemsize == 1 else found, wanted.view(torch.uint8)
                       if wanted.dtype.itemsize == 1 else wanted), f"{what}: {found} is not {wanted}"


def expect(kind, text, call):
    """`call` raises `kind` with `text` in it."""
    try:
        call()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
        return error
    raise AssertionError(f"{kind.__name__} was not raised: {text}")
