"""The graph that torch sees of a compiled program: who is reached by a backward, and what it frees.

Each program is run by eager and compiled. A schedule of backwards is the same for both; compared are
gradients, errors, and the calls of hooks.
"""

from __future__ import annotations

import pytest
import torch

import thunder
from comparison.derivatives import assert_same_log
from comparison.inputs import leaf


def separate(x, y):
    return (x * x).sum(), (y * y).sum()


def of_one_leaf(x, y):
    return (x * y).sum(), (x.sin() * y.exp()).sum()


def equal_parts(x, y):
    return (x * x).sum(), (x * x * x).sum()


def a_shared_part(x, y):
    h = x.sin() * y
    return h.tanh().sum(), (h * h).sum()


def a_shared_part_that_saves_nothing(x, y):
    h = x + y
    return h.exp().sum(), h.sin().sum()


def saves_nothing(x, y):
    return (x + 1).sum(), (y + x).sum()


def one_of_the_other(x, y):
    h = x.sin()
    return h, (h * y).sum()


def detached(x, y):
    h = x.sin()
    return h, h.detach() * y


def a_view_of_the_other(x, y):
    h = x.sin()
    return h, h.view(-1), y.exp()


def chain(x, y):
    first = x.sin()
    second = (first * y).tanh()
    return first, second, (second * x).exp()


PROGRAMS = [
    separate,
    of_one_leaf,
    equal_parts,
    a_shared_part,
    a_shared_part_that_saves_nothing,
    saves_nothing,
    one_of_the_other,
    detached,
    a_view_of_the_other,
    chain,
]

#: results whose backwards run one after the other, and how many of the first retain the graph
SCHEDULES = [
    ((0, 1), 0),
    ((1, 0), 0),
    ((0, 0), 0),
    ((1, 1), 0),
    ((0, 1, 0), 1),
    ((-1, 0, 1), 0),
    ((-1, 1, -1), 1),
]


def followed(run, schedule):
    """The gradients or the error of each backward, and the calls of hooks with a gradient."""
    x, y, log = leaf(3), leaf(3, seed=1), []
    inputs = [x * 1, y * 1]
    results = run(*inputs)
    for name, t in zip(["x", "y", "u", "v", 0, 1, 2], [x, y, *inputs, *results], strict=False):
        t.register_hook(lambda g, name=name: called.append(name) if is_seen(name, g) else None)
    order, retained = schedule
    for n, i in enumerate(order):
        called: list = []
        try:
            found = torch.autograd.grad(
                results[i].sum(), (x, y), allow_unused=True, retain_graph=n < retained
            )
            log.append((sorted(map(str, called)), [None if g is None else g.tolist() for g in found]))
        except RuntimeError as error:
            log.append(str(error)[:60])
    return log


def is_seen(name, g):
    """Hooks on results may be called with None (see docs/differences.md), those on inputs never."""
    return isinstance(name, str) or g is not None


@pytest.mark.parametrize("program", PROGRAMS)
def test_backwards_of_several_results_reach_and_free_what_eagers_do(program):
    compiled = thunder.jit(program)
    for schedule in SCHEDULES:
        assert_same_log(followed(compiled, schedule), followed(program, schedule), str(schedule))


def test_hooks_of_a_result_change_the_gradients_that_come_from_another():
    def program(x, w):
        features = (x * w).tanh()
        return features, (features * w).sum()

    def run(f):
        x, w = leaf(3), leaf(3, seed=1)
        features, loss = f(x, w)
        features.retain_grad()
        features.register_hook(lambda g: g * 3)
        loss.backward()
        return [features.grad, x.grad, w.grad]

    assert_same_log(run(thunder.jit(program)), run(program))


def test_gradients_of_other_results_pass_a_returned_view_by():
    def program(x):
        row = x[0]
        return row, (row * 2).sum()

    seen = []
    for run in (program, thunder.jit(program)):
        x = leaf(2, 3)
        row, other = run(x)
        row.register_hook(lambda g: seen.append(len(g)))
        other.backward()
        seen.append(x.grad.tolist())
    assert seen == [3, [[2.0] * 3, [0.0] * 3], [[2.0] * 3, [0.0] * 3]]


