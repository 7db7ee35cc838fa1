#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a token gains: a tensor-parallel decode step with nearlight's all-reduces, nearlight's fused operations, NCCL's all-reduces
and none, interleaved in one run.

    run.py                                     both models, batch 1, 8 and 32, on two GPUs
    run.py --models llama-3.1-8b --json FILE   one of them; the result as JSON
    run.py --ranks 1 --backend cuda --models llama-3.1-8b
                                               on one GPU, without communication: what the fused kernels gain by themselves
    run.py --device cpu --models tiny          on CPU ranks, over gloo: a check of this program, no figure

Each variant's step is one CUDA graph. A sample: all ranks meet on the GPU, then the step from its first kernel to its
last one, everything having been launched before; its value is the slowest rank's. A sample whose launch was not over when
the ranks had met holds the host's time and is left out. `share_removed` is the part of NCCL's communication time that
nearlight removes: (nccl - nearlight) / (nccl - none), of the medians. `fused_against_none` is by how much a step with
fused operations is faster than one without any all-reduce. Each row is printed, and written, as it is known.
"""

from __future__ import annotations

import argparse
import dataclasses
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
import torch.nn.functional as F

import nearlight
import nearlight.torch as nl
from nearlight.torch import _ops
from decoder import EPS, Decoder, Joins, Shape, shape_of

# none: partial sums go on unreduced. nccl: torch.distributed's, in place. nccl_direct: ncclAllReduce on the step's own
# stream, without the process group's stream beside it, as vLLM calls it. nearlight: the operator, out of place.
# nearlight_norm: each all-reduce together with the residual and the norm behind it. nearlight_gemv: each all-reduce but
# the embedding's together with the linear layer before it.
FUSED = ("nearlight_norm", "nearlight_gemv")
VARIANTS = ("none", "nccl", "nccl_direct", "nearlight", *FUSED)
# What the fused operations take: see nearlight.torch.
LEAST_HIDDEN, MOST_HIDDEN, MOST_TOKENS, STEP = 1024, 16384, 16, 8
WARM_UP = 3
CHECKED = 3  # replays whose all-reduces are checked
# How long the start is held up for the host to launch what is measured, in cycles: about a millisecond. Doubled where
# it does not suffice, up to some 30.
HOLD_CYCLES, HOLD_MOST = 2_000_000, 64_000_000
FEWEST = 5  # samples of a row
KEPT_VARIABLES = ("NEARLIGHT_", "NCCL_", "CUDA_", "NVSHMEM_", "TORCH_SYMM_MEM_", "PYTORCH_")


# Microseconds, and whether all was launched before the start.
Sample = tuple[float, bool]


class Direct:
    """ncclAllReduce on the current stream, by a communicator of its own."""

    def __init__(self, rank: int, nranks: int, device: torch.device) -> None:
        import ctypes

        from nearlight.torch import _nccl
        identity = [_nccl.unique_id() if rank == 0 else b""]
        dist.broadcast_object_list(identity, src=0)
        self.comm = _nccl.NcclCommunicator(identity[0], rank, nranks, device, 60_000)
        self.call = _nccl.load().ncclAllReduce
        self.call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p,
                              ctypes.c_void_p]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        result = torch.empty_like(x)
        code = self.call(x.data_ptr(), result.data_ptr(), x.numel(), nearlight.DataType[str(x.dtype).removeprefix("torch.")], 0,
                         self.comm.comm, torch.cuda.current_stream().cuda_stream)
        if code != 0:
            raise RuntimeError(f"ncclAllReduce: {code}")
        return result


def in_place(x: torch.Tensor) -> torch.Tensor:
    _ops.plain_all_reduce(x)
    return x


class FusedNorm(Joins):
    """The all-reduce, the residual and the norm in one kernel."""

    def __init__(self) -> None:
        super().__init__(nl.all_reduce)

    def joined(self, part: torch.Tensor, residual: torch.Tensor | None, norm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return nl.all_reduce_rms_norm(part, norm, residual, eps=EPS)


class FusedProduct(Joins):
    """The linear layer and the all-reduce in one kernel."""

    fused_product = True

    def __init__(self) -> None:
        super().__init__(nl.all_reduce)

    def linear(self, x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor,
               norm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.normed(residual + nl.gemv_all_reduce(x, weight), norm)


def left_out_of(names: list[str], shape: Shape, batch: int, nranks: int, dtype: str, device: str) -> dict[str, str]:
    """Which of these variants a row cannot have, and why."""
    found = {}
    for name in names:
        if name in ("nccl", "nccl_direct") and nranks == 1:
            found[name] = "one rank has nothing to reduce"
        elif name == "nccl_direct" and device != "cuda":
            found[name] = "NCCL has no ranks on CPUs"
        elif name in FUSED and dtype != "bf16":
            found[name] = f"fused operations take no {dtype}"
        elif name == "nearlight_norm" and (not LEAST_HIDDEN <= shape.hidden <= MOST_HIDDEN or shape.hidden % STEP):
            found[name] = f"all_reduce_rms_norm takes a hidden size of {LEAST_HIDDEN} to {MOST_HIDDEN} in steps of {STEP}, not {shape.hidden}"
        elif name == "nearlight_gemv" and batch > MOST_TOKENS:
            found[name] = f"gemv_all_reduce takes {MOST_TOKENS} tokens at most, not {batch}"
        elif name == "nearlight_gemv" and any(size % STEP for size in (shape.hidden, shape.inner // nranks,
                                                                       shape.heads // nranks * shape.head_size)):
            found[name] = f"gemv_all_reduce takes sizes that are multiples of {STEP}"
    return found


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


def wrong_sums(place: Place, step: Callable[[Joins], torch.Tensor], reduce: Callable[[torch.Tensor], torch.Tensor]) -> int:
    """Elements of the step's all-reduces that are not the sum of what the ranks gave, in a few replays of a step that keeps
    both. The step's own result would not do: a matrix product need not come to the same bits each time."""
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def keeping(x: torch.Tensor) -> torch.Tensor:
        given = x.clone()
        got = reduce(x)
        kept.append((given, got.clone()))
        return got

    def recorded() -> torch.Tensor:
        kept.clear()
        return step(Joins(keeping))

    replay, _ = place.record(recorded)
    # Two ranks: one addition, rounded once, whoever does it. More: the order may differ.
    tolerance = 0.0 if dist.get_world_size() <= 2 else 0.05
    wrong = 0
    for _ in range(CHECKED):
        replay()
        for given, got in kept:
            parts = [torch.empty_like(given, dtype=torch.float32) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, given.float())
            right = sum(parts[1:], parts[0]).to(got.dtype).float()
            wrong += int((~torch.isclose(got.float(), right, rtol=tolerance, atol=tolerance)).sum())
    return wrong


