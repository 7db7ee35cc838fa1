#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what the plug-in and its tests take for vLLM's interface with a real vLLM, of which nothing is run.

    vllm_interface_check.py WHEEL-OR-FOLDER     a wheel as `pip download --no-deps vllm==0.20.2` gets it, or one unpacked
"""

import ast
import os
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "python")]
from nearlight import vllm as plugin  # needs neither vLLM nor PyTorch

PLACE = plugin.MODULE.replace(".", "/") + ".py"
BASE = "vllm/distributed/device_communicators/base_device_communicator.py"


def reader(path):
    if os.path.isdir(path):
        return lambda name: open(os.path.join(path, name), encoding="utf-8").read()
    return lambda name: zipfile.ZipFile(path).read(name).decode()


def class_of(source, name):
    return next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name)


def methods(kind):
    return {node.name: [argument.arg for argument in node.args.args] for node in kind.body if isinstance(node, ast.FunctionDef)}


def set_by(kind):
    return {node.attr for node in ast.walk(kind) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    read, faults = reader(sys.argv[1]), []
    real = class_of(read(PLACE), "CudaCommunicator")
    stub = class_of(open(os.path.join(HERE, "vllm_stub", PLACE), encoding="utf-8").read(), "CudaCommunicator")
    for name in plugin.METHODS:
        if methods(real).get(name) != methods(stub).get(name):
            faults.append("%s takes %s, the stand-in's %s" % (name, methods(real).get(name), methods(stub).get(name)))
    base = class_of(read(BASE), "DeviceCommunicatorBase")
    if [node.id for node in real.bases] != ["DeviceCommunicatorBase"]:
        faults.append("CudaCommunicator is no DeviceCommunicatorBase")
    for name in plugin.ATTRIBUTES:
        if name not in set_by(base) | set_by(real):
            faults.append("nobody sets %s" % name)
        if name not in set_by(stub):
            faults.append("the stand-in does not set %s" % name)
    if '"vllm.general_plugins"' not in read("vllm/plugins/__init__.py"):
        faults.append("no group vllm.general_plugins")
    parallel = read("vllm/distributed/parallel_state.py")
    for text in ('group_name="tp"', "self.device_communicator.all_reduce(input_)", 'f"{name}:{_group_name_counter'):
        if text not in parallel:
            faults.append("parallel_state.py has no " + text)
    for fault in faults:
        print(fault)
    print("%d faults" % len(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
