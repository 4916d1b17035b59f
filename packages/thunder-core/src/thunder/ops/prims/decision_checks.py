"""The primitive that checks a decision: a question about data that the program was traced with one answer to.

Note [Decisions on data]
A trace is a straight line. Where the program asks for the data of a tensor, the answer in the call that is
traced becomes a check at that place:

    if (x > 0).all():        t0 = x > 0; t1 = all(t0)
        y = x.log()     →    check_decision(t1, question="bool", answer=True, index=0)
    else:                    y = log(x)
        y = x

A check that finds another answer raises DecisionChanged before the program has written anything.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder.base.equal_values import same_leaf
from thunder.base.errors import DecisionChanged
from thunder.base.float_expressions import RELATIONS, added
from thunder.base.tags import OpTags
from thunder.ir.proxies import ComplexProxy, FloatProxy, IntegerProxy, NumberProxy, pytype
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.prims.declaration import primitive

__all__ = ["QUESTIONS", "answer_to", "check_decision", "compute_number", "number_of"]


def _values(tensor: torch.Tensor) -> Any:
    """Return the elements of a tensor, as nested tuples."""

    def frozen(part: Any) -> Any:
        return tuple(map(frozen, part)) if isinstance(part, list) else part

    return frozen(tensor.tolist())


#: question → the function whose result is the answer; its arguments are tensors and numbers of a run
QUESTIONS: Final[dict[str, Callable[..., Any]]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "contains": operator.contains,
    "is_nonzero": torch.Tensor.is_nonzero,
    "tolist": _values,
    "equal": torch.equal,
    "allclose": torch.allclose,
    "value": lambda number: number,
    "sizes": lambda results: results,  # of an operator, which checks them (Note [Sizes that depend on data])
    "drawn": lambda drawn: drawn,  # from a generator of Python or NumPy, whose statement checks it
    "opaque": lambda signature: signature,  # of the results of an opaque callable, which checks it
    **{name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    **RELATIONS,
}


def answer_to(question: str, operands: tuple[Any, ...]) -> Any:
    """Return the answer to a question about tensors and numbers: a number, or tuples of numbers."""
    with torch.no_grad():
        return QUESTIONS[question](*operands)


def _nothing(*operands: Any, question: str, answer: Any, index: int | None = None) -> None:
    """The meta function of a statement without result."""


def _check(*operands: Any, question: str, answer: Any, index: int | None = None) -> None:
    found = QUESTIONS[question](*operands)
    if found is not answer and not same_leaf(found, answer):
        raise DecisionChanged(index, found if index is not None else f" {question} ".join(map(str, operands)))


#: raises DecisionChanged unless the question has this answer; with an index it is one of the program, else a
#: relation of sizes that the computation finds (Note [Computed sizes])
check_decision = primitive(
    "check_decision",
    _nothing,
    python_impl=_check,
    vjp=NONDIFFERENTIABLE,
    tags=(OpTags.DONT_DCE, OpTags.CHECKS_DECISION, OpTags.SKIPPED_EARLY),
)


# -- numbers -------------------------------------------------------------------------------------------------


def _number_meta(operation: str, *operands: Any) -> NumberProxy:
    result = number_of(operation, *(pytype(x)(1) for x in operands))
    if isinstance(result, complex):
        return ComplexProxy()
    return FloatProxy() if isinstance(result, float) else IntegerProxy(python_type=type(result))


def number_of(operation: str, *operands: Any) -> Any:
    """Return what ``sum``, or a function of the module ``operator``, computes from numbers."""
    return added(*operands) if operation == "sum" else getattr(operator, operation)(*operands)


#: Python's arithmetic on numbers that come out of tensors: ``compute_number("add", n, 2)``
compute_number = primitive(
    "compute_number", _number_meta, python_impl=number_of, eager=number_of, vjp=NONDIFFERENTIABLE
)
