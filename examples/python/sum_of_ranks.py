#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPU ranks without PyTorch: each process adds its array to the others'.

    python3 examples/python/sum_of_ranks.py
"""

import array
import multiprocessing

import nearlight

KEY = "sum_of_ranks example"


def rank_main(rank: int, nranks: int) -> None:
    with nearlight.Communicator.host(rank, nranks, KEY) as comm:
        values = array.array("f", [rank + 1.0] * 4)
        comm.all_reduce(values)
        route = comm.explain(len(values), nearlight.DataType.float32)
        print(f"rank {rank}: {list(values)} by {route.algorithm} {route.protocol} ({route.reason})")


if __name__ == "__main__":
    ranks = [multiprocessing.Process(target=rank_main, args=(rank, 3)) for rank in range(3)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    raise SystemExit(max(process.exitcode or 0 for process in ranks))
