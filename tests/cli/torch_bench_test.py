#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rank that brings PyTorch, on a CPU with a stand-in for it: the library, its callbacks, rows, failures.

    torch_bench_test.py SCRIPT LIBRARY LOADER
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT, LIBRARY, LOADER = sys.argv[1:]
failures = []


def expect(what, holds, ran):
    if not holds:
        failures.append(what)
        print(f"FAILED: {what}\n{ran.stdout}\n{ran.stderr}")


def run(words, fake="", path=os.path.join(HERE, "fake_torch")):
    environment = dict(os.environ, PYTHONPATH=path, FAKE_TORCH=fake, PYTHONDONTWRITEBYTECODE="1")
    return subprocess.run([sys.executable, SCRIPT, *words], env=environment, capture_output=True, text=True, timeout=100,
                          check=False)


def rank(folder, *arguments, fake=""):
    return run(["--library", LIBRARY, "--rank", "0", "--devices", "0", "--key", f"torch test {os.getpid()}",
                "--store", os.path.join(folder, "store"), "--", "bench", "all_reduce", "--backend", "host", "--ranks", "1",
                "-b", "64", "-e", "256", "-f", "4", "-n", "20", "--in-place", "0", *arguments], fake)


with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "torch.json")
    ran = rank(folder, "-d", "bfloat16", "--json", file)
    expect("exit status 0", ran.returncode == 0, ran)
    expect("the settings in the heading", "# torch_nccl: PyTorch 0.0.fake, torch.distributed.all_reduce" in ran.stdout, ran)
    with open(file, encoding="utf-8") as source:
        content = json.load(source)
    rows = [(row["bytes"], row["impl"], row["wrong"], row["samples"]) for row in content["rows"]]
    names = ["nearlight", "torch_symm_mem_one_shot", "torch_symm_mem_two_shot", "torch_nccl"]
    expect("a row of each, in turns", rows == [(size, name, 0, 20) for size in (64, 256) for name in names], ran)
    expect("the settings in the file", sorted(content["peers"]) == sorted(names[1:]), ran)

    ran = rank(folder, fake="short")
    expect("a wrong result is found", ran.returncode == 1 and "wrong result of torch_symm_mem_one_shot" in ran.stderr, ran)
    ran = rank(folder, fake="raises")
    expect("an exception's text is told", ran.returncode == 1 and "ValueError: a planted failure" in ran.stderr
           and "torch_symm_mem_one_shot" in ran.stderr, ran)
    ran = rank(folder, "-d", "double")
    expect("a type that it does not have", ran.returncode == 1 and "sums of float and bfloat16 alone" in ran.stderr, ran)

    # The program out of the library, as the GPU bundle has it.
    ran = subprocess.run([LOADER, "--version"], capture_output=True, text=True, timeout=100, check=False)
    expect("the program itself", ran.returncode == 0 and ran.stdout.startswith("nearlight "), ran)

    ran = run(["--look"])
    expect("PyTorch is there", ran.returncode == 0 and ran.stderr == "", ran)
    ran = run(["--look"], fake="old")
    expect("what is missing is named", ran.returncode == 3 and "two_shot_all_reduce_" in ran.stderr, ran)
    with open(os.path.join(folder, "torch.py"), "w", encoding="utf-8") as none:
        none.write("raise ImportError('no such thing')\n")
    ran = run(["--look"], path=folder)
    expect("no PyTorch", ran.returncode == 3 and "PyTorch is not there: no such thing" in ran.stderr, ran)

print(f"{len(failures)} failures")
sys.exit(1 if failures else 0)
