#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs a build into a folder and uses it as somebody else's project does.

    check_install.py tree --build DIR --prefix DIR     install, look at what is there
    check_install.py cmake --prefix DIR --work DIR [--cuda NVCC]   consumer/ by find_package, built and run
    check_install.py pkg-config --prefix DIR --work DIR            consumer/ by pkg-config, built and run
"""

import argparse
import glob
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CONSUMER = os.path.join(HERE, "consumer")
ROOT = os.path.dirname(os.path.dirname(HERE))


def run(command, **options):
    """The command's output; it must end with 0."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, **options)
    if done.returncode != 0:
        sys.exit("%s\nended with %d\n%s%s" % (" ".join(command), done.returncode, done.stdout, done.stderr))
    return done.stdout + done.stderr


def expect(condition, what):
    if not condition:
        sys.exit("not so: " + what)


def library_dir(prefix):
    found = glob.glob(os.path.join(prefix, "**", "libnearlight.so"), recursive=True)
    expect(len(found) == 1, "one libnearlight.so under %s" % prefix)
    return os.path.dirname(found[0])


def tree(build, prefix):
    shutil.rmtree(prefix, ignore_errors=True)
    run(["cmake", "--install", build, "--prefix", prefix])
    lib = library_dir(prefix)
    for path in ("bin/nearlight", "include/nearlight/nearlight.h", "include/nearlight/nearlight.hpp",
                 "include/nearlight/version.h", "include/nearlight/device.cuh"):
        expect(os.path.isfile(os.path.join(prefix, path)), path)
    package = os.path.join(lib, "cmake", "nearlight")
    texts = glob.glob(os.path.join(package, "*.cmake")) + [os.path.join(lib, "pkgconfig", "nearlight.pc")]
    expect(len(texts) >= 5, "a CMake package of 4 files in %s, and nearlight.pc" % package)
    for path in texts:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for word in (ROOT, os.path.realpath(build), "cxx_std", "cuda_std", "cudart", "-Werror", "Threads"):
            expect(word not in text, "%s does not hold %s" % (path, word))
    headers = os.listdir(os.path.join(prefix, "include", "nearlight"))
    expect(sorted(headers) == ["detail", "device.cuh", "device.h", "device_host.hpp", "device_memory.hpp", "device_nccl.cuh",
                               "nearlight.h", "nearlight.hpp", "version.h"], "no other header: %s" % headers)
    out = run([os.path.join(prefix, "bin", "nearlight"), "--version"])
    expect(out.startswith("nearlight "), "the installed program runs: %s" % out)
    if os.path.exists(os.path.join(build, "cli", "libnearlight_nccl.so")):
        for name in ("libnearlight_nccl.so", "libnearlight_nccl_audit.so"):
            expect(os.path.isfile(os.path.join(lib, name)), name)
        out = run([os.path.join(prefix, "bin", "nearlight"), "run", "--", "sh", "-c", "echo $LD_PRELOAD"])
        expect(os.path.realpath(out.strip()) == os.path.realpath(os.path.join(lib, "libnearlight_nccl.so")),
               "the installed program finds the drop-in: %s" % out)
    print("installed into %s" % prefix)


def with_cmake(prefix, work, nvcc):
    # At another place than it was installed to: the tree can be moved.
    shutil.rmtree(work, ignore_errors=True)
    moved = os.path.join(work, "moved")
    shutil.copytree(prefix, moved, symlinks=True)
    build = os.path.join(work, "build")
    configure = ["cmake", "-S", CONSUMER, "-B", build, "-G", "Ninja", "-DCMAKE_PREFIX_PATH=" + moved]
    if nvcc:
        configure += ["-DWITH_CUDA=ON", "-DCMAKE_CUDA_COMPILER=" + nvcc]
    run(configure)
    run(["cmake", "--build", build, "--parallel", "2"])
    for program in ["in_c", "in_cpp17", "in_cpp20", "in_device_host"] + (["in_cuda", "in_device"] if nvcc else []):
        out = run([os.path.join(build, program)])
        expect(": ok" in out, "%s says ok: %s" % (program, out))
        print(out.strip())
    if nvcc:
        # The compiler alone, with the installed headers and no flag of ours but the level of the language.
        run([nvcc, "-std=c++20", "-arch=sm_90", "-I", os.path.join(moved, "include"), "-ptx",
             os.path.join(CONSUMER, "in_device.cu"), "-DKERNELS_ONLY", "-o", os.path.join(work, "in_device.ptx")])
    # A version that it is not.
    text = open(os.path.join(CONSUMER, "CMakeLists.txt"), encoding="utf-8").read()
    other = os.path.join(work, "other")
    os.makedirs(other)
    with open(os.path.join(other, "CMakeLists.txt"), "w", encoding="utf-8") as file:
        file.write("cmake_minimum_required(VERSION 3.20)\nproject(other LANGUAGES NONE)\n"
                   "find_package(nearlight 99.0 REQUIRED)\n")
    expect("find_package(nearlight" in text, "the consumer asks for a version")
    done = subprocess.run(["cmake", "-S", other, "-B", other + "/build", "-G", "Ninja", "-DCMAKE_PREFIX_PATH=" + moved],
                          capture_output=True, text=True, timeout=100)
    expect(done.returncode != 0 and "99.0" in done.stderr, "version 99.0 is refused: %s" % done.stderr)


def with_pkg_config(prefix, work):
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    lib = library_dir(prefix)
    environment = dict(os.environ, PKG_CONFIG_PATH=os.path.join(lib, "pkgconfig"), LD_LIBRARY_PATH=lib)
    flags = run(["pkg-config", "--cflags", "--libs", "nearlight"], env=environment).split()
    for compiler, source, more in (("cc", "in_c.c", ["-std=c99", "-pthread"]),
                                   ("c++", "in_cpp.cpp", ["-std=c++17", "-pthread"])):
        program = os.path.join(work, source.split(".")[0])
        run([compiler, *more, os.path.join(CONSUMER, source), "-o", program, *flags])
        out = run([program], env=environment)
        expect(": ok" in out, "%s says ok: %s" % (source, out))
        print(out.strip())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["tree", "cmake", "pkg-config"])
    parser.add_argument("--build")
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--work")
    parser.add_argument("--cuda", default="")
    args = parser.parse_args()
    if args.what == "tree":
        tree(args.build, args.prefix)
    elif args.what == "cmake":
        with_cmake(args.prefix, args.work, args.cuda)
    else:
        with_pkg_config(args.prefix, args.work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
