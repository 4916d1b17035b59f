"""Steps of optimisers in programs: gradients written, state created lazily, lists of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder.base.errors import UnsupportedProgram


def as_it_is(fn: Any) -> Any:
    return fn


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "SGD-foreach": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, foreach=True),
    "SGD-fused": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9, weight_decay=0.1, fused=True),
    "Adam-amsgrad": lambda ps: torch.optim.Adam(ps, 0.1, amsgrad=True, weight_decay=0.1),
    "AdamW-foreach": lambda ps: torch.optim.AdamW(ps, 0.1, foreach=True),
    "AdamW-fused": lambda ps: torch.optim.AdamW(ps, 0.1, fused=True),
    "NAdam": lambda ps: torch.optim.NAdam(ps, 0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_that_of_eager(name: str) -> None:
    def run(wrap: Callable[[Any], Any]) -> tuple[Any, list[Any]]:
        torch.manual_seed(0)
        model = nn.Linear(2, 3)
        optimizer = OPTIMIZERS[name](model.parameters())

        def step() -> None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        fn, values = wrap(step), []
        for _ in range(4):
            model(torch.randn(1, 2)).sum().backward()
            fn()
            assert model.weight.grad is None
            values.append([p.detach().clone() for p in model.parameters()])
        state = [value for entry in optimizer.state.values() for value in entry.values()]
        return fn, [values, state]

    compiled, values = run(thunder.jit)
    torch.testing.assert_close(values, run(as_it_is)[1])
    assert thunder.cache_misses(compiled) == 2, "one for the step that creates the state"


def test_a_learning_rate_in_a_tensor_changes_without_another_compile() -> None:
    def run(wrap: Callable[[Any], Any]) -> tuple[Any, list[Any]]:
        weight = nn.Parameter(torch.ones(3))
        optimizer = torch.optim.SGD([weight], torch.tensor(0.1))
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

        def step() -> None:
            optimizer.step()

        fn, values = wrap(step), []
        for _ in range(3):
            weight.grad = torch.ones(3)
            fn()
            scheduler.step()
            values.append(weight.detach().clone())
        return fn, values

    compiled, values = run(thunder.jit)
    torch.testing.assert_close(values, run(as_it_is)[1])
    assert thunder.cache_misses(compiled) == 1


def test_gradients_are_read_and_written() -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        a, b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2))

        def fn() -> Any:
            total = torch.zeros(())
            for p in (a, b):
                if p.grad is not None:
                    total = total + p.grad.pow(2).sum()
                    p.grad = p.grad * 0.5
                    p.grad.add_(1)
            b.grad, kept = None, b.grad
            return total, kept

        step, values = wrap(fn), []
        for grad in (torch.ones(3), torch.full((3,), 2.0), None):
            a.grad, b.grad = grad, torch.ones(2)
            values.append([*step(), b.grad is None, a.grad is None or a.grad.clone()])
        return values

    assert str(run(thunder.jit)) == str(run(as_it_is))


def test_functions_of_lists_of_tensors() -> None:
    def fn(a: list[torch.Tensor], b: list[torch.Tensor]) -> Any:
        torch._foreach_mul_(a, 0.9)
        torch._foreach_add_(a, b, alpha=0.1)
        torch._foreach_addcdiv_(a, b, [t.abs() + 1 for t in b], [0.5, 2.0])
        torch._foreach_lerp_(a, b, 0.25)
        torch._foreach_maximum_(a, b)
        torch._foreach_copy_(b, a)
        norms = torch._foreach_norm(a)
        return (
            norms,
            torch._foreach_pow(2.0, a),
            torch._foreach_div(a, norms[0]),
            torch._foreach_sub(a, [1.0, 2.0]),
            torch._foreach_lerp(a, b, weight=0.5),
            torch._foreach_addcmul(a, b, tensor2=a, scalars=[2.0, 3.0]),
            torch._foreach_mul(self=a, scalar=2.0),
        )

    def run(fn: Any) -> Any:
        lists = [[torch.arange(2.0), torch.arange(3.0)], [torch.ones(2), -torch.ones(3)]]
        return fn(*lists), lists

    torch.testing.assert_close(run(thunder.jit(fn)), run(fn))

    def unequal(a: list[torch.Tensor]) -> Any:
        return torch._foreach_add(a, a[:1])

    for call in (unequal, thunder.jit(unequal)):
        with pytest.raises(RuntimeError, match="same number of tensors"):
            call([torch.ones(2), torch.ones(2)])


def test_tensors_as_keys_are_found_by_identity() -> None:
    a, b = torch.ones(2), torch.ones(2)

    def fn(names: dict[Any, Any], x: torch.Tensor) -> Any:
        names[x] = len(names)
        return [key * value for key, value in names.items()], a in names, names[b]

    compiled = thunder.jit(fn)
    for value in (2.0, 2.0, 3.0):
        results = []
        for call in (compiled, fn):
            x, names = torch.zeros(1), {a: value, b: 5.0}
            results.append([call(names, x), names[x], list(names)[2] is x])
        torch.testing.assert_close(results[0], results[1])
    with pytest.raises(UnsupportedProgram, match="key of type Tensor"):
        thunder.jit(lambda s: len(s))({a, b})


def test_an_in_place_operator_with_a_number_out_of_a_tensor_writes() -> None:
    def fn(n: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
        m *= 0.5 ** n.item()
        return m * 2

    def run(fn: Any) -> list[Any]:
        n, m = torch.tensor(2.0), torch.ones(())
        return [fn(n, m), fn(n.add_(1), m), m]

    compiled = thunder.jit(fn)
    torch.testing.assert_close(run(compiled), run(fn))
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("clip", [False, True])
def test_a_step_with_scaled_gradients_is_that_of_eager(clip: bool) -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            scaler.scale(loss).backward()
            if clip:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        call = wrap(step)
        infinite = torch.full((5, 3), float("inf"))
        inputs = [infinite if i in (2, 5) else torch.rand(5, 3) for i in range(7)]
        results = [(call(x), scaler.get_scale(), scaler._get_growth_tracker()) for x in inputs]
        return [*results, *(p.detach().clone() for p in model.parameters())]

    torch.testing.assert_close(run(thunder.jit), run(as_it_is), equal_nan=True)


def test_the_id_of_an_object_that_is_held_is_a_fact() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * table[id(holder.options)]

    class Holder:
        options: Any = object()

    holder = Holder()
    others = object(), object()
    table = {id(holder.options): 2.0, **{id(o): i for i, o in enumerate(others)}}
    compiled, x = thunder.jit(program), torch.ones(2)
    assert torch.equal(compiled(x), 2 * x)
    for i, other in enumerate(others):
        holder.options = other
        assert torch.equal(compiled(x), i * x)
