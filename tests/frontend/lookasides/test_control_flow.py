"""Torch's structured control flow in a program: ``while_loop``, ``scan``, ``flex_attention`` and others."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_slices
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention

import thunder
from comparison.inputs import leaf

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about its prototypes


def doubled(x):
    return while_loop(lambda x: x.norm() < 30, lambda x: (x * 2,), (x,))[0]


def counted(x):
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.sin()), (torch.tensor(0), x))


def summed(x):
    return scan(lambda c, a: (c + a, (c * a).clone()), torch.zeros(3, dtype=x.dtype), x, dim=0, reverse=True)


def affine(x):
    pairs = (x, x + 1)
    return associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), pairs, 0, combine_mode="generic")


def mapped(x):
    return map_slices(lambda a, b: {"sin": a[0].sin() + b, "twice": a[1] * b}, (x, x + 1), x[0].clone())


@pytest.mark.parametrize("program", [doubled, counted, summed, affine, mapped])
def test_values_are_eagers(program):
    compiled = thunder.jit(program)
    for scale in (1.0, 0.1, 100.0):
        x = leaf(4, 3, grad=False) * scale
        torch.testing.assert_close(compiled(x), program(x))


@pytest.mark.parametrize("program", [counted, affine])
def test_gradients_are_eagers(program):
    gradients = []
    for call in (program, thunder.jit(program)):
        x = leaf(4, 3)
        first, second = call(x)
        results = [r for r in (first, second) if r.is_floating_point()]
        gradients.append(torch.autograd.grad(sum(r.square().sum() for r in results), x))
    torch.testing.assert_close(gradients[1], gradients[0])


def test_the_gradient_of_a_loop_is_that_of_its_calls():
    layer = torch.nn.Linear(3, 3)

    def program(x):
        return while_loop(lambda i, x: i < 2, lambda i, x: (i + 1, layer(x).tanh()), (torch.tensor(0), x))[1]

    x = torch.ones(2, 3)
    expected = torch.autograd.grad(layer(layer(x).tanh()).tanh().sum(), layer.weight)
    actual = torch.autograd.grad(thunder.jit(program)(x).sum(), layer.weight)
    torch.testing.assert_close(actual, expected)


def test_what_the_other_branch_alone_reads_has_no_gradient():
    first, second = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    program = thunder.jit(lambda x: torch.cond(x.sum() > 0, lambda x: x * first, lambda x: x * second, (x,)))
    program(torch.ones(2)).sum().backward()
    assert first.grad is not None
    assert second.grad is None


def sine_where_positive(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin() * x, lambda x: x - 1, (x,))


def products(x):
    return scan(lambda c, a: (c * a, (c * a).clone()), x[0], x, dim=0)[1]


def squares(x):
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * x), (torch.tensor(0), x))[1]


CALLS = {  # what the functions above call
    sine_where_positive: lambda x: x.sin() * x,
    products: lambda x: torch.stack([x[0] * x[0], x[0] * x[0] * x[1]]),
    squares: lambda x: x**8,
}


@pytest.mark.parametrize("program", CALLS)
def test_a_second_derivative_is_that_of_the_calls_and_in_eager_it_is_cut(program):
    def second(fn):
        x = torch.tensor([[0.5, 1.5], [2.0, 1.0]], requires_grad=True)
        (first,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        return torch.autograd.grad((first * first).sum(), x)[0] if first.requires_grad else None

    expected, eager = second(CALLS[program]), second(program)
    torch.testing.assert_close(second(thunder.jit(program)), expected)
    assert eager is None or not torch.allclose(eager, expected)


# -- flex_attention ------------------------------------------------------------------------------------------


def heads(*shape):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator) for _ in range(3)]


def test_flex_attention_with_scores_and_strides_of_its_own():
    bias = torch.linspace(-1, 1, 2)

    def program(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[h] * (i - j))

    actual, expected = thunder.jit(program)(*heads(1, 8, 2, 4)), program(*heads(1, 8, 2, 4))
    torch.testing.assert_close(actual, expected)
    assert actual.stride() == expected.stride()


def test_flex_attention_with_a_mask_that_the_program_makes():
    def program(q, k, v, document):
        mask = and_masks(lambda b, h, i, j: i >= j, lambda b, h, i, j: document[i] == document[j])
        blocks = create_block_mask(mask, None, None, 8, 8, device="cpu", BLOCK_SIZE=4)
        return flex_attention(q, k, v, block_mask=blocks, return_lse=True)

    compiled = thunder.jit(program)
    for length in (3, 4):
        arguments = (*heads(1, 2, 8, 4), torch.arange(8) // length)
        torch.testing.assert_close(compiled(*arguments), program(*arguments))


def test_flex_attention_under_autocast_is_refused():
    with (
        torch.autocast("cpu"),
        pytest.raises(thunder.UnsupportedProgram, match="flex_attention under autocast"),
    ):
        thunder.jit(flex_attention)(*heads(1, 1, 4, 4))


def test_a_parametrised_class_of_containers_makes_a_container():
    def program(x):
        sizes = dict[str, int]()
        sizes["n"] = len(list[int](range(x.shape[0])))
        return x * sizes["n"]

    assert torch.equal(thunder.jit(program)(torch.ones(3)), torch.full((3,), 3.0))
