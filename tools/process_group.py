# SPDX-License-Identifier: Apache-2.0
"""How programs that start others end them: a process and all that it has started, in a session of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time

GRACE_S = 10  # between SIGTERM, on which the drop-in's counts are printed, and SIGKILL
ORPHANS_S = 2  # the same for what the process leaves behind as it ends: nobody waits for it


def lives_in(group: int) -> bool:
    """Whether a process of the group runs still; one that has ended and whom nobody has waited for does not."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                state, _parent, its_group = file.read().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue  # it has gone meanwhile
        if int(its_group) == group and state not in "ZX":
            return True
    return False


def is_over(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended and left nothing behind: its number may be another group's from then on. Until it has been waited for it is not."""
    return process.poll() is not None and not lives_in(process.pid)


def end_group(process: subprocess.Popen[bytes], grace_s: float = GRACE_S) -> None:
    """Also of a process that has ended itself, whose children may live. Nothing is left but what no signal ends."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if is_over(process):
            return
        begin = time.monotonic()
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            continue
        while time.monotonic() < begin + min(grace_s, ORPHANS_S) and lives_in(process.pid):
            time.sleep(0.02)
