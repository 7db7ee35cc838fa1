#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules between the folders: who may include whom, and what may stand where.

    tools/check_layers.py              check the sources beside this script; exit 1 on a violation
    tools/check_layers.py --root DIR   check another tree
    tools/check_layers.py --self-test  plant each kind of violation and see that it is found
    tools/check_layers.py --rules      print what each folder may include
"""

import argparse
import os
import re
import sys
import tempfile

# ---- the rules --------------------------------------------------------------------------------------

# Room -> the rooms right below it. What stands below those may be included too.
BELOW = {
    "public-exec": [],
    "public-protocol": ["public-exec"],
    "base": [],
    "exec": ["base", "public-exec"],
    "trace": ["exec"],
    "protocol": ["trace", "public-protocol"],
    "algorithm": ["protocol"],
    "remote": ["protocol"],
    "probe": ["protocol"],
    "route": ["algorithm", "remote", "probe"],
    "memory": ["base"],
    "bootstrap": ["base"],
    "topology": ["base"],
    "runtime": ["route", "memory", "bootstrap", "topology"],
    "api": ["runtime", "public"],
    "tally": ["base"],
    "dropin": ["api", "tally"],
    "python": ["api"],
    "cli": ["api", "tally"],
    # The installed headers: version.h, nearlight.h, nearlight.hpp, device.cuh, device_host.hpp, device_nccl.cuh. They must stand on their own.
    "public": ["public-protocol"],
    # Whoever only uses nearlight.
    "examples": ["public"],
    # May see everything.
    "tests": ["cli", "dropin", "python", "examples"],
    "bench": ["cli"],
}

# Folder -> room; the longest that fits counts.
FOLDERS = {
    "include/nearlight/detail/exec": "public-exec",
    "include/nearlight/detail/protocol": "public-protocol",
    "include/nearlight": "public",
    "python": "python",
    "cli": "cli",
    "tests": "tests",
    "bench": "bench",
    "examples": "examples",
}
FOLDERS.update({"src/" + room: room for room in
                ("base", "exec", "trace", "protocol", "algorithm", "remote", "probe", "route", "memory",
                 "bootstrap", "topology", "runtime", "api", "tally", "dropin")})

# Headers that come from elsewhere: kind -> how they are written.
FOREIGN = [
    ("nccl", r"nccl\.h|nccl_device\.h|nccl_device/.*"),
    ("cuda", r"cuda\w*\.h(pp)?|cuda/.*|cooperative_groups\.h|cooperative_groups/.*|vector_types\.h"
             r"|device_launch_parameters\.h|sm_\w+\.h(pp)?|nvml\.h|nvtx3/.*|math_constants\.h"),
    ("intrinsics", r"\w*intrin\.h|arm_\w+\.h"),
    ("relacy", r"relacy/.*"),
    ("json", r"nlohmann/.*"),
    ("cli11", r"CLI/.*"),
    ("mpi", r"mpi\.h"),
    ("test", r"gtest/.*|gmock/.*|rapidcheck\.h|rapidcheck/.*"),
    ("system", r"(sys|linux|netinet|arpa|net|asm)/[\w/-]+\.h|(aio|assert|cpuid|ctype|dirent|dlfcn|endian|errno|execinfo|fcntl"
               r"|features|fnmatch|ftw|getopt|glob|grp|ifaddrs|inttypes|libgen|limits|link|locale|math|mqueue"
               r"|netdb|numa|numaif|poll|pthread|pwd|sched|semaphore|setjmp|signal|spawn|stdarg|stddef|stdint|stdio"
               r"|stdlib|string|strings|syscall|syslog|termios|time|unistd|utime|wchar)\.h"),
    ("c++", r"[a-z_]+"),
]
# A C header that a public header for C needs.
PLAIN_C = r"std(def|int|bool)\.h"

IMPLEMENTATION = (".cpp", ".cc")
DEVICE = (".cu", ".cuh")

# Kind -> where it may stand: (room, endings or None for all). C++'s own headers may stand everywhere.
ALLOWED = {
    "system": [(room, None) for room in BELOW if not room.startswith("public")],
    "cuda": [(room, None) for room in
             ("public-exec", "public-protocol", "public", "exec", "trace", "protocol", "algorithm", "remote", "probe",
              "memory", "topology", "runtime", "api", "dropin", "python", "cli", "tests", "bench", "examples")],
    "nccl": [("memory", None), ("probe", None), ("tests", None), ("dropin", None), ("examples", None),
             ("cli", IMPLEMENTATION)],
    "intrinsics": [("exec", None)],
    "relacy": [("exec", (".hpp", ".cpp")), ("tests", (".hpp", ".cpp"))],
    "json": [(room, IMPLEMENTATION) for room in ("trace", "topology", "route", "cli", "tests", "bench")],
    "cli11": [("cli", IMPLEMENTATION)],
    "mpi": [("cli", IMPLEMENTATION), ("tests", IMPLEMENTATION), ("bench", IMPLEMENTATION)],
    "test": [("tests", (".hpp", ".cpp", ".cu"))],
}
# The one public header that may see NCCL's device side.
PUBLIC_NCCL = "include/nearlight/device_nccl.cuh"

# Only here may the machine itself be spoken to.
MACHINE_ROOMS = {"exec", "public-exec"}
# Rooms of the library: they neither print nor end the process.
LIBRARY = set(BELOW) - {"cli", "tests", "bench", "examples", "python"}

MACHINE = [
    ("asm", re.compile(r"\b(asm|__asm|__asm__)\b")),
    ("thread-index", re.compile(r"(?<![.>])\b(threadIdx|blockIdx|blockDim|gridDim|warpSize)\b")),
    ("cuda-ifdef", re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|elifdef|elifndef)\b.*__CUDA")),
]
ENDING = re.compile(r"\b(exit|_exit|_Exit|quick_exit|abort|terminate|__trap|__builtin_trap)\s*\(")
PRINTING = re.compile(r"\b(printf|vprintf|puts|putchar)\s*\(")
PRINTING_ERRORS = re.compile(r"\b(fprintf|vfprintf|fputs|perror)\s*\(")
STREAMS = re.compile(r"\bstd::(cout|cerr|clog)\b")

SUFFIXES = (".h", ".hpp", ".cuh", ".cpp", ".cc", ".cu", ".inl")
RULES = ("direction", "unknown-header", "foreign-header", "spelling", "asm", "thread-index", "cuda-ifdef", "ending",
         "printing", "link")


def reachable(room):
    seen, todo = set(), [room]
    while todo:
        for below in BELOW[todo.pop()]:
            if below not in seen:
                seen.add(below)
                todo.append(below)
    return seen | {room}


MAY_SEE = {room: reachable(room) for room in BELOW}


def room_of(path):
    parts = path.split("/")
    for length in range(len(parts) - 1, 0, -1):
        room = FOLDERS.get("/".join(parts[:length]))
        if room:
            return room
    return None


# ---- reading sources --------------------------------------------------------------------------------

TOKENS = re.compile(
    r'(?P<raw>R"(?P<tag>[^()\\\s]{0,16})\((?:.|\n)*?\)(?P=tag)")'
    r'|(?P<line>//[^\n]*)'
    r'|(?P<block>/\*(?:.|\n)*?\*/)'
    r'|(?P<include>^[ \t]*#[ \t]*include[^\n]*)'
    r'|(?P<text>"(?:\\(?:.|\n)|[^"\\\n])*")'
    r"|(?P<digit>(?<=[0-9a-fA-F])'(?=[0-9a-fA-F]))"
    r"|(?P<char>'(?:\\.|[^'\\\n])+')", re.MULTILINE)


def code_only(text):
    """The text with comments blanked and strings emptied; lines keep their numbers."""

    def blank(match):
        found = match.group(0)
        if match.group("include") or match.group("digit"):
            return found
        lines = "\n" * found.count("\n")
        if match.group("line") or match.group("block"):
            return lines or " "
        return '""' + lines

    return TOKENS.sub(blank, text)


def called(pattern, line):
    """The first name of the pattern that is called here: not a member's, and not one that is declared."""
    for match in pattern.finditer(line):
        before = line[:match.start()].rstrip()
        if before.endswith("::"):
            scope = re.search(r"(\w+)\s*::$", before)
            if scope is None or scope.group(1) == "std":
                return match.group(1)
        elif not before.endswith((".", "->", "~")):
            word = re.search(r"(\w+)$", before)
            if word is None or word.group(1) in ("return", "else", "do", "co_return"):
                return match.group(1)
    return None


INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def check_include(path, room, quoted, angled):
    """Yields (rule, message) for one #include."""
    name = quoted or angled
    if name.startswith("nearlight/"):
        if name == "nearlight/build_info.hpp":
            if room not in ("cli", "tests", "bench"):
                yield "direction", f"{room} must not include {name}: only programs name the commit"
            return
        if quoted:
            yield "spelling", f'write <{name}>: public headers are included with angle brackets'
        if name == "nearlight/version.h":
            return
        target = room_of("include/" + name)
        if target not in MAY_SEE[room]:
            yield "direction", f"{room} must not include {name} ({target})"
        return

    first = name.split("/")[0]
    target = room_of("src/" + name) or (room_of(name) if "/" in name else None)
    if target and "/" in name:
        if angled:
            yield "spelling", f'write "{name}": headers of this project outside include/ are included with quotes'
        if target not in MAY_SEE[room]:
            yield "direction", f"{room} must not include {name} ({target})"
        return
    if quoted:
        # Programs and tests keep small headers beside their sources.
        if room not in ("cli", "tests", "bench", "examples", "python") or ".." in name:
            yield "spelling", f'"{name}": write the path from src/, as in "base/status.hpp"'
        return

    kind = next((kind for kind, pattern in FOREIGN if re.fullmatch(pattern, name)), None)
    if kind is None:
        yield "unknown-header", f"<{name}> is on no list of tools/check_layers.py ('{first}')"
        return
    if kind == "c++":
        return
    if room.startswith("public") and re.fullmatch(PLAIN_C, name):
        return
    if kind == "nccl" and path == PUBLIC_NCCL:
        return
    for allowed_room, endings in ALLOWED[kind]:
        if allowed_room == room and (endings is None or path.endswith(endings)):
            return
    yield "foreign-header", f"<{name}> ({kind}) must not be included in {path}"


