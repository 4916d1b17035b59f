"""Random programs with several results, differentiated in random orders: gradients, errors, and hooks.

A backward of the compiled program gives what eager's gives. Where eager fails because the graph has been
freed, so does the compiled program, unless what eager had saved is not needed: then the gradient is right.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import thunder
from autograd.random_programs import INPUTS, Writer, built
from comparison.inputs import leaf
from recorded_refusals import Refusals, refusals_as_recorded

PROGRAMS = 6
FREED, WRITTEN = "second time", "modified by an inplace operation"


def schedule(draw: random.Random, results: int) -> list[tuple[int, bool]]:
    """Which result is differentiated, and whether the graph is retained; one backward after another."""
    return [(draw.randrange(results), draw.random() < 0.3) for _ in range(4)]


@dataclass
class Run:
    """What was seen: facts of the results; for each backward its result, the gradients or the error, and the
    hooks that were called with a gradient.
    """

    facts: list[Any] = field(default_factory=list)
    views: list[bool] = field(default_factory=list)
    backwards: list[tuple[int, Any, list[str]]] = field(default_factory=list)


def is_taken_again(result: torch.Tensor, inputs: list[torch.Tensor]) -> bool:
    return result._is_view() or any(result is x for x in inputs)


def followed(run: Any, order: list[tuple[int, bool]], made: bool) -> Run:
    """Runs a program, and then these backwards."""
    leaves = [leaf(*shape, seed=i) for i, shape in enumerate(INPUTS.values())]
    inputs = [x * 1.0 for x in leaves] if made else leaves
    called: list[str] = []

    def watch(t: torch.Tensor, name: str) -> None:
        if t.requires_grad:
            t.register_hook(lambda g: called.append(name) if g is not None or "input" in name else None)

    for i, t in enumerate(inputs):
        watch(t, f"input {i}")
    torch.manual_seed(5)
    results = run(*inputs)
    for i, t in enumerate(results):
        watch(t, f"result {i}")
    seen = Run([(r.requires_grad, r.is_leaf) for r in results], [is_taken_again(r, inputs) for r in results])
    for number, retained in order:
        called.clear()
        loss = (results[number] * 1.5).sum()
        if loss.requires_grad:
            try:
                found: Any = torch.autograd.grad(loss, leaves, retain_graph=retained, allow_unused=True)
            except RuntimeError as error:
                found = str(error)
            seen.backwards.append((number, found, sorted(set(called))))
    return seen


def compare(theirs: Run, ours: Run, expected: dict[int, Any]) -> None:
    """``expected`` are the gradients of each result in a fresh graph.

    Hooks of views and of written inputs are left out: gradients of other results may pass them by
    (docs/differences.md).
    """
    assert ours.facts == theirs.facts
    views = {f"result {i}" for i, is_view in enumerate(theirs.views) if is_view}
    pairs = zip(theirs.backwards, ours.backwards, strict=True)
    for (number, wanted, hooks), (_, found, called) in pairs:
        if isinstance(wanted, str):
            if WRITTEN in wanted:  # the compiled program differentiates what was there before
                return
            assert FREED in wanted
            if isinstance(found, str):
                assert FREED in found
                continue
            wanted = expected[number]
        else:
            assert {*called} - views == {*hooks} - views
        assert not isinstance(found, str), found
        for w, f in zip(wanted, found, strict=True):
            assert (w is None) == (f is None)
            if w is not None:
                torch.testing.assert_close(f, w, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("block", range(3))
@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors is deprecated")
def test_backwards_in_any_order(made: bool, block: int) -> None:
    judged = 0
    with refusals_as_recorded("random graphs", f"{made}, {block}") as refusals:
        for number in range(PROGRAMS):
            judged += is_as_eager(made, block, number, refusals)
    assert judged >= PROGRAMS // 3, "too few of the programs were compared"


def is_as_eager(made: bool, block: int, number: int, refusals: Refusals) -> bool:
    """Return whether a program's backwards were compared with eager's; False if either refuses it."""
    seed = f"graph {made} {block} {number}"
    draw = random.Random(seed)
    text = Writer(draw, in_place=made and number % 2 == 0).program(draw.randint(4, 10))
    program = built(text, seed)
    try:
        results = len(followed(program, [], made).facts)
    except RuntimeError:  # eager refuses it
        return False
    orders = [schedule(draw, results) for _ in range(3)]
    fresh = [followed(program, [(i, False)], made).backwards for i in range(results)]
    expected = {i: run[0][1] for i, run in enumerate(fresh) if run}
    compiled = thunder.jit(program)
    try:
        for order in orders:
            compare(followed(program, order, made), followed(compiled, order, made), expected)
    except (thunder.UnsupportedProgram, thunder.OperatorError) as refusal:
        refusals.add(number, refusal)
        return False
    except Exception as error:
        error.add_note(f"{seed} {orders}\n{text}")
        raise
    return True
