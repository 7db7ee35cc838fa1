#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the AllReduce kernels to PTX and checks what a fast and correct kernel must look like.

    check_ptx.py --nvcc NVCC --work DIR --include DIR... SOURCE.cu    exit 1 and a list when something is wrong
    check_ptx.py ... --self-test planted.cu                           each planted fault must be found, and only it

A text is looked at, not a run: what a fence costs shows only in microseconds, and a missing acquire only once in a while.
"""

import argparse
import os
import re
import subprocess
import sys

from ptx_kernels import read

# ---- what is allowed ----------------------------------------------------------------------------------

# (protocol, bound of ranks, packs a thread holds) -> registers a thread. 512 threads of 128 registers fill an SM.
# For one pack the kernel of a single round is meant, which small messages take, where there is one.
REGISTERS = {
    ("ll", 2, 1): 40, ("ll", 2, 2): 56, ("ll", 2, 4): 72,
    ("ll", 4, 1): 48, ("ll", 4, 2): 72,
    ("ll", 8, 1): 64,
    ("simple", 2, 0): 128, ("simple", 4, 0): 128, ("simple", 8, 0): 128,
}
# Sentinel, for floats with sum: packets a thread holds, 0 for the kernel of any message, -1 for that of whole warps. Two of
# those for large messages fit an SM: 512 threads of 64 registers.
SENTINEL_REGISTERS = {
    ("sentinel", 2, 1): 64, ("sentinel", 2, 2): 64, ("sentinel", 2, 4): 64,
    ("sentinel", 4, 1): 64, ("sentinel", 8, 1): 64,
    ("sentinel", 2, -1): 64, ("sentinel", 4, -1): 64, ("sentinel", 8, -1): 64,
    ("sentinel", 2, 0): 128, ("sentinel", 4, 0): 128, ("sentinel", 8, 0): 128,
}
# LL128 of integers, whose few CTAs have an SM each; what adds to sums, which serves any number of ranks: two fit an SM with
# 256 threads.
LL128_REGISTERS = {("ll128", 2, 0): 64, ("ll128", 4, 0): 96, ("ll128", 8, 0): 128}
SUMS_REGISTERS = {("sums", 8, 0): 112}
# Collectives by parts: what moves bytes, and what reduces with the operator at run time. Held: a pack or packet at a time.
PARTS_REGISTERS = {
    ("parts ll", 2, 1): 96, ("parts ll", 8, 1): 128, ("parts simple", 8, 0): 128,
    ("parts sentinel", 2, 0): 96, ("parts sentinel", 8, 0): 128,
}
# Fused rows. Held: vectors of 16 bytes; 4 in rounds, 0 read again.
FUSED_REGISTERS = {
    ("fused sentinel", 2, 1): 64, ("fused sentinel", 2, 2): 80, ("fused sentinel", 2, 4): 128,
    ("fused sentinel", 4, 1): 72, ("fused sentinel", 4, 2): 96, ("fused sentinel", 4, 4): 128,
    ("fused sentinel", 8, 1): 96, ("fused sentinel", 8, 2): 112, ("fused sentinel", 8, 4): 128, ("fused sentinel", 8, 0): 128,
}
# A matrix product with its AllReduce, or with an AllGather in front, and that of one rank alone: a CTA fills an SM.
GEMV_REGISTERS = {("gemv alone", 1, 0): 128, ("gemv sentinel", 2, 0): 128, ("gemv sentinel", 8, 0): 128,
                  ("gather gemv sentinel", 2, 0): 128, ("gather gemv sentinel", 8, 0): 128}
ROUNDS_REGISTERS = 128  # LL kernels that go round in a loop beside one that does not
SLOW_SPILL_BYTES = 72   # kernels that only measure or take their operator at run time; the others never spill
STACK_BYTES = 128       # what the cold functions out of line are called with

# What small messages touch is kept in L2; LL128's lines and the packets of large messages are not.
KEPT_LINE_STORE, KEPT_LINE_LOAD = "st.relaxed.sys.global.L2::cache_hint.v4.u32", "ld.relaxed.sys.global.L2::cache_hint.v4.u32"
LINE_STORE, LINE_LOAD = "st.relaxed.sys.global.v4.u32", "ld.relaxed.sys.global.v4.u32"
FLAG_STORE, FLAG_LOAD = "st.release.sys.global.u32", "ld.acquire.sys.global.u32"
CELL_STORE, CELL_LOAD = "st.global.v2.u64", "ld.global.v2.u64"
KEPT_PACKET_STORE, KEPT_PACKET_LOAD = "st.relaxed.sys.global.L2::cache_hint.v2.u64", "ld.relaxed.sys.global.L2::cache_hint.v2.u64"
PACKET_STORE, PACKET_LOAD = "st.relaxed.sys.global.v2.u64", "ld.relaxed.sys.global.v2.u64"
ABORT_LOAD = "ld.relaxed.sys.global.u32"
MATRIX_LOAD, MATRIX_LOT = "cp.async.cg.shared.global.L2::128B", 8
LINE_ADDS = {"f32": "red.relaxed.sys.global.add.v4.f32", "f16": "red.relaxed.sys.global.add.noftz.v4.f16x2",
             "bf16": "red.relaxed.sys.global.add.noftz.v4.bf16x2"}

# ---- the rules ----------------------------------------------------------------------------------------

# A rule yields what is wrong with a kernel. What memory is meant: anything but parameters, constants, the thread's own stack.
LOAD = r"(ld|ldu)\.(?!param|const|local|shared)"
STORE = r"st\.(?!param|local|shared)"


def rule_order(kernel):
    """wait, then launch_dependents, both before the first access to memory."""
    names = [name for name, _ in kernel.code]
    allow = next((i for i, name in enumerate(names) if name == "griddepcontrol.launch_dependents"), None)
    wait = next((i for i, name in enumerate(names) if name == "griddepcontrol.wait"), None)
    access = next((i for i, name in enumerate(names) if re.match(f"{LOAD}|{STORE}|atom|red", name)), None)
    if allow is None or wait is None:
        yield "no griddepcontrol." + ("launch_dependents" if allow is None else "wait")
        return
    if allow < wait:
        yield "the next kernel is let in before the wait: a chain of kernels would fill the GPU"
    if kernel.variant.startswith("loop"):
        return  # before its wait it may look for the SM it is pinned to, in a word of its own
    if access is not None and access < allow and not kernel.gemv:  # those let it in with their last tile
        yield f"memory is touched before griddepcontrol.launch_dependents: {kernel.code[access][1]}"
    if access is not None and access < wait:
        yield f"memory is touched before griddepcontrol.wait: {kernel.code[access][1]}"


def rule_late(kernel):
    """What waits for peers lets the next kernel in only where its parameters say so: by the word `late` being 0."""
    if kernel.protocol == "alone":
        return
    loaded = set(re.findall(r"ld\.param\.\w+\s+(%r\d+), \[", kernel.body))
    loaded |= {register for group in re.findall(r"ld\.param\.v[24]\.\w+\s+\{([^}]*)\}", kernel.body) for register in group.split(", ")}
    statements = [statement for _, statement in kernel.code]
    for before, statement in zip(["", *statements], statements):
        if not statement.endswith("griddepcontrol.launch_dependents"):
            continue
        asked = re.fullmatch(r"setp\.eq\.u32 (\w+), (%r\d+), 0", before)
        if not asked or statement != f"@{asked[1]} griddepcontrol.launch_dependents" or asked[2] not in loaded:
            yield f"the next kernel is let in whatever the parameters say: {before}; {statement}"


def rule_fence(kernel):
    """No fence on the path that every call takes; it belongs in the function for the wrap of the epoch. One that makes a counter
    known to a cluster waits for nothing else."""
    if kernel.variant != "once" or (kernel.protocol == "sentinel" and not kernel.one_round) or kernel.protocol == "sums":
        return  # between the rounds of the sentinel, and of sums, lies one
    for name in kernel.instructions(r"fence(?!\.mbarrier_init)|membar"):
        yield f"{name} in the kernel's own body"


def rule_foreign(kernel):
    """Nothing that ends the context, prints, or needs multicast."""
    for name, line in kernel.code:
        if re.match(r"trap|brkpt|multimem|nanosleep", name) or "vprintf" in line:
            yield line


def rule_lines(kernel):
    """LL: lines in one access of 16 bytes, relaxed and kept in L2; nothing acquires or releases."""
    if kernel.protocol != "ll" or kernel.variant != "once":
        return
    for wanted in (KEPT_LINE_STORE, KEPT_LINE_LOAD):
        if wanted not in [name for name, _ in kernel.code]:
            yield f"no {wanted}"
    for name in kernel.instructions(r"(ld|st)\.\w+\.sys"):
        if name not in (KEPT_LINE_STORE, KEPT_LINE_LOAD, ABORT_LOAD):
            yield f"{name} reaches other ranks"
    for name in kernel.instructions(r"[a-z]+\.(acquire|release|acq_rel|sc|volatile)|atom|red\b"):
        yield f"{name} in an LL kernel"


def rule_wide(kernel):
    """LL128 and sums: lines by 16 bytes a thread, relaxed, whole warps together; nothing acquires or releases."""
    if kernel.protocol not in ("ll128", "sums"):
        return
    adds = [LINE_ADDS[kernel.type]] if kernel.protocol == "sums" else []
    for wanted in (LINE_STORE, LINE_LOAD, "bar.warp.sync", *adds):
        if wanted not in [name for name, _ in kernel.code]:
            yield f"no {wanted}"
    for name in kernel.instructions(r"(ld|st|red)\.\w+\.sys"):
        if name not in (LINE_STORE, LINE_LOAD, ABORT_LOAD, *adds):
            yield f"{name} reaches other ranks"
    for name in kernel.instructions(r"(ld|st)\.(acquire|release|volatile)|atom"):
        yield f"{name} in a kernel of wide lines"


def rule_packets(kernel):
    """Sentinel: packets in one access of 16 bytes, relaxed, kept in L2 where they are few; nothing acquires or releases."""
    if kernel.protocol != "sentinel":
        return
    store, load = (KEPT_PACKET_STORE, KEPT_PACKET_LOAD) if kernel.keeps else (PACKET_STORE, PACKET_LOAD)
    for wanted in (store, load):
        if wanted not in [name for name, _ in kernel.code]:
            yield f"no {wanted}"
    for name in kernel.instructions(r"(ld|st)\.\w+\.sys"):
        if name not in (store, load, ABORT_LOAD):
            yield f"{name} reaches other ranks"
    for name in kernel.instructions(r"(ld|st)\.(acquire|release|volatile)|atom|red\b"):
        yield f"{name} in a sentinel kernel"


def rule_flags(kernel):
    """Simple: one release store and one acquire load a flag, payload in 16 bytes."""
    if kernel.protocol != "simple" or kernel.variant != "once":
        return
    for wanted in (FLAG_STORE, FLAG_LOAD, CELL_STORE, CELL_LOAD):
        if wanted not in [name for name, _ in kernel.code]:
            yield f"no {wanted}"
    for name in kernel.instructions(r"[a-z]+\.(acquire|release|acq_rel|sc|volatile)|atom|red\b"):
        if name not in (FLAG_STORE, FLAG_LOAD):
            yield f"{name} where a flag is {FLAG_STORE} and {FLAG_LOAD}"
    for name in kernel.instructions(r"(ld|st)\.relaxed\.sys"):
        if name != ABORT_LOAD:
            yield f"{name} reaches other ranks"


def rule_matrix(kernel):
    """A product: a lot of loads of the matrix, 16 bytes each, before the first product and as many behind; no other way to it."""
    if not kernel.gemv:
        return
    steps = [name.split(".")[0] for name, statement in kernel.code if name.startswith("mma.sync") or MATRIX_LOAD in statement]
    if steps.count("mma") != 2 * MATRIX_LOT or steps.count("cp") != 2 * MATRIX_LOT or steps[:MATRIX_LOT + 1] != ["cp"] * MATRIX_LOT + ["mma"]:
        yield f"{steps.count('cp')} loads of the matrix and {steps.count('mma')} products, {2 * MATRIX_LOT} each are meant"
    if "prefetch.global" not in [name for name, _ in kernel.code]:
        yield "nothing is fetched while the kernel before runs"


def loops(body):
    """The statements of each loop: from a label to the last branch back to it."""
    statements = [part.strip() for part in re.split(r"[;\n]", re.sub(r"//[^\n]*", "", body)) if part.strip()]
    labels = {part[:-1]: at for at, part in enumerate(statements) if re.fullmatch(r"\$\w+:", part)}
    ends = {}
    for at, part in enumerate(statements):
        target = re.search(r"\bbra(?:\.uni)?\s+(\$\w+)$", part)
        if target and labels.get(target.group(1), at) < at:
            ends[labels[target.group(1)]] = at
    return [statements[begin:end + 1] for begin, end in ends.items()]


def poll_loops(kernel):
    """For each load that waits for what arrives, the smallest loop around it."""
    load = {"sentinel": KEPT_PACKET_LOAD if kernel.keeps else PACKET_LOAD, "simple": FLAG_LOAD, "ll": KEPT_LINE_LOAD}.get(kernel.protocol, LINE_LOAD)
    around = [loop for loop in loops(kernel.body) if any(load in part for part in loop)]
    # A loop that contains another one of them goes over rounds, or over rows of threads.
    return [loop for loop in around
            if not any(other is not loop and len(other) < len(loop) and all(part in loop for part in other) for other in around)]


def rule_polls(kernel):
    """What waits for lines, narrow or wide, sums or the sentinel's packets orders nothing; simple's flag is acquired by the poll itself."""
    for loop in poll_loops(kernel):
        for part in loop:
            ordering = re.search(r"\b(?:(?:ld|st|atom|red)\.(?:acquire|release|acq_rel|sc|volatile)|fence|membar)[\w.:]*", part)
            if ordering and not (kernel.protocol == "simple" and ordering.group() == FLAG_LOAD):
                yield f"{ordering.group()} in a loop that waits"


def rule_resources(kernel):
    """Registers within the tables, no spill, a small stack."""
    if kernel.registers is None:
        yield "ptxas says nothing of it"
        return
    shape = (("parts " if kernel.by_parts else "fused " if kernel.fused else "gather gemv " if kernel.gathers else "gemv " if kernel.gemv else "") + kernel.protocol, kernel.ranks, kernel.held)
    limit = next(filter(None, (table.get(shape) for table in TABLES)), None)
    if limit is not None and not kernel.by_parts and (kernel.protocol == "ll" and kernel.has_loop or kernel.protocol == "ll128" and kernel.op == "any"):
        limit = ROUNDS_REGISTERS
    if kernel.variant == "once":
        if limit is None:
            yield "no limit in the table REGISTERS"
        elif kernel.registers > limit:
            yield f"{kernel.registers} registers, the limit is {limit}"
    if kernel.spill > (SLOW_SPILL_BYTES if kernel.variant in ("loop", "traced") or kernel.op == "any" else 0):
        yield f"{kernel.spill} bytes spilled"
    if kernel.stack > STACK_BYTES:
        yield f"{kernel.stack} bytes of stack, the limit is {STACK_BYTES}"


TABLES = (REGISTERS, SENTINEL_REGISTERS, LL128_REGISTERS, SUMS_REGISTERS, PARTS_REGISTERS, FUSED_REGISTERS, GEMV_REGISTERS)
RULES = {"order": rule_order, "late": rule_late, "fence": rule_fence, "foreign": rule_foreign, "lines": rule_lines, "wide": rule_wide,
         "packets": rule_packets, "flags": rule_flags, "polls": rule_polls, "matrix": rule_matrix, "resources": rule_resources}


def check(kernels):
    """All violations: (kernel, rule, what)."""
    return [(kernel, name, what) for kernel in kernels for name, rule in RULES.items() for what in rule(kernel)]


def check_functions(functions):
    """The functions out of line that must order memory do so."""
    for part, wanted in (("4wrap", r"(fence|membar)[\w.:]*\.sys"), ("report_fault", r"st\.release\.sys\.global\.u32")):
        found = [body for name, body in functions.items() if part in name]
        if not found:
            yield f"no function out of line whose name has '{part}'"
        for body in found:
            if not re.search(wanted, body):
                yield f"the function with '{part}' in its name has no {wanted}"


def check_traced(traced, others):
    """The pointer to the ring of times: each traced kernel reads it, no other one does. What does not know the ring writes no
    times, so kernels without tracing have none of its code."""
    if traced and not set.intersection(*traced) - set().union(*others):
        yield "a traced kernel does not read the ring of times, or one without tracing does"


def check_without_limits(kernels, functions):
    """The benchmark's kernels without limits: what a wait gives up with is not there, nor a look at the abort word."""
    for part in ("give_up", "report_fault"):
        for name in functions:
            if part in name:
                yield f"there is the function {name}"
    wanted = {(type_of, protocol, ranks) for type_of in ("f32", "bf16") for protocol in ("ll", "simple") for ranks in (2, 4, 8)}
    for missing in sorted(wanted - {(kernel.type, kernel.protocol, kernel.ranks) for kernel in kernels}):
        yield f"no kernel of {missing}"
    for kernel in kernels:
        if kernel.variant != "loop_without_limits":
            yield f"{kernel} is not without limits"
        if kernel.instructions(re.escape(ABORT_LOAD)):
            yield f"{kernel} looks at the abort word"
        yield from (f"{kernel}: {what}" for what in rule_late(kernel))


