"""Which gradient applies to a call: the first of a short list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Final

from thunder.base.current_options import changed_options
from thunder.base.errors import MissingGradient, RegistrationError
from thunder.base.pytree import tree_map
from thunder.executor_base.choice import Choice, choose, in_rank_order
from thunder.executor_base.executor import Executor
from thunder.executor_base.operator_ids import operator_id
from thunder.executor_base.refusal import DEFINE_WITH_LIKE, Refusal
from thunder.ir.gradient_declarations import (
    JointRule,
    NoGradient,
    OperatorGradient,
    Vjp,
    register_grad_rule,
    row_gradient,
)
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import detached_trace
from thunder.ops import prims
from thunder.ops.same_operators import converted
from thunder.ops.torch_support import derivative_error


@dataclass(frozen=True)
class Decompose:
    """The call is differentiated by the calls that it decomposes into."""


DECOMPOSE: Final = Decompose()


def register_grad(sym_or_id: Symbol | str, rule: Callable[..., Any]) -> None:
    """Give an operator a gradient rule, in place of the one that its row has.

    ``rule`` has the operator's signature, computes and returns its result, and moves gradients with
    ``get_grad`` and ``put_grad``. Raises RegistrationError for an unknown id, and for what is not a function.
    """
    if not callable(rule):
        raise RegistrationError(f"the gradient rule of {sym_or_id} has to be a function, and is {rule!r}")
    register_grad_rule(operator_id(sym_or_id), JointRule(rule))


def gradient_of(
    bsym: BoundSymbol, executors: Sequence[Executor] = (), *, is_part: bool = True
) -> OperatorGradient | Decompose | None:
    """Return the gradient that applies to a call, or None where it cannot be differentiated.

    The first of:

    1. none, where the operator is declared nondifferentiable: its results do not require grad;
    2. the ``grad_transform`` of the first executor that claims the call whole, or has a gradient rule alone;
    3. the rule of :func:`register_grad`;
    4. torch's error, if torch has no derivative and the call is the program's, not a part of another one;
    5. the gradient of the operator's row, or of a symbol without a row;
    6. the gradients of the calls that it decomposes into.
    """
    declared: OperatorGradient | None = bsym.sym.declared_gradient
    if isinstance(declared, NoGradient):
        return declared
    transform = _grad_transform(bsym, executors)
    if transform is not None:
        return JointRule(transform)
    is_replaced = declared is not None and declared is not row_gradient(bsym.sym.id)
    if not is_part and not is_replaced:
        underivable = derivative_error(bsym)
        if underivable is not None and underivable.in_backward:
            return _raising(underivable.error)
    if declared is not None:
        return declared
    return DECOMPOSE if bsym.subsymbols else None


def _raising(error: Exception) -> Vjp:
    """Return the gradients of a call of which torch has no derivative: a backward that needs them raises."""

    def gradients(call: Any) -> dict[str, Any]:
        g = call.g if isinstance(call.g, TensorProxy) else next(g for g in call.g if g is not None)

        def raised(x: Any) -> Any:
            return prims.raise_error(x, g, type(error), error.args) if requires_grad(x) else None

        return {name: tree_map(raised, x) for name, x in call.arguments.items()}

    return Vjp(gradients)


def own_gradient_of(bsym: BoundSymbol) -> OperatorGradient | Decompose | None:
    """Return the gradient of a call without executors and :func:`register_grad`, or None."""
    declared = row_gradient(bsym.sym.id) or bsym.sym.gradient
    if declared is not None:
        return declared
    return DECOMPOSE if bsym.subsymbols else None


def has_gradient(bsym: BoundSymbol) -> bool:
    """Return whether a gradient applies to a call, one that is declared to be none included."""
    return gradient_of(bsym) is not None


def _grad_transform(bsym: BoundSymbol, executors: Sequence[Executor]) -> Callable[..., Any] | None:
    calls = [executor.as_registered(bsym) for executor in executors]
    if not any(e.get_grad_transform(call.sym) for e, call in zip(executors, calls, strict=True)):
        return None  # the same whichever executor claims the call, so no checker runs
    choice = _choice(bsym, executors)
    with detached_trace():
        for executor in in_rank_order(tuple(executors), bsym):
            call = executor.as_registered(bsym)
            if executor is choice.executor or executor.has_gradient_alone(call):
                rule = _of_spelling(executor.get_grad_transform(call.sym), bsym, call)
                return _with_options(rule, choice.options)
    return None


def _of_spelling(
    rule: Callable[..., Any] | None, bsym: BoundSymbol, call: BoundSymbol
) -> Callable[..., Any] | None:
    """Return a rule for `call` as one that takes the arguments of `bsym`, the same call in another form."""
    if rule is None or call is bsym:
        return rule

    @wraps(rule)
    def converting(*args: Any, **kwargs: Any) -> Any:
        arguments = converted(bsym.sym.id, call.sym.id, args, kwargs)
        assert arguments is not None, "the arguments were converted when the rule was looked up"
        return rule(*arguments[0], **arguments[1])

    return converting


def claimer_of(bsym: BoundSymbol, executors: Sequence[Executor]) -> Executor | None:
    """Return the executor that claims a call whole."""
    return _choice(bsym, executors).executor


def _choice(bsym: BoundSymbol, executors: Sequence[Executor]) -> Choice:
    with detached_trace():  # what a checker computes is not part of the program
        return choose(executors, bsym, lambda executor, call: executor.can_execute_or_fuse(call))


def _with_options(
    rule: Callable[..., Any] | None, options: Mapping[str, Any] | None
) -> Callable[..., Any] | None:
    """Return a gradient rule that runs with values of options that a preference has."""
    if rule is None or not options:
        return rule

    @wraps(rule)
    def changing(*args: Any, **kwargs: Any) -> Any:
        with changed_options(options):
            return rule(*args, **kwargs)

    return changing


def missing_gradient(bsym: BoundSymbol) -> MissingGradient:
    """Return the error for a primitive without a gradient that a gradient has to pass.

    It names the package of an operator that an executor defines.
    """
    owner = bsym.sym.executor
    if not isinstance(owner, Executor):
        return _missing_gradient(bsym, {}, "")
    with detached_trace():
        answer = owner.can_execute(bsym)
    if isinstance(answer, Refusal):  # its rules are not used for the call
        return _missing_gradient(bsym, {owner.name: str(answer)}, f" {DEFINE_WITH_LIKE}").blame(owner.origin)
    return _missing_gradient(bsym, {}, "").blame(owner.origin)


def _missing_gradient(bsym: BoundSymbol, refusals: dict[str, str], hint: str) -> MissingGradient:
    return MissingGradient(
        f"{bsym.sym.id} has no gradient rule, and a gradient through it is needed"
        if not refusals
        else f"{bsym.sym.id} has no gradient rule for a call that its executor refuses",
        found={"call": bsym.line, **refusals},
        where=bsym.locations,
        hint="Call under torch.no_grad(), detach its inputs, or give it a rule: grad_transform= of "
        f"register_implementation, or thunder.core.transforms.register_grad.{hint}",
    )
