"""Comparison of a compiled program with eager over a sequence of calls, with everything that they change."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import thunder
from thunder.base.pytree import tree_flatten


@dataclass
class Outcome:
    """What a call returned or raised, and what it changed."""

    values: list[Any] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)
    printed: str = ""
    random_state: Tensor | None = None
    error: tuple[type, str] | None = None


def outcome_of(fn: Callable[..., Any], args: Sequence[Any], seed: int = 5) -> Outcome:
    """Call a program, and differentiate the sum of its results."""
    outcome, output = Outcome(), io.StringIO()
    torch.manual_seed(seed)
    with contextlib.redirect_stdout(output):
        try:
            result = fn(*args)
        except Exception as error:
            outcome.error, result = (type(error), str(error)), ()
    outcome.random_state = torch.get_rng_state()
    outcome.printed = output.getvalue()
    outcome.values = [v.detach().clone() if isinstance(v, Tensor) else v for v in tree_flatten(result)[0]]
    tensors = [v for v in tree_flatten(result)[0] if isinstance(v, Tensor) and v.requires_grad]
    leaves = [a for a in tree_flatten(args)[0] if isinstance(a, Tensor) and a.requires_grad and a.is_leaf]
    if tensors and leaves:
        total = sum((t.double() * t.double()).sum() for t in tensors)
        outcome.gradients = list(torch.autograd.grad(total, leaves, allow_unused=True))  # type: ignore[arg-type]
    outcome.inputs = [a.detach().clone() if isinstance(a, Tensor) else a for a in tree_flatten(args)[0]]
    return outcome


def copy_of(args: Any) -> Any:
    """Return equal arguments with memory of their own."""
    if isinstance(args, Tensor):
        return args.detach().clone().requires_grad_(args.requires_grad)
    if isinstance(args, list | tuple):
        return type(args)(map(copy_of, args))
    return {k: copy_of(v) for k, v in args.items()} if isinstance(args, dict) else args


def assert_same(compiled: Outcome, eager: Outcome, rtol: float = 0, atol: float = 0) -> None:
    """Compare two calls."""
    assert compiled.error == eager.error
    found, expected = ((o.values, o.inputs, o.gradients) for o in (compiled, eager))
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)
    assert compiled.printed == eager.printed
    assert compiled.random_state is not None
    assert eager.random_state is not None
    assert torch.equal(compiled.random_state, eager.random_state), "the state of the generator"


def assert_as_eager(fn: Callable[..., Any], calls: Sequence[Sequence[Any]], **options: Any) -> Any:
    """Compare a program with eager in each call of a sequence; return the compiled program."""
    compiled = thunder.jit(fn, **options)
    for args in calls:
        assert_same(outcome_of(compiled, copy_of(args)), outcome_of(fn, copy_of(args)))
    return compiled
