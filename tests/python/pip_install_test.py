#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`pip install .` without CUDA, by the scikit-build-core of this environment: what is installed, and that it works."""

import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
USE = """
import array, importlib.metadata as metadata, os, nearlight
[comm] = nearlight.Communicator.host_group(1)
comm.all_reduce(array.array("f", [1]))
comm.close()
print(nearlight.__version__ == metadata.version("nearlight"), sorted(os.listdir(os.path.dirname(nearlight.__file__))))
print([point.value for point in metadata.entry_points(group="vllm.general_plugins") if point.name == "nearlight"])
"""


class PipInstall(unittest.TestCase):
    def test_without_cuda(self):
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NEARLIGHT_LIB")}
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
                            "--no-build-isolation", "--no-warn-script-location", "--disable-pip-version-check",
                            "--target", folder, "-C", "cmake.define.NEARLIGHT_CUDA=OFF", "-C", "build.tool-args=-j2", ROOT],
                           check=True, timeout=1200, env=environment, stdin=subprocess.DEVNULL)
            ran = subprocess.run([sys.executable, "-B", "-c", USE], capture_output=True, text=True, timeout=60, cwd=folder,
                                 env=dict(environment, PYTHONPATH=folder), check=False)
            tracked = subprocess.run(["git", "-C", ROOT, "status", "--porcelain", "--ignored"], capture_output=True, text=True,
                                     check=False).stdout
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertRegex(ran.stdout, r"^True \[.*'libnearlight.so'.*'py.typed'.*'torch'.*'vllm'.*\]\n\['nearlight.vllm:register'\]\n")
        self.assertEqual(re.findall(r"egg-info|_skbuild", tracked), [])


if __name__ == "__main__":
    unittest.main()
