"""Results that share memory, and writes: by the caller afterwards, and by the program itself."""

from __future__ import annotations

import pytest
import torch

import thunder
from comparison.derivatives import assert_as_eager, assert_same
from comparison.inputs import leaf


def as_leaves_of(make, *leaves):
    """Inputs that are computed from leaves, so that they may be written."""
    return lambda: make(*[x.detach().clone().requires_grad_(x.requires_grad) for x in leaves])


def doubled(*tensors):
    return [t * 2 for t in tensors]


# -- what is returned ----------------------------------------------------------------------------------------


def the_input(x, w):
    return x, x * w


def a_view_of_an_input(x, w):
    return x.view(-1), x.t(), (x * w)


def views_of_a_result(x, w):
    y = x * w
    return y, y.view(-1), y[0]


def views_of_one_value(x, w):
    y = torch.sin(x * w)
    return y.view(-1), y.t()


def parts(x, w):
    y = x * w
    return y.split([1, 1]), y.unbind(1)


def the_same_twice(x, w):
    y = x * w
    return y, [y, {"again": y}], x


def detached_views(x, w):
    y = x * w
    return y, y.detach(), x.detach()


def of_constants(x, w):
    return torch.ones(2, 3, dtype=torch.float64), x * w


@pytest.mark.parametrize(
    "program",
    [
        the_input,
        a_view_of_an_input,
        views_of_a_result,
        views_of_one_value,
        parts,
        the_same_twice,
        detached_views,
        of_constants,
    ],
)
@pytest.mark.parametrize("inputs", ["leaves", "intermediates"])
def test_results_share_memory_as_eagers_do(program, inputs):
    x, w = leaf(2, 3), leaf(2, 3, seed=1)
    if inputs == "leaves":
        assert_as_eager(program, x, w)
    else:
        assert_same(program, as_leaves_of(doubled, x, w))


@pytest.mark.parametrize("index", [0, 1, 2])
def test_the_caller_writes_to_a_result_and_differentiates_on(index):
    def run(f):
        x, w = leaf(2, 3), leaf(2, 3, seed=1)
        results = f(x, w)
        results[index].mul_(3)
        loss = sum((r * (i + 1)).sum() for i, r in enumerate(results))
        return torch.autograd.grad(loss, (x, w)), [r.detach() for r in results]

    torch.testing.assert_close(run(thunder.jit(views_of_a_result)), run(views_of_a_result))


def test_the_caller_writes_to_the_only_view_of_a_value():
    def program(x, w):
        return (x * w).view(-1)

    def run(f):
        x, w = leaf(2, 3), leaf(2, 3, seed=1)
        y = f(x, w)
        y.mul_(3)
        return torch.autograd.grad(y.sum(), (x, w))

    torch.testing.assert_close(run(thunder.jit(program)), run(program))


# -- writes of the program -----------------------------------------------------------------------------------


def own_values(x, w):
    y = x * 1
    y.mul_(w)
    y[0] = w[1]
    y.view(-1)[1:3] += 1
    return y * y


def into_a_constant(x, w):
    out = torch.zeros(2, 3, dtype=torch.float64)
    rows = out.view(-1)
    out[0] = x[0] * w[0]
    out[1].add_(x[1])
    return rows * 2, out


def a_view_before_and_after(x, w):
    y = x * w
    before, row = y * 2, y[0]
    y.t().mul_(3)
    return before, row * w[0], y


def zeroed(x, w):
    y = x * w
    y[0].zero_()
    k = x * 1
    k.fill_(0.5)
    return y, k, k * w


def a_zeroed_view(x, w):
    y = x * w
    row, diagonal = y[0], y.diagonal()
    row.zero_()
    diagonal.fill_(2.0)
    return row.cumsum(0), diagonal.exp()


def made_without_gradients(x, w):
    with torch.no_grad():
        y = x * w
    y.mul_(w)
    return y - x


def filled_by_broadcasting(x, w):
    y = x * 1
    y[...] = w.sum()
    z = x * 1
    z.copy_(w[0])
    return y, z[1:]


@pytest.mark.parametrize(
    "program",
    [
        own_values,
        into_a_constant,
        a_view_before_and_after,
        zeroed,
        a_zeroed_view,
        made_without_gradients,
        filled_by_broadcasting,
    ],
)
@pytest.mark.parametrize("frozen", [False, True])
def test_writes_to_values_of_the_program(program, frozen):
    assert_as_eager(program, leaf(2, 3), leaf(2, 3, seed=1))
    if frozen:
        assert_as_eager(program, leaf(2, 3, grad=False), leaf(2, 3, seed=1))
        assert_as_eager(program, leaf(2, 3), leaf(2, 3, seed=1, grad=False))


def writes_input(x, w):
    x.mul_(w)
    return x * 2


def writes_view_of_input(x, w):
    x[0].add_(w[0])
    return x.sum(0), x[0]


def writes_and_keeps(x, w):
    y = torch.exp(x)
    x.copy_(y * w)
    return y * x


@pytest.mark.parametrize("program", [writes_input, writes_view_of_input, writes_and_keeps])
def test_inputs_that_are_no_leaves_are_written_and_differentiated(program):
    assert_same(program, as_leaves_of(doubled, leaf(2, 3), leaf(2, 3, seed=1)))


