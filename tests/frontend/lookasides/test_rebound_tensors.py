"""Tensors that become another tensor in place: ``unsqueeze_``, ``t_``, ``detach_``, ``p.data = …``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder.base.errors import UnsupportedProgram


def known_under_other_names(x: torch.Tensor) -> Any:
    y = x * 2
    names, z = {"y": [y]}, y + 1
    y.unsqueeze_(0)
    y.mul_(3)
    return names["y"][0] is y, y.shape, y.sum(0) + z, names


def all_methods(x: torch.Tensor) -> Any:
    y = x.clone().unsqueeze_(0).squeeze_(0)
    y.unsqueeze_(-1).transpose_(0, 1).mul_(2)
    y.t_().swapaxes_(0, 1).swapdims_(0, 1)
    return y, y.stride(), y.is_contiguous()


def a_view_is_written(x: torch.Tensor) -> Any:
    y = x * 2
    v = y[:2]
    y.unsqueeze_(0)
    v.mul_(5)
    y.add_(1)
    return y, v


def detached(x: torch.Tensor) -> Any:
    y = x * 2
    z = y + x
    y.detach_()
    return y.requires_grad, y.is_leaf, y * x + z


def between_decisions(x: torch.Tensor) -> Any:
    y = x * torch.rand(3)
    if y.sum() > 100:
        return y
    y.unsqueeze_(0)
    if y.sum() > 50:
        return y
    y.add_(1)
    y.squeeze_(0)
    return y * 2 if y[0] > -100 else y


def with_gradients(fn: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    results = []
    for _ in range(2):
        x = torch.arange(1.0, 4.0, requires_grad=True)
        result = fn(x)
        tensors = [t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        sum(t.sum() for t in tensors if t.requires_grad).backward()
        results.append([result, x.grad])
    return results


@pytest.mark.parametrize(
    "fn", [known_under_other_names, all_methods, a_view_is_written, detached, between_decisions]
)
def test_an_intermediate_becomes_another_tensor(fn: Callable[..., Any]) -> None:
    compiled = thunder.jit(fn)
    torch.testing.assert_close(with_gradients(compiled), with_gradients(fn))
    assert thunder.cache_misses(compiled) == 1


def test_an_input_changes_its_shape_for_the_caller() -> None:
    def fn(x: torch.Tensor, base: torch.Tensor, xs: list[Any]) -> Any:
        xs.append(x)
        x.t_().unsqueeze_(0)
        x.add_(base.sum())
        return x, base * 2

    def run(fn: Any) -> Any:
        base = torch.arange(6.0).reshape(2, 3)
        x, xs = base.view(2, 3), list[Any]()
        returned, doubled = fn(x, base, xs)
        assert returned is x
        assert xs[0] is x
        return x, x.stride(), base, doubled

    compiled = thunder.jit(fn)
    for _ in range(2):
        torch.testing.assert_close(run(compiled), run(fn))
    assert thunder.cache_misses(compiled) == 1


def test_a_state_is_detached_before_the_next_step() -> None:
    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.state = nn.GRUCell(2, 3), torch.zeros(1, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.state.detach_()
            self.state = self.cell(x, self.state)
            return self.state.sum()

    def run(wrap: Callable[[Any], Any]) -> Any:
        torch.manual_seed(0)
        module = Cell()
        fn = wrap(module)
        for _ in range(3):
            fn(torch.ones(1, 2)).backward()
        return module.state.detach(), [p.grad for p in module.parameters()]

    torch.testing.assert_close(run(thunder.jit), run(lambda m: m))


def test_the_data_of_a_parameter_is_assigned() -> None:
    def run(wrap: Callable[[Any], Any]) -> Any:
        weight, target = nn.Parameter(torch.arange(3.0)), nn.Parameter(torch.zeros(3), requires_grad=False)
        before, results = weight.data, list[Any]()

        def fn(x: torch.Tensor) -> Any:
            weight.data = weight.data.clamp(-1, 1) * 0.9
            target.data = 0.5 * target.data + 0.5 * weight.data
            return (weight * weight * x + target).sum(), weight

        step = wrap(fn)
        for _ in range(2):
            x = torch.ones(3, requires_grad=True)
            loss, same = step(x)
            loss.backward()
            assert same is weight
            assert weight.is_leaf
            results += [loss.detach(), x.grad, weight.grad.clone(), weight.detach().clone(), target.clone()]
        return results, before

    torch.testing.assert_close(run(thunder.jit), run(lambda m: m))


def test_data_are_shared_as_in_eager() -> None:
    weight = nn.Parameter(torch.zeros(3))

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        weight.data = y
        return y

    returned = thunder.jit(fn)(torch.ones(3))
    returned.add_(5)
    assert weight.data.tolist() == [7, 7, 7]


def test_a_tensor_of_the_program_gets_the_memory_of_another() -> None:
    def fn(x: torch.Tensor) -> Any:
        a, b = torch.zeros(3), x * 2
        view = a.view(-1)
        a.set_(x)
        b.data = x + 1
        return a, view, b

    compiled = thunder.jit(fn)
    for _ in range(2):
        x, expected = torch.ones(3), torch.ones(3)
        results, eager = compiled(x), fn(expected)
        x.add_(1)
        expected.add_(1)
        torch.testing.assert_close(results, eager)


def test_a_module_of_the_program_is_parametrised() -> None:
    def fn(x: torch.Tensor) -> Any:
        layer = nn.Linear(3, 3)
        nn.utils.parametrizations.orthogonal(layer)
        loss = layer(x).sum()
        return loss.detach(), torch.autograd.grad(loss, list(layer.parameters()))

    results = []
    for call in (thunder.jit(fn), fn):
        torch.manual_seed(0)
        results.append(call(torch.ones(2, 3)))
    torch.testing.assert_close(*results)


def set_after_use(x: torch.Tensor) -> Any:
    weight = nn.Parameter(torch.ones(3))
    y = weight * 2
    with torch.no_grad():
        weight.set_(x.detach())
    return torch.autograd.grad((y + weight).sum(), weight)


def test_what_cannot_be_rebound_is_refused() -> None:
    weight = nn.Parameter(torch.zeros(3))

    other = nn.Parameter(torch.zeros(3))

    def written_after_a_decision(x: torch.Tensor) -> Any:
        weight.data = x * 2
        with torch.no_grad():
            weight.add_(1 if weight.sum() > 0 else 2)

    def given_to_two(x: torch.Tensor) -> Any:
        weight.data = other.data = x * 2
        with torch.no_grad():
            other.add_(1)
        return weight * 2

    def of_another_shape(x: torch.Tensor) -> Any:
        weight.data = x[:1]

    def in_a_region(x: torch.Tensor) -> Any:
        return torch.utils.checkpoint.checkpoint(lambda x: x.exp().unsqueeze_(0), x, use_reentrant=False)

    for fn, text in (
        (written_after_a_decision, "whose data it has assigned"),
        (given_to_two, "whose data it has assigned"),
        (of_another_shape, "data of another form"),
        (in_a_region, "in a checkpointed region"),
        (set_after_use, "or of a tensor whose gradient it has used"),
        (lambda x: x.detach().set_(x.untyped_storage()), "storage"),
        (lambda x: torch.zeros(3).set_(x), "which has no derivative"),
    ):
        with pytest.raises(UnsupportedProgram, match=text):
            thunder.jit(fn)(torch.ones(3, requires_grad=True))


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (lambda x: x.unsqueeze_(0) * 2, "a leaf Variable that requires grad"),
        (lambda x: (x * 2)[1:].detach_() * 2, "Can't detach views in-place"),
    ],
)
def test_what_torch_refuses_raises(fn: Callable[..., Any], text: str) -> None:
    for call in (fn, thunder.jit(fn)):
        with pytest.raises(RuntimeError, match=text):
            call(torch.ones(3, requires_grad=True))


def sharpness_aware(foreach: bool) -> Callable[[], Any]:
    """Return a step of SAM, which assigns the old data again before the optimiser writes to them."""

    def build() -> Any:
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=foreach)

        def step(x: torch.Tensor) -> Any:
            model(x).square().sum().backward()
            old = []
            for p in model.parameters():
                assert p.grad is not None
                old.append(p.data)
                p.data = p.data + 0.05 * p.grad / p.grad.norm()
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            for p, data in zip(model.parameters(), old, strict=True):
                p.data = data
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step, list(model.parameters())

    return build


def written_on_both_sides() -> Any:
    w = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def step(x: torch.Tensor) -> Any:
        old, v = w.data, x.sum(0)
        w.data = v
        with torch.no_grad():
            w.mul_(2)
            first = v * 1
            v[1:].add_(5)
            second = w * 1
            old.add_(1)
            w.view(-1)[0] = 7
            third = v * 1
        w.data = old
        with torch.no_grad():
            w.add_(10)
        return first, second, third, v, old * 1, (w * x).sum().backward()

    return step, [w]


def new_memory() -> Any:
    w = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def step(x: torch.Tensor) -> torch.Tensor:
        v = x.sum(0)
        w.data = v
        with torch.no_grad():
            w.add_(1)
        return v

    return step, [w]


@pytest.mark.parametrize(
    "build", [sharpness_aware(False), sharpness_aware(True), written_on_both_sides, new_memory]
)
def test_a_tensor_and_its_new_data_share_what_is_written(build: Callable[[], Any]) -> None:
    def run(wrap: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(0)
        step, parameters = build()
        step, first, seen = wrap(step), [p.data for p in parameters], []
        for call in range(4):
            torch.manual_seed(call)
            result = step(torch.randn(2 + call // 2, 3, dtype=torch.float64))
            if isinstance(result, torch.Tensor):
                result.mul_(3)
            same = [p.data_ptr() == old.data_ptr() for p, old in zip(parameters, first, strict=True)]
            state = [(p.detach().clone(), p.grad) for p in parameters]
            seen.append((result, state, [old.clone() for old in first], same))
        return seen

    torch.testing.assert_close(run(thunder.jit), run(lambda f: f))


def multiplied(state: torch.Tensor, value: torch.Tensor) -> Any:
    state.detach_()
    state.mul_(value.sum())
    state.add_(1)
    return state * 2, state


def a_row_is_set(state: torch.Tensor, value: torch.Tensor) -> Any:
    state.detach_()
    state[0] = value
    return state.square().sum()


def set_without_gradients(state: torch.Tensor, value: torch.Tensor) -> Any:
    state.detach_()
    with torch.no_grad():
        state[0] = value
    return state * value


def only_read(state: torch.Tensor, value: torch.Tensor) -> Any:
    state.detach_()
    return state * value


@pytest.mark.parametrize("write", [multiplied, a_row_is_set, set_without_gradients, only_read])
@pytest.mark.parametrize("kind", ["plain", "leaf", "computed"])
def test_a_state_that_is_detached_and_written_has_the_graph_of_what_is_written(
    write: Callable[..., Any], kind: str
) -> None:
    def run(fn: Callable[..., Any]) -> Any:
        start = torch.ones(2, 3, requires_grad=kind != "plain")
        state = start * 3 if kind == "computed" else start
        value = torch.arange(1.0, 4.0, requires_grad=True)
        result = fn(state, value)
        facts = [state.requires_grad, state.is_leaf, result, state.detach().clone()]
        results = result if isinstance(result, tuple) else (result,)
        (sum(t.sum() for t in results) + (state * state).sum()).backward()
        return [*facts, start.grad if kind == "computed" else None, value.grad, state.detach()]

    compiled = thunder.jit(write, executors=["torch"])
    for _ in range(2):
        torch.testing.assert_close(run(compiled), run(write))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_tracked_write_to_assigned_data_of_an_input_is_refused(requires_grad: bool) -> None:
    def fn(state: torch.Tensor, value: torch.Tensor) -> Any:
        state.data = value.detach() * 2
        state.mul_(value)

    def detached_leaf(state: torch.Tensor, value: torch.Tensor) -> Any:
        state.detach_()
        return state.requires_grad_() * value

    def detached_twice(state: torch.Tensor, value: torch.Tensor) -> Any:
        state.detach_().add_(value)
        return state.detach_() * 1

    state, value = torch.ones(3, requires_grad=requires_grad) * 1, torch.ones(3, requires_grad=True)
    with pytest.raises(UnsupportedProgram, match="to a tensor whose data it has assigned"):
        thunder.jit(fn)(state, value)
    if requires_grad:
        with pytest.raises(UnsupportedProgram, match="lets it require grad again"):
            thunder.jit(detached_leaf)(state, value)
        with pytest.raises(UnsupportedProgram, match="detaches it again"):
            thunder.jit(detached_twice)(state, value)
