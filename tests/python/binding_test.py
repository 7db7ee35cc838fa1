#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package without PyTorch: against the header, and over CPU ranks."""

import array
import ctypes
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import warnings

import nearlight
from nearlight import _library, _structs, types
from nearlight.errors import CLASSES
import ranks

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read(*parts):
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as file:
        return file.read()


HEADER = re.sub(r"/\*.*?\*/", "", read("include", "nearlight", "nearlight.h"), flags=re.DOTALL)


class AgainstTheHeader(unittest.TestCase):
    def test_version(self):
        text = read("include", "nearlight", "version.h")
        parts = [re.search(r"#define NEARLIGHT_%s (\d+)" % name, text).group(1) for name in ("MAJOR", "MINOR", "PATCH")]
        self.assertEqual(nearlight.__version__, ".".join(parts))

    def test_every_function_is_declared(self):
        declared = re.findall(r"NEARLIGHT_API [\w* ]+?\b(nearlight\w+)\((.*?)\);", HEADER, re.DOTALL)
        self.assertEqual(sorted(name for name, _ in declared), sorted(_library.FUNCTIONS))
        for name, arguments in declared:
            count = 0 if arguments.strip() == "void" else len(arguments.split(","))
            self.assertEqual(len(_library.FUNCTIONS[name][1]), count, name)

    def test_enumerators(self):
        def numbers(prefix, kind):
            body = re.search(r"typedef enum \{([^}]*)\} %s;" % kind, HEADER).group(1)
            return {name[len(prefix):].lower(): int(value, 0) for name, value in re.findall(r"(\w+) = (-?\w+)", body)
                    if not name.endswith("_")}

        self.assertEqual(numbers("nearlight", "nearlightDataType_t"), {one.name: one for one in types.DataType})
        self.assertEqual(numbers("nearlight", "nearlightRedOp_t"), {one.name: one for one in types.ReduceOp})
        self.assertEqual(numbers("nearlightCollective", "nearlightCollective_t"),
                         {one.name.replace("_", ""): one for one in types.Collective})
        codes = numbers("nearlight", "nearlightResult_t")
        self.assertEqual({kind.name.replace("nearlight", "").lower(): code for code, kind in CLASSES.items()},
                         {name: code for name, code in codes.items() if name not in ("success", "inprogress")})

    def test_structs_are_laid_out_as_a_compiler_does(self):
        compiler = shutil.which("cc") or shutil.which("gcc")
        self.assertIsNotNone(compiler, "no C compiler")
        lines = []
        for name, kind in _structs.STRUCTS.items():
            lines.append('printf("%s %%zu\\n", sizeof(%s));' % (name, name))
            lines += ['printf("%s.%s %%zu\\n", offsetof(%s, %s));' % (name, field, name, field) for field, *_ in kind._fields_]
        source = "#include <nearlight/nearlight.h>\n#include <stdio.h>\nint main(void) {%s return 0; }\n" % "\n".join(lines)
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "layout")
            subprocess.run([compiler, "-x", "c", "-I", os.path.join(ROOT, "include"), "-o", program, "-"], input=source,
                           text=True, check=True)
            told = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        expected = []
        for name, kind in _structs.STRUCTS.items():
            expected.append("%s %d" % (name, ctypes.sizeof(kind)))
            expected += ["%s.%s %d" % (name, field, getattr(kind, field).offset) for field, *_ in kind._fields_]
        self.assertEqual(told.split("\n")[:-1], expected)
        sized = set(re.findall(r"\} (nearlight\w+_t);", "".join(re.findall(r"typedef struct \{[^}]*\} \w+;", HEADER))))
        self.assertEqual(sized, set(_structs.STRUCTS))


