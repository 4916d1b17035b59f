"""A program calls `loss.backward()`, and reads, writes and clears `.grad`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten
from torch.utils.checkpoint import checkpoint

import thunder


class Case:
    """A model, and a program that trains it, called three times."""

    def __init__(self, model: Callable[[], nn.Module], step: Callable[[Any, Tensor], Any]) -> None:
        self.model, self.step = model, step

    def outcome(self, *, compiled: bool) -> tuple[Any, ...]:
        torch.manual_seed(0)
        model = self.model()
        program = (
            (lambda x: self.step(model, x)) if not compiled else thunder.jit(lambda x: self.step(model, x))
        )
        results = [program(torch.randn(4, 3)) for _ in range(3)]
        gradients = [p.grad for p in model.parameters()]
        strides = [None if g is None else g.stride() for g in gradients]
        return results, gradients, strides, dict(model.state_dict())


def perceptron() -> nn.Module:
    return nn.Sequential(
        nn.Linear(3, 4),
        nn.BatchNorm1d(4),
        nn.Dropout(0.2, inplace=True),
        nn.ReLU(inplace=True),
        nn.Linear(4, 2),
    )


def accumulate(model: Any, x: Tensor) -> float:
    loss = model(x).pow(2).mean()
    loss.backward()
    return loss.item()  # type: ignore[no-any-return]


def descend(model: Any, x: Tensor) -> Tensor:
    model.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
    return loss.detach()


def descend_twice(model: Any, x: Tensor) -> Tensor:
    """A loss of the parameters before and after a step."""
    first = (model.weight * 2).sum()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.9)
    (first + model(x).pow(2).sum()).backward()
    return first.detach()


def two_losses(model: Any, x: Tensor) -> Tensor:
    model.zero_grad(set_to_none=False)
    y = model(x)
    torch.autograd.backward([y, y.sum()], [torch.ones_like(y), None])
    model(x).mean().backward()
    model[0].weight.grad.mul_(0.5)
    return model[0].weight.grad.norm()


def of_an_intermediate(model: Any, x: Tensor) -> tuple[Tensor, bool]:
    x = x.detach().requires_grad_()
    model(x).sum().backward(inputs=[x])
    return x.grad * 2, model[0].weight.grad is None


class Adversaries(nn.Module):
    """A generator and a critic, with dropout and optimizers."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Linear(3, 3)
        self.critic = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(4, 1))
        self.of_generator = torch.optim.SGD(self.generator.parameters(), 0.1)
        self.of_critic = torch.optim.SGD(self.critic.parameters(), 0.1)


def compete(model: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """A step of a WGAN with gradient penalty: the critic is used before and after its own step."""
    fake = model.generator(torch.randn_like(x))
    model.of_critic.zero_grad()
    mixed = (x + fake.detach()).requires_grad_()
    (slope,) = torch.autograd.grad(model.critic(mixed).sum(), mixed, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).pow(2).mean()
    loss = model.critic(fake.detach()).mean() - model.critic(x).mean() + penalty
    loss.backward()
    model.of_critic.step()
    model.of_generator.zero_grad()
    (-model.critic(fake).mean()).backward()
    model.of_generator.step()
    return loss.detach(), fake.detach()


def pair() -> nn.Module:
    return nn.ParameterList([nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))])


def channels_last() -> nn.Module:
    return nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)


def uniform(x: Tensor) -> Tensor:
    return torch.zeros_like(x).uniform_(-0.1, 0.1).requires_grad_()


def written_then_leaf(x: Tensor) -> Tensor:
    noise = torch.empty_like(x).normal_()
    noise[:, 0] = 0.0
    noise.requires_grad = True
    return noise


def perturbed(make: Callable[[Tensor], Tensor], by_data: bool) -> Callable[[Any, Tensor], Any]:
    """Return a step against a perturbation that is made in the program and changed in three rounds."""

    def step(model: Any, x: Tensor) -> Any:
        noise = make(x)
        for _ in range(3):
            model(x + noise).pow(2).mean().backward()
            new = (noise + 0.1 * noise.grad.sign()).clamp(-0.2, 0.2)
            if by_data:
                noise.data = new
            else:
                with torch.no_grad():
                    noise.copy_(new)
            noise.grad.zero_()
        loss = model(x + noise.detach()).pow(2).mean()
        loss.backward()
        return loss.detach(), noise.detach(), noise.grad

    return step


