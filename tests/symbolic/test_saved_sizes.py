"""Sizes that a program's own gradients keep, in ``ctx`` of functions of autograd, and loops over chunks."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

import thunder
from symbolic.static_reasons import failure_of


class _Sum(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.n = x.shape[0]
        return x.sum(0)

    @staticmethod
    def backward(ctx, g):
        return g.expand(ctx.n, *g.shape)


class _Flat(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape, ctx.kept = x.shape, {"half": x.shape[0] // 2, "sizes": [x.shape[1]]}
        return x.reshape(-1) * 2

    @staticmethod
    def backward(ctx, g):
        return g.reshape(ctx.shape) * 2


class _Scaled(Function):
    @staticmethod
    def forward(x, y):
        return x * y * x.shape[0] ** -0.5, x.sum(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.scale = inputs[0].shape[0] ** -0.5

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g * y * ctx.scale + h.expand(x.shape[0], -1), g * x * ctx.scale


class _ChunkedLoss(Function):
    """A loss whose gradient the forward computes, chunk by chunk."""

    @staticmethod
    def forward(ctx, x, w, t):
        gradient_x, gradient_w, loss, n = torch.zeros_like(x), torch.zeros_like(w), 0.0, x.shape[0]
        for start in range(0, n, 4):
            rows, targets = x[start : start + 4], t[start : start + 4]
            scores = rows @ w
            loss = loss + F.cross_entropy(scores, targets, reduction="sum")
            wrong = scores.softmax(-1) - F.one_hot(targets, w.shape[1])
            gradient_x[start : start + 4] = wrong @ w.t()
            gradient_w += rows.t() @ wrong
        ctx.save_for_backward(gradient_x / n, gradient_w / n)
        return loss / n

    @staticmethod
    def backward(ctx, g):
        gradient_x, gradient_w = ctx.saved_tensors
        return gradient_x * g, gradient_w * g, None


class _First(Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.n = n
        return x[:n] * n

    @staticmethod
    def backward(ctx, g):
        return F.pad(g * ctx.n, (0, 0, 0, 20 - ctx.n)), None


def _twice(x):
    (g,) = torch.autograd.grad(_Flat.apply(x).pow(3).sum(), x, create_graph=True)
    return (g * g).sum() + _Sum.apply(x).sum()


def _both(x, y):
    first, second = _Scaled.apply(x, y)
    return first.sum() + second.sum()


def _leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


#: name → program, arguments for a length, and the most compiles
PROGRAMS = {
    "a size": (_Sum.apply, lambda n: (_leaf(n, 3),), 2),
    "a shape": (_Flat.apply, lambda n: (_leaf(n, 3),), 2),
    "a float": (_both, lambda n: (_leaf(n, 3), _leaf(n, 3)), 2),
    "chunks": (_ChunkedLoss.apply, lambda n: (_leaf(n, 3), _leaf(3, 5), torch.randint(5, (n,))), 7),
    "a number": (lambda x, y: _First.apply(x, y.shape[0]), lambda n: (_leaf(20, 3), torch.ones(n)), 2),
    "nested": (
        lambda x: _Sum.apply(_Sum.apply(x.sin()).expand(x.shape[0], 3)) * _Flat.apply(x)[:3],
        lambda n: (_leaf(n, 3),),
        2,
    ),
    "checkpointed": (
        lambda x: checkpoint(lambda y: _Sum.apply(y.sin()) * y.shape[0], x, use_reentrant=False),
        lambda n: (_leaf(n, 3),),
        2,
    ),
    "second order": (_twice, lambda n: (_leaf(n, 3),), 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_serves_all_lengths_forward_and_backward(name):
    program, arguments, most = PROGRAMS[name]
    compiled = thunder.jit(program, executors=["torch"])
    for n in (6, 9, 7, 10, 5, 11, 8, 6, 12):
        ours = arguments(n)
        theirs = [a.detach().clone().requires_grad_(a.requires_grad) for a in ours]
        result, expected = compiled(*ours), program(*theirs)
        torch.testing.assert_close(result, expected)
        (result * result).sum().backward()
        (expected * expected).sum().backward()
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a.grad, b.grad)
    assert failure_of(compiled) is None
    assert thunder.cache_misses(compiled) <= most


def _parts(x):
    length = -(-len(x) // 3)
    return torch.cat([x[i : i + length] * i for i in range(0, len(x), length)])


#: loops over ranges of a tensor with ``n`` rows, and the most compiles for ten lengths
LOOPS = {
    "chunks": (lambda x: sum(x[i : i + 4].sum() * i for i in range(0, x.shape[0], 4)), 7),
    "from two": (lambda x: torch.cat([x[i : i + 3] * i for i in range(2, len(x) // 2 * 2, 3)]), 8),
    "parts": (_parts, 5),
    "ends": (lambda x: sum(x[i] * i for i in range(x.shape[0] - 2, x.shape[0])), 2),
    "range": (lambda x: (range(x.shape[0] - 1), [*range(len(x))]), 10),
    "in reverse": (lambda x: [x[i].sum() for i in reversed(range(x.shape[0]))], 10),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_over_a_range_depends_on_the_number_of_its_steps(name):
    program, most = LOOPS[name]
    compiled = thunder.jit(program, executors=["torch"], recompile_limit=None)
    for n in (9, 10, 11, 12, 5, 7, 13, 8, 6, 4):
        x = torch.randn(n, 3)
        result, expected = compiled(x), program(x)
        assert type(result) is type(expected)
        if isinstance(expected, tuple):
            assert result == expected
        else:
            torch.testing.assert_close(result, expected)
    assert thunder.cache_misses(compiled) <= most