def test_a_hook_on_a_result_that_a_backward_does_not_reach_gets_none():
    def program(x, w):
        h = torch.sin(x)
        return h * w, h + w

    seen = []
    first, second = thunder.jit(program)(leaf(3), leaf(3, seed=1))
    second.register_hook(seen.append)
    first.sum().backward()
    assert seen == [None]


def test_leaves_have_their_gradients_when_the_backward_of_their_node_has_run():
    def seen_by(wrap):
        seen, x, w = [], leaf(3), leaf(3, seed=1)

        def program(x, w):
            h = torch.sin(x)
            h.register_hook(lambda g: seen.append(w.grad is None))
            return (h * w).sum()

        wrap(program)(x, w).backward()
        return seen

    assert seen_by(lambda program: program) == [False]
    assert seen_by(thunder.jit) == [True]


def test_more_results_than_nodes_are_kept_apart_for_share_one_node():
    def program(x, *ws):
        results = []
        for w in ws:
            x = torch.sin(x * w)
            results.append(x)
        return results

    for many in (False, True):
        ws = [leaf(2, seed=i) for i in range(40 if many else 10)]
        results = thunder.jit(program)(leaf(2), *ws)
        assert (len({r.grad_fn for r in results}) == 1) is many
        sum(r.sum() for r in results).backward()
        found = [w.grad for w in ws]
        for w in ws:
            w.grad = None
        sum(r.sum() for r in program(leaf(2), *ws)).backward()
        torch.testing.assert_close(found, [w.grad for w in ws])


def test_a_node_that_saves_nothing_runs_again():
    x = leaf(3)
    loss = thunder.jit(lambda x: (x * 2).sum())(x)
    for _ in range(2):
        loss.backward()
    assert torch.equal(x.grad, torch.full((3,), 4.0, dtype=torch.float64))


# -- truncated back-propagation ------------------------------------------------------------------------------


def detached_state(w, x, h):
    new = (h.detach() * w + x).tanh()
    return new, new


def zeros_like_the_state(w, x, h):
    new = (torch.zeros_like(h) + w * x).tanh()
    return new, new


def state_without_gradients(w, x, h):
    with torch.no_grad():
        old = h * 2
    new = (old * w + x).tanh()
    return new, new


def compared_state(w, x, h):
    new = (w * x).tanh() * (h > 0)
    return new, new


def detached_result(w, x, h):
    new = (h * w + x).tanh()
    return new, new.detach()


def carried_state(w, x, h):
    new = (h * w + x).tanh()
    return new, new


def state_beside(w, x, h):
    return (w * x).tanh(), h * 2


@pytest.mark.parametrize(
    "step",
    [
        detached_state,
        zeros_like_the_state,
        state_without_gradients,
        compared_state,
        detached_result,
        carried_state,
        state_beside,
    ],
)
@pytest.mark.parametrize("detached_outside", [False, True])
def test_steps_of_truncated_backpropagation(step, detached_outside):
    def trained(run):
        w, h, log = leaf(3), torch.zeros(3, dtype=torch.float64), []
        for t in range(4):
            y, h = run(w, leaf(3, seed=t, grad=False), h)
            if h.requires_grad:
                h.register_hook(lambda g, t=t: log.append((t, g.tolist())))
            try:
                y.sum().backward()
            except RuntimeError as error:
                log.append(str(error)[:60])
            log.append((None if w.grad is None else w.grad.clone(), h.requires_grad, h.is_leaf))
            h = h.detach() if detached_outside else h
        return log

    assert_same_log(trained(thunder.jit(step)), trained(step))


def test_hooks_of_inputs_without_a_gradient_are_not_called():
    x, w, log = leaf(3), leaf(3, seed=1), []
    h = x * 2
    for t in (x, h):
        t.register_hook(log.append)
    x.register_post_accumulate_grad_hook(log.append)
    thunder.jit(lambda h, w: (h.detach() * w).sin().sum())(h, w).backward()
    assert log == []
    assert x.grad is None
    assert w.grad is not None