@dataclasses.dataclass
class Kept:
    """One join: what this rank gave, which is its partial sum or, with a `weight`, the input of a linear layer; and what it got."""

    given: torch.Tensor
    weight: torch.Tensor | None
    residual: torch.Tensor | None
    norm: torch.Tensor
    normed: torch.Tensor
    total: torch.Tensor


class Watched(Joins):
    """Does as `joins` do, and keeps each."""

    def __init__(self, joins: Joins) -> None:
        super().__init__(joins.all_reduce)
        self.joins = joins
        self.kept: list[Kept] = []

    def joined(self, part: torch.Tensor, residual: torch.Tensor | None, norm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._keep(part.clone(), None, residual, norm, self.joins.joined(part, residual, norm))

    def linear(self, x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor,
               norm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.joins.fused_product:
            return super().linear(x, weight, residual, norm)
        return self._keep(x.clone(), weight, residual, norm, self.joins.linear(x, weight, residual, norm))

    def _keep(self, given: torch.Tensor, weight: torch.Tensor | None, residual: torch.Tensor | None, norm: torch.Tensor,
              made: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        self.kept.append(Kept(given, weight, None if residual is None else residual.clone(), norm, made[0].clone(), made[1].clone()))
        return made


def wrong_elements(join: Kept) -> int:
    """Of `total` and of `normed`. Collective.

    Let u be half a unit in the last place of the type, relative (2^-8 of bfloat16). With the ranks' sum S and T = S + residual,
    both without rounding, the sum is rounded once, and so is the addition: total is within u |S| + u (|T| + u |S|) of T. fp32
    sums, ours and the reference's, lose something, which counts where S and T are near 0: 2^-12 of a row's typical S covers it.
    normed is compared with the norm of the total that came out. nearlight rounds it once, PyTorch perhaps also before the
    weight: it is within 2 u + u^2, and a little for fp32, of that."""
    part = join.given.float() if join.weight is None else F.linear(join.given.float(), join.weight.float())
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part)
    u = torch.finfo(join.total.dtype).eps / 2
    reduced = torch.stack(parts).double().sum(0)
    wanted = reduced if join.residual is None else reduced + join.residual.double()
    total = join.total.double()
    near = u * ((1 + u) * reduced.abs() + wanted.abs()) + 2.0 ** -12 * reduced.square().mean(-1, keepdim=True).sqrt()
    wrong = ~((total - wanted).abs() <= near)  # a NaN is wrong
    right = total * (total.square().mean(-1, keepdim=True) + EPS).rsqrt() * join.norm.double()
    wrong_norm = ~((join.normed.double() - right).abs() <= (2 * u + u * u + 1e-5) * right.abs())
    return int(wrong.sum()) + int(wrong_norm.sum())


def wrong_joins(place: Place, step: Callable[[Joins], torch.Tensor], joins: Joins, count: int) -> int:
    """Elements of the step's `count` joins that are not what the ranks' partial sums come to, in a few replays of a step that
    keeps both; see wrong_elements."""
    watched = Watched(joins)

    def recorded() -> torch.Tensor:
        watched.kept.clear()
        return step(watched)

    replay, _ = place.record(recorded)
    wrong = 0
    for _ in range(CHECKED):
        replay()
        if len(watched.kept) != count:
            raise RuntimeError(f"{len(watched.kept)} joins are checked, and the step has {count}")
        wrong += sum(map(wrong_elements, watched.kept))
    return wrong


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

        wrong = sum(wrong_joins(place, step, joins, calls[0]) if name in FUSED else wrong_sums(place, step, joins.all_reduce)
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
    device = torch.device("cuda", rank) if args.device == "cuda" else torch.device("cpu")
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
