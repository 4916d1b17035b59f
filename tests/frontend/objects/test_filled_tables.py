"""Programs that fill what they read: registries, tables and caches, each from the first call of all."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder

X = torch.tensor([[1.0, 2.0], [3.0, 5.0]])


class Backend:
    """What a registry keeps for a type."""

    def __init__(self) -> None:
        self.factor = 2.0


class Registry:
    """A registry that makes a new state at each question, and copies the old one."""

    def __init__(self) -> None:
        self.state = types.SimpleNamespace(table={})

    def get(self, kind: type) -> Backend:
        state = types.SimpleNamespace(table=dict(self.state.table))
        if kind not in state.table:
            state.table[kind] = Backend()
        self.state = state
        return state.table[kind]


def filled_dict() -> Callable[..., Any]:
    table: dict[type, Backend] = {}

    def program(x: torch.Tensor) -> torch.Tensor:
        if type(x) not in table:
            table[type(x)] = Backend()
        return x * table[type(x)].factor

    return program


def filled_by_setdefault() -> Callable[..., Any]:
    table: dict[str, float] = {}
    return lambda x: x * table.setdefault("factor", 3.0)


def registered_attribute() -> Callable[..., Any]:
    world = types.SimpleNamespace(backend=None)

    def program(x: torch.Tensor) -> torch.Tensor:
        if world.backend is None:
            world.backend = Backend()
        return x.sin() * world.backend.factor

    return program


def set_of_seen() -> Callable[..., Any]:
    seen: set[str] = set()

    def program(x: torch.Tensor) -> torch.Tensor:
        if "x" not in seen:
            seen.add("x")
        return x + 1

    return program


def new_states() -> Callable[..., Any]:
    registry = Registry()
    return lambda x: x * registry.get(type(x)).factor


def tensor_of_a_table() -> Callable[..., Any]:
    table: dict[int, torch.Tensor] = {}

    def program(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] not in table:
            table[x.shape[0]] = torch.arange(2.0).cos()
        return x * table[x.shape[0]]

    return program


def other_program_once_filled() -> Callable[..., Any]:
    seen: set[str] = set()

    def program(x: torch.Tensor) -> torch.Tensor:
        if "x" in seen:
            return x * 5
        seen.add("x")
        return x + 1

    return program


def same_text_of_another_constant() -> Callable[..., Any]:
    table: dict[str, torch.dtype] = {}

    def program(x: torch.Tensor) -> torch.Tensor:
        if "dtype" not in table:
            table["dtype"] = torch.float64
            return x.to(torch.float32)
        return x.to(table["dtype"])

    return program


SETTLED = [filled_dict, filled_by_setdefault, registered_attribute, set_of_seen, new_states]
CHANGED = [tensor_of_a_table, other_program_once_filled, same_text_of_another_constant]


def compare(make: Callable[[], Any], inputs: list[torch.Tensor], **options: Any) -> Any:
    """Call a program and its compiled twin, and compare results and gradients; return the compiled one."""
    eager, compiled = make(), thunder.jit(make(), **options)
    for tensor in inputs:
        a, b = (tensor.detach().clone().requires_grad_(tensor.requires_grad) for _ in range(2))
        expected, actual = eager(a), compiled(b)
        assert expected.dtype == actual.dtype
        assert torch.equal(expected, actual)
        if tensor.requires_grad:
            expected.sum().backward()
            actual.sum().backward()
            assert torch.equal(a.grad, b.grad)
    return compiled


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("make", [*SETTLED, *CHANGED], ids=lambda make: make.__name__)
def test_a_program_that_fills_what_it_reads_is_compiled_again_with_the_reason(make: Any, grad: bool) -> None:
    compiled = compare(make, [X.clone().requires_grad_(grad)] * 4)
    stats = thunder.compile_stats(compiled)
    assert (stats.cache_misses, stats.cache_hits) == (2, 2)
    assert stats.last_recompile_reasons


def test_one_that_changes_what_it_reads_in_each_call_counts_misses() -> None:
    def make() -> Any:
        seen: dict[int, str] = {}

        def program(x: torch.Tensor) -> torch.Tensor:
            seen[len(seen)] = "call"
            return x + 1

        return program

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", thunder.base.errors.RecompileWarning)
        compiled = compare(make, [X] * 5)
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (5, 0)


def cached_recipes() -> Callable[..., Any]:
    registry = Registry()

    @functools.cache
    def recipe(shape: tuple[int, ...]) -> tuple[float, ...]:
        return (registry.state.table[torch.Tensor].factor, float(len(shape)))

    def program(x: torch.Tensor) -> torch.Tensor:
        registry.get(torch.Tensor)
        factor, rank = recipe(tuple(x.shape))
        return x * factor + rank

    return program


def test_python_fills_each_entry_that_may_read_what_was_written_once() -> None:
    calls = [torch.ones(n, 2) for n in (1, 1, 1, 2, 2, 2, 3, 3, 3, 1, 2)]
    compiled = compare(cached_recipes, calls, cache="constant values")
    stats = thunder.compile_stats(compiled)
    assert (stats.runs_by_python, stats.cache_misses, stats.cache_hits) == (3, 6, 5)


def test_python_warns_of_many_entries_that_it_fills() -> None:
    calls = [torch.ones(n, 2) for n in range(1, 5)]
    with pytest.warns(
        thunder.base.errors.RecompileWarning, match=r"Python ran 3 calls .*may read registry\.state"
    ):
        compare(cached_recipes, calls, cache="constant values", recompile_limit=2)
