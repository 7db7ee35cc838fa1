# SPDX-License-Identifier: Apache-2.0
"""Functions run by several processes, one a rank, with a limit of time for all of them."""

import faulthandler
import multiprocessing
import os
import sys
import tempfile
import time
import traceback

# Whatever a test does, it ends.
LIMIT_S = 90


def _child(function, rank, nranks, folder, pipe, arguments, limit_s):
    # One that hangs says where, before the parent ends it.
    faulthandler.dump_traceback_later(0.9 * limit_s)
    try:
        pipe.send(("returned", function(rank, nranks, folder, *arguments)))
        code = 0
    except BaseException:  # told by the parent
        pipe.send(("raised", traceback.format_exc()))
        code = 1
    pipe.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(function, nranks, *arguments, dying=(), limit_s=LIMIT_S, start="fork"):
    """What function(rank, nranks, folder, *arguments) returns on each rank, a process each; AssertionError with the
    text of whatever raises. `dying`: the ranks that end without returning; theirs is None. `start`: "spawn" where CUDA
    may have been looked at, which a child made by fork() could then not use."""
    context = multiprocessing.get_context(start)
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(nranks):
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(function, rank, nranks, folder, theirs, arguments, limit_s))
            process.start()
            theirs.close()
            ranks.append((process, mine))
        results, faults, end = [None] * nranks, [], time.monotonic() + limit_s
        for rank, (process, pipe) in enumerate(ranks):
            try:
                if not pipe.poll(max(0.0, end - time.monotonic())):
                    faults.append(f"rank {rank} did not end within {limit_s} s")
                    continue
                kind, value = pipe.recv()
                if kind == "raised":
                    faults.append(f"rank {rank}:\n{value}")
                results[rank] = value
            except EOFError:
                if rank not in dying:
                    faults.append(f"rank {rank} ended without a result")
        for process, pipe in ranks:
            process.join(1)
            if process.is_alive():
                process.kill()
                process.join()
            pipe.close()
    if faults:
        raise AssertionError("\n".join(faults))
    return results
