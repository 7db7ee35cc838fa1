#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a token gains: a tensor-parallel decode step with nearlight's all-reduces, nearlight's fused operations, NCCL's all-reduces
and none, interleaved in one run.

    run.py                                     both models, batch 1, 8 and 32, on two GPUs
    run.py --models llama-3.1-8b --json FILE   one of them; the result as JSON
    run.py --ranks 1 --backend cuda --models llama-3.1-8b
                                               on one GPU, without communication: what the fused kernels gain by themselves
    run.py --shared-gpu --models llama-3.1-8b --samples 5
                                               all ranks on one GPU, where they take turns: a check, no figure
    run.py --device cpu --models tiny          on CPU ranks, over gloo: a check of this program, no figure

Each variant's step is one CUDA graph. A sample: all ranks meet on the GPU, then the step from its first kernel to its
last one, everything having been launched before; its value is the slowest rank's. A sample whose launch was not over when
the ranks had met holds the host's time and is left out. `share_removed` is the part of NCCL's communication time that
nearlight removes: (nccl - nearlight) / (nccl - none), of the medians. `fused_against_none` is by how much a step with
fused operations is faster than one without any all-reduce. Each row is printed, and written, as it is known.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.multiprocessing

# Beside this file in the GPU bundle.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import nearlight
import nearlight.torch as nl
from nearlight.torch import _ops
from checks import wrong_joins, wrong_sums
import shared_gpu
from decoder import Decoder, Joins, Shape, shape_of
from joins import FUSED, VARIANTS, Direct, FusedNorm, FusedProduct, in_place, left_out_of

WARM_UP = 3
# How long the start is held up for the host to launch what is measured, in cycles: about a millisecond. Doubled where
# it does not suffice, up to some 30.
HOLD_CYCLES, HOLD_MOST = 2_000_000, 64_000_000
FEWEST = 5  # samples of a row
KEPT_VARIABLES = ("NEARLIGHT_", "NCCL_", "CUDA_", "NVSHMEM_", "TORCH_SYMM_MEM_", "PYTORCH_")


# Microseconds, and whether all was launched before the start.
Sample = tuple[float, bool]


