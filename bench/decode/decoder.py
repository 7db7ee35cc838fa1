# SPDX-License-Identifier: Apache-2.0
"""One decode step of a Llama-like decoder, split over ranks by tensor parallelism, with random weights.

Per rank: its part of the embedding, of the query, key and value heads and of the feed-forward columns. All-reduces: the
embedding, and per layer the attention output and the feed-forward output, each `batch` * hidden_size elements. The final
norm is computed, the logits are not (they are gathered, not reduced). Attention reads a cache of `context` tokens.

Behind each all-reduce comes an RMSNorm, and but for the first the residual before it: `Joins` is how that is done.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Callable

import torch
import torch.nn.functional as F

EPS = 1e-5  # of the norms, in the configuration of both models
WORKLOADS = ("workloads", os.path.join("..", "workloads"))


@dataclasses.dataclass(frozen=True)
class Shape:
    """hidden size and layers are the workload's; the rest is of the same configuration."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    vocabulary: int
    all_reduces: int
    batches: tuple[int, ...]


# Config of meta-llama/Llama-3.1-8B and -70B: heads, heads of keys and values, head size, feed-forward size, vocabulary.
DIMENSIONS = {"llama-3.1-8b": (32, 8, 128, 14336, 128256), "llama-3.1-70b": (64, 8, 128, 28672, 128256)}
# For a test of this program itself: the least hidden size that the fused norm takes, and one token more than the fused product does.
TINY = Shape("tiny", 1024, 2, 4, 4, 16, 128, 100, 5, (1, 3, 17))


def shape_of(name: str) -> Shape:
    if name == TINY.name:
        return TINY
    if name not in DIMENSIONS:
        raise ValueError(f"no shapes for {name}: {', '.join([*DIMENSIONS, TINY.name])}")
    here = os.path.dirname(os.path.abspath(__file__))
    path = next(path for path in (os.path.join(here, folder, name + ".json") for folder in WORKLOADS) if os.path.exists(path))
    with open(path, encoding="utf-8") as file:
        workload = json.load(file)
    return Shape(name, workload["hidden_size"], workload["layers"], *DIMENSIONS[name],
                 workload["all_reduces_per_step"], tuple(workload["batch"]))


class Joins:
    """What stands between the parts of a step: the sum of all ranks' partial sums, the residual and the norm behind it. Here by
    `all_reduce`, which takes a rank's partial sum and gives the sum, and by PyTorch's addition and norm. Each way gives
    (the norm of the total, total); `residual` is the total before."""

    # Whether `linear` is one with the sum, which `joined` then has no part in.
    fused_product = False

    def __init__(self, all_reduce: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.all_reduce = all_reduce

    def first(self, part: torch.Tensor, norm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the embedding, which has no residual."""
        return self.joined(part, None, norm)

    def linear(self, x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor,
               norm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of this rank's columns of a linear layer."""
        return self.joined(F.linear(x, weight), residual, norm)

    def joined(self, part: torch.Tensor, residual: torch.Tensor | None, norm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        total = self.all_reduce(part)
        return self.normed(total if residual is None else residual + total, norm)

    @staticmethod
    def normed(total: torch.Tensor, norm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return F.rms_norm(total, norm.shape, norm, EPS), total


class Decoder:
    """This rank's weights, and the step."""

    def __init__(self, shape: Shape, rank: int, nranks: int, device: torch.device, dtype: torch.dtype, context: int) -> None:
        for what, count in (("heads", shape.heads), ("kv_heads", shape.kv_heads), ("inner", shape.inner)):
            if count % nranks != 0:
                raise ValueError(f"{shape.name}: {count} {what} cannot be split over {nranks} ranks")
        self.shape, self.device, self.dtype, self.context = shape, device, dtype, context
        self.heads, self.kv_heads, self.inner = shape.heads // nranks, shape.kv_heads // nranks, shape.inner // nranks
        self.rows = (shape.vocabulary + nranks - 1) // nranks
        self.first_row = rank * self.rows
        generator = torch.Generator(device).manual_seed(1000 + rank)

        def weight(rows: int, columns: int) -> torch.Tensor:
            return torch.empty(rows, columns, dtype=dtype, device=device).normal_(0, 0.02, generator=generator)

        # A norm's weights are the same on all ranks, and not another norm's.
        equal = torch.Generator(device).manual_seed(999)

        def around_one() -> torch.Tensor:
            return torch.empty(shape.hidden, dtype=dtype, device=device).normal_(1, 0.1, generator=equal)

        head = shape.head_size
        self.embedding = weight(self.rows, shape.hidden)
        self.layers = [{"norm": around_one(), "qkv": weight((self.heads + 2 * self.kv_heads) * head, shape.hidden),
                        "out": weight(shape.hidden, self.heads * head), "norm 2": around_one(),
                        "up": weight(2 * self.inner, shape.hidden), "down": weight(shape.hidden, self.inner)}
                       for _ in range(shape.layers)]
        self.norm = around_one()
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        self.generator = generator

    def make_cache(self, batch: int) -> None:
        """Keys and values of the tokens before, of which the last place is this step's."""
        extents = (batch, self.kv_heads, self.context, self.shape.head_size)
        self.keys, self.values = ([torch.empty(extents, dtype=self.dtype, device=self.device).normal_(generator=self.generator)
                                   for _ in range(self.shape.layers)] for _ in range(2))

    def step(self, tokens: torch.Tensor, joins: Joins) -> torch.Tensor:
        """tokens [batch], int64, the same on all ranks; result [batch, hidden]."""
        batch, head = tokens.shape[0], self.shape.head_size
        # Behind a layer's last all-reduce comes the first norm of the next one.
        after = [layer["norm"] for layer in self.layers[1:]] + [self.norm]
        local = tokens - self.first_row
        mine = (local >= 0) & (local < self.rows)
        x, total = joins.first(F.embedding(torch.where(mine, local, 0), self.embedding) * mine.unsqueeze(1), self.layers[0]["norm"])
        for index, layer in enumerate(self.layers):
            query, key, value = F.linear(x, layer["qkv"]).split([self.heads * head, self.kv_heads * head, self.kv_heads * head], dim=1)
            self.keys[index][:, :, -1] = key.view(batch, self.kv_heads, head)
            self.values[index][:, :, -1] = value.view(batch, self.kv_heads, head)
            options: dict[str, Any] = {"enable_gqa": True} if self.heads != self.kv_heads else {}
            attended = F.scaled_dot_product_attention(query.view(batch, self.heads, 1, head), self.keys[index],
                                                      self.values[index], **options)
            x, total = joins.linear(attended.reshape(batch, self.heads * head), layer["out"], total, layer["norm 2"])
            gate, up = F.linear(x, layer["up"]).chunk(2, dim=1)
            x, total = joins.linear(F.silu(gate) * up, layer["down"], total, after[index])
        return x
