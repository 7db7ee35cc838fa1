#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's nccl-tests with and without the drop-in for NCCL, on this machine's first two GPUs.

    run.py check --programs DIR              every program, type and operator: no wrong element, no hang
    run.py speed --programs DIR --json FILE  all_reduce with and without in turns: medians and their ratio

DIR holds the built programs (all_reduce_perf, ...; README.md tells how to build them); libnccl.so.2 is found as they
find it. Every program has a time limit, its output lies in --out from its first line on, and every line of this
program is there as soon as it is known. Exit status: 0 ok, 1 a program failed, hung, or was wrong, or the drop-in took
nothing where it should, 2 bad arguments, 4 slower by more than 3 % at some size.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

# Beside this file in the GPU bundle.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
from process_group import end_group

REDUCING = ("all_reduce", "reduce_scatter", "reduce")
MOVING = ("all_gather", "broadcast", "alltoall", "sendrecv")
# Names in result files.
COLLECTIVES = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
TYPES = {"int8": "i8", "uint8": "u8", "int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64", "half": "f16",
         "bfloat16": "bf16", "float": "f32", "double": "f64", "fp8_e4m3": "f8e4m3", "fp8_e5m2": "f8e5m2"}
SLOWER = 1.03
ITERS, REPLAYS = 100, 10


@dataclasses.dataclass(frozen=True)
class Case:
    """One program with its arguments, to be run with and without the drop-in."""

    name: str
    program: str
    arguments: tuple[str, ...]
    checked: bool = True  # the program compares its results itself
    processes: bool = False  # one a GPU, by the launcher


def check_cases(launcher: bool) -> list[Case]:
    def case(name: str, program: str, words: str, processes: bool = False) -> Case:
        return Case(name, program, tuple(words.split()), True, processes)

    cases = [case(f"{program}.one_thread", program, "-b 8 -e 64M -f 8 -g 2 -c 1 -n 3 -w 1 -d all -o all") for program in REDUCING]
    cases += [case(f"{program}.one_thread", program, "-b 8 -e 64M -f 8 -g 2 -c 1 -n 3 -w 1 -d all") for program in MOVING]
    cases += [
        case("all_reduce.threads", "all_reduce", "-b 8 -e 64M -f 4 -t 2 -g 1 -c 1 -n 5 -w 1 -d all -o sum"),
        case("all_reduce.graphs", "all_reduce", "-b 8 -e 64M -f 4 -g 2 -c 1 -n 5 -w 1 -G 3 -d float -o all"),
        case("all_reduce.graphs_half", "all_reduce", "-b 8 -e 64M -f 4 -g 2 -c 1 -n 5 -w 1 -G 3 -d half -o sum"),
        case("all_reduce.odd_sizes", "all_reduce", "-b 4 -e 400K -i 12004 -g 2 -c 1 -n 3 -w 1 -d float -o sum"),
        case("all_reduce.cycles", "all_reduce", "-b 8 -e 1M -f 8 -g 2 -c 1 -n 5 -w 1 -d float -o sum -N 2")]
    if launcher:
        cases += [case(f"{program}.processes", program, "-b 8 -e 64M -f 8 -g 1 -c 1 -n 3 -w 1 -d float", True)
                  for program in REDUCING + MOVING]
        cases.append(case("all_reduce.processes_graphs", "all_reduce", "-b 8 -e 64M -f 4 -g 1 -c 1 -n 5 -w 1 -G 3 -d bfloat16", True))
    return cases


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a program's table: out of place, then in place. Wrong: None where it was not compared."""

    bytes: int
    type: str
    op: str
    times_us: tuple[float, float]
    wrong: tuple[float | None, float | None]


def number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def rows_of(text: str) -> list[Row]:
    """size, count, type, redop, root, then twice time, algbw, busbw, #wrong."""
    rows = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 13 or not fields[0].isdigit() or not fields[1].isdigit():
            continue
        first, second = number(fields[5]), number(fields[9])
        if first is None:
            continue
        rows.append(Row(int(fields[0]), fields[2], fields[3], (first, second if second is not None else math.nan),
                        (number(fields[8]), number(fields[12]))))
    return rows


