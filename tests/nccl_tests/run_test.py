#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/nccl_tests/run.py with stand-ins for nccl-tests' programs, which print as they do, and for nearlight."""

import glob
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RUN = os.path.join(ROOT, "bench", "nccl_tests", "run.py")
sys.path.insert(0, os.path.dirname(RUN))

import run as tool  # which adds the path of the next

import process_group

# What nccl-tests 2.17 prints. STAND_IN=HOW:PROGRAM lets that program go wrong where the drop-in is (HOW) or is not.
PROGRAM = """#!/usr/bin/env python3
import os, sys, time
name = os.path.basename(sys.argv[0])
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
drop_in = os.environ.get("STAND_IN_DROP_IN") == "1"
how, _, where = os.environ.get("STAND_IN", "").partition(":")
how = how if where == ("with " if drop_in else "without ") + name else ""
print("# nccl-tests version 2.17.1 nccl-headers=22809 nccl-library=22809")
print("# Collective test starting: " + name)
print("# nThread 1 nGpus 2 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 1 iters: 3 agg iters: 1 validation: 1 graph: 0 unalign: 0")
print("#")
print("# Using devices")
print("#  Rank  0 Group  0 Pid   1000 on       host device  0 [0000:00:01] NVIDIA H200")
print("#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong")
print("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)        ")
checked = words["-c"] == "1" and how != "unchecked"
moves = name in ("all_gather_perf", "broadcast_perf", "alltoall_perf", "sendrecv_perf")
wrong = 0
for index, size in enumerate((128, 1024, 16384, 1048576)):
    if how == "hangs" and index == 2:
        sys.stdout.flush()
        time.sleep(600)
    if how == "dies" and index == 2:
        print("host: Test NCCL failure common.cu:1 'unhandled system error' / all_reduce.cu:1")
        sys.exit(3)
    if how == "silent":
        sys.exit(0)
    us = 6.0 + size / 200000
    if drop_in and size <= 16384:
        us /= 3 if how != "slow" else 0.9
    here = 5 if how == "wrong" and size == 1024 else 0
    wrong += here
    told = "%6g" % here if checked else "   N/A"
    placed = "   N/A" if name == "alltoall_perf" else told
    print("%12i  %12i  %8s  %6s  %6i  %7.2f  %6.2f  %6.2f  %s  %7.2f  %6.2f  %6.2f  %s" % (
        size, size // 4, words["-d"] if words["-d"] != "all" else "float", "none" if moves else "sum", -1, us, 0.1, 0.1, told,
        us, 0.1, 0.1, placed))
if how != "short":
    print("# %-20s : %d %s" % ("Out of bounds values", wrong, "FAILED" if wrong else "OK"))
    print("# %-20s : %g " % ("Avg bus bandwidth", 1.5))
print("#")
sys.exit(1 if wrong else 0)
"""

# `run --stats -- CMD` and `bench --json FILE`; the counts come when CMD has ended, or was ended.
NEARLIGHT = """#!/usr/bin/env python3
import os, signal, subprocess, sys
if sys.argv[1] == "bench":
    if os.environ.get("STAND_IN_HEAD") is None:
        print("no GPUs here", file=sys.stderr)
        sys.exit(3)
    with open(os.environ["STAND_IN_HEAD"]) as source, open(sys.argv[sys.argv.index("--json") + 1], "w") as target:
        target.write(source.read())
    sys.exit(0)
assert sys.argv[1:4] == ["run", "--stats", "--"], sys.argv
signal.signal(signal.SIGTERM, lambda number, frame: None)
code = subprocess.run(sys.argv[4:], env=dict(os.environ, STAND_IN_DROP_IN="1")).returncode
taken = 0 if os.environ.get("STAND_IN") == "idle" else 40
print("nearlight: what the drop-in took and passed on", file=sys.stderr)
print("process 1 (all_reduce_perf, NCCL 22809 in /x/libnccl.so.2): %d calls taken, 7 forwarded" % taken, file=sys.stderr)
sys.exit(code if code >= 0 else 128 - code)
"""


