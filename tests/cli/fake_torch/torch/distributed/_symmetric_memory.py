import torch


def empty(size, dtype, device):
    return torch.empty(size, dtype, device)


def rendezvous(tensor, group):
    assert group == "world"
    tensor.symmetric = True
