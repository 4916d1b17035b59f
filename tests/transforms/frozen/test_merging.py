"""Linear layers of one input are one product; nobody sees that their results are views."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thunder
from comparison.memory import assert_same_memory
from comparison.results import assert_same
from sweeping import one_in
from thunder_transforms.frozen.freezing import Freezing


@pytest.fixture(autouse=True)
def _no_grad():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def frozen(model: nn.Module, **options: Any) -> Any:
    return thunder.jit(model.eval(), transforms=[Freezing()], **{"executors": [], **options})


def products(compiled: Any) -> int:
    return [b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols].count("linear")


class Attention(nn.Module):
    """Queries of four heads, keys and values of two."""

    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, n, bias=bias) for n in (16, 8, 8))
        self.norm, self.last = nn.LayerNorm(4), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = (f(x).view(*x.shape[:2], -1, 4).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(self.norm(q), k, v, enable_gqa=True)
        return self.last(y.transpose(1, 2).reshape(x.shape))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("options", [{}, {"cache": "symbolic values"}], ids=str)
def test_the_projections_of_attention(bias, options):
    model = Attention(bias)
    compiled = frozen(model, **options)
    for batch in (2, 2, 3, 1):
        x = torch.randn(batch, 5, 16)
        assert_same(compiled(x), model(x), tolerance=1e-5)
    if not options:
        assert products(compiled) == 2
    model.k.weight.mul_(2)
    assert_same(compiled(x), model(x), tolerance=1e-5)


class Pair(nn.Module):
    """Two linear layers of one input, and what is done with the results of both."""

    def __init__(self, use: Callable[[Tensor, Tensor], Any], *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers or (nn.Linear(8, 6), nn.Linear(8, 6)))
        self.use = use

    def forward(self, x):
        return self.use(*(layer(x) for layer in self.layers))


MERGED = {
    "a gate": lambda a, b: F.silu(a) * b,
    "heads": lambda a, b: a.view(3, 4, 2, 3).transpose(1, 2) @ b.view(3, 4, 2, 3).permute(0, 2, 3, 1),
    "parts of heads": lambda a, b: a.view(3, 4, 2, 3)[..., 1:].sum(-1) + b[..., :2].exp(),
    "copies": lambda a, b: (a.contiguous() + 1, torch.cat([a, b], -1) * 2, b.clone()),
    "a reshape": lambda a, b: a.reshape(-1, 6) * b.reshape(12, 6) + 1,
    "one is read": lambda a, b: a * 2,
    "by row": lambda a, b: a.softmax(-1) + F.layer_norm(b, (6,)),
}
APART = {
    "returned": lambda a, b: (a, b),
    "returned as they are": lambda a, b: (a.contiguous(), b.reshape(3, 4, 6)),
    "views are returned": lambda a, b: (a.view(-1), b[0].t()),
    "a view of all": lambda a, b: a.view(-1) + b.view(12, 6).view(-1),
    "strides": lambda a, b: a.as_strided((4,), (3,)) + b.as_strided((4,), (2,)).exp(),
    "random numbers": lambda a, b: F.dropout(a, 0.5, training=True) + torch.rand_like(b),
}


@pytest.mark.parametrize("name", [*MERGED, *APART])
def test_what_is_done_with_the_results(name):
    model = Pair({**MERGED, **APART}[name])
    compiled, x = frozen(model), torch.randn(3, 4, 8)
    results = []
    for fn in (compiled, model):
        torch.manual_seed(1)
        result = fn(x)
        results.append(list(result) if isinstance(result, tuple) else [result])
    assert_same(results[0], results[1], tolerance=1e-5)
    assert_same_memory(results[1], results[0], name)
    if name != "one is read":
        assert products(compiled) == (1 if name in MERGED else 2)


def test_layers_with_and_without_a_bias_stay_apart():
    model = Pair(MERGED["a gate"], nn.Linear(8, 6), nn.Linear(8, 6, bias=False))
    compiled, x = frozen(model), torch.randn(3, 4, 8)
    assert_same(compiled(x), model(x), tolerance=1e-5)
    assert products(compiled) == 2


def test_one_layer_that_is_called_twice():
    layer = nn.Linear(8, 6)
    model = Pair(lambda a, b: a.exp() * b.sin(), layer, layer)
    compiled, x = frozen(model, cse=False), torch.randn(3, 4, 8)
    assert_same(compiled(x), model(x), tolerance=1e-5)


def _is_even(y: Tensor) -> bool:
    return y.dim() > 2 and y.shape[-1] % 2 == 0 and y.is_contiguous()


_USES: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda y: y * 2,
    lambda y: y.view(*y.shape[:-1], 2, -1).transpose(-2, -3).flatten(-2) if _is_even(y) else y,
    lambda y: y.transpose(0, -1).exp().transpose(0, -1),
    lambda y: y[..., 1:] + y[..., :-1],
    lambda y: y.reshape(-1),
    lambda y: y.softmax(-1),
    lambda y: y.flip(0),
    lambda y: y.contiguous(),
    lambda y: y.unsqueeze(1).expand(-1, 2, *y.shape[1:]),
)


@pytest.mark.parametrize("seed", one_in(20, range(200)))
def test_random_uses(seed):
    chosen = random.Random(seed)
    chains = [[chosen.choice(_USES) for _ in range(chosen.randint(1, 3))] for _ in range(3)]

    def use(*values: Tensor) -> list[Tensor]:
        results = []
        for value, chain in zip(values, chains, strict=True):
            for step in chain:
                value = step(value)
            results.append(value)
        return results

    torch.manual_seed(seed)
    model = Pair(use, *(nn.Linear(8, n) for n in (6, 4, 6)))
    compiled, x = frozen(model), torch.randn(3, 4, 8)
    result, expected = compiled(x), model(x)
    assert_same(result, expected, tolerance=1e-5)
    assert_same_memory(expected, result, "results")
