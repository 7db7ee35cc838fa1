# SPDX-License-Identifier: Apache-2.0
"""Makes a communicator of the ranks of a process group: on all of them, or an error on all of them."""

from __future__ import annotations

import os
import secrets
from typing import Any

import torch
import torch.distributed as dist

from .._version import __version__
from ..communicator import Communicator, Config
from ..errors import InvalidArgument, InvalidUsage, NearlightError, Unsupported, error_of
from . import _nccl
from ._groups import Group, Limits, find

MOST_RANKS = 8
CREATE_TIMEOUT_MS = 60_000


def place() -> str:
    """Equal for processes that can meet: the same boot of the same host, the same network namespace."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:
        return f"{boot.read().strip()} {os.stat('/proc/self/ns/net').st_ino}"


def default_device(group: Any) -> torch.device:
    """The current GPU where the group has a backend for GPUs, else the CPU."""
    backends = str(dist.get_backend_config(group)).lower()
    if torch.cuda.is_available() and "cuda" in backends:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def _gather(value: Any, via: Any) -> list[Any]:
    everybody: list[Any] = [None] * dist.get_world_size(via)
    dist.all_gather_object(everybody, value, group=via)
    return everybody


def _difference(facts: list[dict[str, Any]]) -> NearlightError | None:
    """Why these ranks cannot be one group, in words that are the same on all ranks."""
    for rank, one in enumerate(facts):
        if one["failure"] is not None:
            code, text = one["failure"]
            return error_of(code, f"nearlight.torch.enable: rank {rank}: {text}")
    if len(facts) > MOST_RANKS:
        return Unsupported(f"nearlight.torch.enable: group has {len(facts)} ranks; nearlight has groups of 1 to {MOST_RANKS}")
    for rank, one in enumerate(facts):
        if one["place"] != facts[0]["place"]:
            return Unsupported(f"nearlight.torch.enable: rank {rank} is on another host or in another network namespace "
                               "than rank 0")
    for rank, one in enumerate(facts):
        for field in ("version", "device type", "backend", "replace", "limits", "config"):
            if one[field] != facts[0][field]:
                return InvalidUsage(f"nearlight.torch.enable: {field} is {one[field]} on rank {rank} and {facts[0][field]} "
                                    "on rank 0")
    return None


def _create(backend: str, facts: list[dict[str, Any]], rank: int, device: torch.device,
            config: Config) -> tuple[Communicator, Any]:
    key, nranks = facts[0]["key"], len(facts)
    if backend == "host":
        return Communicator.host(rank, nranks, key, config), None
    if backend == "cuda":
        return Communicator.cuda(device.index, rank, nranks, key, config), None
    owned = _nccl.NcclCommunicator(facts[0]["nccl id"], rank, nranks, device, config.create_timeout_ms or CREATE_TIMEOUT_MS)
    try:
        with torch.cuda.device(device):
            return Communicator.attach_nccl(owned.comm or 0, config), owned
    except NearlightError:
        owned.close(failed=True)
        raise


def _own_failure(group: Any, kind: str, device: torch.device, limits: Limits) -> NearlightError | None:
    if find(group.group_name) is not None:
        return InvalidUsage(f"group: nearlight is enabled for {group.group_name} already")
    if limits.min_bytes < 0 or (limits.max_bytes is not None and limits.max_bytes < limits.min_bytes):
        return InvalidArgument(f"min_bytes is {limits.min_bytes}, max_bytes {limits.max_bytes}; "
                               "0 <= min_bytes <= max_bytes must hold")
    if kind not in ("host", "cuda", "nccl"):
        return InvalidArgument(f"backend is {kind!r}; it takes auto, host, cuda or nccl")
    if (kind == "host") != (device.type == "cpu") or device.type not in ("cpu", "cuda"):
        return InvalidArgument(f"backend {kind} has no ranks on {device}")
    return None


def make_group(group: Any, *, device: torch.device | None = None, backend: str = "auto", limits: Limits = Limits(),
               config: Config = Config(), replace: bool = False, via: Any = None) -> Group:
    """Collective over `group`. `via`: the group, of the same ranks, over which they exchange what they need."""
    via = group if via is None else via
    rank = dist.get_rank(via)
    if device is None:
        device = default_device(group)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    kind = ("nccl" if device.type == "cuda" else "host") if backend == "auto" else backend
    # A rank that raised here alone would let the others wait: everything is told first.
    failure, identity = _own_failure(group, kind, device, limits), b""
    if failure is None and kind == "nccl" and rank == 0:
        try:
            identity = _nccl.unique_id()
        except NearlightError as error:
            failure = error
    facts = _gather({"failure": None if failure is None else (failure.code, str(failure)), "place": place(),
                     "version": __version__, "device type": device.type, "backend": kind, "replace": replace,
                     "limits": tuple(limits), "config": config, "key": "torch " + secrets.token_hex(16),
                     "nccl id": identity}, via)
    difference = _difference(facts)
    if difference is not None:
        raise difference
    comm = owned = None
    outcome: tuple[int, str] | None = None
    try:
        comm, owned = _create(kind, facts, rank, device, config)
    except NearlightError as error:
        outcome = (error.code, str(error))
    # A rank whose own creation went well may be alone with that.
    outcomes = _gather(outcome, via)
    for other, failed in enumerate(outcomes):
        if failed is not None:
            if comm is not None:
                comm.close()
            if owned is not None:
                owned.close(failed=True)
            code, text = outcome or failed
            raise error_of(code, f"nearlight.torch.enable: rank {rank if outcome else other}: {text}")
    assert comm is not None
    return Group(group.group_name, group, comm, device, limits, owned)
