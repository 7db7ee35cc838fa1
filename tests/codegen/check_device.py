#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels on channels (device_api.cu) as somebody else would, and looks at their PTX.

    check_device.py --nvcc NVCC --work DIR --include DIR SOURCE.cu [--nccl]
"""

import argparse
import os
import re
import subprocess
import sys

LINE = ("st.relaxed.sys.global.L2::cache_hint.v4.u32", "ld.relaxed.sys.global.L2::cache_hint.v4.u32")
PACKET = ("st.relaxed.sys.global.L2::cache_hint.v2.u64", "ld.relaxed.sys.global.L2::cache_hint.v2.u64")
FLAG = ("st.release.sys.global.u32", "ld.acquire.sys.global.u32")
ORDERS = ("fence.", "membar.", ".release.", ".acquire.", ".volatile.")
ATOMIC = ("\tatom.", "\tred.")
LOCAL = ("ld.local.", "st.local.")  # the channel has left its registers


def entries(ptx):
    """Kernel -> its own body, without the functions that it calls."""
    found = {}
    for match in re.finditer(r"^\.visible \.entry (\w+)\(", ptx, re.MULTILINE):
        found[match.group(1)] = ptx[match.end():ptx.index("\n}\n", match.end())]
    return found


def faults(name, body, needed, refused):
    return (["%s has no %s" % (name, one) for one in needed if one not in body]
            + ["%s has %s" % (name, one) for one in refused if one in body])


def look(kernels, nccl):
    found = []
    plain = ["ll_cta", "ll_whole_warps", "ll_warp", "ll_thread"] + (["ll_nccl_cta", "ll_nccl_warp", "ll_nccl_thread"] if nccl else [])
    for name in plain:
        found += faults(name, kernels.get(name, ""), LINE, ORDERS + ATOMIC + LOCAL)
    found += faults("ll_checked", kernels.get("ll_checked", ""), LINE + ("\tatom.",), ())
    # Its resets are ordered by a fence an epoch.
    found += faults("sentinel_cta", kernels.get("sentinel_cta", ""), PACKET, (".release.", ".acquire.", ".volatile.") + ATOMIC)
    found += faults("simple_cta", kernels.get("simple_cta", ""), FLAG, ("fence.", "membar.", ".volatile.") + ATOMIC)
    if nccl:
        found += faults("from_nccl", kernels.get("from_nccl", ""), LINE, ORDERS)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--host-compiler", default="")
    parser.add_argument("--nccl", action="store_true")
    args = parser.parse_args()
    out = os.path.join(args.work, "device_api.ptx")
    command = [args.nvcc, "-std=c++20", "-arch=sm_90", "-Werror", "all-warnings", "-I", args.include, "-ptx", args.source, "-o", out,
               "-DNEARLIGHT_TEST_NCCL_HEADERS=%d" % args.nccl]
    if args.host_compiler:
        command += ["-ccbin", args.host_compiler]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    if done.returncode != 0:
        sys.exit("%s\n%s" % (" ".join(command), done.stderr))
    with open(out, encoding="utf-8") as file:
        kernels = entries(file.read())
    found = look(kernels, args.nccl)
    # What is planted must be found: each kernel in another's place.
    for place, other in (("ll_cta", "simple_cta"), ("ll_cta", "ll_checked"), ("ll_warp", "sentinel_cta"),
                         ("ll_checked", "ll_cta"), ("simple_cta", "ll_cta"), ("sentinel_cta", "simple_cta")):
        if not look(dict(kernels, **{place: kernels.get(other, "")}), args.nccl):
            found.append("not found: %s in the place of %s" % (other, place))
    for fault in found:
        print(fault)
    print("%d kernels, %d faults" % (len(kernels), len(found)))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
