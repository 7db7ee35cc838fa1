#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/decode: the step itself against one rank, the program on CPU ranks, and every result that is committed."""

import dataclasses
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

import torch
import torch.distributed as dist

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DECODE = os.path.join(ROOT, "bench", "decode")
sys.path.insert(0, DECODE)

import checks
from decoder import EPS, TINY, Decoder, Joins, shape_of
import nearlight.torch as nl
import run as program
import ranks
import torch_support
from torch_support import start


def faults_of(result):
    """What is wrong in a result, as texts."""
    found = []
    for name in ("schema", "date", "commit", "command", "env", "machine", "nearlight", "rows"):
        if name not in result:
            found.append("no " + name)
    for row in result.get("rows", []):
        what = f"{row['model']} batch {row['batch']}"
        if row["wrong"] != 0:
            found.append(what + ": wrong results")
        if row["uncovered"]:
            found.append(what + ": the host's time is in it")
        shape = shape_of(row["model"])
        if row["all_reduces"] != shape.all_reduces or row["bytes"] != row["batch"] * shape.hidden * {"bf16": 2, "f32": 4}[row["dtype"]]:
            found.append(what + ": not the workload's all-reduces")
        steps, left_out = row["steps"], row["left_out_variants"]
        if not {"none", "nearlight"} | ({"nccl"} if row["ranks"] > 1 else set()) <= set(steps):
            found.append(what + ": variants are missing")
            continue
        if set(steps) & set(left_out) or not set(steps) | set(left_out) <= set(program.VARIANTS) or not all(left_out.values()):
            found.append(what + ": variants are left out without a reason, or are none")
        for name, step in steps.items():
            if not 0 < step["min_us"] <= step["p50_us"] <= step["p95_us"] <= step["p99_us"] <= step["max_us"] or step["samples"] < 5:
                found.append(f"{what}: {name} is out of order")
        for key, name in (("share_removed", "nccl"), ("share_removed_direct", "nccl_direct")):
            share = None
            if name in steps and steps[name]["p50_us"] > steps["none"]["p50_us"]:
                share = (steps[name]["p50_us"] - steps["nearlight"]["p50_us"]) / (steps[name]["p50_us"] - steps["none"]["p50_us"])
            if row[key] is None or share is None:
                if row[key] is not share or (key == "share_removed" and row["ranks"] > 1):
                    found.append(f"{what}: {key} is missing, or has nothing that it follows from")
            elif abs(share - row[key]) > 1e-3:
                found.append(f"{what}: {key} does not follow from the steps")
        gains = {name: steps["none"]["p50_us"] - steps[name]["p50_us"] for name in program.FUSED if name in steps}
        if set(gains) != set(row["fused_against_none"]) or any(abs(gain - row["fused_against_none"][name]) > 0.011
                                                               for name, gain in gains.items()):
            found.append(what + ": fused_against_none does not follow from the steps")
    return found


def split(rank, nranks, folder):
    """The step of `nranks` ranks with real all-reduces, in float; every rank has the same result."""
    start(rank, nranks, folder)
    model = Decoder(TINY, rank, nranks, torch.device("cpu"), torch.float32, context=8)
    model.make_cache(3)

    def reduce(x):
        dist.all_reduce(x)
        return x

    with torch.no_grad():
        return model.step(torch.tensor([0, 57, 99]), Joins(reduce)).tolist()


def sums_are_looked_at(rank, nranks, folder):
    """Wrong elements of right all-reduces, and of some of which one is off in one element of rank 1."""
    start(rank, nranks, folder)
    model = Decoder(TINY, rank, nranks, torch.device("cpu"), torch.bfloat16, context=8)
    model.make_cache(3)
    made = [0]

    def reduce(x):
        total = x.float()
        dist.all_reduce(total)
        return total.to(x.dtype)

    def spoiled(x):
        y = reduce(x)
        made[0] += 1
        if rank == 1 and made[0] % TINY.all_reduces == 2:
            y[0, 5] *= 1.01
        return y

    with torch.no_grad():
        return [program.wrong_sums(program.Place(torch.device("cpu")).record, lambda call: model.step(torch.tensor([0, 57, 99]), call), one)
                for one in (reduce, spoiled)]


