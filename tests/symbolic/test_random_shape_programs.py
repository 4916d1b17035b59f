"""Random programs, each compiled once for many shapes, compute what eager computes for random shapes.

In 64 bits, since gradients through norms of two elements differ in 32 by more than a fault would.
"""

import random

import pytest
import torch

import thunder
from sweeping import one_in
from symbolic.shape_programs import STEPS, random_program, random_shapes
from symbolic.shape_steps import STEPS as FURTHER


def _outcome(fn, arguments):
    """Return the results and the gradients, or the class of the error."""
    try:
        x, total, *sizes = fn(*arguments)
    except (RuntimeError, IndexError, ValueError) as error:
        return type(error).__mro__[-4:], None
    (total + x.sin().sum()).backward()
    return (x, total, *sizes), [a.grad for a in arguments]


def _strides(tensor):
    return [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]


def _assert_same(actual, expected, description):
    for a, e in zip(actual, expected, strict=True):
        if isinstance(e, torch.Tensor):
            assert a.shape == e.shape, description
            if e.numel():
                assert _strides(a) == _strides(e), description
            torch.testing.assert_close(
                a, e, rtol=1e-7, atol=1e-7, equal_nan=True, msg=lambda text: f"{text} {description}"
            )
        else:
            assert type(a) is type(e), description
            assert a == e, description


def _part(rng, tensor):
    """Return a tensor of the same elements that is a part of a longer one, in half of the cases."""
    if not tensor.dim() or rng.random() < 0.5:
        return tensor
    dim, more = rng.randrange(tensor.dim()), rng.randint(1, 5)
    before = rng.randint(0, more)
    shape = list(tensor.shape)
    shape[dim] += more
    longer = tensor.new_zeros(shape)
    longer.narrow(dim, before, tensor.shape[dim]).copy_(tensor)
    return longer.narrow(dim, before, tensor.shape[dim])


def assert_as_eager_for_random_shapes(seed, steps, count, *, parts=False):
    """Compare calls of one program with eager; return how many of them eager has computed."""
    successes = 0
    rng = random.Random(seed)
    program, names = random_program(rng, steps)
    mode = rng.choice(("symbolic values", "automatic"))
    compiled = thunder.jit(program, cache=mode, recompile_limit=None)
    rank, other = rng.randint(1, 3), rng.randint(1, 2)
    for _ in range(count):
        shapes = random_shapes(rng, rank, other)
        arguments = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
        arguments = [(_part(rng, a) if parts else a).requires_grad_() for a in arguments]
        copies = [a.detach().requires_grad_() for a in arguments]
        expected, gradients = _outcome(program, arguments)
        actual, computed = _outcome(compiled, copies)
        description = f"{names} {shapes}"
        if gradients is None:
            assert computed is None, description
            continue
        successes += 1
        assert computed is not None, f"{description} {actual}"
        _assert_same(actual, expected, description)
        for a, e in zip(computed, gradients, strict=True):
            torch.testing.assert_close(
                a, e, rtol=1e-7, atol=1e-7, equal_nan=True, msg=lambda text, d=description: f"{text} {d}"
            )
    return successes


@pytest.mark.parametrize("seed", one_in(100, range(1000)))
def test_a_random_program_computes_what_eager_computes(seed):
    assert_as_eager_for_random_shapes(seed, STEPS, 20 if seed % 100 else 8)


@pytest.mark.parametrize("seed", one_in(100, range(1000)))
def test_a_program_of_views_windows_and_writes_computes_what_eager_computes(seed):
    assert_as_eager_for_random_shapes(seed, {**STEPS, **FURTHER}, 20 if seed % 100 else 8)


@pytest.mark.parametrize("seed", one_in(250, range(1000)))
def test_a_program_of_parts_of_longer_tensors_computes_what_eager_computes(seed):
    assert_as_eager_for_random_shapes(seed, {**STEPS, **FURTHER}, 20 if seed % 250 else 8, parts=True)