@pytest.mark.parametrize("program", [writes_input, writes_view_of_input])
def test_an_input_that_required_no_grad_requires_it_after_the_write(program):
    assert_as_eager(program, leaf(2, 3, grad=False), leaf(2, 3, seed=1))


def test_a_write_to_a_leaf_is_torchs_error():
    def program(x, w):
        x.mul_(w)
        return x

    def through_a_view(x, w):
        x[0].mul_(w[0])
        return x

    for fn in (program, through_a_view):
        texts = []
        for run in (fn, thunder.jit(fn)):
            with pytest.raises(RuntimeError) as caught:
                run(leaf(2, 3), leaf(2, 3, seed=1))
            texts.append(str(caught.value).splitlines()[0])
        assert texts[1].startswith(texts[0])


def test_a_leaf_may_be_written_through_detach_and_under_no_grad():
    def program(x, w):
        y = w * 2
        with torch.no_grad():
            x.mul_(2)
        return y

    def detached(x, w):
        x.detach().add_(1)
        return w * 2

    for fn in (program, detached):
        assert_as_eager(fn, leaf(2, 3), leaf(2, 3, seed=1))


def read_again(x, w):
    y = x + w
    with torch.no_grad():
        y.mul_(2)
    return y * x


def written_through_a_view(x, w):
    y = x * w
    with torch.no_grad():
        y[:, 0].mul_(2)
    return y, y * 3


def a_copy_of_what_requires_grad(x, w):
    with torch.no_grad():
        y = torch.empty_like(x).copy_(x)
        rows = x.view(-1)
    return y * x, y, rows.view(2, 3) * w


def clamped(x, w):
    with torch.no_grad():
        x.clamp_(0.3, 0.8)
    return x * w, x


def written_through_detach(x, w):
    y = x + w
    d = y.detach()
    d[0] = 2.0
    return y * w, y.view(-1)


def written_in_between(x, w):
    y = x * 1
    y.mul_(w)
    with torch.no_grad():
        y[0].copy_(w[1])
    y.add_(x)
    return y


@pytest.mark.parametrize(
    "program",
    [
        read_again,
        written_through_a_view,
        a_copy_of_what_requires_grad,
        clamped,
        written_through_detach,
        written_in_between,
    ],
)
@pytest.mark.parametrize("make", [lambda x, w: [x, w], doubled], ids=["leaves", "intermediates"])
def test_a_write_where_gradients_are_off_changes_numbers_and_no_history(program, make):
    assert_same(program, as_leaves_of(make, leaf(2, 3), leaf(2, 3, seed=1)))


@pytest.mark.parametrize("kind", ["inputs that overlap", "behind a detach"])
def test_what_cannot_be_differentiated_right_is_refused(kind):
    def overlapping(x, w):
        w.zero_()
        return x * 2

    def behind_detach(x, w):
        base = torch.zeros(2, 3, dtype=torch.float64)
        y = base.detach()
        y += w
        return y, base

    x, w = leaf(2, 3) * 1, leaf(2, 3, seed=1)
    if kind == "inputs that overlap":
        fn, w = overlapping, x[:1]
    else:
        fn = behind_detach
    with pytest.raises(thunder.UnsupportedProgram, match=r"written"):
        thunder.jit(fn)(x, w)


def test_batch_norm_statistics_are_updated_in_training_and_not_in_eval():
    def build():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2)).double()

    ours, theirs = build(), build()
    compiled, x = thunder.jit(ours), leaf(5, 3)
    for training in (True, True, False, True):
        ours.train(training)
        theirs.train(training)
        for run in (compiled, theirs):
            run(x).square().sum().backward()
        torch.testing.assert_close(dict(ours.named_buffers()), dict(theirs.named_buffers()))
    torch.testing.assert_close([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()])


def test_buffers_are_written_beside_a_gradient():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
            self.register_buffer("mean", torch.zeros(3, dtype=torch.float64))

        def forward(self, x):
            with torch.no_grad():
                self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            return (x - self.mean) * self.w

    ours, theirs = Counting(), Counting()
    compiled = thunder.jit(ours)
    for seed in range(3):
        x, y = leaf(4, 3, seed=seed), leaf(4, 3, seed=seed)
        compiled(x).square().sum().backward()
        theirs(y).square().sum().backward()
        torch.testing.assert_close((x.grad, ours.mean), (y.grad, theirs.mean))
    torch.testing.assert_close(ours.w.grad, theirs.w.grad)


def test_a_result_of_a_reshape_under_no_grad_is_cut_where_the_shape_stays():
    def program(x, w):
        with torch.no_grad():
            same = x.reshape(2, 3)
        return same * w + x, same is x

    compiled = thunder.jit(program)
    assert compiled(leaf(2, 3), leaf(2, 3, seed=1))[1] is False
    assert_as_eager(lambda x, w: program(x, w)[0], leaf(2, 3), leaf(2, 3, seed=1))


def test_a_value_is_written_with_a_view_of_itself():
    def program(x):
        y = x * 1
        v = y[...]
        y[...] = v
        v.mul_(1.5)
        return y, v * y

    assert_as_eager(program, leaf(2, 3))
