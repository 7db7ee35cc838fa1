#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/decode: the step itself against one rank, the program on CPU ranks, and every result that is committed."""

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

import torch
import torch.distributed as dist

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DECODE = os.path.join(ROOT, "bench", "decode")
sys.path.insert(0, DECODE)

from decoder import TINY, Decoder, shape_of
import run as program
import ranks
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
        steps = row["steps"]
        if not {"none", "nccl", "nearlight"} <= set(steps):
            found.append(what + ": variants are missing")
            continue
        for name, step in steps.items():
            if not 0 < step["min_us"] <= step["p50_us"] <= step["p95_us"] <= step["p99_us"] <= step["max_us"] or step["samples"] < 5:
                found.append(f"{what}: {name} is out of order")
        share = (steps["nccl"]["p50_us"] - steps["nearlight"]["p50_us"]) / (steps["nccl"]["p50_us"] - steps["none"]["p50_us"])
        if row["share_removed"] is None or abs(share - row["share_removed"]) > 1e-3:
            found.append(what + ": share_removed does not follow from the steps")
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
        return model.step(torch.tensor([0, 57, 99]), reduce).tolist()


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
        return [program.wrong_sums(program.Place(torch.device("cpu")), lambda call: model.step(torch.tensor([0, 57, 99]), call), one)
                for one in (reduce, spoiled)]


class Step(unittest.TestCase):
    def test_sums_are_looked_at(self):
        self.assertEqual(ranks.run(sums_are_looked_at, 2), [[0, 0], [0, program.CHECKED]])

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
                results[rank] = parts[rank].step(tokens, reduce)

        threads = [threading.Thread(target=rank_step, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        with torch.no_grad():
            torch.testing.assert_close(results[0], whole.step(tokens, lambda x: x))

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
        self.assertEqual([row["batch"] for row in result["rows"]], [1, 3])
        self.assertRegex(ran.stdout, r"NCCL's communication time removed: ")
        self.assertRegex(ran.stdout, r"\d+ s, 0 wrong\n")

    def test_samples_that_were_not_covered(self):
        covered, other = [(10.0, True)] * 8, [(90.0, False)] * 3
        self.assertEqual(program.covered_of(covered + other), ([10.0] * 8, True))
        self.assertEqual(program.covered_of([(10.0, True)] * 4), ([10.0] * 4, False))  # too few of any kind
        self.assertEqual(program.covered_of(covered + other * 3), ([10.0] * 8 + [90.0] * 9, False))
        route = types.SimpleNamespace(algorithm="one_shot", protocol="ll", grid=1)
        times = {"none": covered, "nccl": covered + other, "nearlight": other * 2}
        made = program.row(TINY, 1, 2, "bf16", 8, times, 0, route)
        self.assertEqual(made["uncovered"], ["nearlight"])
        self.assertEqual((made["steps"]["nccl"]["samples"], made["steps"]["nccl"]["left_out"]), (8, 3))
        self.assertEqual(made["steps"]["nccl"]["max_us"], 10.0)

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
        row = {"model": "tiny", "batch": 1, "dtype": "bf16", "all_reduces": 5, "bytes": 128, "wrong": 0, "share_removed": 0.5,
               "uncovered": [], "steps": {"none": step, "nccl": dict(step, p50_us=3.0), "nearlight": dict(step, p50_us=2.5)}}
        result = {"schema": 1, "date": "", "commit": "", "command": "", "env": {}, "machine": {}, "nearlight": {}, "rows": [row]}
        self.assertEqual(faults_of(result), [])
        for changed in ({"wrong": 1}, {"uncovered": ["nccl"]}, {"bytes": 64}, {"share_removed": 0.9}, {"steps": {"none": step, "nccl": step}},
                        {"steps": dict(row["steps"], none=dict(step, p99_us=1.0))}):
            self.assertNotEqual(faults_of(dict(result, rows=[dict(row, **changed)])), [], changed)
        self.assertNotEqual(faults_of({"rows": []}), [])


if __name__ == "__main__":
    unittest.main()