@dataclasses.dataclass
class Ran:
    """What came of a program."""

    case: Case
    drop_in: bool
    status: int | None  # None: it did not end in time
    seconds: float
    text: str

    @property
    def rows(self) -> list[Row]:
        return rows_of(self.text)

    @property
    def wrong(self) -> float:
        return sum(wrong for row in self.rows for wrong in row.wrong if wrong is not None)

    @property
    def counts(self) -> tuple[int, int] | None:
        """Calls that the drop-in took and passed on, of all processes."""
        found = re.findall(r": (\d+) calls taken, (\d+) forwarded", self.text)
        return (sum(int(taken) for taken, _ in found), sum(int(passed) for _, passed in found)) if found else None

    def faults(self) -> list[str]:
        found = []
        if self.status is None:
            found.append(f"did not end within {self.seconds:.0f} s")
        elif self.status != 0:
            found.append(f"exit status {self.status}")
        if not self.rows:
            found.append("no line of its table")
        if self.wrong != 0:
            found.append(f"{self.wrong:g} wrong elements")
        if self.case.checked and any(row.wrong[0] is None for row in self.rows):
            found.append("lines that were not compared")
        closing = re.search(r"^# Out of bounds values\s*: (\d+) (\w+)", self.text, re.M)
        if closing is None:
            found.append("no closing line")
        elif closing.group(2) != "OK":
            found.append(f"out of bounds: {closing.group(1)}")
        if self.drop_in:
            if self.counts is None:
                found.append("no counts of the drop-in")
            elif self.counts[0] == 0 and self.case.program == "all_reduce":
                found.append("the drop-in took nothing")
        return found


class Runner:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.end = time.monotonic() + args.total_s
        self.failed: list[str] = []

    def command(self, case: Case, drop_in: bool) -> list[str]:
        words = [os.path.join(self.args.programs, case.program + "_perf"), *case.arguments]
        if case.processes:
            words = self.args.launcher.split() + words
        return [self.args.nearlight, "run", "--stats", "--", *words] if drop_in else words

    def run(self, case: Case, drop_in: bool, label: str = "") -> Ran | None:
        """None where there is no time left. Its faults are told and kept."""
        how = "with" if drop_in else "without"
        name = case.name + label
        limit = min(self.args.limit, self.end - time.monotonic())
        if limit < 1:
            self.tell(name, how, ["left out: the time is over"])
            return None
        path = os.path.join(self.args.out, f"{name}.{how}.txt")
        begin = time.monotonic()
        with open(path, "wb") as output:
            process = subprocess.Popen(self.command(case, drop_in), stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, start_new_session=True)
            status: int | None
            try:
                status = process.wait(timeout=limit)
            except subprocess.TimeoutExpired:
                status = None
                end_group(process)
            except BaseException:  # this program is ended: it leaves nothing running
                end_group(process)
                raise
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        ran = Ran(case, drop_in, status, time.monotonic() - begin, text)
        faults = ran.faults()
        counts = "  taken %d, forwarded %d" % ran.counts if ran.counts else ""
        self.tell(name, how, faults, f"{len(ran.rows):5d} lines, {ran.wrong:g} wrong, {ran.seconds:4.0f} s{counts}")
        if faults:
            for line in [line for line in text.splitlines() if re.search("failure|error|Error|Test NCCL|nearlight:", line)][:5]:
                print("    " + line)
            for line in text.splitlines()[-5:]:
                print("    | " + line)
            sys.stdout.flush()
        return ran

    def tell(self, name: str, how: str, faults: list[str], facts: str = "") -> None:
        print(f"{name:32} {how:8} {'FAILED' if faults else 'ok':6} {facts}{'  ' if facts and faults else ''}{'; '.join(faults)}")
        sys.stdout.flush()
        if faults:
            self.failed.append(f"{name} {how}")


def check(runner: Runner) -> None:
    for drop_in in (True, False):
        for case in check_cases(bool(runner.args.launcher)):
            if re.search(runner.args.only, case.name):
                runner.run(case, drop_in)


# ---- speed -------------------------------------------------------------------------------------------------

def speed_case(mode: str, program: str, kind: str) -> Case:
    words = f"-b 128 -e 64M -f 2 -g 2 -c 0 -n {ITERS} -w 5 -d {kind}" + (f" -G {REPLAYS}" if mode == "graph" else "")
    if program in REDUCING:
        words += " -o sum"
    return Case(f"{mode}.{program}.{kind}", program, tuple(words.split()), False)


