"""Programs as people write them, with derivatives to the second order; and what is refused by name."""

from __future__ import annotations

import copy

import pytest
import torch

import thunder
from comparison.derivatives import assert_as_eager
from comparison.inputs import leaf

F = torch.nn.functional
INDICES = torch.tensor([[0, 0, 1], [2, 2, 2]])


def recurrence(x, w):
    h = torch.zeros(2, dtype=torch.float64)
    for i in range(3):
        h = torch.tanh(x[:, i] * h + w[:, i])
    return h


def accumulated(x, w):
    out = torch.zeros(3, dtype=torch.float64)
    for i in range(2):
        out += x[i] * w[i]
    return out


def filled_row_by_row(x, w):
    out = torch.empty(2, 3, dtype=torch.float64)
    for i in range(2):
        out[i] = x[i] * w[1 - i]
    return out, out[0]


def masked(x, w):
    y = x * 1
    y[y > 0.6] = 0.0
    return y * w


def scattered(x, w):
    y = torch.zeros(2, 3, dtype=torch.float64)
    y[torch.tensor([0, 1]), torch.tensor([1, 2])] = w[:, 0]
    return y * x


def several_views(x, w):
    y = x * 1
    row, flat = y[0], y.view(-1)
    row.mul_(2)
    flat[1:].add_(1)
    row.add_(w[0])
    return y, row, flat


def a_clone_is_written(x, w):
    y = x * w
    d = y.detach().clone()
    d.add_(1)
    return y * d


def relu_in_place(x, w):
    y = F.relu(x * w - 0.3, inplace=True)
    return y * y


def dropout_in_place(x, w):
    y = F.dropout(x * w, 0.5, True, inplace=True)
    return y * y


def straight_through(x, w):
    return x * w + (torch.round(x) - x).detach()


INNER = thunder.jit(lambda t: torch.sin(t) * t)


def nested(x, w):
    with torch.no_grad():
        a = INNER(x)
    return a * w + INNER(w)


def zeros_in_a_product(x, w):
    mask = torch.tensor([[0.0, 1, 1], [1, 0, 0]], dtype=torch.float64)
    return (x * mask).prod(1) * w.sum()


PROGRAMS = [
    recurrence,
    accumulated,
    filled_row_by_row,
    masked,
    scattered,
    several_views,
    a_clone_is_written,
    relu_in_place,
    dropout_in_place,
    straight_through,
    nested,
    zeros_in_a_product,
    lambda x, w: x.clone().index_put((torch.tensor([0, 0]), torch.tensor([1, 1])), w[:, 0], accumulate=True),
    lambda x, w: x.scatter_add(1, INDICES, w) * x.gather(1, INDICES),
    lambda x, w: x**w + w**2 + 2**x,
    lambda x, w: x.std(0) * w + x.var(1, keepdim=True),
    lambda x, w: torch.cat([x[:, :1], w[:, 1:], x[:, :1]], 1),
    lambda x, w: x.topk(2, 1)[0] * w.sort(1)[0][:, :2],
    lambda x, w: F.cross_entropy(x * w, torch.tensor([0, -100])),
    lambda x, w: (x.argmax(), (x > w).sum(), x * w),
    lambda x, w: torch.cat([-x[..., 2:], x[..., :2]], -1) * w,
    lambda x, w: [a * b for a, b in zip(x.unbind(1), w.unbind(1), strict=True)],
    lambda x, w: F.batch_norm(x, None, None, w[0], w[1], training=True),
    lambda x, w: F.interpolate(x.view(1, 1, 2, 3), scale_factor=2, mode="bilinear").sum() * w,
    lambda x, w: torch.einsum("ij,kj->ik", x, w) + torch.addmm(x @ x.t(), x, w.t()),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("<>"))
def test_derivatives_are_eagers(program):
    assert_as_eager(program, leaf(2, 3), leaf(2, 3, seed=1))


