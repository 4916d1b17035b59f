"""Shapes computed from symbolic sizes are those of torch's kernels, for sizes and options at random."""

import random
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import thunder
from symbolic.static_reasons import failure_of
from thunder.base import devices
from thunder.base.errors import InternalError
from thunder.ir.proxies import TensorProxy
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_sizes import new_size
from thunder.ir.trace import TraceCtx
from thunder.ir.trace_context import tracectx
from thunder.ops.meta_kernels import torch_meta
from thunder.torch import kernel_shapes

KINDS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")


def _described(shape, *, real=False):
    return SimpleNamespace(shape=tuple(shape)), torch.empty(
        shape, device="meta", dtype=None if real else torch.cfloat
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_lengths_of_spectra(kind, seed):
    rng = random.Random(seed)
    shape = [rng.randint(2, 7) for _ in range(rng.randint(2, 4))]
    x, meta = _described(shape, real=kind in ("rfft", "ihfft"))
    dims = rng.sample(range(-len(shape), 0), rng.randint(1, 2))
    lengths = rng.choice([None, [rng.choice([-1, 2, 5, 8]) for _ in dims]])
    for several, default, dim in (("2", (-2, -1), tuple(dims)), ("n", None, tuple(dims)), ("n", None, None)):
        expected = getattr(torch.fft, f"{kind}{several}")(meta, lengths, dim).shape
        assert kernel_shapes.spectra(kind, default)(x, lengths, dim) == expected
    n = rng.choice([None, 3, 8])
    expected = getattr(torch.fft, kind)(meta, n, dims[0]).shape
    assert kernel_shapes.one_spectrum(kind)(x, n, dims[0]) == expected


@pytest.mark.parametrize("seed", range(8))
def test_products_norms_and_pools(seed):
    rng = random.Random(seed)
    a, b = ([rng.randint(1, 5) for _ in range(rng.randint(0, 3))] for _ in range(2))
    (x, meta), (y, other) = _described(a), _described(b)
    assert kernel_shapes.kron(x, y) == torch.kron(meta, other).shape
    image, meta = _described([2, 3, rng.randint(4, 9), rng.randint(4, 9)], real=True)
    size = rng.choice([2, (2, 3), (None, 2), (3, None)])
    assert kernel_shapes.adaptive(2)(image, size) == F.adaptive_max_pool2d(meta, size).shape
    ratio = rng.choice([(0.5, 0.5), (0.7, 0.4)])
    expected = F.fractional_max_pool2d(meta, 2, output_ratio=ratio).shape
    assert kernel_shapes.fractional(2)(image, 2, None, ratio) == expected
    dims, keepdim = rng.sample(range(-4, 4, 1), 2), rng.random() < 0.5
    if (dims[0] - dims[1]) % 4:
        expected = torch.linalg.matrix_norm(meta, "fro", dims, keepdim).shape
        assert kernel_shapes.matrix_norm(image, "fro", dims, keepdim) == expected


@pytest.mark.parametrize("factor", [0.5, 1.7, 0.6, 2.0, 1 / 3, 1.1, 2.5])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_scaled_images_of_all_sizes_are_one_program(factor, mode):
    def scaled(x):
        return F.interpolate(x, scale_factor=factor, mode=mode)

    compiled = thunder.jit(scaled, cache="symbolic values")
    for height, width in [(5, 4), (10, 20), (7, 30), (8, 9), (3, 3)]:
        x = torch.randn(1, 2, height, width)
        torch.testing.assert_close(compiled(x), scaled(x))
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("r", range(5))
@pytest.mark.parametrize("with_replacement", [False, True])
def test_the_number_of_choices(r, with_replacement):
    def choices(x):
        return torch.combinations(x, r, with_replacement)

    compiled = thunder.jit(choices, cache="symbolic values")
    for n in (4, 2, 7, 1, 0, 3):
        x = torch.randn(n)
        assert torch.equal(compiled(x), choices(x))
    assert thunder.cache_misses(compiled) <= 3  # 0 and 1 may be other programs
    assert failure_of(compiled) is None


def test_a_rule_that_is_wrong_for_the_traced_call_is_an_error():
    meta = torch_meta(torch.sin, shape=lambda x: (x.shape[0] + 1,))
    with tracectx(TraceCtx()):
        x = TensorProxy(
            shape=(new_size(SizeFacts(), 3, "x"),), dtype=thunder.float32, device=devices.Device("cpu")
        )
        with pytest.raises(InternalError, match="has the shape"):
            meta(x)
