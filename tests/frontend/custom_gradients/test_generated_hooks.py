"""Random programs with hooks of all kinds, on tensors and before and after nodes, against eager."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

import thunder

OPERATORS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda a, b: a * b,
    lambda a, b: a * a,
    lambda a, b: a - b,
    lambda a, b: a.sin(),
    lambda a, b: a.tanh(),
    lambda a, b: (a @ b.t()).softmax(-1) @ b,
    lambda a, b: torch.where(a > 0, a, b),
    lambda a, b: torch.addcmul(a, b, b),
    lambda a, b: torch.cat([a, b])[: a.shape[0]],
]


def add_hook(r: random.Random, x: Tensor, place: Any, seen: list[Any]) -> Any:
    """Register a hook that logs, and may replace gradients."""
    kind = r.choice(["tensor", "before", "after", "after"])
    logs, replaces, scale = r.random() < 0.7, r.random() < 0.6, r.choice([0.5, 2.0, 3.0])

    def hook(*gradients: Any) -> Any:
        if logs:
            seen.append((place, kind, tree_map(lambda g: None if g is None else g.detach(), gradients)))
        if not replaces:
            return None
        if kind == "tensor":
            return gradients[0] * scale
        return tuple(None if g is None else g * scale + gradients[-1][0].mean() for g in gradients[0])

    if kind == "tensor":
        return x.register_hook(hook)
    node: Any = x.grad_fn
    return node.register_prehook(hook) if kind == "before" else node.register_hook(hook)


def made(seed: int, w: nn.Parameter, seen: list[Any]) -> Callable[[Tensor], Tensor]:
    def program(x: Tensor) -> Tensor:
        r = random.Random(seed)
        values, handles = [x, x * w], list[Any]()
        for step in range(r.randint(2, 4)):
            values.append(r.choice(OPERATORS)(r.choice(values[-3:]), r.choice(values[-3:])))
            for number in range(r.choice([1, 1, 2])):
                handles.append(add_hook(r, r.choice(values[1:]), (step, number), seen))
            if r.random() < 0.3:
                handles.pop(r.randrange(len(handles))).remove()
        loss = values[-1].sum() + values[-2].sum()
        way = r.choice(["returned", "gradients", "of x", "of a value", "backward"])
        if way == "backward":
            loss.backward(retain_graph=True)
        elif way != "returned":
            inputs = {"gradients": [x, w], "of x": [x], "of a value": [values[1]]}[way]
            found = torch.autograd.grad(loss, inputs, create_graph=True)
            loss = loss + sum(g.square().sum() for g in found)
        return loss

    return program


def outcome(wrap: Callable[[Any], Any], seed: int) -> tuple[list[Any], list[Any]]:
    w, seen = nn.Parameter(torch.arange(1.0, 4.0, dtype=torch.float64) / 4), list[Any]()
    program, found = wrap(made(seed, w, seen)), list[Any]()
    for rows in (2, 2, 3):
        x = (torch.arange(3.0 * rows, dtype=torch.float64).reshape(rows, 3) / 9 - 0.3).requires_grad_()
        loss = program(x)
        if seed % 2:
            gradients = torch.autograd.grad(loss, [x, w], create_graph=True, materialize_grads=True)
            loss = sum((g.square().sum() for g in gradients), torch.zeros(()))
        loss.backward()
        found += [loss.detach(), x.grad, None if w.grad is None else w.grad.clone()]
    return found, seen


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("seed", range(8))
def test_hooks_see_and_replace_what_they_do_in_eager(seed: int) -> None:
    found, expected = outcome(thunder.jit, seed), outcome(lambda fn: fn, seed)
    torch.testing.assert_close(found[0], expected[0])
    for seen in (found[1], expected[1]):
        seen.sort(key=lambda call: repr(call[:2]))  # of nodes that do not depend on each other, any is first
    assert [call[:2] for call in found[1]] == [call[:2] for call in expected[1]]
    torch.testing.assert_close([call[2] for call in found[1]], [call[2] for call in expected[1]])
