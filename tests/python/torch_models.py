# SPDX-License-Identifier: Apache-2.0
"""Small models that PyTorch spreads over ranks: trained with nearlight enabled, they come to what they come to without."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import nearlight.torch as nl


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def trained(rank, device, wrap, steps=4):
    """The parameters after some steps, on data of each rank's own unless `wrap` says that it splits the model."""
    torch.manual_seed(3)
    wrapped, same_data = wrap(Network().to(device))
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for step in range(steps):
        torch.manual_seed(100 * step + (0 if same_data else rank))
        optimizer.zero_grad()
        wrapped(torch.randn(32, 64).to(device)).square().mean().backward()
        optimizer.step()
    return [(p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone() for p in wrapped.parameters()]


def compare(rank, nranks, device, config):
    """Enables nearlight half-way. How many all-reduces it took, by way of spreading."""
    mesh = init_device_mesh(device, (nranks,))

    def ddp(network):
        return DistributedDataParallel(network, device_ids=[torch.cuda.current_device()] if device == "cuda" else None), False

    def ddp_hook(network):
        wrapped, _ = ddp(network)
        wrapped.register_comm_hook(None, nl.ddp_hook)
        return wrapped, False

    def fsdp(network):
        for layer in (network.up, network.down):
            fully_shard(layer, mesh=mesh)
        fully_shard(network, mesh=mesh)
        return network, False

    def tp(network):
        return parallelize_module(network, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()}), True

    plain = {wrap.__name__: trained(rank, device, wrap) for wrap in (ddp, fsdp, tp)}
    groups = {group.group_name: group for group in (dist.group.WORLD, mesh.get_group())}
    for group in groups.values():
        nl.enable(group, config=config)
    taken = {}
    for wrap in (ddp, ddp_hook, fsdp, tp):
        before = sum(nl.statistics(group).taken for group in groups.values())
        found = trained(rank, device, wrap)
        taken[wrap.__name__] = sum(nl.statistics(group).taken for group in groups.values()) - before
        for one, right in zip(found, plain[wrap.__name__.split("_")[0]]):
            torch.testing.assert_close(one, right, rtol=1e-5, atol=1e-6)
    assert taken["ddp_hook"] > 0 and taken["tp"] > 0, taken
    return taken
