# SPDX-License-Identifier: Apache-2.0
"""Ranks that are processes of one GPU, which NCCL refuses on one host: each says that it is on a host of its own, so that
NCCL's calls go through a socket. nearlight's memory is then not NCCL's. They take turns on the GPU, milliseconds each: of use
to see that results are right, and for nothing else."""


def variables_of(rank):
    """What a rank's environment needs before NCCL is loaded."""
    return {"NCCL_HOSTID": "rank%d" % rank, "NCCL_SOCKET_IFNAME": "lo"}
