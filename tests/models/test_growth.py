"""A forward is not taken apart for the sake of its gradient."""

from collections.abc import Sequence

import pytest

import thunder
from thunder.base.structural_ids import RELEASES, RETURN
from thunder.ir.symbol import BoundSymbol

from .zoo import nanogpt


def statements(bsyms: Sequence[BoundSymbol]) -> int:
    """How many statements compute something."""
    return sum(b.sym.id not in {*RELEASES, RETURN} for b in bsyms)


@pytest.mark.parametrize("flash", [False, True])
def test_six_blocks_in_training_are_executed_in_at_most_a_third_more_statements(flash: bool) -> None:
    # no kernel for CPUs has dropout inside of attention: torch composes that case, and so does thunder
    model, args, kwargs = nanogpt.make(0, n_layer=6, flash=flash, dropout=0.0 if flash else 0.1)
    compiled = thunder.jit(model)
    _, loss = compiled(*args, **kwargs)
    loss.backward()
    acquired, *_, executed = thunder.last_traces(compiled)
    assert thunder.last_backward_traces(compiled)
    assert statements(executed.bound_symbols) <= 1.3 * statements(acquired.bound_symbols)
