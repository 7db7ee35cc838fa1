#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A feed-forward layer split over the ranks, whose all-reduce is nearlight's: eager, compiled and, on GPUs, in a graph.

    torchrun --nproc-per-node 2 examples/python/tensor_parallel.py

Runs on GPUs where every rank has one, else on CPUs.
"""

import os

import torch
import torch.distributed as dist

import nearlight.torch as nl

HIDDEN, INNER, BATCH = 256, 512, 4


def main() -> None:
    rank, nranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    gpus = torch.cuda.is_available() and torch.cuda.device_count() >= nranks
    device = torch.device("cuda", rank) if gpus else torch.device("cpu")
    if gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpus else "gloo")
    nl.enable()  # the world; all ranks call it

    torch.manual_seed(1)  # the same numbers on all ranks
    up = torch.randn(INNER, HIDDEN, device=device) / HIDDEN ** 0.5
    down = torch.randn(HIDDEN, INNER, device=device) / INNER ** 0.5
    x = torch.randn(BATCH, HIDDEN, device=device)
    whole = torch.relu(x @ up.T) @ down.T
    mine = slice(rank * INNER // nranks, (rank + 1) * INNER // nranks)

    def layer(x: torch.Tensor) -> torch.Tensor:
        partial = torch.relu(x @ up[mine].T) @ down[:, mine].T
        return nl.all_reduce(partial)

    torch.testing.assert_close(layer(x), whole, rtol=1e-4, atol=1e-4)
    compiled = torch.compile(layer, fullgraph=True, backend="inductor" if gpus else "aot_eager")
    torch.testing.assert_close(compiled(x), whole, rtol=1e-4, atol=1e-4)
    if gpus:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = layer(x)
        graph.replay()
        torch.testing.assert_close(captured, whole, rtol=1e-4, atol=1e-4)

    # A program that knows nothing of nearlight.
    total = torch.ones(3, device=device)
    dist.all_reduce(total)
    assert total.tolist() == [nranks] * 3
    if rank == 0:
        print(nl.explain(x))
        print(nl.statistics())
    dist.barrier()
    nl.disable()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