def fused(rank, nranks):
    """For each fused way of joining: how often which operation of nearlight was called, and by how much of a typical element the
    step's result is off the plain step's."""
    model = Decoder(TINY, rank, nranks, torch.device("cpu"), torch.bfloat16, context=8)
    model.make_cache(3)
    tokens, found = torch.tensor([0, 57, 99]), []
    with torch.no_grad():
        plain = model.step(tokens, Joins(nl.all_reduce)).float()
        for joins in (program.FusedNorm, program.FusedProduct):
            names = ("all_reduce", "all_reduce_rms_norm", "gemv_all_reduce")
            with mock.patch.multiple(nl, **{name: mock.Mock(wraps=getattr(nl, name)) for name in names}):
                result = model.step(tokens, joins()).float()
                calls = [getattr(nl, name).call_count for name in names]
            found.append((calls, float((result - plain).square().mean().sqrt() / plain.square().mean().sqrt())))
    return found


def joins_are_looked_at(rank, nranks):
    """Wrong elements of right joins, and of spoiled ones, by what was spoiled."""
    model = Decoder(TINY, rank, nranks, torch.device("cpu"), torch.bfloat16, context=8)
    model.make_cache(3)
    norm, product = nl.all_reduce_rms_norm, nl.gemv_all_reduce
    made = [0]

    def is_second():
        made[0] += 1
        return made[0] % TINY.all_reduces == 2

    def spoiled_norm(what):
        def call(part, weight, residual, eps):
            second = is_second()
            normed, total = norm(part, weight, None if second and what == "residual" else residual,
                                 eps=EPS / 10 if what == "eps" else eps)
            # Little enough that the rest of the row keeps its norm.
            if second and rank == 1 and what in ("normed", "total"):
                spoiled = {"normed": normed, "total": total}[what]
                spoiled[0, 5] += 0.25 * total[0].float().square().mean().sqrt() if what == "total" else 0.25
            if second and rank == 1 and what == "nan":
                total[0, 5] = float("nan")
            return normed, total
        return call

    def spoiled_product(x, weight):
        y = product(x, weight)
        made[0] += 1
        if rank == 1 and made[0] % (TINY.all_reduces - 1) == 2:
            y[0, 5] += 0.5 * y[0].float().square().mean().sqrt()
        return y

    def wrong(joins):
        made[0] = 0
        with torch.no_grad():
            return program.wrong_joins(program.Place(torch.device("cpu")).record, lambda joins: model.step(torch.tensor([0, 57, 99]), joins),
                                       joins, TINY.all_reduces)

    found = {"norm": wrong(program.FusedNorm()), "product": wrong(program.FusedProduct())}
    for what in ("normed", "total", "nan", "residual", "eps"):
        with mock.patch.object(nl, "all_reduce_rms_norm", spoiled_norm(what)):
            found[what] = wrong(program.FusedNorm())
    with mock.patch.object(nl, "gemv_all_reduce", spoiled_product):
        found["spoiled product"] = wrong(program.FusedProduct())
    # A step with another number of joins is not the workload's.
    with torch.no_grad():
        torch_support.expect(RuntimeError, "5 joins are checked, and the step has 6", lambda: program.wrong_joins(
            program.Place(torch.device("cpu")).record, lambda joins: model.step(torch.tensor([0, 57, 99]), joins), program.FusedNorm(), 6))
    return found


def every_variant_is_checked(rank, nranks):
    """What `measure` finds wrong where all is right, and with each operation of nearlight doubling what it reduces."""
    model = Decoder(TINY, rank, nranks, torch.device("cpu"), torch.bfloat16, context=8)
    place = program.Place(torch.device("cpu"))

    def wrong():
        variants = {"none": Joins(lambda x: x), "nccl": Joins(program.in_place), "nearlight": Joins(nl.all_reduce),
                    "nearlight_norm": program.FusedNorm(), "nearlight_gemv": program.FusedProduct()}
        return program.measure(place, model, 1, variants, 5, 1.0)[1]

    found = [wrong()]
    for name in ("all_reduce", "all_reduce_rms_norm", "gemv_all_reduce"):
        plain = getattr(nl, name)
        with mock.patch.object(nl, name, lambda x, *rest, plain=plain, **options: plain(2 * x, *rest, **options)):
            found.append(wrong())
    return found