def write_program(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)


class Run(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.programs = os.path.join(self.folder.name, "bin")
        os.mkdir(self.programs)
        for name in tool.REDUCING + tool.MOVING:
            write_program(os.path.join(self.programs, name + "_perf"), PROGRAM)
        self.nearlight = os.path.join(self.folder.name, "nearlight")
        write_program(self.nearlight, NEARLIGHT)
        self.out = os.path.join(self.folder.name, "out")
        self.head = sorted(glob.glob(os.path.join(ROOT, "bench", "results", "*-2xh200-graph.json")))[0]

    def run_it(self, *words, stand_in="", head=True):
        environment = dict(os.environ, STAND_IN=stand_in)
        if head:
            environment["STAND_IN_HEAD"] = self.head
        return subprocess.run([sys.executable, "-B", RUN, *words, "--programs", self.programs, "--nearlight", self.nearlight,
                               "--out", self.out], env=environment, capture_output=True, text=True, timeout=100, check=False)

    def expect_fault(self, stand_in, fault, *words):
        with self.subTest(stand_in):
            ran = self.run_it("check", "--only", r"^(all_reduce|alltoall)\.one_thread", *words, stand_in=stand_in)
            self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
            self.assertIn(fault, ran.stdout)
            self.assertRegex(ran.stdout, r"\n1 failed: ")
            return ran

    def test_all_is_well(self):
        ran = self.run_it("check")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        cases = len(tool.check_cases(False))
        self.assertEqual(len(re.findall(r"^\S+ +with +ok  +4 lines, 0 wrong, .*taken 40, forwarded 7$", ran.stdout, re.M)), cases)
        self.assertEqual(len(re.findall(r"^\S+ +without +ok  +4 lines, 0 wrong, +\d+ s$", ran.stdout, re.M)), cases)
        self.assertTrue(ran.stdout.endswith("all good\n"), ran.stdout)
        self.assertEqual(len(os.listdir(self.out)), 2 * cases)

    def test_what_is_wrong_is_found(self):
        self.expect_fault("wrong:with all_reduce_perf", "FAILED     4 lines, 10 wrong")
        self.expect_fault("wrong:without alltoall_perf", "5 wrong elements; out of bounds: 5")
        self.expect_fault("dies:with all_reduce_perf", "exit status 3; no closing line")
        self.expect_fault("silent:with all_reduce_perf", "no line of its table; no closing line")
        self.expect_fault("short:without all_reduce_perf", "no closing line")
        self.expect_fault("unchecked:with all_reduce_perf", "lines that were not compared")

    def test_the_drop_in_must_take_something(self):
        ran = self.run_it("check", "--only", r"^(all_reduce|alltoall)\.one_thread", stand_in="idle")
        self.assertEqual(ran.returncode, 1, ran.stdout)
        self.assertRegex(ran.stdout, r"(?m)^all_reduce\.one_thread +with +FAILED .*the drop-in took nothing$")
        self.assertRegex(ran.stdout, r"(?m)^alltoall\.one_thread +with +ok ")  # by default it takes no other function

    def test_a_hang_is_ended_and_its_output_kept(self):
        begin = time.monotonic()
        ran = self.expect_fault("hangs:with all_reduce_perf", "did not end within", "--limit", "2")
        self.assertLess(time.monotonic() - begin, 60)
        self.assertIn("2 lines, 0 wrong", ran.stdout)
        with open(os.path.join(self.out, "all_reduce.one_thread.with.txt"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("        1024 ", text)
        self.assertIn("40 calls taken", text)  # told on SIGTERM
        # The other programs ran all the same.
        self.assertRegex(ran.stdout, r"(?m)^all_reduce\.one_thread +without +ok ")

    def test_what_has_no_time_left_is_a_failure(self):
        ran = self.run_it("check", "--only", "alltoall", "--total-s", "0.5")
        self.assertEqual(ran.returncode, 1)
        self.assertEqual(ran.stdout.count("left out: the time is over"), 2)

    def test_speed(self):
        path = os.path.join(self.folder.name, "2026-12-01-2xh200-nccl_tests.json")
        ran = self.run_it("speed", "--types", "bfloat16", "--json", path)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("== graph, all_reduce, bfloat16: us out of place, medians of 3 runs each", ran.stdout)
        self.assertRegex(ran.stdout, r"(?m)^ +1024 +6\.01 +2\.00 +3\.00x$")
        self.assertIn("128 B to 16 KiB: at least 3.00x as fast, at ", ran.stdout)
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
        rows = result["rows"]
        self.assertEqual([(row["bytes"], row["impl"]) for row in rows[:3]], [(128, "nearlight"), (128, "nccl"), (1024, "nearlight")])
        self.assertEqual(len(rows), 8)  # graphs alone
        self.assertEqual({row["samples"] for row in rows}, {3})
        self.assertEqual(rows[1]["p50_us"], 6.0)
        self.assertNotIn(self.folder.name, json.dumps(result))
        program = os.environ.get("NEARLIGHT_PROGRAM")
        if program:
            # By the program that judges every result file.
            judged = subprocess.run([program, "compare", path, path], capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(judged.returncode, 0, judged.stdout + judged.stderr)

    def test_slower_is_told(self):
        ran = self.run_it("speed", "--types", "float", "--modes", "graph", "--turns", "1", stand_in="slow:with all_reduce_perf")
        self.assertEqual(ran.returncode, 4, ran.stdout + ran.stderr)
        self.assertEqual(ran.stdout.count("   SLOWER\n"), 3)
        self.assertRegex(ran.stdout, r"all sizes: at most 1\.11\dx of NCCL's time")

    def test_a_run_that_fails_is_not_compared(self):
        path = os.path.join(self.folder.name, "out.json")
        ran = self.run_it("speed", "--types", "float", "--json", path, stand_in="dies:with all_reduce_perf")
        self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
        self.assertIn("nothing to compare", ran.stdout)
        self.assertIn("there is nothing to write", ran.stdout)
        self.assertFalse(os.path.exists(path))

    def test_without_what_it_needs(self):
        ran = self.run_it("speed", "--json", os.path.join(self.folder.name, "out.json"), head=False)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("no GPUs here", ran.stderr)
        os.remove(os.path.join(self.programs, "reduce_perf"))
        ran = self.run_it("check")
        self.assertEqual(ran.returncode, 2)
        self.assertIn("has no reduce_perf", ran.stderr)
        ran = subprocess.run([sys.executable, "-B", RUN, "speed", "--programs", self.programs, "--nearlight", "/nowhere/nearlight"],
                             capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(ran.returncode, 2)
        self.assertIn("/nowhere/nearlight cannot be run", ran.stderr)

    def test_processes_come_by_the_launcher(self):
        launcher = os.path.join(self.folder.name, "launcher")
        write_program(launcher, "#!/bin/sh\necho \"launcher $1 $2\"\nshift 2\nexec \"$@\"\n")
        ran = self.run_it("check", "--only", "processes$", "--launcher", launcher + " -np 2")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        with open(os.path.join(self.out, "reduce.processes.with.txt"), encoding="utf-8") as file:
            self.assertIn("launcher -np 2\n", file.read())

    def test_large_numbers(self):
        rows = tool.rows_of("  8589934592    2147483648     float     sum      -1  1.2e+07  716.35  716.35  1e+06  26109.2  329.00  329.00    N/A\n"
                            "#  0  1 2 3 4 5 6 7 8 9 10 11 12\n")
        self.assertEqual(len(rows), 1)
        self.assertEqual((rows[0].bytes, rows[0].times_us, rows[0].wrong), (8589934592, (1.2e7, 26109.2), (1e6, None)))


class EndGroup(unittest.TestCase):
    """What ends at SIGTERM has its say; what does not, and what it has started, is killed."""

    def start(self, text):
        process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, start_new_session=True)
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def test_what_ends_at_the_first_signal_prints(self):
        process = self.start("import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(print('counts')))\n"
                             "print('ready', flush=True)\nsignal.pause()")
        tool.end_group(process, 30)
        self.assertEqual((process.returncode, process.stdout.read()), (0, b"counts\n"))

    def test_what_does_not_is_killed_with_its_children(self):
        process = self.start("import signal, subprocess, sys\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                             "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
                             "print('ready', flush=True)\nsignal.pause()")
        tool.end_group(process, 0.2)
        self.assertEqual(process.returncode, -signal.SIGKILL)
        # The child had the other end of the pipe.
        self.assertEqual(process.stdout.read(), b"")

    def signals_of(self, process):
        sent = []

        def killpg(group, number, send=os.killpg):
            sent.append((group, number))
            send(group, number)

        with unittest.mock.patch.object(process_group.os, "killpg", killpg):
            tool.end_group(process, 30)
        return sent

    def test_what_has_ended_gets_no_signal(self):
        # Its number may be another group's.
        ended = self.start("print('ready', flush=True)")
        ended.wait(timeout=30)
        self.assertEqual(self.signals_of(ended), [])
        process = self.start("import signal\nprint('ready', flush=True)\nsignal.pause()")
        self.assertEqual(self.signals_of(process), [(process.pid, signal.SIGTERM)])

    # A child that tells what it ends by, in a file, after its parent has ended; and the parent's last words.
    ORPHAN = ("import os, signal, subprocess, sys\n"
              "child = subprocess.Popen([sys.executable, '-c', sys.argv[2], sys.argv[1]], stdout=subprocess.PIPE)\n"
              "child.stdout.readline()\nprint('ready', flush=True)\n")

    def start_with_child(self, child, then):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        told = os.path.join(folder.name, "told")
        process = subprocess.Popen([sys.executable, "-c", self.ORPHAN + then, told, child], stdout=subprocess.PIPE, start_new_session=True)
        self.addCleanup(process.stdout.close)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process, told

    def test_an_orphan_has_its_say(self):
        child = ("import signal, sys, time\n"
                 "def end(*_):\n time.sleep(0.3)\n open(sys.argv[1], 'w').write('counts')\n sys.exit()\n"
                 "signal.signal(signal.SIGTERM, end)\nprint('ready', flush=True)\nsignal.pause()")
        # It ends at once; and it has ended before.
        for then, ends_itself in (("signal.pause()", False), ("os._exit(0)", True)):
            process, told = self.start_with_child(child, then)
            if ends_itself:
                process.wait(timeout=30)
            begin = time.monotonic()
            tool.end_group(process, 30)
            self.assertLess(time.monotonic() - begin, 10)
            with open(told, encoding="utf-8") as file:
                self.assertEqual(file.read(), "counts")

    def test_an_orphan_that_does_not_end_is_killed(self):
        process, _ = self.start_with_child("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\n"
                                           "while True: signal.pause()", "os._exit(0)")
        begin = time.monotonic()
        tool.end_group(process, 30)
        self.assertLess(time.monotonic() - begin, 20)  # and not the grace of the process itself
        self.assertFalse(process_group.lives_in(process.pid))

    def test_what_nobody_waits_for_costs_nothing(self):
        # This process is the one that orphans go to, and waits for none of them before it has looked.
        made = subprocess.run([sys.executable, "-c", ZOMBIE, os.path.dirname(process_group.__file__)], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual((made.returncode, made.stdout), (0, "a zombie, quickly\n"), made.stderr)


# Becomes the parent of orphans, so that one that has ended stays in its group.
ZOMBIE = """
import ctypes, os, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
import process_group
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
text = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], stdout=2).pid, flush=True)"
process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, start_new_session=True)
child = int(process.stdout.readline())
process.wait(timeout=30)
process_group.ORPHANS_S = 30
begin = time.monotonic()
process_group.end_group(process, 30)
quickly = time.monotonic() - begin < 10
with open(f"/proc/{child}/stat") as file:
    zombie = file.read().rpartition(")")[2].split()[0] == "Z"
print("a zombie," if zombie else "none,", "quickly" if quickly else "slowly")
os.waitpid(child, 0)
"""


if __name__ == "__main__":
    unittest.main()
