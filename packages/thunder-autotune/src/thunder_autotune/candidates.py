"""Candidates: a call or a region as a small program of its own, by each executor that accepts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

import thunder
from thunder.core.entries import CompileData, compiling
from thunder.core.errors import ThunderError
from thunder.core.proxies import is_proxy
from thunder.core.pytree import tree_iter
from thunder.executors.passes import transform_for_execution
from thunder.extend import Executor, changed_options, get_always_executors, noted_reads
from thunder.plugins import get_manager
from thunder_autotune.units import Unit
from thunder_autotune.ways import CALLS, Way
from thunder_bisect.calls import copies_of, program_of

__all__ = ["Candidate", "candidate_names", "candidates_of"]


@dataclass(frozen=True)
class Candidate:
    """One way to run a unit: `run` takes the values of its inputs, and returns its tensors as a list."""

    name: str
    run: Callable[..., list[torch.Tensor]]


def candidates_of(
    unit: Unit, data: CompileData, given: Sequence[Any]
) -> tuple[list[Candidate], dict[str, str]]:
    """Return the candidates of a unit, the default first, and why executors have none.

    An executor has one for each of the values to try of each option that it reads, too. `given` are the
    values of the unit's inputs, for what is compiled when it first runs.
    """
    found: list[Candidate] = []
    refused: dict[str, str] = {}
    tried = _tried_values()

    def add(way: Way, make: Make) -> set[str]:
        """Add a candidate; return the options that were read."""
        try:
            with compiling(data), changed_options(way.options), noted_reads() as reads:
                run = make(way.options)
                if unit.with_backward and tried:
                    _read_options(run, given)
        except ThunderError as error:
            refused[str(way)] = f"it was not compiled: {_first_line(error)}"
            return set()
        found.append(Candidate(str(way), run))
        return set(reads)

    for name, make in _makers(unit):
        for option in sorted(tried.keys() & add(Way(name), make)):
            for value in tried[option]:
                add(Way(name, {option: value}), make)
    found.sort(key=lambda candidate: candidate.name != unit.default)
    return found, refused


def _read_options(run: Callable[..., Any], given: Sequence[Any]) -> None:
    """Run a candidate that is compiled when it first runs, on copies: then its executor reads options."""
    with suppress(Exception):  # it raises again where it is judged
        run(*copies_of({str(i): x for i, x in enumerate(given)}).values())


def _tried_values() -> dict[str, tuple[Any, ...]]:
    """Return the values to try beside the default of each option that packages declare."""
    declared = (option for info in get_manager().loaded() for option in info.declares.options)
    return {option.name: option.candidates for option in declared if option.candidates}


def candidate_names(unit: Unit) -> list[str]:
    """Return the names of what may run a unit, without options, also of what turns out not to compile."""
    return [name for name, _ in _makers(unit)]


#: makes the function of a candidate, with values of options for what it compiles later
Make = Callable[[Mapping[str, Any]], Callable[..., Any]]


def _makers(unit: Unit) -> list[tuple[str, Make]]:
    if unit.kind == "region":
        executor = unit.region_executor
        assert executor is not None, "a region has the executor that compiles it"
        return [
            (executor.name, lambda options: _region_function(unit, options)),
            *((other.name, _maker(unit, other)) for other in unit.accepting),
            (CALLS, lambda options: _program(unit, get_always_executors())),
        ]
    return [(executor.name, _maker(unit, executor)) for executor in unit.accepting]


def _maker(unit: Unit, executor: Executor) -> Make:
    executors = [executor, *(e for e in get_always_executors() if e is not executor)]
    if unit.with_backward:
        return lambda options: _differentiated(unit, executors, options)
    return lambda options: _program(unit, executors)


def _region_function(unit: Unit, options: Mapping[str, Any]) -> Callable[..., Any]:
    """Return what the executor of a region has compiled; with options, or for a part, what it compiles."""
    if unit.function is None or options or _tried_values():
        assert unit.region_executor is not None, "a region has the executor that compiles it"
        compiled = _program(unit, [unit.region_executor, *get_always_executors()])
        if unit.function is None or options:
            return compiled
    function, sizes = unit.function, tuple(unit.sizes.values())

    def run(*inputs: Any) -> list[torch.Tensor]:
        with torch.no_grad():
            return _tensors(function(*inputs, *sizes))

    return run


def _program(unit: Unit, executors: Sequence[Executor]) -> Callable[..., Any]:
    """Return the function of a program of the unit's calls, for executors."""
    trace = transform_for_execution(program_of(unit.bsyms, unit.inputs, unit.outputs), executors)
    function = trace.python_callable()

    def run(*inputs: Any) -> list[torch.Tensor]:
        with torch.no_grad():
            return _tensors(function(*inputs))

    return run


def _differentiated(
    unit: Unit, executors: Sequence[Executor], options: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return the function that runs a call and its backward, for executors; the cotangents are ones."""
    compiled = thunder.jit(_function_of(unit), executors=list(executors), **options)
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
