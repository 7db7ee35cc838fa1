#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch with and without the drop-in for NCCL, on two GPUs: the same program, the same results.

    torch_check.py [--nearlight PATH] [--only NAME,...] [--limit SECONDS]

Runs each of the programs below (all_reduce by itself, CUDA graphs, DDP, FSDP, tensor parallelism, the first of
them with expandable segments, too) as two processes, first as they are and then under `nearlight run --stats`, and
compares what they give: to the bit, and where the bits differ by how much. Ends with 1 when a program fails or hangs,
when results differ by more than rounding, or when the drop-in took nothing. Has not run on a GPU yet.
"""

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile

PROGRAMS = ("collectives", "graphs", "ddp", "fsdp", "tensor_parallel")
# Relative to the largest value: what another order of rounding may give.
TOLERANCE = 1e-2


# ---- the programs, in the ranks --------------------------------------------------------------------------

def data(torch, shape, dtype, rank, salt):
    generator = torch.Generator().manual_seed(1000 * salt + rank)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype).cuda()
    return torch.randint(-100, 100, shape, generator=generator).to(dtype).cuda()


def collectives(torch, dist, rank):
    out = []
    ops = [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.MIN]
    salt = 0
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int64, torch.uint8):
        for count in (1, 5, 1024, 4097, 65536, 1_000_003):
            for op in ops:
                salt += 1
                tensor = data(torch, (count,), dtype, rank, salt)
                dist.all_reduce(tensor, op=op)
                out.append(tensor)
    # Not waited for in order, beside each other, on another stream, in one group.
    several = [data(torch, (n,), torch.bfloat16, rank, 900 + n) for n in (64, 4096, 300_000)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in several]
    for work in reversed(works):
        work.wait()
    side = torch.cuda.Stream()
    apart = data(torch, (8192,), torch.float32, rank, 990)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        dist.all_reduce(apart)
        apart = apart * 2
    torch.cuda.current_stream().wait_stream(side)
    together = [data(torch, (n,), torch.float32, rank, 800 + n) for n in (16, 2048, 100_000)]
    dist.all_reduce_coalesced(together)
    # Another group of the same ranks, and what goes to NCCL.
    group = dist.new_group([0, 1])
    other = data(torch, (5000,), torch.float16, rank, 991)
    dist.all_reduce(other, group=group)
    gathered = [torch.empty_like(other) for _ in range(2)]
    dist.all_gather(gathered, other)
    dist.broadcast(apart, src=1)
    dist.barrier()
    return out + several + together + [apart, other] + gathered


def graphs(torch, dist, rank):
    source = data(torch, (4096,), torch.bfloat16, rank, 1)
    target = torch.empty_like(source)
    for _ in range(3):
        target.copy_(source)
        dist.all_reduce(target)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        target.copy_(source)
        for _ in range(8):
            dist.all_reduce(target)
            target.mul_(0.5)
    out = []
    for turn in range(20):
        source.copy_(data(torch, (4096,), torch.bfloat16, rank, 10 + turn))
        graph.replay()
        out.append(target.clone())
        between = data(torch, (100 + turn,), torch.float32, rank, 50 + turn)
        dist.all_reduce(between)
        out.append(between)
    return out


def model(torch):
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).cuda()


def train(torch, net, rank, steps=5):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    out = []
    for step in range(steps):
        loss = net(data(torch, (32, 256), torch.float32, rank, 100 + step)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        out.append(loss.detach())
    return out


def ddp(torch, dist, rank):
    net = torch.nn.parallel.DistributedDataParallel(model(torch), device_ids=[rank], bucket_cap_mb=1)
    losses = train(torch, net, rank)
    return losses + [parameter.detach() for parameter in net.parameters()]


def fsdp(torch, dist, rank):
    from torch.distributed.fsdp import fully_shard
    net = model(torch)
    for layer in net:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer)
    fully_shard(net)
    losses = train(torch, net, rank)
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    return losses + [parameter.full_tensor().detach() for parameter in net.parameters()] + [getattr(norm, "full_tensor", lambda: norm)()]


def tensor_parallel(torch, dist, rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cuda", (2,))
    net = parallelize_module(model(torch).to(torch.bfloat16), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    out = []
    for step in range(10):
        out.append(net(data(torch, (8, 256), torch.bfloat16, 0, 200 + step)).detach())  # the same input on both ranks
    return out


def run_rank(program, rank, path):
    import torch
    import torch.distributed as dist
    torch.cuda.set_device(rank)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    dist.init_process_group("nccl", rank=rank, world_size=2, device_id=torch.device("cuda", rank))
    results = [tensor.cpu() for tensor in globals()[program](torch, dist, rank)]
    torch.cuda.synchronize()
    dist.destroy_process_group()
    torch.save(results, path)


# ---- with and without ------------------------------------------------------------------------------------

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run_both(program, prefix, folder, limit, more):
    """The two ranks' results, or None; and what was printed."""
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), CUBLAS_WORKSPACE_CONFIG=":4096:8", **more)
    paths = [os.path.join(folder, "rank%d.pt" % rank) for rank in range(2)]
    ranks = [subprocess.Popen(prefix + [sys.executable, os.path.abspath(__file__), "--rank", str(rank), "--program", program,
                                        "--result", paths[rank]],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for rank in range(2)]
    output, good = "", True
    for process in ranks:
        try:
            output += process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            output += "did not end within %d s\n" % limit
            for other in ranks:
                other.kill()
            output += process.communicate()[0]
        good = good and process.returncode == 0
    return (paths if good else None), output


def compare(plain, ours):
    """(number of tensors, those whose bits differ, the largest difference relative to the largest value)."""
    import torch
    count = differ = 0
    worst = 0.0
    for mine, theirs in zip(plain, ours):
        first, second = torch.load(mine), torch.load(theirs)
        if len(first) != len(second):
            return count, differ, float("inf")
        for a, b in zip(first, second):
            count += 1
            if a.shape != b.shape or a.dtype != b.dtype:
                return count, differ, float("inf")
            if torch.equal(a, b):
                continue
            differ += 1
            worst = max(worst, difference(a, b))
    return count, differ, worst


def difference(plain, ours):
    """The largest difference relative to the largest value; inf where it cannot be rounding: between integers, or
    where one is no finite number and the other is another value."""
    if not plain.dtype.is_floating_point:
        return 0.0 if bool((plain == ours).all()) else float("inf")
    plain, ours = plain.double(), ours.double()
    same = (plain == ours) | (plain.isnan() & ours.isnan())
    finite = plain.isfinite() & ours.isfinite()
    if not bool((same | finite).all()):
        return float("inf")
    if not bool(finite.any()):
        return 0.0
    plain, ours = plain[finite], ours[finite]
    return ((plain - ours).abs().max() / plain.abs().max().clamp(min=1e-30)).item()


def self_test():
    """Of the comparison alone; needs no GPU."""
    import torch
    nan, inf = float("nan"), float("inf")
    tensor = torch.tensor
    for plain, ours, good in ((tensor([1.0, 2.0]), tensor([1.0, 2.001]), True),
                              (tensor([1.0, 2.0]), tensor([1.0, 2.1]), False),
                              (tensor([1.0, 2.0]), tensor([1.0, nan]), False),
                              (tensor([1.0, nan]), tensor([1.0, 2.0]), False),
                              (tensor([1.0, nan]), tensor([1.001, nan]), True),
                              (tensor([1.0, inf]), tensor([1.001, inf]), True),
                              (tensor([1.0, inf]), tensor([1.0, -inf]), False),
                              (tensor([nan, nan]), tensor([nan, nan]), True),
                              (tensor([1000, 2]), tensor([1001, 2]), False)):
        if (difference(plain, ours) <= TOLERANCE) != good:
            print("compared wrongly: %s and %s" % (plain, ours))
            return 1
    return 0


def taken_of(output):
    import re
    return sum(int(n) for n in re.findall(r": (\d+) calls taken,", output))


def main():
    parser = argparse.ArgumentParser()
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nearlight")
    parser.add_argument("--nearlight", default=beside if os.path.exists(beside) else shutil.which("nearlight") or "nearlight")
    parser.add_argument("--only", default=",".join(PROGRAMS))
    parser.add_argument("--limit", type=int, default=120)
    parser.add_argument("--rank", type=int)
    parser.add_argument("--program")
    parser.add_argument("--result")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    if args.rank is not None:
        run_rank(args.program, args.rank, args.result)
        return 0
    bad = 0
    cases = [(name, {}) for name in args.only.split(",")]
    if "collectives" in args.only.split(","):
        cases.append(("collectives", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}))
    for name, more in cases:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            plain, plain_output = run_both(name, [], one, args.limit, more)
            ours, output = run_both(name, [args.nearlight, "run", "--stats", "--"], two, args.limit, more)
            title = name + "".join(" " + value for value in more.values())
            if plain is None or ours is None:
                bad += 1
                print("%-45s FAILED %s the drop-in\n%s" % (title, "without" if plain is None else "with",
                                                           (plain_output if plain is None else output)[-6000:]))
                continue
            count, differ, worst = compare(plain, ours)
            taken = taken_of(output)
            good = worst <= TOLERANCE and taken > 0
            bad += not good
            print("%-45s %s  %d tensors, %d with other bits, at most %.2g of the largest value; %d calls taken"
                  % (title, "ok    " if good else "WRONG ", count, differ, worst, taken))
            if not good or os.environ.get("VERBOSE"):
                print(output[-4000:])
            sys.stdout.flush()
    print("%d of %d bad" % (bad, len(cases)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
