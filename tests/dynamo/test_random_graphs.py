"""Random programs, of which thunder compiles a part, against eager in float64."""

from __future__ import annotations

import random

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from comparison.inputs import leaf
from sweeping import one_in
from thunder.dynamo import thunderfx

pytestmark = pytest.mark.usefixtures("_quick_inductor")


def unsupported(x, kind):
    """Return a result of a call that thunder refuses, or that TorchDynamo does not put into a graph."""
    if kind == 0:
        return torch.cond(x.sum() > 0, lambda a: a * 2, lambda a: a - 1, (x,))
    if kind == 1:
        return x + x.gt(0).nonzero().sum()
    if kind == 2:
        return torch.func.vmap(lambda a: a * 2 + 1)(x)
    torch._dynamo.graph_break()
    return x - 1


def under_no_grad(a, c, kind):
    with torch.no_grad():
        result = a * 2
        return unsupported(result, kind) if kind % 2 else result


def under_autocast(a, c, kind):
    with torch.autocast("cpu", torch.bfloat16):
        result = a.float() @ c.float()
        result = unsupported(result, kind) if kind % 2 else result
        return (result @ result).double() / 8


def checkpointed(a, c, kind):
    return checkpoint(lambda q: (q.sin() * c).cos(), a, use_reentrant=False)


def written(a, c, kind):
    a[kind].add_(1)
    return a.mul_(0.5)


CALLS = (
    lambda a, c, kind: a.sin() + c,
    lambda a, c, kind: a @ c / 4,
    lambda a, c, kind: a.t(),
    lambda a, c, kind: a.view(-1).view(4, 4) if a.is_contiguous() else a.tanh(),
    lambda a, c, kind: torch.nn.functional.dropout(a, 0.5),
    lambda a, c, kind: a.tanh().detach() + c,
    written,
    checkpointed,
    under_no_grad,
    under_autocast,
    lambda a, c, kind: unsupported(a, kind),
    lambda a, c, kind: unsupported(a, kind),
)


def program(seed):
    """Return a random function of two matrices, and of a vector that it writes to.

    The numbers are drawn before: TorchDynamo repeats calls of a `random.Random` after graph breaks.
    """
    draw = random.Random(seed)
    count = draw.randint(4, 10)
    steps = [
        (draw.choice(CALLS), draw.randint(0, i + 1), draw.randint(0, i + 1), draw.randint(0, 3))
        for i in range(count)
    ]
    results = draw.sample(range(count + 2), 2)

    def f(x, w, total):
        values = [x * 1.0, w * x]
        for call, first, second, kind in steps:
            values.append(call(values[first], values[second], kind))
        total.add_(values[-1].detach().mean(0))
        return [values[i] for i in results], len(values)

    return f


def outcome(f, seed):
    """Return what a call computes and changes: results, gradients, the written vector, shared memory.

    Return None if torch refuses a gradient, because of a write to what it needs, or to a view of it.
    """
    torch.manual_seed(seed)
    x, w, total = leaf(4, 4), leaf(4, 4, seed=1), leaf(4, grad=False)
    results, count = f(x, w, total)
    loss = sum((r * leaf(4, 4, seed=2, grad=False)).sum() for r in results)
    try:
        gradients = torch.autograd.grad(loss, (x, w), allow_unused=True) if loss.requires_grad else ()
    except RuntimeError:
        return None, None
    storages = [r.untyped_storage().data_ptr() for r in results]
    return (
        [[r.detach() for r in results], list(gradients), total, count],
        [[r.requires_grad for r in results], storages[0] == storages[1], torch.is_grad_enabled()],
    )


@pytest.mark.parametrize("seed", one_in(25, range(100)))
def test_a_random_program_computes_what_eager_does(seed):
    expected, expected_facts = outcome(program(seed), seed)
    compiled = thunderfx(program(seed))
    for _ in range(2):
        values, facts = outcome(compiled, seed)
        if values is None or expected is None:
            return  # a compiled program keeps other tensors for its backward
        torch.testing.assert_close(values, expected, rtol=1e-9, atol=1e-9)
        assert facts == expected_facts
