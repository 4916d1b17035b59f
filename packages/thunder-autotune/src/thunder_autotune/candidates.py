"""Candidates: a call or a region as a small program of its own, by each executor that accepts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import thunder
from thunder.core.entries import CompileData, compiling
from thunder.core.errors import ThunderError
from thunder.core.proxies import is_proxy
from thunder.core.pytree import tree_iter
from thunder.executors.passes import transform_for_execution
from thunder.extend import Executor, get_always_executors
from thunder_autotune.entries import CALLS
from thunder_autotune.units import Unit
from thunder_bisect.calls import program_of

__all__ = ["Candidate", "candidate_names", "candidates_of"]


@dataclass(frozen=True)
class Candidate:
    """One way to run a unit: `run` takes the values of its inputs, and returns its tensors as a list."""

    name: str
    run: Callable[..., list[torch.Tensor]]


def candidates_of(unit: Unit, data: CompileData) -> tuple[list[Candidate], dict[str, str]]:
    """Return the candidates of a unit, the default first, and why executors have none."""
    found: list[Candidate] = []
    refused: dict[str, str] = {}
    for name, make in _makers(unit):
        try:
            with compiling(data):
                found.append(Candidate(name, make()))
        except ThunderError as error:
            refused[name] = f"it was not compiled: {_first_line(error)}"
    found.sort(key=lambda candidate: candidate.name != unit.default)
    return found, refused


def candidate_names(unit: Unit) -> list[str]:
    """Return the names of what may run a unit, also of what turns out not to compile."""
    return [name for name, _ in _makers(unit)]


def _makers(unit: Unit) -> list[tuple[str, Callable[[], Callable[..., Any]]]]:
    if unit.kind == "region":
        executor = unit.region_executor
        assert executor is not None, "a region has the executor that compiles it"
        return [
            (executor.name, lambda: _region_function(unit)),
            *((other.name, _maker(unit, other)) for other in unit.accepting),
            (CALLS, lambda: _program(unit, get_always_executors())),
        ]
    return [(executor.name, _maker(unit, executor)) for executor in unit.accepting]


def _maker(unit: Unit, executor: Executor) -> Callable[[], Callable[..., Any]]:
    make = _differentiated if unit.with_backward else _program
    always = [e for e in get_always_executors() if e is not executor]
    return lambda: make(unit, [executor, *always])


def _region_function(unit: Unit) -> Callable[..., Any]:
    if unit.function is None:
        raise thunder.ThunderError("the program does not have the region")
    function = unit.function

    def run(*inputs: Any) -> list[torch.Tensor]:
        with torch.no_grad():
            return _tensors(function(*inputs))

    return run


def _program(unit: Unit, executors: Sequence[Executor]) -> Callable[..., Any]:
    """Return the function of a program of the unit's calls, for executors."""
    trace = transform_for_execution(program_of(unit.bsyms, unit.inputs, unit.outputs), executors)
    function = trace.python_callable()

    def run(*inputs: Any) -> list[torch.Tensor]:
        with torch.no_grad():
            return _tensors(function(*inputs))

    return run


def _differentiated(unit: Unit, executors: Sequence[Executor]) -> Callable[..., Any]:
    """Return the function that runs a call and its backward, for executors; the cotangents are ones."""
    compiled = thunder.jit(_function_of(unit), executors=list(executors))
    tracked = [p.requires_grad for p in unit.inputs]

    def run(*inputs: Any) -> list[torch.Tensor]:
        given = [
            x.detach().requires_grad_() if wanted else x for x, wanted in zip(inputs, tracked, strict=True)
        ]
        outputs = _tensors(compiled(*given))
        sources = [x for x in outputs if x.requires_grad]
        leaves = [x for x in given if x.requires_grad]
        gradients = torch.autograd.grad(
            sources, leaves, [torch.ones_like(x) for x in sources], allow_unused=True
        )
        return [*outputs, *(g for g in gradients if g is not None)]

    return run


def _function_of(unit: Unit) -> Callable[..., Any]:
    """Return the call of a unit as a function of its inputs, which can be traced."""
    (bsym,) = unit.bsyms
    names: dict[str, Any] = {"operator": bsym.sym}

    def text(value: Any) -> str:
        if is_proxy(value):
            return str(value.name)
        if isinstance(value, (tuple, list)):
            items = "".join(f"{text(item)}, " for item in value)
            return f"({items})" if isinstance(value, tuple) else f"[{items}]"
        names[f"constant{len(names)}"] = value
        return f"constant{len(names) - 1}"

    arguments = [*map(text, bsym.args), *(f"{name}={text(value)}" for name, value in bsym.kwargs.items())]
    parameters = ", ".join(p.name for p in unit.inputs)
    exec(f"def call({parameters}):\n    return operator({', '.join(arguments)})\n", names)
    return names["call"]  # type: ignore[no-any-return]


def _tensors(values: Any) -> list[torch.Tensor]:
    return [x for x in tree_iter(values) if isinstance(x, torch.Tensor)]


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
