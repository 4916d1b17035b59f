"""A program computes gradients of its own values, by `torch.autograd.grad`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import grad
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import thunder

Program = Callable[..., Any]
#: the program, its arguments, and the parameters that it reads
Case = tuple[Program, tuple[Tensor, ...], list[nn.Parameter]]
CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


def values(*shape: int, requires_grad: bool = False) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=requires_grad)


def critic(noise: nn.Module) -> nn.Module:
    layers = (
        nn.Linear(3, 4),
        nn.LeakyReLU(0.2, inplace=True),
        noise,
        nn.LayerNorm(4),
        nn.GELU(),
        nn.Linear(4, 1),
    )
    return nn.Sequential(*layers).double()


@case
def gradient_penalty() -> Case:
    model = critic(nn.Dropout(0.5))

    def penalty(real: Tensor, fake: Tensor) -> Tensor:
        mixed = (0.3 * real + 0.7 * fake).requires_grad_(True)
        y = model(mixed)
        (g,) = grad(y, mixed, grad_outputs=torch.ones_like(y), create_graph=True)
        return ((g.view(g.size(0), -1).norm(2, dim=1) - 1) ** 2).mean() - y.mean()

    return penalty, (values(4, 3), values(4, 3)), list(model.parameters())


@case
def noise_of_whole_channels() -> Case:
    model = critic(nn.FeatureAlphaDropout(0.3))

    def slope(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_(True)
        return grad(model(x).sum(), x, create_graph=True)[0].pow(2).sum()

    return slope, (values(4, 3),), list(model.parameters())


@case
def physics_informed() -> Case:
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double()

    def residual(x: Tensor, t: Tensor) -> Tensor:
        x, t = x.clone().requires_grad_(True), t.clone().requires_grad_(True)
        u = model(torch.cat([x, t], 1))
        u_x, u_t = grad(u.sum(), (x, t), create_graph=True)
        u_xx = grad(u_x.sum(), x, create_graph=True)[0]
        return ((u_t + u * u_x - 0.1 * u_xx) ** 2).mean()

    return residual, (values(5, 1), values(5, 1)), list(model.parameters())


@case
def arguments_and_intermediates() -> Case:
    def program(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        h = (x * y).exp()
        k = h.sin()
        g_k, g_h, g_x = grad((k * h).sum(), (k, h, x), create_graph=True)
        (constant,) = grad(k.sum(), y, retain_graph=True)
        return (g_h * g_x).sum() + g_k.sum(), (constant * x).sum()

    return program, (values(3, requires_grad=True), values(3, requires_grad=True)), []


@case
def writes_in_place() -> Case:
    def program(x: Tensor) -> Tensor:
        buffer = torch.zeros(3, 3, dtype=torch.float64)
        y = x * 2
        z = (y * 3).sin_()
        buffer[0] = y[1]
        buffer[1:] += (x[:2] * z[1:]).exp()
        result = (buffer * z).sum()
        g = grad(result, x, create_graph=True)[0]
        return (g * g).sum() + result

    return program, (values(3, 3, requires_grad=True),), []


class Straight(torch.autograd.Function):
    """Rounds; the gradient is another one than that of its forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * x.cos()


@case
def custom_gradient_and_checkpoint() -> Case:
    def block(x: Tensor) -> Tensor:
        y = Straight.apply(x * 3) * x
        return grad(y.sum(), x, create_graph=True)[0]

    def program(x: Tensor) -> Tensor:
        return checkpoint(block, x, use_reentrant=False).pow(2).sum()

    return program, (values(3, requires_grad=True),), []


@case
def complex_values() -> Case:
    def program(x: Tensor) -> Tensor:
        z = torch.fft.fft(x) * 2j
        g = grad(z.abs().pow(2).sum() + z.real.sum(), x, create_graph=True)[0]
        return (g * g).sum()

    return program, (values(4, requires_grad=True),), []


