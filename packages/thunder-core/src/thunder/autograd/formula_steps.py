"""The backward steps of formulas, which are recorded once for calls that are equal.

    y = mul(x, 2)                 y         g = get_grad(y); t0 = mul(g, 2); put_grad(x, t0)
    z = mul(y, 2)                 z         the same, with z, y and names of its own

Note [Equal calls]
The formulas of a call get its arguments, its results and their cotangents, and record into the current trace.
Calls of one symbol record the same, if nothing else decides what is recorded. So a step is copied where

- the gradient is the same object, and all its functions are core's, in modules of formulas: those of packages
  and of programs run for each call, since nobody knows what they look at;
- the arguments and the results are equal: tensors have equal metadata, and the same ones among them are one
  tensor; all others are equal constants of one type (``equal_metadata``). Results have a cotangent in both;
- the formulas have not looked at what was recorded before (``TraceCtx.looks``), as those do that ask for
  strides and for constants;
- what they have recorded computes tensors, from the call's and from each other. No statement has an
  effect, or was seen by a package's ``bind_postprocess``;
- the names are those that the formulas would have taken: they are numbered after the call's result.

Between two calls of a program that is differentiated run checkers of executors, which decide by their
arguments and change nothing, and rules of packages and of the program. These may change what formulas ask
torch for, so nothing is copied from before them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any, Final

from thunder.autograd.rule_checks import (
    author_of,
    check_cotangents_are_used,
    check_nothing_is_written,
    is_complete_by_contract,
)
from thunder.autograd.step_copies import StepTemplate
from thunder.autograd.tape import recording
from thunder.base.extension_origin import module_of
from thunder.ir.equal_metadata import NoKey, constant_key, tensor_key
from thunder.ir.gradient_declarations import Formulas, OperatorGradient, Vjp
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import TraceCtx
from thunder.ops import prims
from thunder.ops.gradient_rules import put_gradients

__all__ = ["FormulaSteps", "step_of_formulas"]

#: where the functions are defined whose steps are copied
_FORMULAS: Final = ("thunder.ops.prims.", "thunder.torch.gradients.")


class FormulaSteps:
    """The steps that formulas have recorded into a trace, by what decides them."""

    def __init__(self, trace: TraceCtx) -> None:
        self._trace = trace
        #: with the symbols, so that their ids stay theirs
        self._known: dict[Any, tuple[Symbol, StepTemplate]] = {}
        self._is_copied: dict[OperatorGradient, bool] = {}

    def recorded(
        self, gradient: Formulas | Vjp, bsym: BoundSymbol, with_gradient: Set[str]
    ) -> Sequence[BoundSymbol]:
        """Return what the formulas of a call record, where these of its results have a gradient."""
        key = self._key(gradient, bsym, with_gradient)
        if key is None:
            return step_of_formulas(self._trace, gradient, bsym, with_gradient)
        known = self._known.get(key)
        copied = known[1].copied(self._trace, bsym) if known is not None else None
        if copied is not None:
            return copied
        with self._trace.naming_after(bsym.flat_proxy_outs):
            numbering = self._trace.numbering
        names, looks = len(self._trace.names), self._trace.looks
        recorded = step_of_formulas(self._trace, gradient, bsym, with_gradient)
        if numbering is not None and self._trace.looks == looks:
            step = StepTemplate.of(bsym, recorded, numbering, len(self._trace.names) - names)
            if step is not None:
                self._known[key] = bsym.sym, step
        return recorded

    def note_rule(self, rule: Callable[..., Any]) -> None:
        """Take notice of a rule that runs: after one that is not core's nothing is copied from before it."""
        if not _is_of_core(rule):
            self._known.clear()

    def _key(self, gradient: Formulas | Vjp, bsym: BoundSymbol, with_gradient: Set[str]) -> Any:
        """Return what calls have in common whose formulas record the same, or None."""
        is_copied = self._is_copied.get(gradient)
        if is_copied is None:
            is_copied = self._is_copied[gradient] = all(map(_is_of_core, _functions_of(gradient)))
        if not is_copied:
            self._known.clear()
            return None
        read = tuple([p.name in with_gradient for p in bsym.flat_proxy_outs])
        values = _Values()
        try:
            return id(bsym.sym), gradient, read, values.keys((bsym.args, bsym.kwargs, bsym.output))
        except NoKey:
            return None


class _Values:
    """The values of one call, compared with those of another one."""

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}

    def keys(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([self._key(value) for value in values])

    def _key(self, value: Any) -> Any:
        kind = type(value)
        if kind is TensorProxy:
            return self._positions.setdefault(value.name, len(self._positions)), tensor_key(value)
        if kind is tuple or kind is list:
            return kind, *self.keys(value)
        if kind is dict:
            return kind, *value, self.keys((*value.values(),))
        if kind is slice:
            return kind, self.keys((value.start, value.stop, value.step))
        return constant_key(value)


def _functions_of(gradient: Formulas | Vjp) -> list[Callable[..., Any]]:
    functions = gradient.by_argument.values() if isinstance(gradient, Formulas) else (gradient.fn,)
    return [fn for fn in functions if fn is not None]


def _is_of_core(rule: Callable[..., Any]) -> bool:
    """Return whether a rule decides by the call, by the trace and by torch's state alone what it records."""
    return module_of(rule).startswith(_FORMULAS)


def step_of_formulas(
    trace: TraceCtx, gradient: Formulas | Vjp, bsym: BoundSymbol, with_gradient: Set[str]
) -> list[BoundSymbol]:
    """Return what the formulas of a call record, where these of its results have a gradient."""
    out, is_complete = bsym.output, is_complete_by_contract(author_of(gradient))
    with recording(trace, bsym, "p" if is_complete else "") as step:
        if isinstance(out, TensorProxy):
            g: Any = prims.get_grad(out)
        else:
            g = tuple(
                prims.get_grad(o) if isinstance(o, TensorProxy) and o.name in with_gradient else None
                for o in out
            )
        put_gradients(gradient, bsym, g, is_complete)
    if is_complete:
        check_cotangents_are_used(bsym, step)
        check_nothing_is_written(bsym, step)
    return step