def percentile(values: list[float], share: float) -> float:
    """Nearest rank, as in the result files."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Table:
    """Times out of place by size, with and without."""

    def __init__(self) -> None:
        self.times: dict[int, dict[bool, list[float]]] = {}
        self.ops: dict[int, str] = {}

    def add(self, ran: Ran) -> None:
        for row in ran.rows:
            self.times.setdefault(row.bytes, {}).setdefault(ran.drop_in, []).append(row.times_us[0])
            self.ops[row.bytes] = row.op

    def pairs(self) -> list[tuple[int, float, float]]:
        """(bytes, NCCL's median, the drop-in's)"""
        return [(size, statistics.median(times[False]), statistics.median(times[True]))
                for size, times in sorted(self.times.items()) if len(times) == 2]

    def print(self) -> bool:
        """Whether the drop-in is nowhere slower."""
        print("%12s %10s %10s %9s" % ("bytes", "NCCL us", "drop-in us", "faster"))
        for size, plain, ours in self.pairs():
            print("%12d %10.2f %10.2f %8.2fx%s" % (size, plain, ours, plain / ours, "" if ours <= SLOWER * plain else "   SLOWER"))
        small = [(plain / ours, size) for size, plain, ours in self.pairs() if 128 <= size <= 16384]
        most = [(ours / plain, size) for size, plain, ours in self.pairs()]
        if small:
            print("128 B to 16 KiB: at least %.2fx as fast, at %d bytes" % min(small))
        if most:
            print("all sizes: at most %.3fx of NCCL's time, at %d bytes" % max(most))
        sys.stdout.flush()
        return all(ours <= SLOWER * plain for _, plain, ours in self.pairs())


def bytes_to_send(collective: str, size: int, ranks: int) -> float:
    shares = {"all_reduce": 2 * (ranks - 1) / ranks, "all_gather": (ranks - 1) / ranks, "reduce_scatter": (ranks - 1) / ranks,
              "all_to_all": (ranks - 1) / ranks}
    return size * shares.get(collective, 1.0)


def result_rows(table: Table, program: str, kind: str, head: dict[str, Any]) -> list[dict[str, Any]]:
    collective = COLLECTIVES.get(program, program)
    floor = min(head["launch_floor_us"] or 0, head["launch_floor_pdl_us"] or 0)
    rows = []
    for size, times in sorted(table.times.items()):
        if len(times) != 2:
            continue
        least = floor + head["sol_us"] + bytes_to_send(collective, size, 2) / head["store_gbs"] / 1e3
        for drop_in, impl in ((True, "nearlight"), (False, "nccl")):
            values = times[drop_in]
            p50 = percentile(values, 0.5)
            rows.append({"collective": collective, "bytes": size, "dtype": TYPES[kind],
                         "op": table.ops[size] if program in REDUCING else "none", "ranks": 2, "mode": "graph",
                         "chain": ITERS * REPLAYS, "impl": impl, "algorithm": "by_route" if drop_in else "",
                         "protocol": "drop_in" if drop_in else "", "grid": 0, "min_us": min(values), "p50_us": p50,
                         "p95_us": percentile(values, 0.95), "p99_us": percentile(values, 0.99), "p999_us": None,
                         "max_us": max(values), "samples": len(values), "wrong": 0, "ratio_sol": p50 / head["sol_us"],
                         "ratio_limit": p50 / least})
    return rows


def result_head(args: argparse.Namespace) -> dict[str, Any]:
    """Machine, commit, variables and what the machine allows, as `nearlight bench` tells them."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "head.json")
        words = [args.nearlight, "bench", "all_reduce", "-g", "2", "-b", "128", "-e", "128", "-n", "200", "--in-place", "0",
                 "--json", path]
        try:
            ran = subprocess.run(words, capture_output=True, text=True, timeout=args.limit, check=False)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"run.py: {' '.join(words[:3])} did not end within {args.limit:.0f} s") from None
        if ran.returncode != 0 or not os.path.exists(path):
            raise SystemExit(f"run.py: {' '.join(words[:3])} failed:\n{ran.stdout}{ran.stderr}")
        with open(path, encoding="utf-8") as file:
            head = json.load(file)
    head["rows"] = []
    # The head's own run may have been without NCCL, and these are not.
    head["peers"] = {"nccl": f"nccl-tests without the drop-in, run in turns with it; a sample is a run's mean of {REPLAYS} replays of "
                             f"{ITERS} operations"}
    return head


