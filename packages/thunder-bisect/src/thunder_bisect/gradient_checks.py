"""The gradient of each call of a program, compared with torch's autograd of the same call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import torch

import thunder
from thunder.core import devices, dtypes
from thunder.core.errors import UnsupportedProgram
from thunder.core.prims import python_return
from thunder.core.proxies import NumberProxy, TensorProxy, is_proxy
from thunder.core.pytree import tree_iter, tree_map
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder.extend import row_of
from thunder_bisect.calls import copies_of, is_random, replaced_function, tensor_inputs
from thunder_bisect.judgement import expected_of, fault_of
from thunder_bisect.ranks import Ranks
from thunder_bisect.shadows import Shadows
from thunder_bisect.statement_checks import scale_of
from thunder_testing.reproduction import call_text
from thunder_transforms.observing import is_computing

__all__ = [
    "GradientFault",
    "call_lines",
    "eager_of",
    "gradient_fault_of",
    "gradient_faults",
    "gradients_differ",
]


@dataclass(frozen=True, eq=False)
class GradientFault:
    """A call with a wrong gradient, of the value named `argument`."""

    bsym: BoundSymbol
    argument: str
    what: str
    inputs: Mapping[str, Any]


def gradient_faults(
    trace: TraceCtx,
    values: Mapping[str, Any],
    executors: Sequence[Any] | None,
    factor: float,
    ranks: Ranks,
) -> Iterator[GradientFault]:
    """Yield the calls of an acquired trace whose gradient is wrong.

    Calls of equal types are tried once, those that communicate not at all.

    `values` has the values of the trace, by name. Compilers of regions are left out: a rule of a gradient is
    that of a single call.
    """
    tried: set[Any] = set()
    for bsym in trace.bound_symbols:
        if not is_computing(bsym) or is_random(bsym) or bsym.sym.id == python_return.id:
            continue
        if ranks.communicates(bsym):
            continue
        key = bsym.rhs[0], tuple(_form(x) for x in tree_iter((bsym.args, bsym.kwargs)))
        if key in tried or not all(p.name in values for p in tensor_inputs(bsym)):
            continue
        tried.add(key)
        inputs = copies_of({p.name: values[p.name] for p in tensor_inputs(bsym)})
        found = gradient_fault_of(bsym, inputs, executors, factor)
        if found is not None:
            yield GradientFault(bsym, *found, inputs)


def _form(x: Any) -> Any:
    if isinstance(x, TensorProxy):
        return tuple(x.shape), x.dtype, x.requires_grad
    return repr(x)


def gradient_fault_of(
    bsym: BoundSymbol, inputs: Mapping[str, Any], executors: Sequence[Any] | None, factor: float = 1.0
) -> tuple[str, str] | None:
    """Return the argument whose gradient is wrong, and how.

    None if all are right or there is none to compare.
    """
    eager = eager_of(bsym)
    if eager is None:
        return None
    reference, called = _function(bsym, eager, list(inputs)), _function(bsym, bsym.sym, list(inputs))
    if reference is None or called is None:
        return None
    return gradients_differ(called, reference, inputs, executors, factor)


def gradients_differ(
    called: Callable[..., Any],
    reference: Callable[..., Any],
    inputs: Mapping[str, Any],
    executors: Sequence[Any] | None,
    factor: float = 1.0,
) -> tuple[str, str] | None:
    """Return the input whose gradient differs from that of a reference, and how; or None."""
    names = [name for name, x in inputs.items() if x.is_floating_point() or x.is_complex()]
    if not names:
        return None
    with Shadows() as shadows:
        theirs = _gradients(reference, inputs, names)
        if theirs is None:
            return None
        expected = {n: expected_of(g, shadows, scale_of(inputs)) for n, g in theirs.items() if g is not None}
    ours = _gradients(thunder.jit(called, executors=executors), inputs, names)
    for name, right in expected.items():
        found = None if ours is None else ours[name]
        if found is None:
            if right.own.any():
                return name, "there is no gradient, and torch has one"
            continue
        fault = fault_of(found, right, factor, whole=True)
        if fault is not None:
            return name, fault
    return None


def eager_of(bsym: BoundSymbol) -> Callable[..., Any] | None:
    """Return the function that torch computes a call with, or None."""
    row = row_of(bsym.sym)
    return replaced_function(bsym) or (None if row is None else row.eager)


def call_lines(bsym: BoundSymbol, names: Sequence[str]) -> list[str]:
    """Return the lines of a function `f` of tensors that calls `op` as the program does."""

    def value(x: Any) -> Any:
        return x.value if isinstance(x, NumberProxy) else x

    args, kwargs = tree_map(value, (bsym.args, bsym.kwargs))
    proxies = {id(x): x.name for x in tree_iter((args, kwargs)) if is_proxy(x)}
    return [f"def f({', '.join(names)}):", f"    return {call_text('op', args, kwargs, proxies)}"]


def _function(
    bsym: BoundSymbol, called: Callable[..., Any], names: Sequence[str]
) -> Callable[..., Any] | None:
    """Return the function of the tensors of a call that makes it.

    None if an argument has no text.
    """
    namespace: dict[str, Any] = {
        "op": called,
        "torch": torch,
        "dtypes": dtypes,
        "devices": devices,
        "nan": nan,
        "inf": inf,
    }
    try:
        exec("\n".join(call_lines(bsym, names)), namespace)
    except (SyntaxError, NameError):
        return None
    return namespace["f"]  # type: ignore[no-any-return]


def _gradients(
    fn: Callable[..., Any], inputs: Mapping[str, Any], names: Sequence[str]
) -> dict[str, torch.Tensor | None] | None:
    """Return the gradients of a call's arguments for fixed cotangents.

    None if no result has one, or it refuses.
    """
    tensors = {k: x.detach().requires_grad_(k in names) for k, x in copies_of(inputs).items()}
    try:
        with torch.enable_grad():
            results = [
                x for x in tree_iter(fn(*tensors.values())) if isinstance(x, torch.Tensor) and x.requires_grad
            ]
            if not results:
                return None
            cotangents = [_cotangent(x, i) for i, x in enumerate(results)]
            found = torch.autograd.grad(results, [tensors[n] for n in names], cotangents, allow_unused=True)
    except (
        UnsupportedProgram,
        RuntimeError,
    ):  # a dtype without kernel, a result without derivative: nothing to compare
        return None
    return dict(zip(names, found, strict=True))


def _cotangent(x: torch.Tensor, i: int) -> torch.Tensor:
    with torch.utils._python_dispatch._disable_current_modes():
        generator = torch.Generator().manual_seed(i)
        return torch.randn(x.shape, generator=generator, dtype=torch.float64).to(
            dtype=x.dtype, device=x.device
        )
