#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes an environment with a real PyTorch for the tests of the Python binding, without the 2 GB of CUDA's libraries.

    torch_environment.py FOLDER     makes FOLDER unless it is there; prints its interpreter's path
    torch_environment.py --where    prints the folder that is used where none is given, and whether it is there

The package index has PyTorch for Linux only as it is built for GPUs. Its CUDA libraries that are loaded but never called
on a CPU are stood in for by libraries that define the same symbols and end the process when called; those that are
called as it is loaded come from the index (3 packages, 30 MB). `FOLDER/bin/python` is then told where they are by a
file of its own in site-packages, so that nothing else need know.
"""

import contextlib
import fcntl
import glob
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv

TORCH = "torch==2.11.0"
# What is called while PyTorch is loaded.
CUDA = ["nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cupti==13.0.85", "nvidia-cufile==1.15.1.6"]
# What PyTorch needs in Python, and the tests.
PYTHON = ["filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "numpy", "setuptools<82",
          "scikit-build-core"]
LAYOUT = 1  # of what this script makes: another number, another folder
LIMIT_S = 240  # of each call of pip


def default_folder():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    name = "-".join([TORCH.replace("==", "-"), "py%d.%d" % sys.version_info[:2], sysconfig.get_platform(), str(LAYOUT)])
    return os.path.join(cache, "nearlight", name)


def read_library(path):
    """(needed libraries, symbols it defines, symbols it asks for with their versions, version -> library)."""
    text = subprocess.run(["readelf", "-W", "--dynamic", "--dyn-syms", "--version-info", path], capture_output=True,
                          text=True, check=True).stdout
    defined, wanted, owner = set(), [], {}
    for match in re.finditer(r"^\s+\d+: [0-9a-f]+ +\S+ \w+ +(\w+) +\w+ +(\S+) ([^\s@]+)(?:@+(\S+))?", text, re.MULTILINE):
        binding, place, name, version = match.groups()
        if place != "UND":
            defined.add(name)
        elif binding != "WEAK":
            wanted.append((name, version))
    file = None
    for match in re.finditer(r"File: (\S+)|Name: (\S+)  Flags", text.partition("Version needs section")[2]):
        if match.group(1):
            file = match.group(1)
        else:
            owner[match.group(2)] = file
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text), defined, wanted, owner


def make_stand_ins(site, folder):
    """One library for each of CUDA's that PyTorch's libraries need and that is not there."""
    os.makedirs(folder)
    paths = {os.path.basename(path): path for path in glob.glob(site + "/torch/lib/*.so*")}
    there = set(paths) | {os.path.basename(path) for path in glob.glob(site + "/nvidia/*/lib/*.so*")}
    read = [read_library(path) for path in paths.values()]
    own = set().union(*(one[1] for one in read))
    missing = sorted({name for one in read for name in one[0] if re.match(r"lib(cu|nccl|nv)", name)} - there)
    symbols = {name: {} for name in missing}  # library -> version -> names
    for _, _, wanted, owner in read:
        for name, version in wanted:
            if name in own:
                continue
            if version:
                if owner.get(version) in symbols:
                    symbols[owner[version]].setdefault(version, set()).add(name)
            elif missing and re.match(r"cu[A-Za-z]|nccl|nv", name):
                symbols[missing[0]].setdefault("", set()).add(name)
    for library, versions in symbols.items():
        names = sorted(name for group in versions.values() for name in group)
        source = "".join("void %s(void) { __builtin_trap(); }\n" % name for name in names)
        script = os.path.join(folder, "symbols.map")
        with open(script, "w", encoding="utf-8") as file:
            for version, group in versions.items():
                if version:
                    file.write("%s { global: %s };\n" % (version, " ".join(name + ";" for name in sorted(group))))
        extra = ["-Wl,--version-script=" + script] if any(versions) else []
        subprocess.run([os.environ.get("CC", "gcc"), "-x", "c", "-w", "-fno-builtin", "-shared", "-fPIC", *extra,
                        "-Wl,-soname," + library, "-o", os.path.join(folder, library), "-"], input=source, text=True, check=True)


@contextlib.contextmanager
def alone(folder):
    """One process at a time makes it; the others wait and then find it."""
    os.makedirs(os.path.dirname(os.path.abspath(folder)), exist_ok=True)
    with open(folder + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make(folder):
    python = os.path.join(folder, "bin", "python")
    if os.path.exists(os.path.join(folder, "complete")):
        return python
    shutil.rmtree(folder, ignore_errors=True)
    venv.EnvBuilder(with_pip=True, symlinks=True).create(folder)
    # The script is given no cache of its own: what it makes is the cache.
    pip = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--no-warn-conflicts", "--retries", "1", "--timeout", "20",
           "--disable-pip-version-check"]
    for command in (pip + ["--no-deps", "--only-binary", ":all:", TORCH, *CUDA], pip + PYTHON):
        subprocess.run(command, check=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], check=True,
                          capture_output=True, text=True).stdout.strip()
    stand_ins = os.path.join(folder, "stand-ins")
    make_stand_ins(site, stand_ins)
    # Loaded first, they are found by their names when PyTorch's libraries ask for them.
    with open(os.path.join(site, "nearlight_stand_ins.pth"), "w", encoding="utf-8") as file:
        file.write("import ctypes, glob; list(map(ctypes.CDLL, glob.glob(%r)))\n" % (stand_ins + "/*.so.*"))
    subprocess.run([python, "-c", "import torch, torch.distributed; assert torch.distributed.is_gloo_available()"],
                   check=True, timeout=120)
    with open(os.path.join(folder, "complete"), "w", encoding="utf-8") as file:
        file.write(TORCH + "\n")
    return python


def main():
    words = sys.argv[1:]
    if words == ["--where"]:
        folder = default_folder()
        print(folder, "complete" if os.path.exists(os.path.join(folder, "complete")) else "absent")
        return 0
    if len(words) > 1 or (words and words[0].startswith("-")):
        print(__doc__, file=sys.stderr)
        return 2
    folder = words[0] if words else default_folder()
    try:
        with alone(folder):
            print(make(folder))
        return 0
    except (OSError, subprocess.SubprocessError) as error:
        print("no environment with PyTorch: %s" % error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
