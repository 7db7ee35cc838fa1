# SPDX-License-Identifier: Apache-2.0
"""How programs that start others end them: a process and all that it has started, in a session of its own."""

from __future__ import annotations

import os
import signal
import subprocess

GRACE_S = 10  # between SIGTERM, on which the drop-in's counts are printed, and SIGKILL


def end_group(process: subprocess.Popen[bytes], grace_s: float = GRACE_S) -> None:
    """Also of a process that has ended itself, whose children may live. Nothing is left but what no signal ends."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            pass
