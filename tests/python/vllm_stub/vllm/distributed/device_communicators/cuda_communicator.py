# SPDX-License-Identifier: Apache-2.0
"""A stand-in with the interface of vLLM 0.20.2 that the plug-in relies on; vllm_interface_check.py compares the two."""

import torch
import torch.distributed as dist


class CudaCommunicator:
    def __init__(self, cpu_group, device=None, device_group=None, unique_name="", global_ranks=None, global_world_size=None,
                 tcp_store_group=None):
        self.cpu_group, self.device_group, self.unique_name = cpu_group, device_group, unique_name
        self.device = device or torch.device("cpu")
        self.world_size = dist.get_world_size(cpu_group)
        self.calls, self.destroyed = 0, False

    def all_reduce(self, input_):
        self.calls += 1
        out = input_.clone()
        dist.all_reduce(out, group=self.device_group)
        return out

    def destroy(self):
        self.destroyed = True
