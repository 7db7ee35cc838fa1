# SPDX-License-Identifier: Apache-2.0
"""Whether a decode step's all-reduces and joins are right, looked at one by one as the step runs."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F

from decoder import EPS, Joins

CHECKED = 3  # replays whose all-reduces are checked

# Records a step: (replay, the result that a replay writes).
Record = Callable[[Callable[[], torch.Tensor]], tuple[Callable[[], Any], torch.Tensor]]


def wrong_sums(record: Record, step: Callable[[Joins], torch.Tensor], reduce: Callable[[torch.Tensor], torch.Tensor]) -> int:
    """Elements of the step's all-reduces that are not the sum of what the ranks gave, in a few replays of a step that keeps
    both. The step's own result would not do: a matrix product need not come to the same bits each time."""
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def keeping(x: torch.Tensor) -> torch.Tensor:
        given = x.clone()
        got = reduce(x)
        kept.append((given, got.clone()))
        return got

    def recorded() -> torch.Tensor:
        kept.clear()
        return step(Joins(keeping))

    replay, _ = record(recorded)
    # Two ranks: one addition, rounded once, whoever does it. More: the order may differ.
    tolerance = 0.0 if dist.get_world_size() <= 2 else 0.05
    wrong = 0
    for _ in range(CHECKED):
        replay()
        for given, got in kept:
            parts = [torch.empty_like(given, dtype=torch.float32) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, given.float())
            right = sum(parts[1:], parts[0]).to(got.dtype).float()
            wrong += int((~torch.isclose(got.float(), right, rtol=tolerance, atol=tolerance)).sum())
    return wrong


@dataclasses.dataclass
class Kept:
    """One join: what this rank gave, which is its partial sum or, with a `weight`, the input of a linear layer; and what it got."""

    given: torch.Tensor
    weight: torch.Tensor | None
    residual: torch.Tensor | None
    norm: torch.Tensor
    normed: torch.Tensor
    total: torch.Tensor


class Watched(Joins):
    """Does as `joins` do, and keeps each."""

    def __init__(self, joins: Joins) -> None:
        super().__init__(joins.all_reduce)
        self.joins = joins
        self.kept: list[Kept] = []

    def joined(self, part: torch.Tensor, residual: torch.Tensor | None, norm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._keep(part.clone(), None, residual, norm, self.joins.joined(part, residual, norm))

    def linear(self, x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor,
               norm: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.joins.fused_product:
            return super().linear(x, weight, residual, norm)
        return self._keep(x.clone(), weight, residual, norm, self.joins.linear(x, weight, residual, norm))

    def _keep(self, given: torch.Tensor, weight: torch.Tensor | None, residual: torch.Tensor | None, norm: torch.Tensor,
              made: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        self.kept.append(Kept(given, weight, None if residual is None else residual.clone(), norm, made[0].clone(), made[1].clone()))
        return made


def wrong_elements(join: Kept) -> int:
    """Of `total` and of `normed`. Collective.

    Let u be half a unit in the last place of the type, relative (2^-8 of bfloat16). With the ranks' sum S and T = S + residual,
    both without rounding, the sum is rounded once, and so is the addition: total is within u |S| + u (|T| + u |S|) of T. fp32
    sums, ours and the reference's, lose something, which counts where S and T are near 0: 2^-12 of a row's typical S covers it.
    normed is compared with the norm of the total that came out. nearlight rounds it once, PyTorch perhaps also before the
    weight: it is within 2 u + u^2, and a little for fp32, of that."""
    part = join.given.float() if join.weight is None else F.linear(join.given.float(), join.weight.float())
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part)
    u = torch.finfo(join.total.dtype).eps / 2
    reduced = torch.stack(parts).double().sum(0)
    wanted = reduced if join.residual is None else reduced + join.residual.double()
    total = join.total.double()
    near = u * ((1 + u) * reduced.abs() + wanted.abs()) + 2.0 ** -12 * reduced.square().mean(-1, keepdim=True).sqrt()
    wrong = ~((total - wanted).abs() <= near)  # a NaN is wrong
    right = total * (total.square().mean(-1, keepdim=True) + EPS).rsqrt() * join.norm.double()
    wrong_norm = ~((join.normed.double() - right).abs() <= (2 * u + u * u + 1e-5) * right.abs())
    return int(wrong.sum()) + int(wrong_norm.sum())


def wrong_joins(record: Record, step: Callable[[Joins], torch.Tensor], joins: Joins, count: int) -> int:
    """Elements of the step's `count` joins that are not what the ranks' partial sums come to, in a few replays of a step that
    keeps both; see wrong_elements."""
    watched = Watched(joins)

    def recorded() -> torch.Tensor:
        watched.kept.clear()
        return step(watched)

    replay, _ = record(recorded)
    wrong = 0
    for _ in range(CHECKED):
        replay()
        if len(watched.kept) != count:
            raise RuntimeError(f"{len(watched.kept)} joins are checked, and the step has {count}")
        wrong += sum(map(wrong_elements, watched.kept))
    return wrong
