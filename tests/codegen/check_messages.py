#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels of sends and receives to PTX: the next kernel is let in after the wait and where the parameters say so,
nothing spills, and only the kernel that traces knows where times go.

    check_messages.py --nvcc NVCC --work DIR --include DIR... SOURCE.cu    exit 1 and a list when something is wrong
"""

import re
import sys

import check_ptx
import ptx_kernels

NAME = re.compile(r"messages_kernel(?P<type>)ILj(?P<most>\d+)ELb(?P<traced>\d)E")
# Parameters for so many messages, and whether times are written.
WANTED = {(64, False), (64, True), (1000, False)}


def kernels_of(ptx, report):
    """By (messages, traced)."""
    kernels = {}
    for name, body in ptx_kernels.blocks(ptx, r"\.entry"):
        match = NAME.search(name)
        if match:
            kernels[int(match["most"]), match["traced"] == "1"] = ptx_kernels.Kernel(match, body)
    spilled = {}
    for match in re.finditer(r"Compiling entry function '(\S+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads", report, re.S):
        name = NAME.search(match[1])
        if name:
            spilled[int(name["most"]), name["traced"] == "1"] = int(match[2]) + int(match[3])
    return kernels, spilled


def check(kernels, spilled):
    for missing in sorted(WANTED - kernels.keys()):
        yield f"no kernel of {missing[0]} messages, traced: {missing[1]}"
    for key, kernel in kernels.items():
        for rule in (check_ptx.rule_order, check_ptx.rule_late, check_ptx.rule_foreign):
            for what in rule(kernel):
                yield f"{key}: {what}"
        if spilled.get(key) != 0:
            yield f"{key}: {spilled.get(key)} bytes spilled"
    yield from check_ptx.check_traced([kernel.parameters for (_, traced), kernel in kernels.items() if traced],
                                      [kernel.parameters for (_, traced), kernel in kernels.items() if not traced])


def main():
    kernels, spilled = kernels_of(*check_ptx.compile_source(check_ptx.compiler_arguments(__doc__).parse_args()))
    wrong = list(check(kernels, spilled))
    # What it would say of a kernel that traces without being asked to.
    if len(kernels) == 3 and not list(check({**kernels, (64, False): kernels[64, True]}, spilled)):
        wrong.append("a kernel that traces passes for one that does not")
    print("\n".join([*wrong, f"{len(kernels)} kernels, {len(wrong)} violations"]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