class Place:
    """How a step is recorded and timed: on GPUs by graphs and events, on CPUs by calls and the clock."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.gpu = device, device.type == "cuda"
        self.meeting = torch.ones(1, device=device)
        self.hold = HOLD_CYCLES

    def record(self, step: Callable[[], torch.Tensor]) -> tuple[Callable[[], Any], torch.Tensor]:
        """(replay, the result that a replay writes)"""
        if not self.gpu:
            kept = step()
            return (lambda: kept.copy_(step())), kept
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        dist.barrier()
        graph = torch.cuda.CUDAGraph()
        # The process group's own thread asks CUDA about events meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = step()
        return graph.replay, result

    def sample_us(self, replay: Callable[[], Any]) -> Sample:
        if not self.gpu:
            dist.barrier()
            start = time.perf_counter()
            replay()
            return (time.perf_counter() - start) * 1e6, True
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(self.hold)
        self.meeting.fill_(1)
        _ops.plain_all_reduce(self.meeting)
        begin.record()
        replay()
        end.record()
        # With the start still ahead, nothing of the step can have waited for its launch.
        covered = not begin.query()
        end.synchronize()
        if not covered:
            self.hold = min(2 * self.hold, HOLD_MOST)
        return begin.elapsed_time(end) * 1e3, covered


def percentile(values: list[float], share: float) -> float:
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, -(-int(share * 1000) * len(ordered) // 1000) - 1))]


def everybodys(value: Any) -> list[Any]:
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def slowest(samples: list[Sample]) -> list[Sample]:
    """Of all ranks; covered where it was on each of them."""
    return [(max(us for us, _ in sample), all(covered for _, covered in sample)) for sample in zip(*everybodys(samples))]


def covered_of(samples: list[Sample]) -> tuple[list[float], bool]:
    """The samples that were covered; all of them, and False, where those are too few to stand for the rest."""
    kept = [us for us, covered in samples if covered]
    if len(kept) < FEWEST or 2 * len(kept) < len(samples):
        return [us for us, _ in samples], False
    return kept, True


def agreed(value: Any) -> Any:
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def measure(place: Place, model: Decoder, batch: int, variants: dict[str, Joins], samples: int,
            limit_s: float) -> tuple[dict[str, list[Sample]], int]:
    """(variant -> samples, the slowest rank's; elements that are wrong, see wrong_sums and wrong_joins)"""
    model.make_cache(batch)
    torch.manual_seed(7)
    tokens = torch.randint(model.shape.vocabulary, (batch,)).to(place.device)
    calls = [0]

    def counted(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        return x

    with torch.no_grad():
        model.step(tokens, Joins(counted))
        if calls[0] != model.shape.all_reduces:
            raise RuntimeError(f"{model.shape.name}: a step has {calls[0]} all-reduces, its workload {model.shape.all_reduces}")
        made = {name: place.record(lambda joins=joins: model.step(tokens, joins)) for name, joins in variants.items()}
    place.hold = HOLD_CYCLES
    for replay, _ in made.values():
        for _ in range(WARM_UP):
            replay()
        for _ in range(FEWEST if place.gpu else 0):  # finds how long the start is to be held up
            place.sample_us(replay)
    begin = time.monotonic()
    for replay, _ in made.values():
        place.sample_us(replay)
    samples = agreed(max(FEWEST, min(samples, int(limit_s / (time.monotonic() - begin)))))
    times: dict[str, list[Sample]] = {name: [] for name in made}
    names = list(made)
    for turn in range(samples):
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            times[name].append(place.sample_us(made[name][0]))
    if place.gpu:
        torch.cuda.synchronize()
    # One rank has nothing to reduce.
    if dist.get_world_size() > 1 and torch.equal(made["none"][1], made["nccl"][1]):
        raise RuntimeError("the result does not depend on the all-reduces: nothing is checked")
    with torch.no_grad():
        def step(joins: Joins) -> torch.Tensor:
            return model.step(tokens, joins)

        wrong = sum(wrong_joins(place.record, step, joins, calls[0]) if name in FUSED else wrong_sums(place.record, step, joins.all_reduce)
                    for name, joins in variants.items() if name in ("nearlight", "nccl_direct", *FUSED))
    return {name: slowest(values) for name, values in times.items()}, max(everybodys(wrong))


def row(shape: Shape, batch: int, nranks: int, dtype: str, context: int, times: dict[str, list[Sample]], wrong: int,
        route: Any, left_out: dict[str, str]) -> dict[str, Any]:
    steps, uncovered = {}, []
    for name, samples in times.items():
        values, covered = covered_of(samples)
        if not covered:
            uncovered.append(name)
        steps[name] = {"p50_us": round(percentile(values, 0.5), 2), "p95_us": round(percentile(values, 0.95), 2),
                       "p99_us": round(percentile(values, 0.99), 2), "min_us": round(min(values), 2),
                       "max_us": round(max(values), 2), "samples": len(values), "left_out": len(samples) - len(values)}
    made = {"model": shape.name, "batch": batch, "ranks": nranks, "dtype": dtype, "context": context,
            "all_reduces": shape.all_reduces, "bytes": batch * shape.hidden * (2 if dtype == "bf16" else 4),
            "algorithm": route.algorithm, "protocol": route.protocol, "grid": route.grid, "wrong": wrong, "uncovered": uncovered,
            "left_out_variants": left_out, "steps": steps}
    for key, name in (("share_removed", "nccl"), ("share_removed_direct", "nccl_direct")):
        made[key] = None
        if {name, "none", "nearlight"} <= set(steps):
            cost = steps[name]["p50_us"] - steps["none"]["p50_us"]
            gained = steps[name]["p50_us"] - steps["nearlight"]["p50_us"]
            made[key] = round(gained / cost, 4) if cost > 0 else None
    made["fused_against_none"] = {name: round(steps["none"]["p50_us"] - steps[name]["p50_us"], 2) for name in FUSED if name in steps}
    return made


def print_row(made: dict[str, Any]) -> None:
    print(f"{made['model']} batch {made['batch']}, {made['ranks']} ranks: {made['all_reduces']} all-reduces of {made['bytes']} bytes, "
          f"{made['algorithm']} {made['protocol']}, {made['wrong']} wrong")
    for name, step in made["steps"].items():
        print(f"  {name:14} p50 {step['p50_us']:10.1f}  p95 {step['p95_us']:10.1f}  p99 {step['p99_us']:10.1f} us"
              f"  ({step['samples']} samples{', %d left out' % step['left_out'] if step['left_out'] else ''})")
    if made["uncovered"]:
        print(f"  NO FIGURES: launching took longer than the start was held up, and is part of {', '.join(made['uncovered'])}")
    for name, why in made["left_out_variants"].items():
        print(f"  {name:14} left out: {why}")
    for key, what in (("share_removed", "NCCL's"), ("share_removed_direct", "NCCL's on the same stream")):
        if made[key] is not None:
            print(f"  of {what} communication time removed: {100 * made[key]:.1f} %")
    if made["fused_against_none"]:
        gains = ", ".join(f"{name} {gain:+.1f} us" for name, gain in made["fused_against_none"].items())
        print(f"  gained on a step without any all-reduce: {gains}")
    sys.stdout.flush()


def machine(place: Place, nranks: int) -> dict[str, Any]:
    none = {"gpu": "none", "gpus": 0, "link": "none", "driver": "none", "cuda": "none", "nccl": "none"}
    cpu = platform.processor() or "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    told = {"cpu": f"{cpu}, {len(os.sched_getaffinity(0))} CPUs", "torch": torch.__version__}
    if not place.gpu:
        return none | told
    asked = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"],
                           capture_output=True, text=True, timeout=60, check=False).stdout.strip()
    return {"gpu": torch.cuda.get_device_name(), "gpus": nranks, "link": "NVLink" if nranks > 1 else "none",
            "driver": asked or "unknown", "cuda": str(torch.version.cuda),
            "nccl": ".".join(map(str, torch.cuda.nccl.version()))} | told


def rank_main(rank: int, args: argparse.Namespace, store: str) -> None:
    nranks = args.ranks
    device = torch.device("cuda", 0 if args.shared_gpu else rank) if args.device == "cuda" else torch.device("cpu")
    if args.shared_gpu:
        os.environ.update(shared_gpu.variables_of(rank))
    if args.device == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo", init_method="file://" + store, rank=rank,
                            world_size=nranks, timeout=datetime.timedelta(seconds=120),
                            device_id=device if args.device == "cuda" else None)
    place = Place(device)
    nl.enable(replace=False, backend=args.backend, config=nearlight.Config(timeout_ms=60_000))
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[args.dtype]
    makers: dict[str, Callable[[], Joins]] = {
        "none": lambda: Joins(lambda x: x), "nccl": lambda: Joins(in_place), "nccl_direct": lambda: Joins(Direct(rank, nranks, device)),
        "nearlight": lambda: Joins(nl.all_reduce), "nearlight_norm": FusedNorm, "nearlight_gemv": FusedProduct}
    joins: dict[str, Joins] = {}  # made when a row first has them
    begin = time.monotonic()
    rows: list[dict[str, Any]] = []
    result = {"schema": 1, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
              "commit": args.commit, "command": args.command,
              "env": {name: value for name, value in sorted(os.environ.items()) if name.startswith(KEPT_VARIABLES)
                      and name != "NEARLIGHT_LIB"},
              "machine": machine(place, nranks), "nearlight": nl._groups.get("").comm.info()._asdict(), "rows": rows}
    for name in args.models:
        shape = shape_of(name)
        batches = args.batch or [batch for batch in shape.batches if batch <= 32]
        model = Decoder(shape, rank, nranks, device, dtype, args.context)
        for batch in batches:
            route = nl.explain(torch.empty(batch, shape.hidden, dtype=dtype, device=device))
            left_out = left_out_of(args.variants, shape, batch, nranks, args.dtype, args.device)
            variants = [name for name in args.variants if name not in left_out]
            joins.update({name: makers[name]() for name in variants if name not in joins})
            times, wrong = measure(place, model, batch, {name: joins[name] for name in variants}, args.samples, args.limit_s)
            made = row(shape, batch, nranks, args.dtype, args.context, times, wrong, route, left_out)
            rows.append(made)
            if rank == 0:
                print_row(made)
                if args.json:
                    write_result(args.json, result)
        del model
        if place.gpu:
            torch.cuda.empty_cache()
    if rank == 0:
        print(f"{time.monotonic() - begin:.0f} s, {sum(made['wrong'] for made in rows)} wrong")
    dist.barrier()
    nl.disable()
    dist.destroy_process_group()
    if any(made["wrong"] or made["uncovered"] for made in rows):
        raise SystemExit(1)


