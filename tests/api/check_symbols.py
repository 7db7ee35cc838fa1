#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what libnearlight.so shows and needs, and that c_program.c pins every struct of the header.

    tests/api/check_symbols.py LIBRARY             exported symbols are those of symbols.txt; needs no CUDA library
    tests/api/check_symbols.py LIBRARY --write     writes symbols.txt anew
    tests/api/check_symbols.py LIBRARY --self-test planted differences are found
"""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LIST = os.path.join(HERE, "symbols.txt")
HEADERS = [os.path.join(HERE, "..", "..", "include", "nearlight", name) for name in ("nearlight.h", "device.h")]
# The C library, the C++ run time and their parts: what every C++ library needs.
ALLOWED = re.compile(r"(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux-[\w-]+)\.so\.\d+$")


def exported(library):
    """The names of all defined dynamic symbols, without the version's own."""
    text = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", library], check=True,
                          capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines() if line.strip()]
    return sorted(row[0].split("@")[0] for row in rows if row[1] != "A")


def needed(library):
    text = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text), re.findall(r"\((RPATH|RUNPATH)\)", text)


def headers():
    return "".join(read(header) for header in HEADERS)


def declared():
    return sorted(re.findall(r"^NEARLIGHT_API [\w* ]+?\b(nearlight\w+)\(", headers(), re.MULTILINE))


def unpinned(header, program):
    """Structs and fields of the header whose place c_program.c does not hold."""
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    found = []
    for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", header, re.DOTALL):
        if "sizeof(%s) ==" % name not in program:
            found.append("tests/api/c_program.c does not hold the size of %s" % name)
        for declaration in body.split(";"):
            for field in re.findall(r"(\w+)(?:\[\w+\])?\s*(?:,|$)", declaration.strip()):
                if "PIN_FIELD(%s, %s," % (name, field) not in program:
                    found.append("tests/api/c_program.c does not hold the place of %s of %s" % (field, name))
    return found


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


def faults(symbols, pinned, in_header, libraries, run_paths):
    found = []
    for name in sorted(set(symbols) - set(pinned)):
        found.append("exported and not in tests/api/symbols.txt: %s" % name)
    for name in sorted(set(pinned) - set(symbols)):
        found.append("in tests/api/symbols.txt and not exported: %s" % name)
    for name in sorted(set(in_header) ^ set(pinned)):
        found.append("only one of the headers and tests/api/symbols.txt has %s" % name)
    for name in libraries:
        if not ALLOWED.match(name):
            found.append("the library needs %s" % name)
    if run_paths:
        found.append("the library has a run path")
    return found


def main():
    library = sys.argv[1]
    symbols = exported(library)
    libraries, run_paths = needed(library)
    if "--write" in sys.argv:
        with open(LIST, "w", encoding="utf-8") as file:
            file.write("".join(name + "\n" for name in symbols))
        return 0
    pinned = read(LIST).split()
    header, program = headers(), read(HERE, "c_program.c")
    if "--self-test" in sys.argv:
        planted = [
            faults(symbols + ["cudaMalloc"], pinned, declared(), libraries, []),
            faults(symbols + ["_ZNSt6vectorIiE3endEv"], pinned, declared(), libraries, []),
            faults(symbols[1:], pinned, declared(), libraries, []),
            faults(symbols, pinned, declared()[1:], libraries, []),
            faults(symbols, pinned, declared(), libraries + ["libcudart.so.13"], []),
            faults(symbols, pinned, declared(), libraries + ["libcuda.so.1"], []),
            faults(symbols, pinned, declared(), libraries, ["RUNPATH"]),
            unpinned(header.replace("  int32_t nranks;", "  int32_t nranks;\n  int32_t more;"), program),
            unpinned(header.replace("epoch, region,", "epoch, more, region,"), program),
            unpinned(header + "\ntypedef struct {\n  size_t size;\n} nearlightMore_t;\n", program),
        ]
        missed = sum(1 for found in planted if not found)
        print("%d planted, %d missed" % (len(planted), missed))
        return 1 if missed else 0
    found = faults(symbols, pinned, declared(), libraries, run_paths) + unpinned(header, program)
    for fault in found:
        print(fault)
    print("%d symbols, %d faults" % (len(symbols), len(found)))
    return 1 if found or not symbols else 0


if __name__ == "__main__":
    sys.exit(main())
