"""Random operators: the same seed gives eager's numbers, in eager's order, also where a program computes
values again; a generator of the program's own is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import thunder
from thunder.core.errors import UnsupportedOperator
from thunder.core.operator import all_rows
from thunder.core.tags import OpTags

X = torch.linspace(0.1, 0.9, 12, dtype=torch.float64).reshape(3, 4)

#: row → a call of it, which draws numbers
CALLS: dict[str, Callable[..., Any]] = {
    "torch.rand": lambda x, **kw: torch.rand(3, 4, **kw),
    "torch.rand_like": lambda x, **kw: torch.rand_like(x, **kw),
    "torch.randn": lambda x, **kw: torch.randn((3, 4), dtype=torch.float64, **kw),
    "torch.randn_like": lambda x, **kw: torch.randn_like(x, **kw),
    "torch.randint": lambda x, **kw: torch.randint(2, 9, (5,), **kw),
    "torch.randint_like": lambda x, **kw: torch.randint_like(x, 9, **kw),
    "torch.randperm": lambda x, **kw: torch.randperm(7, **kw),
    "torch.bernoulli": lambda x, **kw: torch.bernoulli(x, **kw),
    "torch.multinomial": lambda x, **kw: torch.multinomial(x, 2, **kw),
    "torch.normal": lambda x, **kw: torch.normal(x, 2 * x, **kw),
    "torch.Tensor.uniform_": lambda x, **kw: x.clone().uniform_(-1, 1, **kw),
    "torch.Tensor.normal_": lambda x, **kw: x.clone().normal_(1, 2, **kw),
    "torch.Tensor.exponential_": lambda x, **kw: x.clone().exponential_(2, **kw),
    "torch.Tensor.bernoulli_": lambda x, **kw: x.clone().bernoulli_(0.3, **kw),
}

#: layers that draw: they take no generator
LAYERS: dict[str, Callable[..., Any]] = {
    "dropout": lambda x: F.dropout(x, 0.4),
    "dropout1d": lambda x: F.dropout1d(x, 0.4),
    "dropout2d": lambda x: F.dropout2d(x[None, :, None], 0.4),
    "dropout3d": lambda x: F.dropout3d(x[None, :, None, None], 0.4),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4, training=True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x[None, :, None], 0.4, training=True),
    "torch.native_dropout": lambda x: torch.native_dropout(x, 0.4, True)[0],
    "rrelu": lambda x: F.rrelu(x - 0.5, training=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.3),
}


def seeded(fn: Callable[..., Any], *args: Any) -> tuple[Any, torch.Tensor]:
    """What a call returns after a seed, and the next number of the generator."""
    torch.manual_seed(11)
    return fn(*args), torch.rand(())


def twice(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Draws between other draws, and twice, so that an order or a merged call shows."""
    return lambda x: (torch.rand(2), fn(x), torch.randn(3), fn(x))


@pytest.mark.parametrize("name", [*CALLS, *LAYERS])
def test_the_same_seed_gives_eagers_numbers_in_eagers_order(name: str) -> None:
    program = twice({**CALLS, **LAYERS}[name])
    compiled = thunder.jit(program)
    compiled(X)
    torch.testing.assert_close(seeded(compiled, X), seeded(program, X), rtol=0, atol=0)


@pytest.mark.parametrize("name", LAYERS)
def test_what_is_computed_again_for_the_backward_has_the_same_numbers(name: str) -> None:
    layer = LAYERS[name]

    def program(x: torch.Tensor) -> torch.Tensor:
        y = checkpoint(lambda x: layer(x.sin()).sin() * torch.rand_like(x).sum(), x, use_reentrant=False)
        return y.square().sum() * torch.rand(())

    ours, theirs = X.clone().requires_grad_(), X.clone().requires_grad_()
    compiled = thunder.jit(program)
    for fn, x in ((compiled, ours), (program, theirs)):
        torch.manual_seed(11)
        out = fn(x)
        state = torch.get_rng_state()
        out.backward()
        assert torch.equal(torch.get_rng_state(), state), "the backward leaves the generator as it was"
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("name", CALLS)
def test_a_generator_is_refused_by_name(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    with pytest.raises(UnsupportedOperator) as error:
        thunder.jit(lambda x: CALLS[name](x, generator=generator))(X)
    assert "generator" in str(error.value).splitlines()[0]
    assert name in str(error.value).splitlines()[0]
    assert "test_random.py" in str(error.value)


@pytest.mark.parametrize("name", CALLS)
def test_no_generator_is_the_default_one(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        return CALLS[name](x, generator=None)

    torch.testing.assert_close(seeded(thunder.jit(program), X), seeded(program, X), rtol=0, atol=0)


def test_every_random_row_is_called_here() -> None:
    random = {
        row.id
        for row in all_rows()
        if OpTags.RANDOM_OP in row.tags and OpTags.FALLBACK not in row.tags and row.id.startswith("torch.")
    }
    layers = {name for name in random if name.startswith("torch.nn.functional.")}
    assert random - layers - CALLS.keys() - LAYERS.keys() == set()
