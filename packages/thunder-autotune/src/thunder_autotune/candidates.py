"""Candidates: a call or a region as a small program of its own, by each executor that accepts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import thunder
from thunder.core.dtypes import to_torch_dtype
from thunder.core.entries import CompileData, compiling
from thunder.core.errors import ThunderError
from thunder.core.proxies import TensorProxy, is_proxy
from thunder.core.pytree import tree_iter
from thunder.executors.passes import transform_for_execution
from thunder.extend import Executor, get_always_executors
from thunder_autotune.entries import CALLS
from thunder_autotune.recording import Unit
from thunder_bisect.calls import copies_of, program_of

__all__ = ["Candidate", "Subject", "candidate_names", "candidates_of", "made_values", "varied"]

#: the seed of values that are made where a program's own are not known
_SEED = 0


@dataclass(frozen=True)
class Candidate:
    """One way to run a unit: `run` takes the values of its inputs, and returns its tensors as a list."""

    name: str
    run: Callable[..., list[torch.Tensor]]


class Subject:
    """A unit with the values on which its candidates run; what `measured` repeats.

    `values` are those of the program, or made if these are not known.
    """

    def __init__(self, unit: Unit, values: Mapping[str, Any]) -> None:
        self.unit = unit
        self.values = values
        self._inputs = tuple(values[p.name] for p in unit.inputs)
        #: the inputs in whose memory a region may compute, with copies
        self._ending = [(values[name], values[name].clone()) for name in sorted(unit.ending)]

    def run(self, fn: Callable[..., Any]) -> Any:
        """Run a candidate on the values."""
        return fn(*self._inputs)

    def restore(self) -> None:
        """Give the inputs in whose memory a region has computed their values back."""
        for x, before in self._ending:
            x.copy_(before)


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


def made_values(unit: Unit) -> Mapping[str, Any]:
    """Return values for the inputs of a unit: normal numbers; zeros for integers, which may be indices."""
    generator = torch.Generator().manual_seed(_SEED)
    return {p.name: _made(p, generator) for p in unit.inputs}


def _made(p: TensorProxy, generator: torch.Generator) -> torch.Tensor:
    dtype = to_torch_dtype(p.dtype)
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex64 if dtype.is_complex else torch.float32
        values = torch.randn(tuple(p.shape), generator=generator, dtype=wide).to(dtype)
    elif dtype is torch.bool:
        values = torch.rand(tuple(p.shape), generator=generator) < 0.5
    else:
        values = torch.zeros(tuple(p.shape), dtype=dtype)
    values = values.to(str(p.device))
    if p.strides is None or not values.numel():
        return values
    strided = torch.empty_strided(tuple(p.shape), tuple(p.strides), dtype=dtype, device=values.device)
    return strided if 0 in p.strides else strided.copy_(values)


def varied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return other values of the same kind: numbers of floating point negated and in reverse order."""
    copies = copies_of(values)
    for name, x in copies.items():
        if isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()) and x.numel():
            if 0 not in x.stride():
                x.copy_(-x.flatten().flip(0).reshape(x.shape))
            copies[name] = x
    return copies