LAYOUTS = {
    "expanded": lambda: leaf(1, 3).detach().expand(2, 3),
    "transposed": lambda: leaf(3, 2).detach().t(),
    "strided": lambda: leaf(2, 6).detach()[:, ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_leaves_may_lie_in_memory_as_they_like(layout):
    def run(f):
        x, w = LAYOUTS[layout]().requires_grad_(), leaf(2, 3, seed=1)
        return torch.autograd.grad(f(x, w).sum(), (x, w))

    def program(x, w):
        return F.softmax(x, 0) * w + x.reshape(2, 3)

    torch.testing.assert_close(run(thunder.jit(program)), run(program))


# -- modules -------------------------------------------------------------------------------------------------


class Base(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = torch.nn.Linear(3, 3).double(), torch.nn.Linear(3, 3).double()
        self.register_buffer("e", torch.zeros(3, dtype=torch.float64))


class Average(Base):
    def forward(self, x):
        y = self.a(x)
        self.e = self.e * 0.9 + y.detach().mean(0) * 0.1
        return self.b(y - self.e)


class AverageInPlace(Base):
    def forward(self, x):
        y = self.a(x)
        z = y - self.e
        self.e.copy_(y.detach().mean(0))
        return self.b(z)


class Decaying(Base):
    def forward(self, x):
        with torch.no_grad():
            self.a.weight.mul_(0.9)
        return self.b(x)


class Hooked(Base):
    def __init__(self):
        super().__init__()
        self.a.register_forward_hook(lambda module, args, output: output * 2)

    def forward(self, x):
        return self.b(self.a(x))


class Normalised(Base):
    def __init__(self):
        super().__init__()
        torch.nn.utils.parametrizations.weight_norm(self.a)

    def forward(self, x):
        return self.b(self.a(x))


@pytest.mark.parametrize("module", [Average, AverageInPlace, Decaying, Hooked, Normalised])
def test_modules_train_as_in_eager(module):
    ours, theirs = module(), module()
    compiled = thunder.jit(ours)
    for seed in range(3):
        x, y = leaf(4, 3, seed=seed), leaf(4, 3, seed=seed)
        compiled(x).square().sum().backward()
        theirs(y).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    torch.testing.assert_close([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()])
    torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()))


def test_a_value_kept_as_an_attribute_has_its_gradient():
    class Keeping(Base):
        def forward(self, x):
            self.h = self.a(x)
            return self.b(self.h)

    ours, theirs, x = Keeping(), Keeping(), leaf(4, 3)
    thunder.jit(ours)(x)
    theirs(x)
    torch.testing.assert_close(
        torch.autograd.grad(ours.h.sum(), ours.a.weight), torch.autograd.grad(theirs.h.sum(), theirs.a.weight)
    )


def test_a_value_appended_to_the_callers_list_has_its_gradient():
    def program(x, kept):
        kept.append(x * 2)
        return x * 3

    x, kept = leaf(3), []
    result = thunder.jit(program)(x, kept)
    (found,) = torch.autograd.grad((kept[0] * result).sum(), x)
    torch.testing.assert_close(found, 12 * x.detach())


def test_a_parameter_that_is_modified_before_the_backward_is_torchs_error():
    model = Hooked()
    loss = thunder.jit(model)(leaf(4, 3)).sum()
    with torch.no_grad():
        model.b.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_write_inside_the_program_to_what_its_backward_needs():
    def program(x, scale):
        y = x * scale
        scale.add_(1)
        return y

    x = leaf(3)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        program(x, torch.ones(3)).sum().backward()
    scale = torch.full((3,), 2.0, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(thunder.jit(program)(x, scale).sum(), x)
    assert torch.equal(gradient, torch.full_like(x, 2.0))
    assert torch.equal(scale, torch.full_like(scale, 3.0))


def requiring(x):
    return torch.sin(x).detach().requires_grad_() * x


def test_a_tensor_that_requires_grad_anew_begins_another_graph():
    assert_as_eager(requiring, leaf(3))


def test_transforms_of_functorch_around_a_call_transform_the_program_as_it_was_written():
    compiled, x = thunder.jit(torch.sin), leaf(3, grad=False)
    compiled(x)
    assert torch.equal(torch.func.grad(lambda t: compiled(t).sum())(x), x.cos())
    assert torch.equal(torch.vmap(compiled)(torch.stack([x, x])), torch.stack([x, x]).sin())
    assert torch.equal(compiled(x), x.sin())


def test_running_statistics_of_a_normalisation_whose_result_nobody_uses():
    """As of an auxiliary head: the buffers are written, and no gradient comes from them."""
    norm, twin = (torch.nn.BatchNorm2d(3) for _ in range(2))
    x = torch.randn(2, 3, 4, 4, requires_grad=True)

    def program(module, x):
        module(x)
        return x * 2

    thunder.jit(lambda x: program(norm, x))(x).sum().backward()
    program(twin, x)
    assert torch.equal(x.grad, torch.full_like(x, 2.0))
    assert torch.equal(norm.running_mean, twin.running_mean)
    assert norm.weight.grad is None


@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (torch.nn.BatchNorm1d(3), (4, 3)),
        (torch.nn.BatchNorm2d(3), (2, 3, 2, 2)),
        (torch.nn.InstanceNorm1d(3, affine=True, track_running_stats=True), (2, 3, 5)),
    ],
    ids=["BatchNorm1d", "BatchNorm2d", "InstanceNorm1d"],
)
def test_a_normalisation_that_is_called_several_times_in_training(norm, shape):
    """Each call reads the running statistics that the one before wrote; no gradient flows through them."""

    def step(run, module):
        x = leaf(*shape)
        y = run(x)
        (gradient,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
        gradient.square().sum().backward()
        statistics = (module.running_mean, module.running_var, module.num_batches_tracked)
        return y, gradient, x.grad, module.weight.grad, *statistics

    def repeated(module):
        def run(x):
            for _ in range(3):
                x = module(x) + module.running_mean.mean()
            return x

        return run

    mine, twin = copy.deepcopy(norm.double()), copy.deepcopy(norm.double())
    compiled, eager = thunder.jit(repeated(mine)), repeated(twin)
    for _ in range(2):
        torch.testing.assert_close(step(compiled, mine), step(eager, twin))
    assert thunder.cache_misses(compiled) == 1


def test_a_write_to_running_statistics_after_a_norm_leaves_them_without_grad():
    mine, twin = (torch.nn.BatchNorm1d(3) for _ in range(2))

    def program(module, x):
        y = module(x)
        module.running_mean.add_(1)
        return y

    for run, module in ((thunder.jit(lambda x: program(mine, x)), mine), (lambda x: program(twin, x), twin)):
        run(leaf(4, 3, dtype=torch.float32))
        assert not module.running_mean.requires_grad
    assert torch.equal(mine.running_mean, twin.running_mean)