class Step(unittest.TestCase):
    def test_every_variant_is_checked(self):
        for right, *doubled in torch_support.run(every_variant_is_checked, 2):
            self.assertEqual(right, 0)
            for wrong in doubled:
                self.assertGreater(wrong, checks.CHECKED * TINY.hidden)

    def test_fused_joins(self):
        for found in torch_support.run(fused, 2):
            (norm_calls, norm_off), (product_calls, product_off) = found
            self.assertEqual(norm_calls, [0, TINY.all_reduces, 0])
            self.assertEqual(product_calls, [1, 0, TINY.all_reduces - 1])
            # Other roundings, and what follows from them.
            self.assertLess(norm_off, 0.02)
            self.assertLess(product_off, 0.02)

    def test_joins_are_looked_at(self):
        right, spoiled = torch_support.run(joins_are_looked_at, 2)
        one = checks.CHECKED
        for found in (right, spoiled):
            self.assertEqual((found["norm"], found["product"]), (0, 0))
            # These go on to all ranks, or are on all of them.
            for what in ("residual", "eps", "nan"):
                self.assertGreater(found.pop(what), one * TINY.hidden, what)
        self.assertEqual(right, dict.fromkeys(right, 0))
        # One element; that of the total and the norm of it; one of a product's.
        self.assertEqual([spoiled[what] for what in ("normed", "total", "spoiled product")], [one, 2 * one, one])

    def test_sums_are_looked_at(self):
        self.assertEqual(ranks.run(sums_are_looked_at, 2), [[0, 0], [0, checks.CHECKED]])

    def test_all_ranks_have_the_same(self):
        results = ranks.run(split, 2)
        self.assertEqual(results[0], results[1])
        self.assertEqual(torch.tensor(results[0]).shape, (3, TINY.hidden))
        self.assertTrue(torch.isfinite(torch.tensor(results[0])).all())

    def test_the_parts_make_the_whole(self):
        """One rank that has both ranks' weights, side by side, comes to the same."""
        def built(rank, nranks):
            model = Decoder(TINY, rank, nranks, torch.device("cpu"), torch.float64, context=8)
            model.make_cache(2)
            return model

        parts, whole = [built(rank, 2) for rank in range(2)], built(0, 1)
        size = TINY.head_size
        for index, layer in enumerate(whole.layers):
            both = [part.layers[index] for part in parts]
            qkv = [one["qkv"].split([part.heads * size, part.kv_heads * size, part.kv_heads * size]) for one, part in zip(both, parts)]
            layer["qkv"] = torch.cat([one[kind] for kind in range(3) for one in qkv])
            layer["out"] = torch.cat([one["out"] for one in both], dim=1)
            layer["up"] = torch.cat([one["up"].chunk(2)[half] for half in range(2) for one in both])
            layer["down"] = torch.cat([one["down"] for one in both], dim=1)
            whole.keys[index], whole.values[index] = (torch.cat([getattr(part, kind)[index] for part in parts], dim=1)
                                                      for kind in ("keys", "values"))
        whole.embedding = torch.cat([part.embedding for part in parts])
        tokens = torch.tensor([3, 77])

        # Both ranks in step, each all-reduce adding what the two have come to.
        import threading
        barrier, sums, results = threading.Barrier(2), [None, None], [None, None]

        def rank_step(rank):
            def reduce(x):
                sums[rank] = x
                barrier.wait(30)
                total = sums[0] + sums[1]
                barrier.wait(30)
                return total

            with torch.no_grad():
                results[rank] = parts[rank].step(tokens, Joins(reduce))

        threads = [threading.Thread(target=rank_step, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        with torch.no_grad():
            torch.testing.assert_close(results[0], whole.step(tokens, Joins(lambda x: x)))

    def test_shapes(self):
        for name in ("llama-3.1-8b", "llama-3.1-70b"):
            shape = shape_of(name)
            self.assertEqual(shape.all_reduces, 2 * shape.layers + 1)
            self.assertEqual(shape.heads * shape.head_size, shape.hidden)
        with self.assertRaisesRegex(ValueError, "no shapes for gpt"):
            shape_of("gpt")


class Program(unittest.TestCase):
    def run_it(self, *words):
        return subprocess.run([sys.executable, "-B", os.path.join(DECODE, "run.py"), "--device", "cpu", "--models", "tiny",
                               *words], capture_output=True, text=True, timeout=120, check=False)

    def test_on_cpus(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            ran = self.run_it("--samples", "6", "--json", path)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            with open(path, encoding="utf-8") as file:
                result = json.load(file)
        self.assertEqual(faults_of(result), [])
        rows = result["rows"]
        self.assertEqual([row["batch"] for row in rows], [1, 3, 17])
        self.assertEqual([list(row["steps"]) for row in rows], [["none", "nccl", "nearlight", "nearlight_norm", "nearlight_gemv"]] * 2
                         + [["none", "nccl", "nearlight", "nearlight_norm"]])
        self.assertEqual([list(row["left_out_variants"]) for row in rows], [["nccl_direct"]] * 2 + [["nccl_direct", "nearlight_gemv"]])
        self.assertRegex(ran.stdout, r"nearlight_gemv left out: gemv_all_reduce takes 16 tokens at most, not 17\n")
        self.assertRegex(ran.stdout, r"NCCL's communication time removed: ")
        self.assertEqual(len(re.findall(r"gained on a step without any all-reduce: nearlight_norm [+-][\d.]+ us, nearlight_gemv [+-]", ran.stdout)), 2)
        self.assertRegex(ran.stdout, r"\d+ s, 0 wrong\n")

    def test_one_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            ran = self.run_it("--ranks", "1", "--batch", "1", "--samples", "5", "--json", path)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            with open(path, encoding="utf-8") as file:
                result = json.load(file)
        self.assertEqual(faults_of(result), [])
        row, = result["rows"]
        self.assertEqual(list(row["steps"]), ["none", "nearlight", "nearlight_norm", "nearlight_gemv"])
        self.assertEqual(list(row["left_out_variants"]), ["nccl", "nccl_direct"])
        self.assertEqual((row["share_removed"], row["share_removed_direct"]), (None, None))

    def test_variants_that_are_needed(self):
        ran = self.run_it("--variants", "none", "nearlight")
        self.assertEqual(ran.returncode, 2)
        self.assertIn("none, nccl and nearlight must be among them", ran.stderr)

    def test_what_is_left_out(self):
        def left_out(shape=TINY, batch=1, nranks=2, dtype="bf16", device="cuda"):
            return {name: why.split()[0] for name, why in
                    program.left_out_of(list(program.VARIANTS), shape, batch, nranks, dtype, device).items()}

        self.assertEqual(left_out(), {})
        self.assertEqual(left_out(batch=16, nranks=4), {})
        self.assertEqual(left_out(batch=17), {"nearlight_gemv": "gemv_all_reduce"})
        self.assertEqual(left_out(dtype="f32"), {"nearlight_norm": "fused", "nearlight_gemv": "fused"})
        for hidden in (1016, 16392):
            self.assertEqual(left_out(dataclasses.replace(TINY, hidden=hidden)), {"nearlight_norm": "all_reduce_rms_norm"})
        self.assertEqual(left_out(dataclasses.replace(TINY, inner=24)), {"nearlight_gemv": "gemv_all_reduce"})
        self.assertEqual(left_out(nranks=1, device="cpu"), {"nccl": "one", "nccl_direct": "one"})
        self.assertEqual(left_out(device="cpu"), {"nccl_direct": "NCCL"})
        self.assertEqual(program.left_out_of(["none"], TINY, 17, 1, "f32", "cpu"), {})

    def test_samples_that_were_not_covered(self):
        covered, other = [(10.0, True)] * 8, [(90.0, False)] * 3
        self.assertEqual(program.covered_of(covered + other), ([10.0] * 8, True))
        self.assertEqual(program.covered_of([(10.0, True)] * 4), ([10.0] * 4, False))  # too few of any kind
        self.assertEqual(program.covered_of(covered + other * 3), ([10.0] * 8 + [90.0] * 9, False))
        route = types.SimpleNamespace(algorithm="one_shot", protocol="ll", grid=1)
        times = {"none": covered, "nccl": covered + other, "nearlight": other * 2}
        made = program.row(TINY, 1, 2, "bf16", 8, times, 0, route, {})
        self.assertEqual(made["uncovered"], ["nearlight"])
        self.assertEqual((made["steps"]["nccl"]["samples"], made["steps"]["nccl"]["left_out"]), (8, 3))
        self.assertEqual(made["steps"]["nccl"]["max_us"], 10.0)

    def test_what_follows_from_the_steps(self):
        route = types.SimpleNamespace(algorithm="one_shot", protocol="ll", grid=1)
        medians = {"none": 10.0, "nccl": 20.0, "nearlight": 12.0, "nearlight_norm": 8.0}
        made = program.row(TINY, 1, 2, "bf16", 8, {name: [(us, True)] * 8 for name, us in medians.items()}, 0, route,
                           {"nearlight_gemv": "why"})
        self.assertEqual((made["share_removed"], made["share_removed_direct"]), (0.8, None))
        self.assertEqual(made["fused_against_none"], {"nearlight_norm": 2.0})  # faster: positive
        self.assertEqual(made["left_out_variants"], {"nearlight_gemv": "why"})

    def test_a_signal_ends_the_ranks_too(self):
        started = subprocess.Popen([sys.executable, "-B", os.path.join(DECODE, "run.py"), "--device", "cpu", "--models", "tiny",
                                    "--samples", "1000000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        def running():
            """Processes of its session that have not ended."""
            found = []
            for path in glob.glob("/proc/[0-9]*/stat"):
                try:
                    with open(path, encoding="utf-8") as file:
                        state, _, _, session = file.read().rpartition(")")[2].split()[:4]
                except OSError:
                    continue  # it has just ended
                if int(session) == started.pid and state != "Z":
                    found.append(path)
            return found

        end = time.monotonic() + 60
        while len(running()) < 3 and time.monotonic() < end:
            time.sleep(0.1)
        self.assertGreaterEqual(len(running()), 3)
        started.terminate()
        self.assertEqual(started.wait(60), 128 + signal.SIGTERM)
        while running() and time.monotonic() < end + 30:
            time.sleep(0.1)
        self.assertEqual(running(), [])

    def test_it_ends_in_time(self):
        ran = self.run_it("--total-s", "0.5")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("were ended before they were done", ran.stderr)

    def test_percentiles(self):
        values = [float(value) for value in range(1, 101)]
        self.assertEqual([program.percentile(values, share) for share in (0.5, 0.95, 0.99)], [50, 95, 99])
        self.assertEqual(program.percentile([3.0], 0.99), 3.0)


class Committed(unittest.TestCase):
    def test_results(self):
        for path in sorted(glob.glob(os.path.join(DECODE, "results", "*.json"))):
            with self.subTest(path=path):
                self.assertRegex(os.path.basename(path), r"^\d{4}-\d\d-\d\d-\w+-[\w-]+\.json$")
                with open(path, encoding="utf-8") as file:
                    result = json.load(file)
                self.assertEqual(faults_of(result), [])
                self.assertTrue(re.fullmatch(r"[0-9a-f]{40}", result["commit"]), "measured at no committed state")

    def test_faults_are_found(self):
        step = {"min_us": 1.0, "p50_us": 2.0, "p95_us": 3.0, "p99_us": 4.0, "max_us": 5.0, "samples": 10}
        row = {"model": "tiny", "batch": 1, "ranks": 2, "dtype": "bf16", "all_reduces": 5, "bytes": 2048, "wrong": 0,
               "share_removed": 0.5, "share_removed_direct": None, "uncovered": [], "left_out_variants": {"nearlight_gemv": "why"},
               "fused_against_none": {"nearlight_norm": 0.25},
               "steps": {"none": step, "nccl": dict(step, p50_us=3.0), "nearlight": dict(step, p50_us=2.5),
                         "nearlight_norm": dict(step, p50_us=1.75)}}
        result = {"schema": 1, "date": "", "commit": "", "command": "", "env": {}, "machine": {}, "nearlight": {}, "rows": [row]}
        self.assertEqual(faults_of(result), [])
        alone = dict(row, ranks=1, share_removed=None, steps={name: value for name, value in row["steps"].items() if name != "nccl"})
        self.assertEqual(faults_of(dict(result, rows=[alone])), [])
        for changed in ({"wrong": 1}, {"uncovered": ["nccl"]}, {"bytes": 64}, {"share_removed": 0.9}, {"steps": {"none": step, "nccl": step}},
                        {"share_removed": None}, {"share_removed_direct": 0.5}, {"left_out_variants": {"nearlight_gemv": ""}},
                        {"left_out_variants": {"nearlight_norm": "why"}}, {"left_out_variants": {"other": "why"}},
                        {"fused_against_none": {}}, {"fused_against_none": {"nearlight_norm": -0.25}},
                        {"steps": dict(row["steps"], none=dict(step, p99_us=1.0))}):
            self.assertNotEqual(faults_of(dict(result, rows=[dict(row, **changed)])), [], changed)
        self.assertNotEqual(faults_of({"rows": []}), [])


if __name__ == "__main__":
    unittest.main()