def check_source(path, text):
    """Yields (line, rule, message)."""
    room = room_of(path)
    if room is None:
        return
    for number, line in enumerate(code_only(text).split("\n"), 1):
        match = INCLUDE.match(line)
        if match:
            for rule, message in check_include(path, room, match.group(1), match.group(2)):
                yield number, rule, message
            continue
        if room not in MACHINE_ROOMS | {"tests", "bench", "examples"}:
            for rule, pattern in MACHINE:
                found = pattern.search(line)
                if found:
                    yield number, rule, f"'{found.group(0).strip()}' belongs in src/exec or include/nearlight/detail/exec"
        if room in LIBRARY:
            name = called(ENDING, line)
            # A forked child leaves by _exit and by nothing else; only bootstrap forks.
            if name and not (room == "bootstrap" and name == "_exit"):
                yield number, "ending", f"'{name}' ends the process or the GPU's context: return a Status"
            name = called(PRINTING, line) or (called(PRINTING_ERRORS, line) if room != "base" else None)
            stream = STREAMS.search(line)
            if name or stream:
                yield number, "printing", f"'{name or stream.group(0)}' prints: the library speaks through base/log only"


# ---- reading CMake files ----------------------------------------------------------------------------

def check_cmake(path, text):
    """Yields (line, rule, message): a module must not link what it must not include."""
    room = room_of(path)
    if room is None or room not in LIBRARY | {"cli"}:
        return
    for number, line in enumerate(text.split("\n"), 1):
        line = line.split("#")[0]
        for name in re.findall(r"\bnearlight::(\w+)", line):
            if name in BELOW and name not in MAY_SEE[room]:
                yield number, "link", f"{room} must not link nearlight::{name}"
        if re.search(r"\b(CUDA::cuda_driver|CUDA::cudart\b(?!_static)|NCCL::|-lnccl|-lcuda\b)", line):
            yield number, "link", "libcuda, libnccl and the shared CUDA run time are never linked"


