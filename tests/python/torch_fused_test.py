#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""all_reduce_rms_norm, all_reduce_bias, gemv_all_reduce and all_gather_gemv of nearlight.torch, on CPU ranks."""

import unittest

import torch

import nearlight
import nearlight.torch as nl
from torch_support import expect, run, same

HIDDEN, EPS = 1032, 1e-5


def given(rank, tokens, dtype):
    noise = torch.Generator().manual_seed(rank)
    return torch.randn(tokens, HIDDEN, generator=noise).to(dtype)


def near(found, wanted, what):
    """Within a unit in the last place, of a result in float64."""
    step = 2.0 ** -7 if found.dtype == torch.bfloat16 else 2.0 ** -10
    assert ((found.double() - wanted).abs() <= wanted.abs() * step + 1e-7).all(), (what, (found.double() - wanted).abs().max())


def normed(total, weight):
    x = total.double()
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight.double()


def values(rank, nranks):
    for dtype in (torch.bfloat16, torch.float16):
        weight, residual = given(20, 1, dtype)[0], given(21, 3, dtype)
        mine = given(rank, 3, dtype)
        reduced = nl.all_reduce(mine)
        out, total = nl.all_reduce_rms_norm(mine, weight, residual, eps=EPS)
        same(total, (reduced.float() + residual.float()).to(dtype), f"{dtype}: the sum")
        near(out, normed(total, weight), f"{dtype}: the norm")
        out, total = nl.all_reduce_rms_norm(mine, weight, eps=EPS)
        same(total, reduced, f"{dtype}: without a residual")
        scale = torch.tensor([0.05])
        for small in (torch.int8, torch.float8_e4m3fn):
            found, _ = nl.all_reduce_rms_norm(mine, weight, eps=EPS, out_dtype=small, scale=scale)
            scaled = out.float() * (1 / scale)
            same(found, scaled.round().clamp(-128, 127).to(small) if small == torch.int8 else scaled.clamp(-448, 448).to(small),
                 f"{dtype} to {small}")
        same(nl.all_reduce_bias(mine, weight), (reduced.float() + weight.float()).to(dtype), f"{dtype}: the bias")
    # Rows of more dimensions, not contiguous, and not at a multiple of 16 bytes.
    storage = torch.zeros(4 * HIDDEN + 1, dtype=torch.bfloat16)
    odd = storage[1:].view(2, 2, HIDDEN)
    odd.copy_(given(rank, 4, torch.bfloat16).view(2, 2, HIDDEN))
    weight = given(20, 1, torch.bfloat16)[0]
    same(nl.all_reduce_bias(odd, weight), nl.all_reduce_bias(odd.clone(), weight), "at an odd address")
    turned = odd.transpose(0, 1)
    same(nl.all_reduce_bias(turned, weight), nl.all_reduce_bias(odd, weight).transpose(0, 1), "transposed")
    assert nl.all_reduce_bias(torch.empty(0, HIDDEN, dtype=torch.bfloat16), weight).shape == (0, HIDDEN)


