#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the barrier's kernel to PTX: the next kernel is let in after the wait, and only where its parameters say so.

    check_barrier.py --nvcc NVCC --work DIR --include DIR... SOURCE.cu    exit 1 and a list when something is wrong
"""

import re
import sys

import check_ptx
import ptx_kernels

NAME = re.compile(r"7barrierE(?P<type>)")


def check(ptx):
    kernels = [ptx_kernels.Kernel(match, body) for name, body in ptx_kernels.blocks(ptx, r"\.entry") if (match := NAME.search(name))]
    if len(kernels) != 1:
        yield f"{len(kernels)} kernels of the barrier, not one"
    for kernel in kernels:
        for rule in (check_ptx.rule_order, check_ptx.rule_late, check_ptx.rule_foreign):
            yield from rule(kernel)


def main():
    ptx, _ = check_ptx.compile_source(check_ptx.compiler_arguments(__doc__).parse_args())
    wrong = list(check(ptx))
    # What it would say of a barrier that lets the next kernel in whatever its parameters say.
    always = ptx.replace("@now griddepcontrol.launch_dependents", "griddepcontrol.launch_dependents")
    if not wrong and len(list(check(always))) != 1:
        wrong.append("a barrier that always lets the next kernel in passes")
    print("\n".join([*wrong, f"{len(wrong)} violations"]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