CASES = {
    "perturbation": Case(perceptron, perturbed(uniform, by_data=False)),
    "perturbation, by data": Case(perceptron, perturbed(uniform, by_data=True)),
    "perturbation, written": Case(perceptron, perturbed(written_then_leaf, by_data=False)),
    "accumulate": Case(perceptron, accumulate),
    "descend": Case(perceptron, descend),
    "descend twice": Case(lambda: nn.Linear(3, 2, bias=False), descend_twice),
    "two losses": Case(perceptron, two_losses),
    "of an intermediate": Case(perceptron, of_an_intermediate),
    "adversaries": Case(Adversaries, compete),
    "one gradient for two": Case(pair, lambda m, x: (m[0] + m[1]).sum().backward()),
    "strides of the parameter": Case(
        channels_last, lambda m, x: m(x.view(1, 3, 2, 2)).pow(2).sum().backward()
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_and_parameters_are_eagers(name: str) -> None:
    torch.testing.assert_close(CASES[name].outcome(compiled=True), CASES[name].outcome(compiled=False))


def test_a_gradient_from_outside_is_added_to_in_place() -> None:
    w = torch.ones(3, requires_grad=True)
    step = thunder.jit(lambda x: (w * x).sum().backward())
    step(torch.ones(3))
    held = w.grad
    assert held is not None
    step(torch.full((3,), 2.0))
    assert w.grad is held
    w.grad = None
    step(torch.ones(3))
    assert torch.equal(held, torch.full((3,), 3.0))
    assert torch.equal(w.grad, torch.ones(3))


def refused(program: Callable[..., Any], *args: Tensor, words: str) -> None:
    with pytest.raises(thunder.UnsupportedProgram, match=words):
        thunder.jit(program)(*args)


def test_refused_by_name() -> None:
    leaf = torch.ones(3, requires_grad=True)
    refused(lambda x: (x * x).sum().backward(), leaf * 2, words="outside of the program")


class Kept:
    delta: Tensor


def returned_with_its_gradient(x: Tensor) -> Any:
    d = torch.zeros_like(x, requires_grad=True)
    (x + d).square().sum().backward()
    return d, d.grad


def returned_twice(x: Tensor) -> Any:
    d = x.detach().requires_grad_()
    for _ in range(2):
        (d * x).sin().sum().backward()
    return [d, d], {"of an alias": d.contiguous().grad}


def kept_by_an_object(x: Tensor) -> Any:
    Kept.delta = torch.zeros_like(x).requires_grad_()
    (x + Kept.delta).exp().sum().backward()


def zeroed(x: Tensor) -> Any:
    d = torch.ones_like(x, requires_grad=True)
    (x * d).sum().backward()
    d.grad.zero_()  # type: ignore[union-attr]
    return d


def without_gradient(x: Tensor) -> Any:
    d = torch.ones_like(x, requires_grad=True)
    (x * d).sum().backward()
    d.grad = None
    return d, torch.zeros_like(x, requires_grad=True)


@pytest.mark.parametrize(
    "program",
    [returned_with_its_gradient, returned_twice, kept_by_an_object, zeroed, without_gradient],
)
def test_a_leaf_that_leaves_the_program_has_its_gradient(program: Callable[[Tensor], Any]) -> None:
    def leaf_and_rest(fn: Any, x: Tensor) -> tuple[Any, ...]:
        result = fn(x)
        leaves, _ = tree_flatten((result, Kept.__dict__.get("delta")))
        (leaves[0] if leaves[0] is not None else Kept.delta).mul(3).sum().backward()
        first = [(t.requires_grad, t.is_leaf, t.grad) for t in leaves if t is not None]
        same = [(i, j) for i, a in enumerate(leaves) for j, b in enumerate(leaves) if a is b]
        return result, first, same, [t.grad is u for t in leaves if t is not None for u in leaves]

    compiled = thunder.jit(program)
    for size in (3, 3, 2):
        x = torch.randn(size)
        torch.testing.assert_close(leaf_and_rest(compiled, x), leaf_and_rest(program, x))


def test_errors_are_eagers() -> None:
    w = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        thunder.jit(lambda: (w * 2).backward())()
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        thunder.jit(lambda: w.detach().sum().backward())()
    with pytest.raises(TypeError, match="assigned grad expected to be a Tensor or None"):
        thunder.jit(lambda: setattr(w, "grad", 1))()


def test_hooks_and_retained_gradients_of_intermediates() -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        x = x.detach().requires_grad_()
        h = x.exp()
        h.register_hook(lambda g: g * 10)
        k = h * x
        k.retain_grad()
        (first,) = torch.autograd.grad((h * h).sum(), h, retain_graph=True)
        k.pow(2).sum().backward()
        return first, x.grad, k.grad, h.grad is None

    x = torch.randn(3)
    torch.testing.assert_close(thunder.jit(program)(x), program(x))
    with pytest.raises(thunder.UnsupportedProgram, match="retains its gradient"):
        thunder.jit(lambda x: (h := x.exp(), h.retain_grad(), torch.autograd.grad(h.sum(), x)))(
            x.requires_grad_()
        )


CALLS: list[int] = []


class Counts(torch.autograd.Function):
    """Its backward has an effect."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        CALLS.append(1)
        return g * 2


def test_a_region_with_effects_that_runs_again_is_refused_inside() -> None:
    """The program could read what the region writes, which it would write only when the trace runs."""
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))

    def checkpointed(x: Tensor) -> Tensor:
        checkpoint(model, x, use_reentrant=False).pow(2).sum().backward()
        return model[1].num_batches_tracked + 0

    refused(checkpointed, torch.randn(4, 3), words="which has effects")


def test_a_backward_with_effects_has_them_where_it_runs() -> None:
    def counted(x: Tensor) -> int:
        Counts.apply(x).sum().backward()
        return len(CALLS)

    compiled, x = thunder.jit(counted), torch.ones(3, requires_grad=True)
    for _ in range(3):
        before = len(CALLS)
        assert counted(x) == before + 1
        assert compiled(x) == before + 2
