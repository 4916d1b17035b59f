"""Steps whose backwards have effects: what a hook does, of what it is one, how the gradient is computed."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

Effect = Callable[[Tensor], Any]
Wrap = Callable[[Any], Any]


class Model(nn.Module):
    """Two layers with a hidden value that ``attach`` is given."""

    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.act, self.second = nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)
        self.register_buffer("total", torch.zeros(()))
        self.last: Tensor | None = None
        self.attach: Callable[[Tensor], Tensor] = lambda h: h

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.attach(self.act(self.first(x)))).square().mean()  # type: ignore[no-any-return]


def inputs() -> Iterator[Tensor]:
    """Yield inputs of several sizes."""
    for i, n in enumerate((4, 4, 6, 3)):
        yield torch.randn(n, 3, generator=torch.Generator().manual_seed(i))


# -- what happens to a gradient ------------------------------------------------------------------------------


def effects_of(model: Model, box: SimpleNamespace) -> dict[str, Effect]:
    """Return functions of a gradient, by name; they may return another one."""

    def counts(g: Tensor) -> None:
        box.n += 1

    def adds_to_a_buffer(g: Tensor) -> None:
        with torch.no_grad():
            model.total.add_(g.abs().sum())

    def keeps_it(g: Tensor) -> None:
        model.last = g.detach().abs().max()

    def decides(g: Tensor) -> Tensor:
        return g * 2 if g.norm() > 0.3 else g * 3

    def raises(g: Tensor) -> None:
        if g.norm() > 0.3:
            raise ValueError("a large gradient")

    return {
        "computes": lambda g: g.clamp(max=0.01) * g,
        "appends": lambda g: box.seen.append(g.detach().norm()),
        "counts": counts,
        "prints": lambda g: print("gradient", tuple(g.shape)),
        "adds to a buffer": adds_to_a_buffer,
        "keeps it": keeps_it,
        "decides": decides,
        "reads a number": lambda g: box.seen.append(round(g.norm().item(), 3)),
        "reads state": lambda g: g * box.scale,
        "reads other gradients": lambda g: box.seen.append([p.grad is None for p in model.parameters()]),
        "raises": raises,
    }


# -- of what it is a hook ------------------------------------------------------------------------------------


def of_a_tensor(model: Model, effect: Effect) -> None:
    def attach(h: Tensor) -> Tensor:
        h.register_hook(effect)
        return h

    model.attach = attach


def of_a_function(model: Model, effect: Effect) -> None:
    class Passed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, h: Tensor) -> Tensor:
            doubled = h * 2
            ctx.save_for_backward(doubled)
            return doubled.sin()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            (doubled,) = ctx.saved_tensors
            changed = effect(g)
            return (g if changed is None else changed) * doubled.cos() * 2

    model.attach = Passed.apply


def of_a_module(model: Model, effect: Effect) -> None:
    def hook(module: nn.Module, grad_input: Any, grad_output: Any) -> Any:
        changed = effect(grad_input[0])
        return None if changed is None else (changed,)

    model.act.register_full_backward_hook(hook)


def of_a_parameter(model: Model, effect: Effect) -> None:
    model.first.weight.register_hook(effect)


# -- how the gradient is computed ----------------------------------------------------------------------------


def in_the_program(model: Model, wrap: Wrap) -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        loss = model(x)
        loss.backward()
        return loss.detach()

    return wrap(step)  # type: ignore[no-any-return]


def by_grad(model: Model, wrap: Wrap) -> Callable[[Tensor], Any]:
    return wrap(lambda x: torch.autograd.grad(model(x), list(model.parameters())))  # type: ignore[no-any-return]


def of_a_penalty(model: Model, wrap: Wrap) -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad(model(x), x, create_graph=True)
        loss = g.square().sum()
        loss.backward()
        return loss.detach()

    return wrap(step)  # type: ignore[no-any-return]


def twice(model: Model, wrap: Wrap) -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        loss = model(x)
        loss.backward(retain_graph=True)
        loss.backward()
        return loss.detach()

    return wrap(step)  # type: ignore[no-any-return]


def with_a_handler(model: Model, wrap: Wrap) -> Callable[[Tensor], Any]:
    def step(x: Tensor) -> Tensor:
        loss = model(x)
        try:
            loss.backward()
        except ValueError:
            return -loss.detach()
        return loss.detach()

    return wrap(step)  # type: ignore[no-any-return]


def after_the_call(model: Model, wrap: Wrap) -> Callable[[Tensor], Any]:
    compiled = wrap(model)

    def step(x: Tensor) -> None:
        compiled(x).backward()

    return step


def in_the_program_and_after(model: Model, wrap: Wrap) -> Callable[[Tensor], Any]:
    def first(x: Tensor) -> Tensor:
        loss = model(x)
        loss.backward(retain_graph=True)
        return loss

    compiled = wrap(first)

    def step(x: Tensor) -> None:
        (compiled(x) * 2).backward()

    return step


HOOKS = {f.__name__: f for f in (of_a_tensor, of_a_function, of_a_module, of_a_parameter)}
INSIDE = (in_the_program, by_grad, of_a_penalty, twice, with_a_handler)
OUTSIDE = (after_the_call, in_the_program_and_after)
BACKWARDS = {f.__name__: f for f in (*INSIDE, *OUTSIDE)}
EFFECTS = tuple(effects_of(Model(), SimpleNamespace()))
#: what shows that the parts of a compiled program are one node of torch's graph
_SHOWS_NODES = {"reads other gradients", "raises"}
CASES = [
    (effect, hook, backward)
    for effect in EFFECTS
    for hook in HOOKS
    for backward, function in BACKWARDS.items()
    if not (effect in _SHOWS_NODES and function in OUTSIDE)
]


def outcome(effect: str, hook: str, backward: str, wrap: Wrap) -> list[Any]:
    """Return everything that is seen of several steps of a model."""
    model, box = Model(), SimpleNamespace(n=0, seen=[], scale=1.0)
    HOOKS[hook](model, effects_of(model, box)[effect])
    step = BACKWARDS[backward](model, wrap)
    seen: list[Any] = []
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for i, x in enumerate(inputs()):
            box.scale = float(1 + i % 2)
            try:
                result = step(x)
            except ValueError as error:
                result = str(error)
            grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
            seen += [result, grads, model.total.clone(), model.last, box.n]
    return [*seen, box.seen, printed.getvalue()]
