"""Programs and their derivatives, run by eager and compiled on equal inputs, of which all must agree.

Compared are values, `requires_grad`, who is a leaf, gradients, second derivatives (of a random combination of
the first gradients, with respect to the inputs and to the cotangents), the inputs after the call, and memory:
each result and input is written to in turn, and everything must still be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import thunder
from comparison.inputs import Make, copies
from comparison.memory import assert_same_memory
from comparison.values import assert_equal_tensors
from thunder.base.pytree import tree_flatten

Program = Callable[..., Any]


@dataclass
class Run:
    """What was seen of a program: tensors that are results, gradients, and inputs afterwards."""

    results: list[Any] = field(default_factory=list)
    facts: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    first: list[Any] = field(default_factory=list)
    second: list[Any] = field(default_factory=list)
    #: of backward; an error of the forward is raised
    error: Exception | None = None


def _drawn(like: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like.dtype)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor)]


def ran(fn: Program, make: Make, order: int = 2) -> Run:
    """Runs a program and takes derivatives up to an order."""
    run = Run()
    made = list(make())
    wanted, versions = _leaves(made), [x._version for x in _tensors(made)]
    torch.manual_seed(7)
    run.results, run.inputs = _tensors(fn(*made)), _tensors(made)
    written = [x for x, version in zip(run.inputs, versions, strict=True) if x._version != version]
    run.facts = [(r.dtype, tuple(r.shape), r.requires_grad, r.is_leaf) for r in run.results]
    run.facts += [(x.requires_grad, x.is_leaf) for x in run.inputs]
    try:
        run.first, cotangents = _gradients([*run.results, *written], wanted, create_graph=order > 1)
        if order > 1:
            run.second, _ = _gradients(run.first, [*wanted, *cotangents], create_graph=False)
    except RuntimeError as error:
        run.error = error
    return run


def _leaves(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """The leaves that require grad, of the graph behind the inputs as they were given."""
    found: dict[int, torch.Tensor] = {}
    nodes = []
    for x in _tensors(inputs):
        if x.grad_fn is not None:
            nodes.append(x.grad_fn)
        elif x.requires_grad:
            found[id(x)] = x
    while nodes:
        node = nodes.pop()
        if hasattr(node, "variable"):
            found[id(node.variable)] = node.variable
        nodes += [n for n, _ in node.next_functions if n is not None]
    return list(found.values())


def _gradients(
    results: Sequence[Any], wanted: Sequence[Any], *, create_graph: bool
) -> tuple[list[Any], list[torch.Tensor]]:
    numbered = [(i, r) for i, r in enumerate(results) if r is not None and r.requires_grad]
    tracked = [r for _, r in numbered]
    cotangents = [_drawn(r, seed=i).requires_grad_(create_graph) for i, r in numbered]
    if not tracked or not wanted:
        return [None] * len(wanted), cotangents
    found = torch.autograd.grad(
        tracked, wanted, cotangents, create_graph=create_graph, retain_graph=True, allow_unused=True
    )
    return list(found), cotangents


def assert_as_eager(fn: Program, *inputs: Any, order: int = 2, **options: Any) -> Any:
    """:func:`assert_same` on copies of these inputs; returns the compiled function."""
    return assert_same(fn, copies(*inputs), order=order, **options)


def assert_same(fn: Program, make: Make, *, order: int = 2, **options: Any) -> Any:
    """Fails unless the compiled program, called twice, does what eager does; returns it."""
    compiled = thunder.jit(fn, **options)
    for call in ("first", "second"):
        theirs, ours = ran(fn, make, order), ran(compiled, make, order)
        compare(theirs, ours, f"the {call} call")
    assert thunder.cache_hits(compiled) == 1, "the unchanged second call was compiled"
    return compiled


def compare(theirs: Run, ours: Run, what: str) -> None:
    """Fails where two runs differ."""
    assert ours.facts == theirs.facts, f"{what}: dtype, shape, requires_grad, is_leaf"
    if theirs.error is not None:
        raise theirs.error
    if ours.error is not None:
        raise ours.error
    assert_equal_tensors(theirs.results, ours.results, f"results of {what}")
    assert_equal_tensors(theirs.inputs, ours.inputs, f"inputs after {what}")
    for order in ("first", "second"):
        expected, found = getattr(theirs, order), getattr(ours, order)
        pairs = _zeros(expected, found), _zeros(found, expected)
        assert_equal_tensors(*pairs, f"{order} derivatives of {what}")
    assert_same_memory([*theirs.results, *theirs.inputs], [*ours.results, *ours.inputs], what)


def assert_same_log(ours: Any, theirs: Any, what: str = "log") -> None:
    """Fails where two records of a run differ: tensors and floats are close, all else is equal."""
    if isinstance(theirs, list | tuple):
        assert type(ours) is type(theirs), what
        assert len(ours) == len(theirs), f"{what}: {ours}, eager has {theirs}"
        for i, (o, t) in enumerate(zip(ours, theirs, strict=True)):
            assert_same_log(o, t, f"{what}[{i}]")
    elif isinstance(theirs, torch.Tensor | float) and type(ours) is type(theirs):
        torch.testing.assert_close(ours, theirs, equal_nan=True, msg=lambda m: f"{what}: {m}")
    else:
        assert ours == theirs, f"{what}: {ours!r}, eager has {theirs!r}"


def _zeros(found: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    """Gradients, with zeros for None: no path and a path of zeros are the same derivative."""
    pairs = zip(found, other, strict=True)
    return [torch.zeros_like(o) if f is None and o is not None else f for f, o in pairs]