def leaves(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_eagers(name: str) -> None:
    torch.manual_seed(0)
    program, args, parameters = CASES[name]()
    compiled = thunder.jit(program)
    inputs = [*(a for a in args if a.requires_grad), *parameters]
    for seed in (1, 2):
        outcomes = []
        for call in (program, compiled):
            torch.manual_seed(seed)
            results = leaves(call(*args))
            outcomes.append((results, torch.autograd.grad(results[0], inputs, allow_unused=True)))
        torch.testing.assert_close(*[results for results, _ in outcomes])
        torch.testing.assert_close(*[gradients for _, gradients in outcomes])
        assert [r.requires_grad for r in outcomes[0][0]] == [r.requires_grad for r in outcomes[1][0]]
        with torch.no_grad():
            args = tuple((a * 1.1).requires_grad_(a.requires_grad) for a in args)
        inputs = [*(a for a in args if a.requires_grad), *parameters]
    assert thunder.cache_misses(compiled) == 1


def test_guidance_in_a_program_without_gradients() -> None:
    model = critic(nn.Identity())

    @torch.no_grad()
    def step(x: Tensor) -> Tensor:
        with torch.enable_grad():
            inner = x.detach().requires_grad_(True)
            score = F.logsigmoid(model(inner)).sum()
            g = grad(score, inner)[0]
        if g.norm() > 1:
            g = g / g.norm()
        return x + 0.1 * g

    x = values(4, 3)
    result = thunder.jit(step)(x)
    torch.testing.assert_close(result, step(x))
    assert not result.requires_grad


@pytest.mark.parametrize("by_method", [False, True])
def test_an_argument_that_the_program_lets_require_grad(by_method: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()

    def forces(positions: Tensor) -> tuple[Tensor, Tensor]:
        if by_method:
            positions.requires_grad_(True)
        else:
            positions.requires_grad = True
        energy = model(positions).sum()
        return energy, -grad(energy, positions, create_graph=True)[0]

    compiled, places = thunder.jit(forces), [values(2, 3), values(2, 3)]
    for x in places:
        outcomes = []
        for call in (forces, compiled):
            model.zero_grad()
            x = x.detach()
            energy, force = call(x)
            (energy + force.pow(2).sum()).backward()
            outcomes.append((energy, force, x.grad, model[0].weight.grad, x.requires_grad))
        torch.testing.assert_close(outcomes[1], outcomes[0])
    assert thunder.cache_misses(compiled) == 1


def test_an_unused_input() -> None:
    def program(x: Tensor, y: Tensor) -> tuple[Any, ...]:
        z = (x**2).sum()
        none = grad(z, (x, y), retain_graph=True, allow_unused=True)[1] is None
        zeros = grad(z, [x, y], retain_graph=True, materialize_grads=True)
        return none, *zeros, grad(z, {"x": x})["x"]

    args = values(3, requires_grad=True), values(3, requires_grad=True)
    torch.testing.assert_close(thunder.jit(program)(*args), program(*args))


ERRORS: dict[str, Callable[[Tensor, Tensor, Tensor], Any]] = {
    "not a scalar": lambda x, y, n: grad(x * 2, x),
    "unused": lambda x, y, n: grad(x.sum(), y),
    "an input without gradient": lambda x, y, n: grad(x.sum(), n),
    "an output without gradient": lambda x, y, n: grad(n.sum(), x),
    "a cotangent of another shape": lambda x, y, n: grad(x * 2, x, torch.ones(2, dtype=x.dtype)),
    "no inputs": lambda x, y, n: grad(x.sum(), []),
    "contradicting options": lambda x, y, n: grad(x.sum(), x, materialize_grads=True, allow_unused=False),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_eagers(name: str) -> None:
    args = values(3, requires_grad=True), values(3, requires_grad=True), values(3)
    messages = []
    for call in (ERRORS[name], thunder.jit(ERRORS[name])):
        with pytest.raises((RuntimeError, ValueError), match=r"[a-z]") as caught:
            call(*args)
        messages.append((str(caught.value), type(caught.value)))
    assert messages[0] == messages[1]


def test_a_second_backward_and_a_write_need_no_retained_graph() -> None:
    def program(x: Tensor) -> Tensor:
        h = x.exp()
        y = (h * h).sum()
        (first,) = grad(y, x)
        h.add_(1)
        return first - grad(y, x)[0]

    x = values(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="second time"):
        program(x)
    assert torch.equal(thunder.jit(program)(x), torch.zeros(3, dtype=torch.float64))


def test_a_written_intermediate() -> None:
    def program(x: Tensor) -> Tensor:
        h = (x * 2).relu_()
        return grad((h * h * x).sum(), h)[0]

    x = values(3, requires_grad=True)
    torch.testing.assert_close(thunder.jit(program)(x), program(x))


def test_the_trace_has_the_backward_as_statements() -> None:
    def program(x: Tensor) -> Tensor:
        return grad(x.tanh().sum(), x)[0]

    compiled = thunder.jit(program)
    compiled(values(3, requires_grad=True))
    text = str(thunder.last_traces(compiled)[0])
    assert "ltorch.tanh_backward(" in text
    assert "# " + __file__ in text or "test_inner_gradients.py" in text


def written_through_a_view(x: Tensor) -> Any:
    x = x * 1
    first = x[0]
    y = first.exp()
    first.mul_(2)
    return grad((x * x).sum() + y, x)


def test_refused_by_name() -> None:
    with pytest.raises(thunder.UnsupportedProgram, match="written through a view"):
        thunder.jit(written_through_a_view)(values(3, requires_grad=True))
