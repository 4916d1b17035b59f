"""The declared gradient of each operator: one of four forms, in one table by operator id.

An operator that declares none is differentiated by the calls that it decomposes into.
``thunder.ops.gradient_rules`` has the functions that declare, ``thunder.autograd.rule_lookup`` the order in
which declarations apply to a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from thunder.base.errors import RegistrationError

__all__ = [
    "NONDIFFERENTIABLE",
    "Formulas",
    "JointRule",
    "NoGradient",
    "OperatorGradient",
    "Vjp",
    "as_gradient",
    "declare_gradient",
    "declared_gradient",
    "register_grad_rule",
    "row_gradient",
]


@dataclass(frozen=True)
class NoGradient:
    """The declaration that an operator's results do not require grad."""

    def __repr__(self) -> str:
        return "NONDIFFERENTIABLE"


@dataclass(frozen=True, eq=False)
class Formulas:
    """The gradient of each argument, by its name, as a function of the differentiated call."""

    by_argument: Mapping[str, Callable[[Any], Any]]


@dataclass(frozen=True, eq=False)
class Vjp:
    """One function from the differentiated call to the gradients of its arguments, by name."""

    fn: Callable[[Any], Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class JointRule:
    """A function with the operator's signature that computes the result and moves gradients.

    It reads the gradients of results with ``get_grad`` and adds to those of arguments with ``put_grad``.
    """

    fn: Callable[..., Any]


OperatorGradient = NoGradient | Formulas | Vjp | JointRule

#: the ``vjp`` of an operator through which no gradient flows
NONDIFFERENTIABLE: Final = NoGradient()

#: operator id → the gradient of its row
_declared: dict[str, OperatorGradient] = {}
#: operator id → the rule of ``register_grad``, which replaces the row's
_replacements: dict[str, JointRule] = {}


def as_gradient(operator_id: str, vjp: object) -> OperatorGradient | None:
    """Return the gradient that a ``vjp=`` of a registration means.

    ``None``, a mapping of formulas, a function ``call → {argument: gradient}``, or one of the four forms.
    Raises RegistrationError for anything else.
    """
    if vjp is None or isinstance(vjp, OperatorGradient):
        return vjp
    if isinstance(vjp, Mapping):
        return Formulas(vjp)
    if callable(vjp):
        return Vjp(vjp)
    raise RegistrationError(
        f"operator {operator_id!r} has vjp={vjp!r}, which does not declare a gradient",
        hint="Allowed: None, NONDIFFERENTIABLE, a mapping of formulas by argument, a function of the call.",
    )


def declare_gradient(operator_id: str, gradient: OperatorGradient | None) -> None:
    """Set the gradient of an operator's row; None removes it."""
    if gradient is None:
        _declared.pop(operator_id, None)
    else:
        _declared[operator_id] = gradient


def register_grad_rule(operator_id: str, rule: JointRule) -> None:
    """Replace the gradient of an operator's row, whatever it declares."""
    _replacements[operator_id] = rule


def row_gradient(operator_id: str) -> OperatorGradient | None:
    """Return the gradient of an operator's row, whether or not ``register_grad`` replaces it, or None."""
    return _declared.get(operator_id)


def declared_gradient(operator_id: str) -> OperatorGradient | None:
    """Return the rule of ``register_grad`` for an operator, else that of its row, or None."""
    replacement = _replacements.get(operator_id) if _replacements else None
    return replacement or _declared.get(operator_id)