def nccl_version(text: str) -> str | None:
    """Of the NCCL that the drop-in stood in front of, as it tells."""
    found = re.search(r"NCCL (\d+) in ", text)
    if found is None:
        return None
    code = int(found.group(1))
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def without_folder(word: str) -> str:
    return os.path.basename(word.rstrip("/")) if os.path.isabs(word) else word


def write_result(path: str, head: dict[str, Any], arguments: list[str]) -> None:
    """Whole or not at all; called after every table, so that what is cut off leaves what was measured."""
    head["command"] = "bench/nccl_tests/run.py " + " ".join(without_folder(word) for word in arguments)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(head, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)


def speed(runner: Runner, arguments: list[str]) -> bool:
    """Whether the drop-in is nowhere slower in graphs."""
    args = runner.args
    head = result_head(args) if args.json else None
    good = True
    for kind in args.types:
        for mode in args.modes:
            for program in args.collectives:
                table = Table()
                case = speed_case(mode, program, kind)
                if not re.search(args.only, case.name):
                    continue
                for turn in range(args.turns):
                    # Neither is always the first.
                    for drop_in in ((False, True) if turn % 2 == 0 else (True, False)):
                        ran = runner.run(case, drop_in, f".{turn + 1}")
                        if ran is not None and not ran.faults():
                            table.add(ran)
                            if head is not None and head["machine"]["nccl"] == "none":
                                head["machine"]["nccl"] = nccl_version(ran.text) or "none"
                print(f"== {mode}, {program}, {kind}: us out of place, medians of {args.turns} runs each")
                if not table.pairs():
                    print("nothing to compare")
                    continue
                nowhere_slower = table.print()
                # Eager is many calls in a row there, and from the call to completion in a result file: it is not written.
                if mode == "graph":
                    good = good and nowhere_slower
                    if head is not None:
                        head["rows"] += result_rows(table, program, kind, head)
                        write_result(args.json, head, arguments)
    if head is not None and not head["rows"]:
        runner.tell("result file", "", ["not written: there is nothing to write"])
    return good


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "speed", "all"])
    parser.add_argument("--programs", required=True, help="folder with all_reduce_perf and the others")
    parser.add_argument("--nearlight", default=shutil.which("nearlight") or "nearlight", help="the program [on PATH]")
    parser.add_argument("--out", default="nccl_tests_out", help="folder for the programs' output [nccl_tests_out]")
    parser.add_argument("--json", help="speed: result file for what ran in graphs")
    parser.add_argument("--only", default="", help="expression that the names of cases must match")
    parser.add_argument("--types", nargs="+", choices=list(TYPES), default=["float", "bfloat16"], help="speed [float bfloat16]")
    parser.add_argument("--modes", nargs="+", choices=["graph", "eager"], default=["graph", "eager"], help="speed [both]")
    parser.add_argument("--collectives", nargs="+", choices=REDUCING + MOVING, default=["all_reduce"], help="speed [all_reduce]")
    parser.add_argument("--turns", type=int, default=3, help="speed: runs with and without [3]")
    parser.add_argument("--launcher", default="", help="check also with a process a GPU: what starts two, as \"mpirun -np 2\" "
                                                       "(the programs must have been built with MPI=1)")
    parser.add_argument("--limit", type=float, default=240, help="seconds for one program [240]")
    parser.add_argument("--total-s", type=float, default=3600, help="seconds for all; what has no time left is a failure [3600]")
    args = parser.parse_args(arguments)
    if args.turns < 1:
        parser.error("--turns: at least 1")
    missing = [program for program in (REDUCING + MOVING if args.what != "speed" else args.collectives)
               if not os.access(os.path.join(args.programs, program + "_perf"), os.X_OK)]
    if missing:
        parser.error(f"--programs: {args.programs} has no {', '.join(program + '_perf' for program in missing)}")
    if shutil.which(args.nearlight) is None:
        parser.error(f"--nearlight: {args.nearlight} cannot be run")
    args.programs = os.path.abspath(args.programs)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    os.makedirs(args.out, exist_ok=True)
    runner, good = Runner(args), True
    if args.what in ("check", "all"):
        check(runner)
    if args.what in ("speed", "all"):
        good = speed(runner, arguments)
    print(f"output of the programs: {args.out}")
    print("all good" if not runner.failed else f"{len(runner.failed)} failed: {', '.join(runner.failed)}")
    return 1 if runner.failed else 0 if good else 4


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