def write_result(path: str, result: dict[str, Any]) -> None:
    """Whole or not at all."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)


def commit() -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    for path in (os.path.join(here, "..", "commit"), os.path.join(here, "..", "..", "commit")):  # of the GPU bundle
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                return file.read().strip()
    ran = subprocess.run(["git", "-C", here, "describe", "--always", "--abbrev=40", "--dirty"], capture_output=True, text=True,
                         check=False)
    return ran.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["llama-3.1-8b", "llama-3.1-70b"], help="llama-3.1-8b, llama-3.1-70b, tiny")
    parser.add_argument("--batch", nargs="+", type=int, help="tokens of a step (default: the workload's up to 32)")
    parser.add_argument("--ranks", type=int, default=2, help="GPUs (default 2); 1: no communication, nccl and nccl_direct are left out")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--shared-gpu", action="store_true", help="all ranks on the first GPU, where they take turns: a check, no figure")
    parser.add_argument("--backend", choices=["auto", "nccl", "cuda", "host"], default="auto", help="nearlight's: see nearlight.torch.enable")
    parser.add_argument("--dtype", choices=["bf16", "f32"], default="bf16")
    parser.add_argument("--context", type=int, default=1024, help="tokens in the cache")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="NAME",
                        help=f"of the step: {', '.join(VARIANTS)} (default: all; a row says which it cannot have)")
    parser.add_argument("--samples", type=int, default=200, help="of each variant, model and batch")
    parser.add_argument("--limit-s", type=float, default=30, help="seconds for the samples of one model and batch")
    parser.add_argument("--total-s", type=float, default=570, help="seconds for all; then the ranks are ended")
    parser.add_argument("--json", help="file to write the result to")
    args = parser.parse_args()
    if args.shared_gpu and args.device != "cuda":
        parser.error("--shared-gpu needs a GPU")
    if args.shared_gpu and args.json:
        parser.error("--shared-gpu is a check, and gives no figures to keep")
    needed = ["none", "nccl", "nearlight"] if args.ranks > 1 else ["none", "nearlight"]
    if not set(needed) <= set(args.variants):
        parser.error(f"--variants: {', '.join(needed[:-1])} and {needed[-1]} must be among them")
    args.commit, args.command = commit(), "bench/decode/run.py " + " ".join(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.get_context("spawn")
        ranks = [context.Process(target=rank_main, args=(rank, args, os.path.join(folder, "store"))) for rank in range(args.ranks)]
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        try:
            for process in ranks:
                process.start()
            end = time.monotonic() + args.total_s
            # The first that fails ends the others, which would wait for it.
            while any(process.is_alive() for process in ranks) and time.monotonic() < end:
                if any(process.exitcode for process in ranks):
                    end = min(end, time.monotonic() + 10)
                time.sleep(0.1)
        finally:  # nothing is left running, however this ends
            late = [rank for rank, process in enumerate(ranks) if process.is_alive()]
            for rank in late:
                ranks[rank].kill()
            for process in ranks:
                if process.pid is not None:
                    process.join()
    if late:
        print(f"run.py: ranks {late} were ended before they were done", file=sys.stderr)
    return 1 if any(process.exitcode for process in ranks) else 0


if __name__ == "__main__":
    sys.exit(main())
