"""The checks of gradient rules: what a rule returned, read and put, against the call that it differentiates.

A wrong value of a rule is found by the conformance kit. A wrong type, a gradient that is not read and an
argument without gradient are found here, when a call is first differentiated. Rules of core are not required
to be complete: an argument without a formula has no gradient there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any

from thunder.base.errors import InternalError, OperatorError, PluginError, ThunderError
from thunder.base.extension_origin import module_of, origin_of
from thunder.base.plugin_calls import plugin_call
from thunder.base.pytree import tree_flatten
from thunder.base.tags import OpTags
from thunder.ir.gradient_declarations import Formulas, JointRule, Vjp
from thunder.ir.proxies import TensorProxy, is_proxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.result_pairs import described_result, result_pairs
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ops.meta_kernels import raise_torch_error
from thunder.ops.operator import row_of
from thunder.ops.rule_parts import GETTERS, PUT_GRAD

__all__ = [
    "author_of",
    "check_cotangents_are_used",
    "check_gradients_are_moved",
    "check_nothing_is_written",
    "is_complete_by_contract",
    "named_rule",
    "paired_results",
]

_WRITES = frozenset({OpTags.IN_PLACE})
_HINT = (
    "A rule has the operator's signature. It computes and returns the result, reads gradients with get_grad, "
    "and adds to them with put_grad."
)
_NO_GRADIENT = "put_grads((x,), (None,)) declares that x has no gradient."


def is_complete_by_contract(rule: Callable[..., Any]) -> bool:
    """Return whether a rule has to give each argument a gradient, or None: rules outside of thunder."""
    return not module_of(rule).startswith("thunder.")


def author_of(gradient: JointRule | Formulas | Vjp) -> Callable[..., Any]:
    """Return the function of a declared gradient that an error names; of formulas the first."""
    if not isinstance(gradient, Formulas):
        return gradient.fn
    formulas = [formula for formula in gradient.by_argument.values() if formula is not None]
    return next((f for f in formulas if is_complete_by_contract(f)), formulas[0])


# -- results -------------------------------------------------------------------------------------------------


def paired_results(bsym: BoundSymbol, result: Any) -> list[tuple[Any, Any]]:
    """Return each proxy among the outputs of a call with what a gradient rule returned for it.

    Raises PluginError if the two differ in structure, shape, dtype or device.
    """
    pairs = result_pairs(bsym, result, _is_same_kind)
    if pairs is None:
        raise PluginError(
            "a gradient rule returned something else than its operator",
            found={"operator": described_result(bsym.output), "rule returned": described_result(result)},
            hint="A rule computes and returns the result: the same structure, shapes, dtypes and devices.",
        )
    return pairs


def _is_same_kind(old: Any, new: Any) -> bool:
    if not is_proxy(old):
        return not is_proxy(new) and (old is new or bool(old == new) or bool(old != old))
    if not isinstance(old, TensorProxy):
        return is_proxy(new)
    return isinstance(new, TensorProxy) and _type(old) == _type(new)


def _type(x: TensorProxy) -> tuple[Any, ...]:
    return tuple(x.shape), x.dtype, x.device


# -- gradients -----------------------------------------------------------------------------------------------


def check_gradients_are_moved(
    bsym: BoundSymbol, recorded: Sequence[BoundSymbol], result: Any, is_complete: bool
) -> None:
    """Raise PluginError unless a rule reads gradients of results and puts those of arguments.

    With ``is_complete`` it has to read each result that requires grad, and to put a gradient, or None, for
    each argument that requires grad.
    """
    results = [p for p in tree_flatten(result)[0] if is_proxy(p)]
    arguments = {p.name: p for p in bsym.flat_proxy_args}
    read = {b.args[0].name for b in recorded if b.sym.id in GETTERS}
    _check_read(read - {p.name for p in results}, arguments)
    put = {b.args[0].name: b.args[0] for b in recorded if b.sym.id == PUT_GRAD}
    for name, value in put.items():
        if name not in arguments:
            _refuse_put(value, is_result=any(p.name == name for p in results))
    if not is_complete:
        return
    for p in bsym.flat_proxy_args:
        if requires_grad(p) and p.name not in put:
            raise PluginError(
                f"a gradient rule puts no gradient for {argument_label(bsym, p)}, which requires grad",
                hint=_NO_GRADIENT,
            )
    if any(b.sym.id == PUT_GRAD and b.args[1] is not None for b in recorded):
        _check_all_read(bsym, results, read)


def _check_read(others: set[str], arguments: Mapping[str, Any]) -> None:
    for name in sorted(others):
        what = "an argument of the rule" if name in arguments else "a value that the rule does not return"
        raise PluginError(
            f"get_grad of {name}, {what}", hint="get_grad takes a result, as the rule returns it."
        )


def _refuse_put(value: TensorProxy, is_result: bool) -> None:
    what = "a result of the rule" if is_result else "not an argument of the operator"
    raise PluginError(
        f"put_grad for {value.name}, {what}",
        found={value.name: f'"{value.type_string()}"'},
        hint="put_grad takes an argument of the rule, and the gradient of that argument.",
    )


def _check_all_read(bsym: BoundSymbol, results: Sequence[Any], read: set[str]) -> None:
    outputs = [p for p in tree_flatten(bsym.output)[0] if is_proxy(p)]
    for index, (output, result) in enumerate(zip(outputs, results, strict=True)):
        if requires_grad(output) and result.name not in read:
            raise PluginError(
                f"a gradient rule does not read the gradient of result {index} with get_grad",
                found={f"result {index}": f'"{output.type_string()}"'},
                hint="A result without gradient is marked by the meta function: "
                "TensorProxy(…, requires_grad=False).",
            )


def check_nothing_is_written(bsym: BoundSymbol, recorded: Sequence[BoundSymbol]) -> None:
    """Raise PluginError for an in-place write of a gradient rule, unless its operator writes.

    A cotangent may be that of other values too, and what a rule saves is read by every backward.
    """
    if has_tags(bsym, _WRITES):
        return
    for b in recorded:
        if has_tags(b, _WRITES):
            raise PluginError(
                f"a gradient rule writes in place, with {b.sym.name}",
                found={"write": b.line},
                hint="It computes new values: g * 2 in place of g.mul_(2).",
            )


def check_cotangents_are_used(bsym: BoundSymbol, step: Sequence[BoundSymbol]) -> None:
    """Raise PluginError if formulas put gradients that do not depend on the cotangents of the results."""
    if not any(b.sym.id == PUT_GRAD for b in step):
        return
    used = {p.name for b in step for p in b.flat_proxy_args}
    for b in step:
        if b.sym.id in GETTERS and b.output.name not in used:
            raise PluginError(
                f"the formulas of a gradient do not read the cotangent of {b.args[0].name}",
                found={b.args[0].name: f'"{b.args[0].type_string()}"'},
                hint="c.g is the cotangent of the result, a tuple where the result is one. An argument "
                "without gradient has None for its formula.",
            )


def argument_label(bsym: BoundSymbol, p: TensorProxy) -> str:
    """Return an argument as errors show it: its name, its place among the arguments and its type."""
    index = next(i for i, x in enumerate(bsym.flat_args) if is_proxy(x) and x.name == p.name)
    return f'tensor {p.name} at position {index} of the arguments, "{p.type_string()}"'


# -- errors --------------------------------------------------------------------------------------------------


@contextmanager
def named_rule(bsym: BoundSymbol, gradient: JointRule | Formulas | Vjp) -> Iterator[None]:
    """Name the operator, the rule and the line of the forward in an error of a gradient rule.

    An error of a package's rule becomes a PluginError, a fault of a rule of core an InternalError, or torch's
    error where torch refuses the call. A rule that runs the user's program raises what that raises.
    """
    try:
        yield
    except Exception as error:
        rule = author_of(gradient)
        if bsym.sym.gradient is gradient or module_of(rule).startswith("thunder.frontend."):
            _add_note(error, bsym)
            raise
        if is_complete_by_contract(rule):
            name = f"{getattr(rule, '__qualname__', rule)}, of {bsym.sym.id}"
            if isinstance(error, PluginError):
                error.found = {**(error.found if isinstance(error.found, dict) else {}), "rule": name}
            with plugin_call(
                "a gradient rule",
                lambda: origin_of(rule),
                found=lambda: {"call": bsym.line, "rule": name},
                where=bsym.locations,
                hint=_HINT,
                may_refuse=False,
            ):
                raise
        if _is_deliberate(error, rule):
            _add_note(error, bsym)
            raise
        row = row_of(bsym.sym)
        raise_torch_error(row.eager if row is not None else None, bsym.args, bsym.kwargs, error)
        raise _fault_of_core(error, bsym) from error


def _add_note(error: Exception, bsym: BoundSymbol) -> None:
    at = f", called at {bsym.source.file}:{bsym.source.line}" if bsym.source is not None else ""
    error.add_note(f"in the gradient rule of {bsym.sym.id}{at}")


def _is_deliberate(error: Exception, rule: Callable[..., Any]) -> bool:
    """Return whether a rule of core refuses a call; an operator's error in a formula is a fault of it."""
    if not isinstance(error, OperatorError):
        return isinstance(error, ThunderError) and not isinstance(error, PluginError)
    *_, (frame, _) = walk_tb(error.__traceback__)
    return bool(frame.f_globals.get("__name__") == module_of(rule))


def _fault_of_core(error: Exception, bsym: BoundSymbol) -> InternalError:
    return InternalError(
        f"the gradient rule of {bsym.sym.id} failed with {type(error).__name__}: {error}",
        found={"call": bsym.line},
        where=bsym.locations,
    )