class Threads(unittest.TestCase):
    """A group of this process."""

    def setUp(self):
        self.comms = nearlight.Communicator.host_group(2)

    def tearDown(self):
        for comm in self.comms:
            comm.close()

    def together(self, call):
        errors = []

        def guarded(rank):
            try:
                call(rank)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        if errors:
            raise errors[0]

    def test_sum_out_of_place(self):
        send = [array.array("d", [1.5, 2]), array.array("d", [10, 20])]
        recv = [array.array("d", [0, 0]) for _ in range(2)]
        self.together(lambda rank: self.comms[rank].all_reduce(send[rank], recv[rank]))
        self.assertEqual([list(one) for one in recv], [[11.5, 22]] * 2)
        self.assertEqual(list(send[0]), [1.5, 2])

    def test_the_other_collectives(self):
        def call(rank):
            comm, four = self.comms[rank], nearlight.DataType.int32
            given, taken = array.array("i", [rank, 10 + rank, 20 + rank, 30 + rank]), array.array("i", [0] * 8)
            (send, _), (recv, _) = given.buffer_info(), taken.buffer_info()
            found = []
            for collective in (lambda: comm.all_gather_raw(send, recv, 4, four), lambda: comm.reduce_scatter_raw(send, recv, 2, four),
                               lambda: comm.broadcast_raw(send, recv, 4, four, 1),
                               lambda: comm.reduce_raw(send, recv, 4, four, nearlight.ReduceOp.max, 1),
                               lambda: comm.all_to_all_raw(send, recv, 2, four)):
                taken[:] = array.array("i", [-1] * 8)
                collective()
                found.append(list(taken))
            results[rank] = found

        results = [None, None]
        self.together(call)
        nothing = [-1] * 4
        self.assertEqual(results[0], [[0, 10, 20, 30, 1, 11, 21, 31], [1, 21] + [-1] * 6, [1, 11, 21, 31] + nothing, nothing * 2,
                                      [0, 10, 1, 11] + nothing])
        self.assertEqual(results[1], [[0, 10, 20, 30, 1, 11, 21, 31], [41, 61] + [-1] * 6, [1, 11, 21, 31] + nothing,
                                      [1, 11, 21, 31] + nothing, [20, 30, 21, 31] + nothing])
        counters = self.comms[0].counters()
        self.assertEqual((counters.all_gathers, counters.reduce_scatters, counters.broadcasts, counters.reduces, counters.all_to_alls),
                         (1,) * 5)
        with self.assertRaisesRegex(nearlight.InvalidArgument, "root"):
            self.comms[0].broadcast_raw(8, 8, 1, nearlight.DataType.int8, 7)

    def test_parts_of_different_sizes(self):
        def call(rank):
            comm, four = self.comms[rank], nearlight.DataType.int32
            given, taken = array.array("i", [rank, 10 + rank, 20 + rank]), array.array("i", [0] * 6)
            (send, _), (recv, _) = given.buffer_info(), taken.buffer_info()
            found = []
            for collective in (lambda: comm.all_gather_v_raw(send, recv, [1, 2], None, four),
                               lambda: comm.reduce_scatter_v_raw(send, recv, [1, 2], four),
                               lambda: comm.all_to_all_v_raw(send, [1, 2], [0, 1], recv, [1 + rank, 1 + rank], [0, 3], four)):
                taken[:] = array.array("i", [-1] * 6)
                collective()
                found.append(list(taken))
            results[rank] = found

        results = [None, None]
        self.together(call)
        self.assertEqual(results[0], [[0, 1, 11, -1, -1, -1], [1, -1, -1, -1, -1, -1], [0, -1, -1, 1, -1, -1]])
        self.assertEqual(results[1], [[0, 1, 11, -1, -1, -1], [21, 41, -1, -1, -1, -1], [10, 20, -1, 11, 21, -1]])
        # What each gave: 1, or 2, and twice 3 elements.
        self.assertEqual([comm.counters().bytes for comm in self.comms], [28, 32])
        with self.assertRaisesRegex(nearlight.InvalidArgument, "recv_counts has 1 entries"):
            self.comms[0].all_gather_v_raw(8, 8, [1], None, nearlight.DataType.int8)

    def test_sends_and_receives(self):
        def call(rank):
            comm, eight = self.comms[rank], nearlight.DataType.float64
            given, taken = array.array("d", [rank + 0.5] * 3), array.array("d", [0] * 3)
            (send, _), (recv, _) = given.buffer_info(), taken.buffer_info()
            with nearlight.together():
                comm.send_raw(send, 3, eight, 1 - rank)
                comm.recv_raw(recv, 3, eight, 1 - rank)
            found = list(taken)
            # One that is left by an exception starts nothing.
            with self.assertRaises(ZeroDivisionError), nearlight.together():
                comm.send_raw(send, 3, eight, 1 - rank)
                raise ZeroDivisionError
            if rank == 0:
                comm.send_raw(send, 1, eight, 1)
            else:
                comm.recv_raw(recv, 1, eight, 0)
            results[rank] = (found, taken[0], comm.counters().send_recvs)

        results = [None, None]
        self.together(call)
        self.assertEqual(results, [([1.5] * 3, 1.5, 2), ([0.5] * 3, 0.5, 2)])
        with self.assertRaisesRegex(nearlight.InvalidArgument, "peer"):
            self.comms[0].send_raw(8, 1, nearlight.DataType.int8, 7)

    def test_every_letter_of_a_type(self):
        for letter in "bBiIlLqQfd":
            values = [array.array(letter, [3, 1]), array.array(letter, [2, 5])]
            self.together(lambda rank: self.comms[rank].all_reduce(values[rank], op=nearlight.ReduceOp.max))
            self.assertEqual([list(one) for one in values], [[3, 5]] * 2, letter)

    def test_a_type_that_a_buffer_cannot_tell(self):
        values = [bytearray(b"\x80\x3f\x00\x40") for _ in range(2)]  # bfloat16: 1, 2
        self.together(lambda rank: self.comms[rank].all_reduce(values[rank], dtype=nearlight.DataType.bfloat16))
        self.assertEqual(values[0], b"\x00\x40\x80\x40")

    def test_nothing_to_reduce(self):
        self.comms[0].all_reduce(array.array("f"))

    def test_operators(self):
        ops = [comm.pre_mul_sum(bytes(ctypes.c_float(rank + 1)), nearlight.DataType.float32)
               for rank, comm in enumerate(self.comms)]
        values = [array.array("f", [10]) for _ in range(2)]
        self.together(lambda rank: self.comms[rank].all_reduce(values[rank], op=ops[rank]))
        self.assertEqual(values[1][0], 30)
        self.comms[0].free_op(ops[0])
        with self.assertRaisesRegex(nearlight.InvalidArgument, "op"):
            self.comms[0].free_op(ops[0])
        with self.assertRaisesRegex(nearlight.InvalidArgument, "scalar has 2 bytes"):
            self.comms[0].pre_mul_sum(b"ab", nearlight.DataType.float32)

    def test_asking(self):
        self.together(lambda rank: self.comms[rank].all_reduce(array.array("f", [1, 2])))
        self.together(lambda rank: self.comms[rank].barrier())
        counters = self.comms[1].counters()
        self.assertEqual((counters.all_reduces, counters.barriers, counters.bytes, counters.failures), (1, 1, 8, 0))
        route = self.comms[0].explain(2, nearlight.DataType.float32)
        self.assertEqual([(one.algorithm, one.protocol) for one in counters.routes], [(route.algorithm, route.protocol)])
        self.assertTrue(route.reason)
        fused = self.comms[0].explain_fused(nearlight.Collective.all_reduce_bias, 4, 2048, nearlight.DataType.bfloat16)
        self.assertEqual((fused.algorithm, fused.protocol), ("one_shot", "sentinel"))
        self.assertEqual((counters.all_reduce_rms_norms, counters.all_reduce_biases), (0, 0))
        with self.assertRaisesRegex(nearlight.InvalidArgument, "hidden: 7"):
            self.comms[0].explain_fused(nearlight.Collective.all_reduce_bias, 4, 7, nearlight.DataType.bfloat16)
        for product in (nearlight.Collective.gemv_all_reduce, nearlight.Collective.all_gather_gemv):
            made = self.comms[1].explain_gemv(product, 4, 2048, 1024, nearlight.DataType.bfloat16)
            self.assertEqual((made.algorithm, made.protocol), ("one_shot", "sentinel"))
            with self.assertRaisesRegex(nearlight.InvalidArgument, "out_size: 12"):
                self.comms[1].explain_gemv(product, 4, 2048, 12, nearlight.DataType.bfloat16)
            with self.assertRaisesRegex(nearlight.InvalidArgument, "in_size is -1"):
                self.comms[1].explain_gemv(product, 4, -1, 8, nearlight.DataType.bfloat16)
        self.assertEqual((counters.gemv_all_reduces, counters.all_gather_gemvs), (0, 0))
        self.assertEqual((self.comms[1].info().rank, self.comms[1].info().backend), (1, "host"))
        self.assertEqual(self.comms[1].info().memory_reason, "")
        self.assertEqual((self.comms[1].rank, self.comms[1].nranks), (1, 2))
        self.assertIsNone(self.comms[0].status().error)

    def test_arguments_are_named(self):
        comm, value = self.comms[0], array.array("f", [1, 2])
        for call, text in ((lambda: comm.all_reduce(b"abcd"), "send: .*writable"),
                           (lambda: comm.all_reduce(value, b"abcdefgh"), "recv: .*writable"),
                           (lambda: comm.all_reduce(value, array.array("f", [1])), "recv has 1 elements"),
                           (lambda: comm.all_reduce(value, array.array("i", [1, 2])), "recv has 2 elements of int32"),
                           (lambda: comm.all_reduce(memoryview(value)[::-1]), "send: no contiguous"),
                           (lambda: comm.all_reduce(object()), "send: no contiguous"),
                           (lambda: comm.all_reduce(array.array("u", "ab")), "send: .*type"),
                           (lambda: comm.all_reduce(array.array("b", [1, 2, 3]), dtype=nearlight.DataType.float16), "3 bytes"),
                           (lambda: comm.all_reduce(value, op=9), "op: 9"),
                           (lambda: comm.all_reduce_raw(0, 0, 3, nearlight.DataType.int8), "send"),
                           (lambda: comm.all_reduce_raw(8, 8, -3, nearlight.DataType.int8), "count is -3"),
                           (lambda: comm.all_reduce_raw(8, 8, 3, 99), "type"),
                           (lambda: comm.explain(-1, nearlight.DataType.int8), "count is -1"),
                           (lambda: comm.set_path("fast"), "path"),
                           (lambda: comm.set_path(5), "path is 5"),
                           (lambda: nearlight.Communicator.host_group(9), "nranks"),
                           (lambda: nearlight.Communicator.host_group(-1), "nranks"),
                           (lambda: nearlight.Communicator.host(0, 1, "a\0b"), "key"),
                           (lambda: nearlight.Communicator.host(0, 1, 7), "key"),
                           (lambda: nearlight.Communicator.host(0, 1, "k", nearlight.Config(timeout_ms=-1)), "timeout_ms"),
                           (lambda: nearlight.Communicator.host(0, 1, "k", nearlight.Config(regions=1 << 33)), "config.regions"),
                           (lambda: nearlight.Communicator.attach_nccl(0), "nccl|CUDA")):
            with self.assertRaisesRegex(nearlight.NearlightError, text):
                call()
        self.assertEqual(list(value), [1, 2])
        self.assertEqual(comm.counters().all_reduces, 0)

    def test_a_type_of_cuda_arrays(self):
        class Array:
            def __init__(self, **changed):
                self.__cuda_array_interface__ = dict({"shape": (2, 3), "typestr": "<f2", "data": (4096, False), "version": 3},
                                                     **changed)

        from nearlight._buffer import Buffer
        with Buffer("send", Array(), writable=True) as buffer:
            self.assertEqual((buffer.address, buffer.count, buffer.dtype), (4096, 6, nearlight.DataType.float16))
        Buffer("send", Array(strides=(6, 2)), writable=True).release()
        for bad, text in (({"data": (4096, True)}, "read-only"), ({"strides": (2, 4)}, "not contiguous"),
                          ({"typestr": "<c8"}, "no type")):
            with self.assertRaisesRegex(nearlight.InvalidArgument, "send: .*" + text):
                Buffer("send", Array(**bad), writable=True)

    def test_closed(self):
        comm = self.comms[0]
        comm.close()
        comm.close()
        self.assertTrue(comm.closed)
        for call in (comm.info, comm.abort, comm.barrier, lambda: comm.all_reduce(array.array("f", [1]))):
            with self.assertRaisesRegex(nearlight.InvalidArgument, "closed"):
                call()

    def test_one_that_is_forgotten_is_closed_with_a_warning(self):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            nearlight.Communicator.host_group(1).pop().__del__()
        self.assertIn("was not closed", str(seen[0].message))

    def test_abort_ends_a_wait(self):
        timer = threading.Timer(0.2, self.comms[0].abort)
        timer.start()
        with self.assertRaises(nearlight.Aborted):
            self.comms[0].barrier()
        timer.join()
        self.assertIsInstance(self.comms[0].status().error, nearlight.Aborted)


