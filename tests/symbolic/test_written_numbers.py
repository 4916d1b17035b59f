"""Random programs that write numbers return, write and raise in each call what eager does."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import thunder
from sweeping import one_in
from symbolic.written_numbers import CHANGES, STARTS, program

CALLS = 8


def shown(value: Any) -> Any:
    """Return a result or a state as texts, with the types of numbers."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), repr(value.tolist())
    if isinstance(value, tuple | list):
        return [shown(part) for part in value]
    return type(value), repr(value)


def outcome(function: Any, x: torch.Tensor, o: Any) -> Any:
    """Return the results, or the class and the text of what Python or torch raises, and the state then."""
    try:
        result = shown(function(x, o))
    except (ArithmeticError, AttributeError, ValueError, TypeError, IndexError, RuntimeError) as error:
        kinds = [
            kind for kind in (ArithmeticError, ValueError, TypeError, IndexError) if isinstance(error, kind)
        ]
        result = kinds, str(error).partition("\n")[0]
    return result, {name: shown(value) for name, value in vars(o).items()}


@pytest.mark.parametrize("seed", one_in(16, range(480)))
def test_programs_that_write_numbers_agree_with_eager(seed: int) -> None:
    text, function, rng = program(seed)
    ours = SimpleNamespace()
    vars(ours).update({name: rng.choice(values) for name, values in STARTS.items()}, xs=[1])
    theirs, compiled = copy.deepcopy(ours), thunder.jit(function)
    changed = [i for i in (4, 6) if rng.random() < 0.5]
    for i in range(CALLS):
        if i in changed:
            name, value = rng.choice("abc"), rng.choice(CHANGES)
            vars(ours)[name] = vars(theirs)[name] = value
        x = torch.arange(5.0) + i
        assert outcome(compiled, x, ours) == outcome(function, x, theirs), f"call {i} of\n{text}"
