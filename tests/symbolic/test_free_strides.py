"""Strides that no sizes determine, those of parts of longer tensors, are symbols as sizes are."""

import pytest
import torch
import torch.nn.functional as F

import thunder
from sweeping import one_in

R = torch.randn

#: name → a program of a tensor (2, 3, n, 4), and the most compiles for parts of many lengths
PROGRAMS = {
    "elementwise": (lambda x: x.sin() * 2 + x, 2),
    "sum": (lambda x: x.sum(2), 2),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), 3),
    "appended": (lambda x: torch.cat([x, x[:, :, :1]], 2), 2),
    "matrix product": (lambda x: x @ x.mT, 2),
    "reshaped": (lambda x: x.reshape(6, -1) * 2, 2),
    "transposed": (lambda x: x.transpose(1, 2).flatten(2), 2),
    "view of the inner dimensions": (lambda x: x.view(2, 3, -1), 2),
    "view of the outer dimensions": (lambda x: x.view(6, -1, 4), 2),
    "decided on the layout": (lambda x: x * 2 if x.is_contiguous() else x * 3, 2),
    "decided on a stride": (lambda x: x * 2 if x.stride(1) > 30 else x * 3, 3),
    "returned": (lambda x: (x.stride(), x.stride(1) - x.shape[2]), 2),
    "number of all": (lambda x: x.as_strided((2, 2), (x.stride(0), 1)), 2),
    "repeated for heads": (lambda x: x[:, :, None].expand(2, 3, 2, -1, 4).reshape(2, 6, -1, 4), 2),
    "copy in the same layout": (lambda x: torch.empty_like(x).stride(), 2),
    "normalised": (lambda x: F.layer_norm(x, (4,)).softmax(2), 2),
    "wider": (lambda x: F.interpolate(x, scale_factor=2), 3),
}
#: the length of a part, and that of the whole
LENGTHS = ((3, 3), (4, 6), (5, 6), (5, 9), (7, 11), (2, 12), (6, 8), (9, 9))


def _outcome(fn, x):
    try:
        result = fn(x)
    except RuntimeError as error:
        return type(error)
    return (result, result.stride()) if isinstance(result, torch.Tensor) else result


def _assert_same(ours, eager):
    if isinstance(eager, tuple) and isinstance(eager[0], torch.Tensor):
        torch.testing.assert_close(ours[0], eager[0])
        assert ours[1] == eager[1]
    else:
        assert ours == eager


@pytest.mark.parametrize(
    ("name", "cache"), one_in(4, [(n, c) for c in ("automatic", "symbolic values") for n in PROGRAMS])
)
def test_parts_of_many_lengths_share_programs(name, cache):
    program, most = PROGRAMS[name]
    compiled = thunder.jit(program, cache=cache, executors=["torch"], recompile_limit=None)
    for length, whole in LENGTHS:
        x = R(2, 3, whole, 4)[:, :, :length]
        _assert_same(_outcome(compiled, x), _outcome(program, x))
    contiguous = 1 if cache == "automatic" else 0  # the first call is for its sizes
    assert thunder.cache_misses(compiled) <= most + 1 + contiguous


def test_the_first_part_costs_a_compile_and_the_others_none():
    compiled = thunder.jit(lambda x: x * 2, executors=["torch"])
    for length, whole in ((3, 3), (4, 7), (5, 9), (6, 8), (2, 30)):
        x = R(3, whole)[:, :length]
        assert torch.equal(compiled(x), x * 2)
    assert thunder.cache_misses(compiled) == 2
    assert "args[0].stride()[0]" in thunder.last_recompile_reasons(compiled)[0].now_free


@pytest.mark.parametrize("cache", ["automatic", "symbolic values"])
def test_other_layouts_are_other_programs(cache):
    def program(x):
        return (x * 2).stride(), x.mT.reshape(-1)

    compiled = thunder.jit(program, cache=cache, executors=["torch"], recompile_limit=None)
    for length, whole in ((4, 6), (3, 8)):
        row = R(3, whole)[:, :length]
        layouts = (row, row.mT.contiguous().mT, row[:1].expand(3, length), R(3, length, 2)[..., 0], row.mT)
        for x in (*layouts, torch.stack([row, row])[:, :, 0], row.contiguous()[:, :1].expand(3, length)):
            (strides, values), (expected, elements) = compiled(x), program(x)
            assert strides == expected
            assert torch.equal(values, elements)


@pytest.mark.parametrize("cache", ["automatic", "symbolic values"])
def test_writes_reach_parts_and_gradients_pass_through_them(cache):
    def program(x, y):
        x[:, :1] += y[:, :1]
        return (x * y).sum(0)

    compiled = thunder.jit(program, cache=cache, executors=["torch"], recompile_limit=None)
    for length, whole in ((4, 4), (3, 6), (5, 9), (2, 8), (6, 7)):
        bases = [torch.arange(3.0 * whole).view(3, whole) for _ in range(2)]
        weights = [R(3, whole).requires_grad_() for _ in range(1)] * 2
        found = []
        for fn, base, y in zip((program, compiled), bases, weights, strict=True):
            y.grad = None
            fn(base[:, :length], y[:, :length]).sin().sum().backward()
            found.append(y.grad)
        assert torch.equal(*bases)
        torch.testing.assert_close(*found)
    assert thunder.cache_misses(compiled) <= 3


def test_parts_that_overlap_are_fixed_where_the_program_writes():
    def program(x, y):
        x += 1
        return y * 2

    compiled = thunder.jit(program, cache="symbolic values", executors=["torch"], recompile_limit=None)
    for whole, length in ((6, 3), (7, 4), (8, 5), (8, 3)):
        found = []
        for fn in (program, compiled):
            base = torch.arange(4.0 * whole).view(4, whole)
            found.append((fn(base[:, :length], base[:, 1 : length + 1]), base))
        for ours, eager in zip(*found, strict=True):
            assert torch.equal(ours, eager)
