"""Tensors that a program makes require gradients on its way."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import thunder


class Extractor(nn.Module):
    """Makes its input require gradients while training, as models of speech do."""

    def __init__(self, by_method: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.by_method = by_method

    def forward(self, x: Tensor) -> tuple[Tensor, bool]:
        h = x[None]
        if self.by_method:
            h.requires_grad_()
        else:
            h.requires_grad = True
        return self.linear(h).sin(), h.requires_grad


@pytest.mark.parametrize("by_method", [False, True])
def test_gradients_of_parameters_are_eagers(by_method: bool) -> None:
    model, x = Extractor(by_method), torch.randn(2, 3)
    compiled, gradients = thunder.jit(model), []
    for call in (model, compiled):
        model.zero_grad()
        y, asked = call(x)
        y.sum().backward()
        gradients.append((y.detach(), asked, model.linear.weight.grad))
    assert torch.equal(gradients[0][0], gradients[1][0])
    assert gradients[0][1] is gradients[1][1] is True
    torch.testing.assert_close(gradients[0][2], gradients[1][2])
    with torch.no_grad():
        y, asked = compiled(x)
    assert not y.requires_grad
    assert asked
    assert x.grad is None


def no_longer(x: Tensor) -> Tensor:
    h = x.detach().requires_grad_()
    h.requires_grad = False
    return h


REFUSED: list[Callable[[Tensor], Tensor]] = [
    lambda x: (x * 2 + x.requires_grad_()).detach(),
]


def test_a_tensor_that_was_not_used_no_longer_requires_gradients() -> None:
    x = torch.ones(3, requires_grad=True)
    result = thunder.jit(no_longer)(x)
    assert torch.equal(result, x)
    assert not result.requires_grad


def test_integers_cannot_require_gradients() -> None:
    with pytest.raises(RuntimeError, match="only Tensors of floating point dtype can require gradients"):
        thunder.jit(lambda x: x.argmax().requires_grad_())(torch.ones(3))


def test_an_argument_may_be_returned_that_requires_gradients() -> None:
    x = torch.ones(3)
    assert thunder.jit(lambda x: x.requires_grad_())(x) is x
    assert x.requires_grad
    assert x.is_leaf


@pytest.mark.parametrize("fn", REFUSED)
def test_what_a_compiled_program_cannot_give_is_refused_with_the_line(fn: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(thunder.UnsupportedProgram, match=r"require.*grad(.|\n)*test_grad_requests\.py:\d+ +"):
        thunder.jit(fn)(torch.ones(3))


def test_saying_what_is_so_already_is_allowed() -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        h = (x * w).requires_grad_()
        h.requires_grad = True
        x.requires_grad = False
        return h + x.detach().requires_grad_(False)

    x, w = torch.ones(3), torch.ones(3, requires_grad=True)
    thunder.jit(fn)(x, w).sum().backward()
    assert torch.equal(w.grad, torch.ones(3))


def of_what_has_no_gradient(x: Tensor) -> Tensor:
    with torch.no_grad():
        h = x * 2
    h.requires_grad = True
    return h * 3


def of_a_view_without_gradient(x: Tensor) -> Tensor:
    with torch.no_grad():
        h = x[:1]
    return h.requires_grad_() * x


@pytest.mark.parametrize("program", [of_what_has_no_gradient, of_a_view_without_gradient])
def test_no_gradient_flows_where_eager_has_none(program: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(thunder.UnsupportedProgram, match=r"detach\(\)"):
        thunder.jit(program)(torch.ones(3, requires_grad=True))


def test_a_detached_tensor_that_requires_gradients_is_a_leaf_with_none_before_it() -> None:
    def program(x: Tensor) -> tuple[Tensor, bool]:
        h = (x * 2).detach().requires_grad_()
        return h * x, h.is_leaf

    gradients = []
    for call in (program, thunder.jit(program)):
        x = torch.arange(1.0, 4.0, requires_grad=True)
        y, leaf = call(x)
        y.sum().backward()
        gradients.append(x.grad)
        assert leaf
    assert torch.equal(*gradients)


class State:
    def __init__(self) -> None:
        self.h = torch.zeros(3)


def written(x: Tensor) -> Tensor:
    h = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        h.add_(x)
    return h


LEAVES: dict[str, Callable[[Tensor], Tensor]] = {
    "detached": lambda x: (x * 2).detach().requires_grad_(),
    "computed": lambda x: (x.detach() * 2).requires_grad_(),
    "made": lambda x: torch.tensor([0.0, 1.0, 2.0], requires_grad=True),
    "written": written,
}


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("leaf", LEAVES)
def test_a_leaf_that_leaves_the_program_is_one(leaf: str, tracked: bool, kept: bool) -> None:
    def program(x: Tensor, w: Tensor, state: State) -> tuple[Tensor, Tensor]:
        loss = (x * w).sum()
        h = LEAVES[leaf](x)
        if kept:
            state.h = h
            return loss, x
        return loss, h

    seen = []
    compiled = thunder.jit(program)
    for call in (program, compiled, compiled):
        x, w, state = (
            torch.arange(1.0, 4.0, requires_grad=tracked),
            torch.ones(3, requires_grad=True),
            State(),
        )
        loss, h = call(x, w, state)
        h = state.h if kept else h
        (h * 3).sum().backward()
        loss.backward()
        seen.append(([h.is_leaf, h.requires_grad], h.detach(), h.grad, w.grad, x.grad))
    assert seen[0][0] == [True, True]
    for ours in seen[1:]:
        torch.testing.assert_close(ours, seen[0])


def test_a_detached_input_that_leaves_the_program_as_a_leaf_shares_its_memory() -> None:
    x = torch.ones(3, requires_grad=True)
    h = thunder.jit(lambda x: x.detach().requires_grad_())(x)
    assert h.is_leaf
    assert h.requires_grad
    assert h.data_ptr() == x.data_ptr()


def test_a_result_that_depends_on_a_leaf_that_is_returned_too_gives_it_a_gradient() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        h = (x * 2).detach().requires_grad_()
        return h, (h * x).sum()

    def of_nothing_else(x: Tensor) -> tuple[Tensor, Tensor]:
        h = x.detach() * 2
        h.requires_grad = True
        return h, h.sin().sum()

    for fn in (program, of_nothing_else):
        gradients = []
        for call in (fn, thunder.jit(fn)):
            x = torch.arange(3.0, requires_grad=True)
            h, loss = call(x)
            loss.backward()
            gradients.append((h.grad, x.grad))
        assert gradients[0][0] is not None
        torch.testing.assert_close(gradients[1], gradients[0])


def used_without_gradients(x: Tensor, weight: Tensor) -> tuple[Tensor, bool]:
    with torch.no_grad():
        h = (x * weight).requires_grad_()
        return h * 3, h.requires_grad


def a_view_of_it(x: Tensor, weight: Tensor) -> Tensor:
    with torch.no_grad():
        return (x * weight).requires_grad_()[0]


def test_an_evaluation_may_set_what_it_computes_from_parameters() -> None:
    """As the hook that gradient checkpointing adds to the embeddings of a model."""
    x, weight = torch.randn(2, 3), nn.Parameter(torch.randn(3))
    value, requires_grad = thunder.jit(used_without_gradients)(x, weight)
    assert torch.equal(value, used_without_gradients(x, weight)[0])
    assert (value.requires_grad, requires_grad) == (False, True)
    with pytest.raises(thunder.UnsupportedProgram, match="without gradients from a tensor with them"):
        thunder.jit(a_view_of_it)(x, weight)
