#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch with and without the drop-in for NCCL, on two GPUs: the same program, the same results.

    torch_check.py [--nearlight PATH] [--only NAME,...] [--limit SECONDS] [--total-s SECONDS]
    torch_check.py --shared-gpu      both ranks on one GPU, where they take turns
    torch_check.py --device cpu      the programs alone, twice, over gloo: whether they run and repeat themselves

Runs each of the programs below (collectives by themselves, CUDA graphs, DDP, FSDP, tensor parallelism, sequence
parallelism; with expandable segments; with every function taken) as two processes, first as they are and then under
`nearlight run --stats`, and compares what they give: to the bit, and where the bits differ by how much. Ends with 1 when
a program fails or hangs, when results differ by more than rounding, or when the drop-in took none of the functions that
a case is there for.
"""

import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# Beside this file in the GPU bundle.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
from process_group import GRACE_S, end_group
import shared_gpu

ALL = {"NEARLIGHT_DROPIN_TAKES": "all"}
# Program, variables, functions that the drop-in must have taken.
CASES = (("collectives", {}, ("AllReduce",)),
         ("graphs", {}, ("AllReduce",)),
         ("ddp", {}, ("AllReduce",)),
         ("fsdp", {}, ("AllReduce",)),
         ("tensor_parallel", {}, ("AllReduce",)),
         ("collectives", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, ("AllReduce",)),
         ("collectives", ALL, ("AllReduce", "AllGather", "Broadcast")),
         ("fsdp", ALL, ("AllGather", "ReduceScatter")),
         ("sequence_parallel", ALL, ("AllGather", "ReduceScatter")))
CPU_PROGRAMS = ("ddp", "fsdp", "tensor_parallel", "sequence_parallel")
# Relative to the largest value: what another order of rounding may give.
TOLERANCE = 1e-2
DEVICE = "cuda"
SHARED = False  # the two ranks have one GPU


# ---- the programs, in the ranks --------------------------------------------------------------------------

def data(torch, shape, dtype, rank, salt):
    generator = torch.Generator().manual_seed(1000 * salt + rank)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype).to(DEVICE)
    return torch.randint(-100, 100, shape, generator=generator).to(dtype).to(DEVICE)


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
    # The process group's own thread asks CUDA about events meanwhile.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
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
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)).to(DEVICE)


def train(torch, net, rank, steps=5):
    """Losses; the gradients of one more step are left."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    out = []
    for step in range(steps + 1):
        loss = net(data(torch, (32, 256), torch.float32, rank, 100 + step)).square().mean()
        loss.backward()
        out.append(loss.detach())
        if step < steps:
            optimizer.step()
            optimizer.zero_grad()
    return out


def ddp(torch, dist, rank):
    net = torch.nn.parallel.DistributedDataParallel(model(torch), device_ids=[torch.cuda.current_device()] if DEVICE == "cuda" else None, bucket_cap_mb=1)
    losses = train(torch, net, rank)
    return losses + [part.detach() for parameter in net.parameters() for part in (parameter, parameter.grad)]


def fsdp(torch, dist, rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh(DEVICE, (2,))
    net = model(torch)
    for layer in net:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    losses = train(torch, net, rank)
    gradients = [parameter.grad.full_tensor().detach() for parameter in net.parameters()]
    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0).full_tensor()
    return losses + gradients + [norm] + [parameter.full_tensor().detach() for parameter in net.parameters()]


def parallel_step(torch, net, rank, step):
    """Output, and the gradients of input and weights."""
    x = data(torch, (8, 256), torch.bfloat16, rank, 200 + step).requires_grad_()
    y = net(x)
    y.float().square().mean().backward()
    gradients = [parameter.grad.to_local() for parameter in net.parameters()]
    net.zero_grad()
    return [y.detach(), x.grad] + gradients


