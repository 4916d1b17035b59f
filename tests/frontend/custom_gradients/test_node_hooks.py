"""Hooks on nodes of torch's graph that a program registers: of computed tensors, and of leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook
from torch.utils._pytree import tree_map

import thunder
from thunder.base.errors import UnsupportedProgram

Seen = list[Any]
#: from a parameter and a log to a program of one tensor
PROGRAMS: dict[str, Callable[[nn.Parameter, Seen], Callable[[Tensor], Any]]] = {}


def program(build: Callable[[nn.Parameter, Seen], Any]) -> Callable[[nn.Parameter, Seen], Any]:
    PROGRAMS[build.__name__] = build
    return build


def accumulating(p: Tensor) -> Any:
    return p.expand_as(p).grad_fn.next_functions[0][0]  # type: ignore[union-attr]


@program
def before_a_node(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        y = (x * w).exp()
        y.grad_fn.register_prehook(lambda grads: seen.append([g.sum() for g in grads]))
        y.grad_fn.register_prehook(lambda grads: (grads[0] * 3,))
        y.grad_fn.register_prehook(lambda grads: None)
        return y * 2

    return fn


@program
def after_the_hooks_of_its_tensor(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        y = x * w
        y.register_hook(lambda g: g + 1)
        y.register_hook(lambda g: g * 2)
        y.grad_fn.register_prehook(lambda grads: seen.append(grads[0].sum()))
        y.grad_fn.register_prehook(lambda grads: (grads[0] ** 2,))
        return y.sin()

    return fn


@program
def used_before_the_hook(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        y = x * w
        z = y.exp()
        y.grad_fn.register_prehook(lambda grads: (grads[0].clamp(-1, 1),))
        return z + y

    return fn


@program
def removed(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        y = x * w
        handles = [y.grad_fn.register_prehook(lambda grads, k=k: (grads[0] * k,)) for k in (2, 3, 5)]
        handles[1].remove()
        return y * y

    return fn


@program
def of_a_loss(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        loss = (x * w).square().mean()
        loss.grad_fn.register_prehook(lambda grads: (grads[0] * 8,))
        return loss

    return fn


@program
def of_an_earlier_node(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        y = (x * w).exp().sum()
        node = y.grad_fn.next_functions[0][0]
        seen.append((node.name() == "ExpBackward0", len(node.next_functions)))
        node.register_prehook(lambda grads: (grads[0] * 2,))
        return y

    return fn


@program
def after_a_node(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        y = (x * w).exp()
        y.grad_fn.register_hook(lambda into, out: seen.append([len(into), into[0].sum(), out[0].sum()]))
        y.grad_fn.register_hook(lambda into, out: (into[0] * 3 + out[0],))
        y.grad_fn.register_hook(lambda into, out: seen.append(into[0].sum()))
        y.grad_fn.register_hook(lambda into, out: None)
        return y * y

    return fn


@program
def after_a_node_of_one_tensor_twice(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        y = x * x
        handles = [
            y.grad_fn.register_hook(lambda into, out, k=k: (into[0] * k, into[1] + out[0])) for k in (2, 3, 5)
        ]
        handles[1].remove()
        return (x + y) * w

    return fn


@program
def after_a_node_with_constants(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        y = x * w.detach()
        y.grad_fn.register_hook(lambda into, out: seen.append([into[1] is None, out[0].sum()]))
        y.grad_fn.register_hook(lambda into, out: (into[0] * 2, None))
        return y * w

    return fn


@program
def before_and_after_nodes_and_on_tensors(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        y = x * w
        y.grad_fn.register_hook(lambda into, out: seen.append((1, into[0].sum(), out[0].sum())))
        y.register_hook(lambda g: g * 2)
        y.grad_fn.register_prehook(lambda grads: (grads[0] + 1,))
        y.register_hook(lambda g: seen.append((2, g.sum())))
        y.grad_fn.register_hook(lambda into, out: (into[0] * 2, into[1]))
        y.grad_fn.register_prehook(lambda grads: seen.append((3, grads[0].sum())))
        return y.sin() * y

    return fn


@program
def of_a_node_of_several_results(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        a, b, c = (x * w).unbind(1)
        b.grad_fn.register_hook(lambda into, out: seen.append([into[0].sum(), out[0].sum(), len(out)]))
        a.grad_fn.register_prehook(lambda grads: (grads[0] * 2, *grads[1:]))
        return a * b + c

    return fn


@program
def along_the_graph(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        y = ((x * w).tanh() + 1).sum()
        node = y.grad_fn
        while node is not None and not hasattr(node, "variable"):
            name = node.name()
            node.register_hook(lambda into, out, name=name: seen.append((len(name), out[0].sum())))
            node = node.next_functions[0][0]
        return y

    return fn


@program
def after_a_node_of_a_module(w: nn.Parameter, seen: Seen) -> Any:
    layer = nn.Linear(3, 3)
    nn.init.constant_(layer.weight, 0.5)
    nn.init.constant_(layer.bias, 0.5)

    def fn(x: Tensor) -> Tensor:
        y = layer(x * w)
        y.grad_fn.register_hook(lambda into, out: seen.append([into[1].sum(), out[0].sum()]))
        y.grad_fn.register_hook(lambda into, out: (into[0], into[1] * 2, into[2]))
        return y.tanh()

    return fn


@program
def with_a_backward_in_the_program(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        y = x * w
        y.grad_fn.register_hook(lambda into, out: seen.append(into[0].sum()))
        y.grad_fn.register_hook(lambda into, out: tuple(None if g is None else g * 2 for g in into))
        (g,) = torch.autograd.grad(y.exp().sum(), x, create_graph=True)
        (z,) = torch.autograd.grad(y.sin().sum(), y, create_graph=True)
        return g.square() + y + z

    return fn


@program
def removed_after_a_backward(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        y = x * w
        handle = y.grad_fn.register_hook(lambda into, out: seen.append(into[0].sum()))
        other = y.register_hook(lambda g: g * 2)
        (g,) = torch.autograd.grad(y.exp().sum(), x, retain_graph=True)
        handle.remove()
        other.remove()
        return y * g

    return fn


@program
def after_accumulation(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        node = accumulating(w)
        node.register_prehook(lambda grads: seen.append((1, grads[0].sum())))
        node.register_hook(lambda *given: seen.append((2, w.grad.clone(), len(given))))
        return x * w

    return fn


@program
def that_stay_with_the_node(w: nn.Parameter, seen: Seen) -> Any:
    nodes: list[Any] = []

    def fn(x: Tensor) -> Tensor:
        if not nodes:
            nodes.append(accumulating(w))
            nodes[0].register_hook(lambda *given: seen.append(w.grad.clone()))
        return x * w

    return fn


@program
def which_is_kept_with_its_handle(w: nn.Parameter, seen: Seen) -> Any:
    kept: list[Any] = []

    def fn(x: Tensor) -> Tensor:
        node = accumulating(w)
        kept.append((node, node.register_hook(lambda *given: seen.append(len(kept)))))
        seen.append(node.variable is w)
        if len(kept) > 1:
            kept[-2][1].remove()
        return x * w

    return fn


@program
def the_names_of_the_graph(w: nn.Parameter, seen: Seen) -> Any:
    def fn(x: Tensor) -> Tensor:
        y = ((x * w).tanh() + 1).sum()
        node = y.grad_fn
        while node is not None:
            seen.append(hash(node.name()))
            seen.append(isinstance(node, torch.autograd.graph.Node))
            node = node.next_functions[0][0] if node.next_functions else None
        return y

    return fn


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_hooks_of_nodes_are_called_as_in_eager(name: str, create_graph: bool) -> None:
    def run(wrap: Any) -> Any:
        w, seen = nn.Parameter(torch.arange(1.0, 4.0) / 4), []
        fn = wrap(PROGRAMS[name](w, seen))
        found = []
        for rows in (2, 2, 3, 4):
            x = (torch.arange(3.0 * rows).reshape(rows, 3) / 9).requires_grad_()
            loss = fn(x).sum()
            if create_graph:
                (g,) = torch.autograd.grad(loss, x, create_graph=True)
                g.square().sum().backward()
            else:
                loss.backward(retain_graph=True)
                loss.backward()
            found.append(x.grad)
        return found, w.grad.clone(), tree_map(lambda v: v.detach() if isinstance(v, Tensor) else v, seen)

    torch.testing.assert_close(run(thunder.jit), run(lambda fn: fn))


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def test_a_backward_of_the_program_calls_the_hooks_that_it_has_registered_on_nodes_of_leaves() -> None:
    def run(wrap: Any) -> Any:
        net, seen = model(), []
        nodes = [accumulating(p) for p in net.parameters()]  # so that hooks die with their handles only

        def step(x: Tensor) -> None:
            handles = []
            for i, p in enumerate(net.parameters()):
                node = accumulating(p)
                p.register_hook(lambda g: g * 2).remove()
                handles.append(node.register_prehook(lambda grads, i=i: (grads[0] * (i + 1),)))
                handles.append(node.register_hook(lambda *given, i=i, p=p: seen.append((i, p.grad.sum()))))
            net(x).square().sum().backward()
            for handle in handles:
                handle.remove()

        call = wrap(step)
        for rows in (2, 2, 3):
            call(torch.arange(3.0 * rows).reshape(rows, 3) / 9)
        assert len(nodes) == 4
        return [p.grad for p in net.parameters()], seen

    found, expected = run(thunder.jit), run(lambda fn: fn)
    assert expected[1]
    torch.testing.assert_close(found, expected)


def test_hooks_of_nodes_of_leaves_from_outside_are_called_by_torch_alone() -> None:
    w, seen = nn.Parameter(torch.ones(3)), []
    node = accumulating(w)
    node.register_hook(lambda *given: seen.append(1))
    thunder.jit(lambda x: x * w)(torch.ones(3)).sum().backward()
    assert seen == [1]
    thunder.jit(lambda x: (x * w).sum().backward())(torch.ones(3))
    assert seen == [1]
    assert w.grad.tolist() == [2.0] * 3  # type: ignore[union-attr]


def test_a_hook_after_a_node_gets_the_gradients_of_all_arguments() -> None:
    def run(wrap: Any, within: bool) -> list[Any]:
        w, seen = nn.Parameter(torch.ones(3)), []

        def fn(x: Tensor) -> Tensor:
            y = x * w
            y.grad_fn.register_hook(lambda into, out: seen.append([g is None for g in into]))
            return torch.autograd.grad(y.sum(), x)[0] if within else y

        x = torch.ones(3, requires_grad=True)
        y = wrap(fn)(x)
        if not within:
            torch.autograd.grad(y.sum(), x)
        return seen

    assert run(lambda fn: fn, within=True) == run(thunder.jit, within=True) == [[False, True]]
    assert run(lambda fn: fn, within=False) == [[False, True]]
    assert run(thunder.jit, within=False) == [[False, False]]


@pytest.mark.parametrize("mode", ["all", "any"])
def test_hooks_on_the_gradients_of_several_leaves(mode: str) -> None:
    def run(wrap: Any) -> Any:
        net, seen = model(), []

        def fn(x: Tensor) -> Tensor:
            hook: Any = seen.append if mode == "all" else lambda first: seen.append(first.dim() * 0)
            handle = register_multi_grad_hook(tuple(net.parameters()), hook, mode=mode)
            seen.append(torch.tensor(handle is not None))
            return net(x)  # type: ignore[no-any-return]

        call = wrap(fn)
        for rows in (2, 2, 3):
            call(torch.ones(rows, 3)).square().sum().backward()
        return [p.grad for p in net.parameters()], [list(s) if isinstance(s, tuple) else s for s in seen]

    torch.testing.assert_close(run(thunder.jit), run(lambda fn: fn))


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        (lambda g: g, "expected tuple, but hook returned"),
        (lambda g: (g, g), "returned an incorrect number of values"),
        (lambda g: (g.sum(),), "has changed the size of value"),
        (lambda g: (g.double(),), "has changed the type of value"),
    ],
)
def test_errors_of_hooks_are_torchs(returned: Any, text: str) -> None:
    def fn(x: Tensor) -> Tensor:
        y = x.exp()
        y.grad_fn.register_prehook(lambda grads: returned(grads[0]))
        return y * 2

    for call in (fn, thunder.jit(fn)):
        with pytest.raises((RuntimeError, TypeError), match=text):
            call(torch.ones(3, requires_grad=True)).sum().backward()


def of_several_results(x: Tensor) -> Tensor:
    y = x * 2
    a, b = y.chunk(2)
    a.grad_fn.register_prehook(lambda grads: None)
    y.mul_(2)
    return a * b


def of_several_nodes(x: Tensor) -> Any:
    return nn.functional.cross_entropy(x[None], x.argmax()[None]).grad_fn.next_functions


def of_a_later_tensor(x: Tensor) -> Tensor:
    y = x * 2
    y.relu_()
    y.grad_fn.register_prehook(lambda grads: None)
    y.register_hook(lambda g: g * 2)
    return y


def after_a_written_tensor(x: Tensor) -> Tensor:
    y = x * 2
    y.relu_()
    y.grad_fn.register_hook(lambda into, out: None)
    return y


def after_several_nodes(x: Tensor) -> Tensor:
    y = nn.functional.cross_entropy(x[None] * 2, torch.zeros(1, dtype=torch.int64))
    y.grad_fn.register_hook(lambda into, out: None)
    return y


def that_reads_its_result(x: Tensor) -> Tensor:
    y = x * 2
    mask = y.detach() > 0
    y.grad_fn.register_hook(lambda into, out: (into[0] * mask, None))
    return y


@pytest.mark.parametrize(
    ("fn", "match"),
    [
        (of_several_results, "to the memory of a view that has a hook"),
        (of_several_nodes, "whose call has several nodes"),
        (of_a_later_tensor, "whose grad_fn has a hook"),
        (after_a_written_tensor, "which it has written in place|of which the call has several nodes"),
        (after_several_nodes, "of which the call has several nodes"),
        (that_reads_its_result, "reads what is computed after it"),
    ],
)
def test_other_hooks_of_nodes_are_refused(fn: Any, match: str) -> None:
    with pytest.raises(UnsupportedProgram, match=match):
        thunder.jit(fn)(torch.ones(4, requires_grad=True))
