#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what the drop-in exports with what nccl.h declares.

    check_exports.py --header nccl.h --library libnearlight_nccl.so [--compiler c++] [--include DIR]
    check_exports.py --self-test    plant faults and see that they are found

The header goes through the compiler's preprocessor; the names are not taken from the list that the drop-in is
generated from.
"""

import argparse
import re
import subprocess
import sys

MARK = "nearlightDropIn"


def run(command):
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=50).stdout


def declared(preprocessed):
    """The functions that nccl.h declares: names in front of a bracket, outside of bodies."""
    return set(re.findall(r"\b(p?nccl[A-Z]\w*)\s*\(", preprocessed))


def own_part(preprocessed, header):
    """The lines that come from nccl.h itself."""
    lines, inside = [], False
    for line in preprocessed.splitlines():
        match = re.match(r'# \d+ "([^"]+)"', line)
        if match:
            inside = match.group(1) == header
        elif inside:
            lines.append(line)
    return "\n".join(lines)


def exported(symbols):
    """Names of nm -D --defined-only, and whether each is code."""
    found = {}
    for line in symbols.splitlines():
        parts = line.split()
        if len(parts) == 3:
            found[parts[2].split("@")[0]] = parts[1] in "TWti"
    return found


def faults_of(wanted, found):
    faults = []
    if not wanted:
        faults.append("the header declares no function")
    for name in sorted(wanted):
        if name not in found:
            faults.append("not exported: " + name)
        elif not found[name]:
            faults.append("no function: " + name)
    for name in sorted(found):
        if name not in wanted and name != MARK:
            faults.append("exported, but not of nccl.h: " + name)
    if MARK not in found:
        faults.append("without its mark %s it would be taken for a copy of NCCL" % MARK)
    return faults


def self_test():
    header = ('# 1 "/x/other.h"\nint ncclNotMine(int);\n# 5 "/x/nccl.h"\nncclResult_t  ncclA(void* p,\n int n);\n'
              "ncclResult_t pncclA(void* p, int n);\ntypedef int ncclB_t;\n")
    wanted = declared(own_part(header, "/x/nccl.h"))
    good = "01 T ncclA\n01 T pncclA\n02 R nearlightDropIn\n"
    cases = [(good, 0), (good.replace("01 T ncclA\n", ""), 1), (good.replace("T pncclA", "D pncclA"), 1),
             (good + "03 T printf\n", 1), (good.replace("02 R nearlightDropIn\n", ""), 1)]
    failed = [symbols for symbols, count in cases if len(faults_of(wanted, exported(symbols))) != count]
    if wanted != {"ncclA", "pncclA"} or failed or len(faults_of(set(), exported(good))) != 3:
        sys.exit("self-test failed: %s %s" % (wanted, failed))
    print("self-test: %d cases" % (len(cases) + 2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--header")
    parser.add_argument("--library")
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--include", default="/usr/local/cuda/include")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        self_test()
        return
    preprocessed = run([args.compiler, "-E", "-x", "c++", "-I", args.include, args.header])
    wanted = declared(own_part(preprocessed, args.header))
    faults = faults_of(wanted, exported(run(["nm", "-D", "--defined-only", args.library])))
    for fault in faults:
        print(fault)
    print("%d functions of %s, %d faults" % (len(wanted), args.header, len(faults)))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
