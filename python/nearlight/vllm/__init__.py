# SPDX-License-Identifier: Apache-2.0
"""A plug-in for vLLM: the all-reduces of its tensor parallelism by nearlight.

`pip install .` registers it as `vllm.general_plugins`, so that vLLM calls `register` in each of its processes;
NEARLIGHT_VLLM=0 turns it off. What nearlight does not take (by size, type or for want of a fit group) goes where vLLM
sends it without the plug-in. docs/guide/python.md. Written for the interfaces of vLLM 0.20.2.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from typing import Any

from ..errors import InvalidArgument, NearlightError, Unsupported

__all__ = ["group_of", "register", "unregister"]

VARIABLE = "NEARLIGHT_VLLM"
MODULE = "vllm.distributed.device_communicators.cuda_communicator"
# What we rely on: the class's methods with the arguments that we look at, and what its constructor sets.
METHODS = {"__init__": ["cpu_group", "device", "device_group", "unique_name"], "all_reduce": ["input_"], "destroy": []}
ATTRIBUTES = ["cpu_group", "device", "device_group", "unique_name", "world_size"]
DEVICE_TYPE = "cuda"

_ATTRIBUTE = "nearlight_group"
_log = logging.getLogger("vllm.nearlight")
_plain: dict[str, Any] = {}


def wanted() -> bool:
    """What NEARLIGHT_VLLM says; InvalidArgument for anything but 0 and 1."""
    text = os.environ.get(VARIABLE, "1")
    if text not in ("0", "1"):
        raise InvalidArgument(f'{VARIABLE} is "{text}"; it takes 0 or 1')
    return text == "1"


def _communicator_class() -> Any:
    import importlib

    kind = importlib.import_module(MODULE).CudaCommunicator
    for name, arguments in METHODS.items():
        found = list(inspect.signature(getattr(kind, name)).parameters)
        if [argument for argument in arguments if argument not in found]:
            raise Unsupported(f"{MODULE}.CudaCommunicator.{name} takes {', '.join(found)}; the plug-in was written for another vLLM")
    return kind


def _unfit(communicator: Any) -> str | None:
    """Why nearlight has nothing to do with it; "": not worth a word."""
    import torch.distributed.distributed_c10d as c10d

    if str(communicator.unique_name).split(":")[0] != "tp" or communicator.world_size == 1:
        return ""
    if communicator.device.type != DEVICE_TYPE:
        return f"its ranks are on {communicator.device.type}"
    if c10d._world.pg_map.get(communicator.cpu_group) is None or communicator.device_group is None:
        return "its groups are not torch.distributed's"
    return None


def _join(communicator: Any) -> None:
    """Gives a communicator its nearlight.torch Group, or says in one line why it has none. Alike on all ranks."""
    import torch

    from ..torch._make import make_group

    why = _unfit(communicator)
    if why is None:
        try:
            with torch.device("cpu"):  # whatever stands as default
                group = make_group(communicator.device_group, device=communicator.device, via=communicator.cpu_group)
        except NearlightError as error:
            why = str(error)
        else:
            setattr(communicator, _ATTRIBUTE, group)
            if group.comm.rank == 0:
                _log.info("nearlight takes the all-reduces of %s: %d ranks, %s", communicator.unique_name,
                          communicator.world_size, group.explain(torch.bfloat16, 4096, "sum", DEVICE_TYPE).reason)
    if why:
        _log.warning("nearlight leaves the all-reduces of %s to vLLM: %s", communicator.unique_name, why)


def group_of(communicator: Any) -> Any:
    """The nearlight.torch Group of a CudaCommunicator, None where it has none. `explain`, `taken` and `left` tell more."""
    return getattr(communicator, _ATTRIBUTE, None)


def _all_reduce(self: Any, input_: Any) -> Any:
    import torch

    group = getattr(self, _ATTRIBUTE, None)
    # vLLM calls this inside an operator of its own, so that a size is not compiled in.
    if group is None or not group.take(input_, "sum"):
        return _plain["all_reduce"](self, input_)
    source = input_.contiguous()
    result = torch.empty_like(source)
    group.all_reduce(source, result, "sum")
    return result


def _init(self: Any, *words: Any, **named: Any) -> None:
    _plain["__init__"](self, *words, **named)
    _join(self)


def _destroy(self: Any) -> None:
    group = getattr(self, _ATTRIBUTE, None)
    if group is not None:
        setattr(self, _ATTRIBUTE, None)
        group.close()
    _plain["destroy"](self)


def register() -> None:
    """Called by vLLM, in each process and maybe again. Without a fit vLLM: one warning, nothing is changed."""
    if not wanted() or _plain:
        return
    try:
        kind = _communicator_class()
    except (ImportError, AttributeError, Unsupported) as error:
        _log.warning("nearlight's plug-in does nothing: %s", error)
        return
    for name, ours in (("__init__", _init), ("all_reduce", _all_reduce), ("destroy", _destroy)):
        _plain[name] = getattr(kind, name)
        setattr(kind, name, functools.wraps(_plain[name])(ours))


def unregister() -> None:
    """Gives vLLM's class its methods back. For tests: a communicator that has a group must be destroyed before."""
    if _plain:
        kind = _communicator_class()
        for name in list(_plain):
            setattr(kind, name, _plain.pop(name))