def sums(rank, nranks, folder):
    with nearlight.Communicator.host(rank, nranks, folder) as comm:
        values = array.array("i", [rank + 1] * 1000)
        comm.all_reduce(values)
        comm.barrier()
        return values[0], values[999]


def one_dies(rank, nranks, folder):
    comm = nearlight.Communicator.host(rank, nranks, folder)
    comm.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        comm.all_reduce(array.array("f", [1]))
    except nearlight.RemoteError as error:
        status = comm.status()
        comm.close()
        return str(error), status.peer, time.monotonic() - begin
    return None


def comes_back(rank, nranks, folder):
    with nearlight.Communicator.host(rank, nranks, folder, nearlight.Config(timeout_ms=300)) as comm:
        if rank == 0:
            try:
                comm.barrier()
            except nearlight.Timeout as error:
                assert isinstance(error, TimeoutError)
        else:
            time.sleep(1)
        comm.reset(20000)
        value = array.array("f", [1])
        comm.all_reduce(value)
        if rank == 1:
            return value[0]
        with comm.shrink([0], 20000) as alone:
            alone.all_reduce(value)
            return alone.nranks * value[0]


def child_of_a_rank(rank, nranks, folder):
    comm = nearlight.Communicator.host(rank, nranks, folder)
    child = os.fork()
    if child == 0:
        comm.close()  # is no part of it, and must not end it
        os._exit(0)
    os.waitpid(child, 0)
    value = array.array("f", [1])
    comm.all_reduce(value)
    comm.close()
    return value[0]