# ---- the tree ---------------------------------------------------------------------------------------

def files_of(root):
    for top in ("include", "src", "cli", "python", "tests", "bench", "examples"):
        for folder, folders, names in os.walk(os.path.join(root, top)):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
            for name in sorted(names):
                if name.endswith(SUFFIXES) or name == "CMakeLists.txt":
                    full = os.path.join(folder, name)
                    yield os.path.relpath(full, root).replace(os.sep, "/"), full


def check_tree(root):
    """All violations, as (path, line, rule, message), and the number of files looked at."""
    found, count = [], 0
    for path, full in files_of(root):
        count += 1
        with open(full, encoding="utf-8") as file:
            text = file.read()
        check = check_cmake if path.endswith("CMakeLists.txt") else check_source
        found += [(path, line, rule, message) for line, rule, message in check(path, text)]
        if room_of(path) is None and path.startswith(("src/", "include/")):
            found.append((path, 1, "direction", "this folder is no room of DESIGN: add it to tools/check_layers.py"))
    return found, count


# ---- self-test --------------------------------------------------------------------------------------

# (path, text, the rules that must be found in it, in the order of lines). No rule: it must pass.
PLANTED = [
    # directions
    ("src/base/a.cpp", '#include "base/status.hpp"\n#include <vector>\n#include <sys/mman.h>\n', []),
    ("src/base/a.cpp", '#include "exec/host.hpp"\n', ["direction"]),
    ("src/base/a.hpp", "#include <nearlight/detail/exec/bits.hpp>\n", ["direction"]),
    ("src/base/a.hpp", "#include <nearlight/version.h>\n", []),
    ("src/exec/a.hpp", '#include "base/status.hpp"\n#include <nearlight/detail/exec/concepts.hpp>\n', []),
    ("src/exec/a.hpp", "#include <nearlight/detail/protocol/ll.hpp>\n", ["direction"]),
    ("src/exec/a.hpp", '#include "trace/event.hpp"\n', ["direction"]),
    ("src/trace/a.cpp", '#include "algorithm/plan.hpp"\n', ["direction"]),
    ("include/nearlight/detail/protocol/a.hpp", "#include <nearlight/detail/exec/fn.hpp>\n#include <cstdint>\n", []),
    ("include/nearlight/detail/protocol/a.hpp", '#include "base/status.hpp"\n', ["direction"]),
    ("include/nearlight/detail/exec/a.hpp", "#include <nearlight/detail/protocol/ll.hpp>\n", ["direction"]),
    ("src/algorithm/cuda/a.cu", '#include "trace/event.hpp"\n#include <nearlight/detail/protocol/ll.hpp>\n', []),
    ("src/algorithm/cuda/a.cu", '#include "memory/heap.hpp"\n', ["direction"]),
    ("src/algorithm/a.cpp", '#include "probe/rtt.hpp"\n', ["direction"]),
    ("src/probe/a.cpp", '#include "algorithm/plan.hpp"\n', ["direction"]),
    ("src/remote/a.cpp", '#include "runtime/communicator.hpp"\n', ["direction"]),
    ("src/memory/a.cpp", '#include "base/exchange.hpp"\n', []),
    ("src/memory/a.cpp", '#include "bootstrap/local.hpp"\n', ["direction"]),
    ("src/memory/a.cpp", '#include "topology/graph.hpp"\n', ["direction"]),
    ("src/bootstrap/a.cpp", '#include "memory/shm.hpp"\n', ["direction"]),
    ("src/topology/a.cpp", '#include "bootstrap/local.hpp"\n', ["direction"]),
    ("src/topology/a.cpp", '#include "probe/rtt.hpp"\n', ["direction"]),
    ("src/route/a.cpp", '#include "algorithm/plan.hpp"\n', []),
    ("src/route/a.cpp", '#include "runtime/communicator.hpp"\n', ["direction"]),
    ("src/runtime/a.cpp", '#include "memory/shm.hpp"\n#include "route/choose.hpp"\n', []),
    ("src/runtime/a.cpp", '#include "api/c.hpp"\n', ["direction"]),
    ("src/api/a.cpp", "#include <nearlight/nearlight.h>\n", []),
    ("src/runtime/b.cpp", "#include <nearlight/nearlight.h>\n", ["direction"]),
    ("src/api/a.cpp", '#include "cli/table.hpp"\n', ["direction"]),
    ("cli/a.cpp", '#include "probe/rtt.hpp"\n#include "table.hpp"\n#include "cli/table.hpp"\n', []),
    ("src/api/a.cpp", '#include "dropin/registry.hpp"\n', ["direction"]),
    ("src/runtime/c.cpp", "#include <nearlight/build_info.hpp>\n", ["direction"]),
    ("cli/b.cpp", "#include <nearlight/build_info.hpp>\n", []),
    ("tests/a.cpp", '#include "memory/shm.hpp"\n#include "cli/table.hpp"\n#include <gtest/gtest.h>\n', []),
    ("examples/a.cpp", '#include "runtime/communicator.hpp"\n', ["direction"]),
    ("src/cellar/a.cpp", "int x;\n", ["direction"]),
    # how includes are written
    ("src/base/b.cpp", '#include "status.hpp"\n', ["spelling"]),
    ("src/base/b.cpp", "#include <base/status.hpp>\n", ["spelling"]),
    ("src/exec/b.cpp", '#include "nearlight/detail/exec/fn.hpp"\n', ["spelling"]),
    ("tests/b.cpp", '#include "../src/base/status.hpp"\n', ["spelling"]),
    ("src/base/c.cpp", "#include <boost/asio.hpp>\n", ["unknown-header"]),
    # headers from elsewhere
    ("include/nearlight/nearlight.h", "#include <stdint.h>\n#include <stddef.h>\n", []),
    ("include/nearlight/nearlight.hpp", "#include <unistd.h>\n", ["foreign-header"]),
    ("include/nearlight/nearlight.hpp", "#include <nccl.h>\n", ["foreign-header"]),
    ("include/nearlight/device_nccl.cuh", "#include <nccl_device.h>\n#include <cuda_bf16.h>\n", []),
    ("include/nearlight/device.cuh", "#include <nccl_device.h>\n", ["foreign-header"]),
    ("src/memory/n.cpp", "#include <nccl.h>\n#include <cuda.h>\n", []),
    ("src/probe/n.cu", "#include <nccl_device.h>\n", []),
    ("src/runtime/n.cpp", "#include <nccl.h>\n", ["foreign-header"]),
    ("src/algorithm/n.cu", "#include <nccl_device.h>\n", ["foreign-header"]),
    ("src/base/n.cpp", "#include <cuda_runtime.h>\n", ["foreign-header"]),
    ("src/exec/model.hpp", "#include <relacy/relacy.hpp>\n", []),
    ("src/algorithm/model.cpp", "#include <relacy/relacy.hpp>\n", ["foreign-header"]),
    ("src/topology/j.cpp", "#include <nlohmann/json.hpp>\n", []),
    ("src/topology/j.hpp", "#include <nlohmann/json.hpp>\n", ["foreign-header"]),
    ("cli/j.hpp", "#include <nlohmann/json.hpp>\n", ["foreign-header"]),
    ("src/probe/j.cu", "#include <nlohmann/json.hpp>\n", ["foreign-header"]),
    ("cli/c.cpp", "#include <CLI/CLI.hpp>\n#include <mpi.h>\n", []),
    ("src/api/c.cpp", "#include <CLI/CLI.hpp>\n", ["foreign-header"]),
    ("src/bootstrap/m.cpp", "#include <mpi.h>\n", ["foreign-header"]),
    ("src/base/t.cpp", "#include <gtest/gtest.h>\n", ["foreign-header"]),
    ("src/algorithm/i.cpp", "#include <immintrin.h>\n", ["foreign-header"]),
    # the machine
    ("include/nearlight/detail/exec/m.cuh",
     'inline void f() { asm volatile("membar.sys;"); int i = threadIdx.x; }\n#if defined(__CUDACC__)\n#endif\n', []),
    ("src/exec/m.hpp", "#ifdef __CUDA_ARCH__\n#endif\n", []),
    ("include/nearlight/detail/protocol/m.hpp", 'inline void f() {\n  asm volatile("membar.sys;");\n}\n', ["asm"]),
    ("src/algorithm/m.cu", '__asm__("");\n', ["asm"]),
    ("src/algorithm/m.cu", "int i = threadIdx.x;\n", ["thread-index"]),
    ("src/probe/m.cu", "int i = 7 + blockIdx.y;\n", ["thread-index"]),
    ("src/probe/m.cu", "int n = gridDim.x * a;\n", ["thread-index"]),
    ("src/probe/m.cu", "config.gridDim = 1; c->blockDim = 32;\n", []),
    ("src/runtime/m.cpp", "#if defined(__CUDACC__)\n#endif\n", ["cuda-ifdef"]),
    ("src/runtime/m.cpp", "#  ifdef __CUDA_ARCH__\n#endif\n", ["cuda-ifdef"]),
    ("src/runtime/m.cpp", "#if X\n#elif __CUDA_ARCH__ >= 900\n#endif\n", ["cuda-ifdef"]),
    ("include/nearlight/device.cuh", "#ifndef __CUDACC__\n#endif\n", ["cuda-ifdef"]),
    ("src/runtime/m.cpp", "#if NEARLIGHT_HAS_CUDA\n#endif\n", []),
    ("tests/m.cu", "int i = threadIdx.x;\n", []),
    # comments and strings are not code
    ("src/algorithm/k.cu",
     '// threadIdx, asm\n/* asm\n blockIdx */ int a; const char* s = "asm threadIdx \\" exit(1)";\n'
     'auto r = R"(asm\nabort())"; int n = 1\'000\'000; char c = \'"\'; int asmx = 0;\n', []),
    ("src/algorithm/k.cu", "int n = 1'000'000; asm(\"\");\n/* */ auto r = R\"x(\n)x\"; int t = threadIdx.x;\n",
     ["asm", "thread-index"]),
    # ending and printing
    ("src/runtime/e.cpp", "void f() { exit(1); }\n", ["ending"]),
    ("src/runtime/e.cpp", "void f() { std::exit(1); }\n", ["ending"]),
    ("src/runtime/e.cpp", "void f() { ::abort(); }\n", ["ending"]),
    ("src/runtime/e.cpp", "void f() {\n  if (x) abort ();\n}\n", ["ending"]),
    ("src/runtime/e.cpp", "int f() { if (x) return 1; else abort(); }\n", ["ending"]),
    ("src/runtime/e.cpp", "void f() { std::terminate(); }\n", ["ending"]),
    ("src/algorithm/e.cu", "__device__ void f() { __trap(); }\n", ["ending"]),
    ("src/runtime/e.cpp", "void f() { _exit(1); }\n", ["ending"]),
    ("src/bootstrap/e.cpp", "void f() { _exit(1); }\n", []),
    ("src/bootstrap/e.cpp", "void f() { exit(1); }\n", ["ending"]),
    ("src/runtime/e.cpp", "void f() { comm.abort(); comm->abort(); atexit(g); on_exit(g); Fault::abort(1); }\n"
                          "Status abort(int why);\nvoid Comm::abort() {}\nvoid abort();\n", []),
    ("cli/e.cpp", 'int main() { std::printf("x"); exit(1); }\n', []),
    ("src/runtime/p.cpp", 'void f() { printf("x"); }\n', ["printing"]),
    ("src/runtime/p.cpp", 'void f() { std::printf("x"); }\n', ["printing"]),
    ("src/algorithm/p.cu", '__global__ void f() { printf("x"); }\n', ["printing"]),
    ("src/runtime/p.cpp", 'void f() { std::cout << 1; }\n', ["printing"]),
    ("src/runtime/p.cpp", 'void f() { std::fprintf(stderr, "x"); }\n', ["printing"]),
    ("src/base/log.cpp", 'void f() { std::fprintf(stderr, "x"); }\n', []),
    ("src/base/log.cpp", 'void f() { std::snprintf(b, n, "x"); vsnprintf(b, n, "x", a); }\n', []),
    ("src/base/log.cpp", 'void f() { puts("x"); }\n', ["printing"]),
    ("src/base/log.cpp", 'void f() { std::cerr << 1; }\n', ["printing"]),
    ("src/dropin/p.cpp", 'void f() { printf("x"); }\n', ["printing"]),
    # linking
    ("src/memory/CMakeLists.txt", "nearlight_module(memory SOURCES a.cpp DEPS nearlight::base)\n", []),
    ("src/memory/CMakeLists.txt", "nearlight_module(memory SOURCES a.cpp\n  DEPS nearlight::bootstrap)\n", ["link"]),
    ("src/runtime/CMakeLists.txt", "target_link_libraries(x PRIVATE CUDA::cuda_driver)\n", ["link"]),
    ("src/runtime/CMakeLists.txt", "target_link_libraries(x PRIVATE CUDA::cudart)\n", ["link"]),
    ("src/runtime/CMakeLists.txt", "target_link_libraries(x PRIVATE CUDA::cudart_static)\n", []),
]