def tensor_parallel(torch, dist, rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh(DEVICE, (2,))
    net = parallelize_module(model(torch).to(torch.bfloat16), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return [tensor for step in range(10) for tensor in parallel_step(torch, net, 0, step)]  # the same input on both ranks


def sequence_parallel(torch, dist, rank):
    """Each rank has its rows; they are gathered before the first layer, and what the second adds up is scattered."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh(DEVICE, (2,))
    net = parallelize_module(model(torch).to(torch.bfloat16), mesh, {"0": ColwiseParallel(input_layouts=Shard(0)),
                                                                     "2": RowwiseParallel(output_layouts=Shard(0))})
    return [tensor for step in range(10) for tensor in parallel_step(torch, net, rank, step)]


def run_rank(program, rank, path):
    import torch
    import torch.distributed as dist
    torch.use_deterministic_algorithms(True, warn_only=True)
    if DEVICE == "cuda":
        device = torch.device("cuda", 0 if SHARED else rank)
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = False
        dist.init_process_group("nccl", rank=rank, world_size=2, device_id=device)
    else:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", rank=rank, world_size=2)
    # What a functional collective gives is a wrapper until it is waited for.
    results = [getattr(tensor, "wait", lambda tensor=tensor: tensor)().cpu() for tensor in globals()[program](torch, dist, rank)]
    if DEVICE == "cuda":
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
    logs = [open(os.path.join(folder, "rank%d.txt" % rank), "w+", encoding="utf-8", errors="replace") for rank in range(2)]
    ranks, late = [], False
    try:
        for rank in range(2):
            ranks.append(subprocess.Popen(
                prefix + [sys.executable, os.path.abspath(__file__), "--device", DEVICE, "--rank", str(rank), "--program", program,
                          "--result", paths[rank], *(["--shared-gpu"] if SHARED else [])],
                env=environment | (shared_gpu.variables_of(rank) if SHARED else {}), stdin=subprocess.DEVNULL, stdout=logs[rank], stderr=subprocess.STDOUT, start_new_session=True))
        end = time.monotonic() + limit
        # The first that fails ends the other, which would wait for it.
        while any(process.poll() is None for process in ranks) and time.monotonic() < end:
            if any(process.poll() for process in ranks):
                end = min(end, time.monotonic() + GRACE_S)
            time.sleep(0.05)
        late = any(process.poll() is None for process in ranks)
    finally:
        for process in ranks:
            if process.poll() is None:
                end_group(process)
    output = ""
    for rank, log in enumerate(logs):
        log.seek(0)
        output += log.read()
        log.close()
        output += "rank %d: exit status %s\n" % (rank, ranks[rank].returncode) if ranks[rank].returncode else ""
    if late:
        output += "did not end within %d s\n" % limit
    return (paths if not late and all(process.returncode == 0 for process in ranks) else None), output


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
    table = """what           bytes                       count  why
communicator              taken                2  attached: 2 ranks, nccl_window, 84 MiB of scratch
AllGather      to 1 MiB   forwarded            7  NEARLIGHT_DROPIN_TAKES leaves this function to NCCL
AllReduce      0          forwarded            1  no elements
AllReduce      to 1 KiB   taken                4  measured
AllReduce      above      taken                5  measured
"""
    if taken_of(table + table) != {"AllReduce": 18}:
        print("counted wrongly: %s" % taken_of(table + table))
        return 1
    return 0


def taken_of(output):
    """Calls that were taken, by function, of all processes: from the tables of `nearlight run --stats`."""
    taken = {}
    for name, count in re.findall(r"^(\w+) +(?:0|to \d+ [KM]iB|above) +taken +(\d+) ", output, re.M):
        taken[name] = taken.get(name, 0) + int(count)
    return taken


def run_case(program, more, must, prefix, limit):
    """Whether it was good; prints a line about it."""
    title = program + "".join(" " + value for value in more.values())
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        plain, plain_output = run_both(program, [], one, limit, more)
        ours, output = (None, "") if plain is None else run_both(program, prefix, two, limit, more)
        if plain is None or ours is None:
            print("%-45s FAILED %s\n%s" % (title, "as it is" if plain is None else "the second time" if not prefix else "with the drop-in",
                                           (plain_output if plain is None else output)[-6000:]))
            return False
        count, differ, worst = compare(plain, ours)
    taken = taken_of(output)
    missing = [name for name in must if not taken.get(name)] if prefix else []
    good = worst <= TOLERANCE and count > 0 and not missing
    told = ", ".join("%d %s" % (calls, name) for name, calls in sorted(taken.items())) or "nothing"
    print("%-45s %s  %d tensors, %d with other bits, at most %.2g of the largest value; taken: %s%s"
          % (title, "ok    " if good else "WRONG ", count, differ, worst, told,
             "; NOT TAKEN: " + ", ".join(missing) if missing else ""))
    if not good or os.environ.get("VERBOSE"):
        print(output[-4000:])
    return good


def main():
    global DEVICE, SHARED
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nearlight")
    parser.add_argument("--nearlight", default=beside if os.path.exists(beside) else shutil.which("nearlight") or "nearlight")
    parser.add_argument("--only", help="programs, by commas")
    parser.add_argument("--limit", type=int, default=120, help="seconds for one program [120]")
    parser.add_argument("--total-s", type=int, default=570, help="seconds for all; what has no time left is bad [570]")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--shared-gpu", action="store_true", help="both ranks on one GPU")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--program", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    parser.add_argument("--self-test", action="store_true", help="of the comparison")
    args = parser.parse_args()
    DEVICE, SHARED = args.device, args.shared_gpu
    if args.self_test:
        return self_test()
    if args.rank is not None:
        run_rank(args.program, args.rank, args.result)
        return 0
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    cases = CASES if DEVICE == "cuda" else tuple((program, {}, ()) for program in CPU_PROGRAMS)
    if args.only:
        known = {case[0] for case in cases}
        if unknown := set(args.only.split(",")) - known:
            parser.error("--only: no %s; there are %s" % (", ".join(sorted(unknown)), ", ".join(sorted(known))))
        cases = [case for case in cases if case[0] in args.only.split(",")]
    prefix = [args.nearlight, "run", "--stats", "--"] if DEVICE == "cuda" else []
    end, bad = time.monotonic() + args.total_s, 0
    for program, more, must in cases:
        left = end - time.monotonic()
        if left < 2:
            print("%-45s LEFT OUT: the time is over" % program)
            bad += 1
            continue
        bad += not run_case(program, more, must, prefix, min(args.limit, left / 2))
        sys.stdout.flush()
    print("%d of %d bad" % (bad, len(cases)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
