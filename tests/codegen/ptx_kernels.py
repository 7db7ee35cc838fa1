# SPDX-License-Identifier: Apache-2.0
"""Reads PTX and ptxas's report: which kernels there are, by their mangled names, and what each is made of."""

import re

NAME = re.compile(r"all_reduce_one_shotI(?P<type>f|i|NS_4Bf16E|NS_3F16E)LNS_8ReduceOpE(?P<op>\d)ELi(?P<ranks>\d)ELNS0_8ProtocolE"
                  r"(?P<protocol>\d)ELi(?P<held>\d)E(?:Lb(?P<one_round>\d)E)?LNS1_7VariantE(?P<variant>\d)E")
SENTINEL_NAME = re.compile(r"all_reduce_sentinelI(?P<type>f|NS_4Bf16E|NS_3F16E)LNS_8ReduceOpE(?P<op>\d)ELi(?P<ranks>\d)E"
                           r"Li(?P<held>n?\d)E(?:LNS1_7VariantE(?P<variant>\d)E)?")
# No packets held, like the kernel of any message.
TWO_SHOT_NAME = re.compile(r"all_reduce_two_shotI(?P<type>f|NS_4Bf16E|NS_3F16E)LNS_8ReduceOpE(?P<op>\d)ELi(?P<ranks>\d)E")
LL128_NAME = re.compile(r"all_reduce_ll128I(?P<type>i)LNS_8ReduceOpE(?P<op>\d)ELi(?P<ranks>\d)E")
SUMS_NAME = re.compile(r"all_reduce_two_shot_atomicI(?P<type>f|NS\w*_4Bf16E|NS\w*_3F16E)E")
# Those that take their operator at run time.
ANY_NAME = re.compile(r"all_reduce_(?:two_shot_)?anyI(?P<type>[a-z]|NS_\d\w+?E)Li(?P<ranks>\d)ELNS0_8ProtocolE(?P<protocol>\d)E")
# By parts, of bytes or of a type.
MOVED_NAME = re.compile(r"parts_moved(?P<type>)ILi(?P<ranks>\d)ELNS0_8ProtocolE(?P<protocol>\d)ELNS1_7VariantE(?P<variant>\d)E")
REDUCED_NAME = re.compile(r"parts_reducedI(?P<type>[a-z]|NS_\d\w+?E)Li(?P<ranks>\d)ELNS0_8ProtocolE(?P<protocol>\d)E")
FUSED_NAME = re.compile(r"fused_rowsI(?P<type>NS\w*_4Bf16E|NS\w*_3F16E)Li(?P<ranks>\d)ELi(?P<held>\d)ELb(?P<one_round>\d)E"
                        r"LNS1_7VariantE(?P<variant>\d)E")
GEMV_NAME = re.compile(r"4gemvI(?P<type>NS\w*_4Bf16E|NS\w*_3F16E)Li(?P<ranks>\d)ELNS1_7VariantE(?P<variant>\d)E")
GATHER_GEMV_NAME = re.compile(r"all_gather_gemvI(?P<type>NS\w*_4Bf16E|NS\w*_3F16E)Li(?P<ranks>\d)ELNS1_7VariantE(?P<variant>\d)E")
TYPES = {"": "bytes", "f": "f32", "i": "i32", "d": "f64", "NS_4Bf16E": "bf16", "NS_3F16E": "f16"}
OPS = {"0": "sum", "2": "max"}
PROTOCOLS = ["ll", "simple", "sentinel", "ll128"]
VARIANTS = ["once", "loop", "delayed", "traced", "loop_without_limits"]