def self_test():
    failed = 0
    proven = set()
    for path, text, expected in PLANTED:
        with tempfile.TemporaryDirectory() as root:
            full = os.path.join(root, path)
            os.makedirs(os.path.dirname(full))
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
            found, count = check_tree(root)
        rules = [rule for _, _, rule, _ in found]
        proven.update(rules)
        if rules != expected or count != 1:
            failed += 1
            print(f"self-test: {path}\n{text}  expected {expected or 'nothing'}, found {found or 'nothing'}")
    for rule in RULES:
        if rule not in proven:
            failed += 1
            print(f"self-test: no planted case for the rule '{rule}'")
    print(f"self-test: {len(PLANTED)} cases, {failed} failed")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--rules", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    if args.rules:
        for room in BELOW:
            print(f"{room:16} {' '.join(sorted(MAY_SEE[room] - {room}))}")
            kinds = sorted(kind for kind, places in ALLOWED.items() if any(place[0] == room for place in places))
            print(f"{'':16} from elsewhere: c++ {' '.join(kinds)}")
        return 0
    found, count = check_tree(args.root)
    for path, line, rule, message in found:
        print(f"{path}:{line}: {rule}: {message}")
    if count == 0:
        print(f"check_layers: no sources under {args.root}")
        return 1
    print(f"check_layers: {count} files, {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