# ---- main ---------------------------------------------------------------------------------------------

def compiler_arguments(description):
    """What compile_source() needs."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--host-compiler")
    parser.add_argument("--work", required=True, help="folder for what the compiler writes")
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("source")
    return parser


def compile_source(args):
    work = os.path.join(args.work, os.path.basename(args.source) + ".d")
    os.makedirs(work, exist_ok=True)
    command = [args.nvcc, "-std=c++20", "-O3", "-arch=sm_90", "-cubin", "-Xptxas", "-v", "--keep", "--keep-dir", work]
    if args.host_compiler:
        command += ["-ccbin", args.host_compiler]
    for folder in args.include:
        command += ["-I", folder]
    command += [args.source, "-o", os.path.join(work, "kernels.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"check_ptx: {' '.join(command)}\n{done.stdout}{done.stderr}")
    stem = os.path.splitext(os.path.basename(args.source))[0]
    with open(os.path.join(work, stem + ".ptx"), encoding="utf-8") as file:
        return file.read(), done.stderr + done.stdout


def self_test(kernels):
    """planted.cu says what is wrong with each kernel by its arguments: see there."""
    planted = {
        ("sum", "ll", 2, 1): {"fence"},
        ("sum", "ll", 2, 2): {"order"},
        ("sum", "ll", 2, 4): {"lines"},
        ("sum", "ll", 4, 1): {"order"},
        ("sum", "ll", 4, 2): {"lines"},
        ("sum", "ll", 8, 1): {"resources"},
        ("sum", "simple", 2, 0): {"flags"},
        ("sum", "simple", 4, 0): {"flags"},
        ("sum", "simple", 8, 0): {"foreign"},
        ("sum", "sentinel", 2, 1): {"packets"},
        ("sum", "sentinel", 4, 1): {"packets"},
        ("sum", "sentinel", 2, 2): {"fence"},
        ("sum", "sentinel", 2, 4): {"packets"},
        ("sum", "sentinel", 2, 0): set(),
        ("any", "sentinel", 2, 0): {"matrix"},
        ("sum", "ll128", 2, 0): {"wide"},
        ("sum", "ll128", 4, 0): {"wide"},
        ("sum", "ll128", 8, 0): {"fence"},
        ("any", "sums", 8, 0): {"wide"},
        ("max", "ll128", 2, 0): set(),
        ("max", "ll128", 4, 0): {"wide", "polls"},
        ("max", "ll", 2, 1): set(),
        ("max", "simple", 2, 0): set(),
        ("max", "ll", 2, 2): {"late"},
        ("max", "ll", 2, 4): {"late"},
        ("max", "simple", 8, 0): {"late"},
        ("max", "ll", 8, 1): {"lines"},
        ("max", "ll", 4, 1): {"lines", "polls"},
        ("max", "simple", 4, 0): {"polls", "fence"},
    }
    failures = 0
    for kernel in kernels:
        wanted = planted.pop((kernel.op, kernel.protocol, kernel.ranks, kernel.held))
        found = {rule for _, rule, _ in check([kernel])}
        if found != wanted:
            failures += 1
            print(f"{kernel}: must break {sorted(wanted) or 'nothing'}, breaks {sorted(found) or 'nothing'}")
            for _, rule, what in check([kernel]):
                print(f"    {rule}: {what}")
    for missing in planted:
        failures += 1
        print(f"planted.cu has no kernel {missing}")
    good = {"a4wrapb": "membar.sys;", "report_fault": "st.release.sys.global.u32 [%rd1], %r1;"}
    for spoiled, count in ((good, 0), ({**good, "a4wrapb": "bar.sync 0;"}, 1), ({**good, "report_fault": ""}, 1), ({}, 2)):
        if len(list(check_functions(spoiled))) != count:
            failures += 1
            print(f"functions out of line: {spoiled} must break {count} rules")
    for traced, others, count in (([{1, 9}, {2, 9}], [{1}, {2}], 0), ([{1, 9}, {2}], [{1}], 1), ([{1, 9}], [{1}, {9}], 1), ([], [{1}], 0)):
        if len(list(check_traced(traced, others))) != count:
            failures += 1
            print(f"parameters: {traced}, {others} must break {count} rules")
    # planted.cu has neither the shapes nor the variant, which is a violation for each.
    without = list(check_without_limits([], {}))
    if len(without) != 12 or len(list(check_without_limits([], {"x7give_upy": "", "report_fault": ""}))) != 14:
        failures += 1
        print(f"without limits: {without}")
    if not any("not without limits" in what for what in check_without_limits(kernels, {})):
        failures += 1
        print("without limits: a kernel with them is not told")
    print(f"self-test: {len(kernels)} planted kernels, {failures} failures")
    return failures


def main():
    parser = compiler_arguments(__doc__)
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("--ops", default="sum,max", help="the operators that the source has kernels for, or any")
    parser.add_argument("--sums", action="store_true", help="the source has the kernels that add to sums, and no others")
    parser.add_argument("--parts", choices=("moved", "reduced"), help="the source has the kernels by parts that do so, and no others")
    parser.add_argument("--fused", action="store_true", help="the source has the kernels of fused rows, and no others")
    parser.add_argument("--gemv", action="store_true", help="the source has the kernels of products, and no others")
    parser.add_argument("--without-limits", action="store_true", help="the source has the benchmark's loops without limits, and no others")
    args = parser.parse_args()
    kernels, functions = read(*compile_source(args))
    if args.self_test:
        sys.exit(1 if self_test(list(kernels.values())) else 0)

    if args.without_limits:
        wrong = list(check_without_limits(kernels.values(), functions))
        for what in wrong:
            print(what)
        print(f"{len(kernels)} kernels, {len(wrong)} violations")
        sys.exit(1 if wrong else 0)

    # All protocols, all bounds of the number of ranks, all operators: else the names have changed and nothing is checked.
    shapes = {(k.op, k.protocol, k.ranks, k.held) for k in kernels.values() if k.variant == "once"}
    wanted = [shape for shape in REGISTERS if args.ops != "any" or (shape[1] != 4 and shape[2] <= 1)]
    if args.ops == "any" or all(kernel.type == "i32" for kernel in kernels.values()):
        wanted += [shape for shape in LL128_REGISTERS if args.ops != "any" or shape[1] != 4]
    if args.sums:
        wanted = list(SUMS_REGISTERS)
    if args.parts:
        wanted = [(protocol.split()[1], ranks, held) for protocol, ranks, held in PARTS_REGISTERS
                  if args.parts == "reduced" or "sentinel" not in protocol]
    if args.fused:
        wanted = [(protocol.split()[1], ranks, held) for protocol, ranks, held in FUSED_REGISTERS]
    if args.gemv:
        wanted = [(protocol.split()[-1], ranks, held) for protocol, ranks, held in GEMV_REGISTERS]
        missing_gathers = {2, 8} - {kernel.ranks for kernel in kernels.values() if kernel.gathers}
        if missing_gathers:
            print("no kernel that gathers, of up to", *missing_gathers)
            sys.exit(1)
    missing = [(op, *shape) for op in args.ops.split(",") for shape in wanted if (op, *shape) not in shapes]
    if not args.sums and not args.parts and not args.fused and not args.gemv and any(kernel.type != "i32" for kernel in kernels.values()):
        op = args.ops.split(",")[0]
        missing += [(op, *shape) for shape in SENTINEL_REGISTERS
                    if (op != "any" or (shape[1] != 4 and shape[2] == 0)) and (op, *shape) not in shapes]
    for shape in missing:
        print("no kernel", *shape)
    wrong = check(kernels.values())
    for kernel, rule, what in wrong:
        print(f"{kernel}: {rule}: {what}")
    # Where no loop is found, rule_polls has looked at nothing.
    blind = [kernel for kernel in kernels.values() if kernel.variant == "once" and kernel.protocol != "alone" and not poll_loops(kernel)]
    for kernel in blind:
        print(f"{kernel}: no loop that waits")
    wrong_functions = list(check_functions(functions))
    traced = [kernel.parameters for kernel in kernels.values() if kernel.variant == "traced"]
    others = [kernel.parameters for kernel in kernels.values() if kernel.variant != "traced"]
    wrong_functions += check_traced(traced, others)
    if not traced and any((kernel.op == "sum" and kernel.type in ("f32", "bf16")) or ((kernel.fused or kernel.gemv) and kernel.type == "bf16")
                          for kernel in kernels.values()):
        wrong_functions.append("no traced kernels")
    for what in wrong_functions:
        print(what)
    for kernel in sorted(kernels.values(), key=str):
        if kernel.variant == "once":
            print(f"  {str(kernel):54} {kernel.registers} registers, {kernel.stack} bytes of stack")
    print(f"{len(kernels)} kernels, {len(missing) + len(wrong) + len(blind) + len(wrong_functions)} violations")
    sys.exit(1 if missing or wrong or blind or wrong_functions else 0)


if __name__ == "__main__":
    main()