def without_privileges(rank, nranks, folder):
    """As in a container: no capabilities, no folder to write to, a very long TMPDIR. Ranks meet all the same."""
    os.environ["TMPDIR"] = "/nowhere/" + "long" * 40
    os.chdir("/")
    key = os.path.basename(folder)
    _library.lib()  # it may lie where only root may read
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    with open("/proc/self/status", encoding="utf-8") as file:
        effective = re.search(r"CapEff:\s+([0-9a-f]+)", file.read()).group(1)
    result = sums(rank, nranks, key)
    return result, int(effective, 16)


class Processes(unittest.TestCase):
    def test_sums(self):
        self.assertEqual(ranks.run(sums, 3), [(6, 6)] * 3)

    def test_without_privileges(self):
        self.assertEqual(ranks.run(without_privileges, 3), [((6, 6), 0)] * 3)

    def test_death_is_told(self):
        text, peer, seconds = ranks.run(one_dies, 2, dying=[1])[0]
        self.assertIn("rank 1", text)
        self.assertEqual(peer, 1)
        self.assertLess(seconds, 30)

    def test_reset(self):
        self.assertEqual(ranks.run(comes_back, 2), [2, 2])

    def test_fork(self):
        self.assertEqual(ranks.run(child_of_a_rank, 2), [2, 2])


class Loading(unittest.TestCase):
    def python(self, **variables):
        code = "import nearlight; nearlight.Communicator.host_group(1)"
        return subprocess.run([os.sys.executable, "-B", "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60,
                              env=dict(os.environ, **variables))

    def test_none(self):
        ran = self.python(NEARLIGHT_LIB="/nowhere/libnearlight.so")
        self.assertIn("nearlight.errors.Unsupported: libnearlight.so cannot be loaded: tried /nowhere/libnearlight.so", ran.stderr)
        self.assertIn("NEARLIGHT_LIB names the file", ran.stderr)

    def test_a_library_without_our_functions(self):
        ran = self.python(NEARLIGHT_LIB="libc.so.6")
        self.assertIn("Unsupported: nearlight %s for Python needs more" % nearlight.__version__, ran.stderr)

    def test_the_variable_is_known(self):
        ran = self.python()
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
