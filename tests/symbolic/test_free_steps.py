"""What a program does with a tensor fixes no size of it, but for the few operations that are listed."""

import pytest
import torch

import thunder
from sweeping import one_in
from symbolic.shape_programs import STEPS
from symbolic.shape_steps import STEPS as FURTHER
from symbolic.static_reasons import failure_of

#: steps that need the numbers of some sizes, and why
FIXING = {
    "rows": "the number of rows is the length of a list",
    "shapes in a set": "the hash of a size is that of its number",
    "attended": "kernels of attention choose code by the width of a head",
}
SHAPES = (((6, 8), (4, 5)), ((5, 7, 9), (3, 11)), ((12,), (7,)))
#: a window is wider than a single row
IMPOSSIBLE = {("reflected", ((12,), (7,)))}


def _fixed_sizes(step, shapes):
    """Return the facts of a compile that determine a size of an input."""
    compiled = thunder.jit(step, cache="symbolic values", executors=["torch"])
    arguments = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    result = compiled(*arguments)
    if result.requires_grad:
        result.sin().sum().backward()
    assert failure_of(compiled) is None
    facts = [
        str(g)
        for entry in thunder.compile_stats(compiled).interpreter_cache
        for g in entry.guards
        if g.sym.name == "check_sizes"
    ]
    sides = [fact.partition(" == ") for fact in facts]
    return [f"{size} == {n}" for size, _, n in sides if n.isdigit() and size.endswith("]")]


@pytest.mark.parametrize(
    ("name", "shapes"),
    one_in(3, [(n, s) for n in {**STEPS, **FURTHER} for s in SHAPES if (n, s) not in IMPOSSIBLE]),
)
def test_a_step_fixes_no_size(name, shapes):
    fixed = _fixed_sizes({**STEPS, **FURTHER}[name], shapes)
    assert not fixed or name in FIXING


@pytest.mark.parametrize("name", FIXING)
def test_a_step_that_is_said_to_fix_sizes_does(name):
    assert any(_fixed_sizes({**STEPS, **FURTHER}[name], shapes) for shapes in SHAPES)