def small(seed, *shape, dtype=torch.bfloat16):
    """Whole numbers, whose products and sums are exact in float32."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def products(rank, nranks):
    for dtype in (torch.bfloat16, torch.float16):
        for tokens, out_size in ((1, 72), (16, 8)):
            # A rank's columns need not be as many as another's.
            given = [(small(i, tokens, 64 + 8 * i, dtype=dtype), small(100 + i, out_size, 64 + 8 * i, dtype=dtype))
                     for i in range(nranks)]
            wanted = sum(x.double() @ w.double().T for x, w in given).to(dtype)
            same(nl.gemv_all_reduce(*given[rank]), wanted, f"{dtype}, {tokens} tokens")
            parts = [small(200 + i, tokens, 64, dtype=dtype) for i in range(nranks)]
            weight = small(300 + rank, out_size, 64 * nranks, dtype=dtype)
            wanted = (torch.cat(parts, -1).double() @ weight.double().T).to(dtype)
            same(nl.all_gather_gemv(parts[rank], weight), wanted, f"{dtype}, {tokens} gathered tokens")
    x, weight = small(1, 2, 3, 64), small(2, 24, 64)
    wanted = nl.gemv_all_reduce(x.reshape(6, 64), weight).reshape(2, 3, 24)
    same(nl.gemv_all_reduce(x, weight), wanted, "more dimensions")
    same(nl.gemv_all_reduce(x.transpose(0, 1), weight), wanted.transpose(0, 1), "transposed")
    assert nl.gemv_all_reduce(torch.empty(0, 64, dtype=torch.bfloat16), weight).shape == (0, 24)


def refused_products(rank, nranks):
    x, weight = small(1, 1, 64), small(2, 24, 64)
    wrong = nearlight.InvalidArgument
    expect(wrong, "weight is", lambda: nl.gemv_all_reduce(x, weight[:, :56].contiguous()))
    expect(wrong, "weight is", lambda: nl.gemv_all_reduce(x, weight.half()))
    expect(wrong, "weight is not contiguous", lambda: nl.gemv_all_reduce(small(1, 1, 24), weight.T))
    expect(wrong, "weight is not contiguous", lambda: nl.gemv_all_reduce(x, small(3, 24 * 64 + 1)[1:].view(24, 64)))
    expect(wrong, "weight has 1", lambda: nl.gemv_all_reduce(x, weight[0]))
    expect(wrong, "tokens: 17", lambda: nl.gemv_all_reduce(small(1, 17, 64), weight))
    expect(wrong, "in_size: 60", lambda: nl.gemv_all_reduce(small(1, 1, 60), small(2, 24, 60)))
    expect(wrong, "out_size: 20", lambda: nl.gemv_all_reduce(x, small(2, 20, 64)))
    expect(wrong, "float", lambda: nl.gemv_all_reduce(x.float(), weight.float()))
    expect(wrong, "weight is", lambda: nl.all_gather_gemv(x, weight[:, :56].contiguous()))
    expect(wrong, "tokens: 17", lambda: nl.all_gather_gemv(small(1, 17, 64), weight))


def compiled_products(rank, nranks):
    x, weight = small(rank, 2, 64), small(10 + rank, 24, 64)
    layer = torch.compile(lambda x, weight: nl.gemv_all_reduce(x * 2, weight) + 1, fullgraph=True, backend="aot_eager")
    same(layer(x, weight), nl.gemv_all_reduce(x * 2, weight) + 1, "compiled")
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.nearlight.gemv_all_reduce.default, (x, weight), test_utils=tests)
    whole = small(20 + rank, 24, 64 * nranks)
    layer = torch.compile(lambda x, weight: nl.all_gather_gemv(x * 2, weight) + 1, fullgraph=True, backend="aot_eager")
    same(layer(x, whole), nl.all_gather_gemv(x * 2, whole) + 1, "compiled, gathered")
    torch.library.opcheck(torch.ops.nearlight.all_gather_gemv.default, (x, whole), test_utils=tests)


def refused(rank, nranks):
    good, weight = given(rank, 1, torch.bfloat16), given(20, 1, torch.bfloat16)[0]
    wrong = nearlight.InvalidArgument
    expect(wrong, "weight is", lambda: nl.all_reduce_rms_norm(good, weight[:-1]))
    expect(wrong, "residual is", lambda: nl.all_reduce_rms_norm(good, weight, good.float()))
    expect(wrong, "scale is", lambda: nl.all_reduce_rms_norm(good, weight, scale=torch.zeros(2), out_dtype=torch.int8))
    expect(wrong, "scale", lambda: nl.all_reduce_rms_norm(good, weight, out_dtype=torch.int8))
    expect(wrong, "out_type", lambda: nl.all_reduce_rms_norm(good, weight, out_dtype=torch.int32))
    expect(wrong, "hidden", lambda: nl.all_reduce_bias(good[:, :1000].contiguous(), weight[:1000]))
    expect(wrong, "float", lambda: nl.all_reduce_bias(good.float(), weight.float()))


def compiled(rank, nranks):
    def layer(x, weight, residual):
        out, total = nl.all_reduce_rms_norm(x * 2, weight, residual, eps=EPS)
        return nl.all_reduce_bias(out, weight), total

    x, weight, residual = given(rank, 2, torch.bfloat16), given(20, 1, torch.bfloat16)[0], given(21, 2, torch.bfloat16)
    for found, wanted in zip(torch.compile(layer, fullgraph=True, backend="aot_eager")(x, weight, residual), layer(x, weight, residual)):
        same(found, wanted, "compiled")
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(torch.ops.nearlight.all_reduce_rms_norm.default, (x, weight, residual), test_utils=tests)
    torch.library.opcheck(torch.ops.nearlight.all_reduce_bias.default, (x, weight), test_utils=tests)


class Fused(unittest.TestCase):
    def test_values(self):
        for nranks in (1, 3):
            with self.subTest(nranks=nranks):
                run(values, nranks)

    def test_products(self):
        for nranks in (1, 3):
            with self.subTest(nranks=nranks):
                run(products, nranks)

    def test_refused_products(self):
        run(refused_products, 1)

    def test_compiled_products(self):
        run(compiled_products, 2)

    def test_refused(self):
        run(refused, 1)

    def test_compiled(self):
        run(compiled, 2)


if __name__ == "__main__":
    unittest.main()