class Kernel:
    def __init__(self, match, body):
        given = match.groupdict()
        self.type, self.op = TYPES.get(re.sub(r"^NS\w*?_(?=\d)", "NS_", given["type"]), given["type"]), OPS.get(given.get("op"), "any")
        self.ranks, self.protocol = int(given.get("ranks") or 8), PROTOCOLS[int(given.get("protocol") or 2)]
        if match.re in (LL128_NAME, SUMS_NAME):
            self.protocol = "ll128" if match.re is LL128_NAME else "sums"
        self.gemv, self.gathers = match.re in (GEMV_NAME, GATHER_GEMV_NAME), match.re is GATHER_GEMV_NAME
        if self.gemv and self.ranks == 1:
            self.protocol = "alone"
        self.held = int((given.get("held") or "").replace("n", "-") or (1 if self.protocol == "ll" else 0))
        self.variant = VARIANTS[int(given.get("variant") or 0)]
        self.fused = match.re is FUSED_NAME
        self.one_round = given.get("one_round") == "1" or (not self.fused and self.protocol == "sentinel" and self.held > 0)
        self.by_parts = match.re in (MOVED_NAME, REDUCED_NAME)
        self.has_loop = self.op == "any" or given.get("one_round") == "0"
        # Sentinel: its packets are to stay in L2.
        self.keeps = self.held == 1 or self.op == "any"
        self.body = body
        # Instructions in the order of the text, without predicates and labels: ("ld.global.u32", the whole statement).
        self.code = []
        for statement in re.sub(r"//[^\n]*", "", body).replace("\n", " ").split(";"):
            statement = re.sub(r"^(?:\s*(?:[{}]|[$\w]+:(?!:)))*\s*", "", statement).strip()
            found = re.match(r"(?:@!?%?\w+\s+)?([a-z][a-z0-9_]*(?:\.(?:L2::cache_hint|[a-z0-9_:]+))*)\b", statement)
            if found:
                self.code.append((found.group(1), statement))
        # Where in the kernel's one parameter it reads, in bytes.
        self.parameters = {int(at) for at in re.findall(r"_param_0\+(\d+)\]", body)}
        # Likewise by its address in a register, or by an address worked out of that.
        bases = {register: 0 for register in re.findall(r"mov\.(?:b|u)64\s+(%rd\d+), \w+_param_0;", body)}
        steps = [(to, given, 0) for to, given in re.findall(r"mov\.(?:b|u)64\s+(%rd\d+), (%rd\d+);", body)]
        steps += [(to, given, int(by)) for to, given, by in re.findall(r"add\.s64\s+(%rd\d+), (%rd\d+), (-?\d+);", body)]
        while more := {to: bases[given] + by for to, given, by in steps if given in bases and to not in bases}:
            bases.update(more)
        self.parameters |= {bases[base] + int(by or 0)
                            for base, by in re.findall(r"ld\.param\.[\w.]+\s+[^\[;]+\[(%rd\d+)(?:\+(-?\d+))?\]", body) if base in bases}
        self.registers = self.stack = self.spill = None

    def __str__(self):
        held = f", {self.held} held" if self.protocol != "simple" else ""
        rounds = ", one round" if self.one_round else ""
        return f"{self.type} {self.op}, {self.protocol}, up to {self.ranks} ranks{held}{rounds}, {self.variant}"

    def instructions(self, pattern):
        return [name for name, _ in self.code if re.match(pattern, name)]


def blocks(ptx, kind):
    """Yields (name, body) of each .entry or .func that has a body."""
    for match in re.finditer(kind + r"\b(?:\s*\([^)]*\))?\s+([\w$]+)\s*\([^{;]*?\)[^{;]*\{", ptx):
        depth, at = 1, match.end()
        while depth:
            brace = re.compile(r"[{}]").search(ptx, at)
            if brace is None:
                raise SystemExit("the braces of the PTX do not match")
            depth += 1 if brace.group() == "{" else -1
            at = brace.end()
        yield match.group(1), ptx[match.end():at - 1]


def read(ptx, report):
    """The kernels by mangled name, the functions out of line; ptxas's report filled in."""
    kernels = {}
    for name, body in blocks(ptx, r"\.entry"):
        names = (NAME, SENTINEL_NAME, TWO_SHOT_NAME, LL128_NAME, SUMS_NAME, ANY_NAME, MOVED_NAME, REDUCED_NAME, FUSED_NAME, GEMV_NAME, GATHER_GEMV_NAME)
        match = next(filter(None, (one.search(name) for one in names)), None)
        if match:
            kernels[name] = Kernel(match, body)
    functions = dict(blocks(ptx, r"\.func"))
    for match in re.finditer(r"Compiling entry function '(\S+)'(.*?)Used (\d+) registers", report, re.S):
        kernel = kernels.get(match.group(1))
        sizes = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", match.group(2))
        if kernel and sizes:
            kernel.registers = int(match.group(3))
            kernel.stack = int(sizes.group(1))
            kernel.spill = int(sizes.group(2)) + int(sizes.group(3))
    return kernels, functions
