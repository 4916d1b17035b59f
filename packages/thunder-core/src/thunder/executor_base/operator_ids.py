"""The id of an operator, from each of the ways in which an author gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.base.errors import RegistrationError
from thunder.ir.symbol import Symbol
from thunder.ops.library_operators import library_operator, operator_symbol, overloads_of
from thunder.ops.operator import row_of, symbol_of
from thunder.ops.same_operators import operator_of

__all__ = ["operator_id"]


def operator_id(sym_or_id: Symbol | str | Callable[..., Any]) -> str:
    """Return the id of an operator given by symbol, by id, or by a function of torch or its path.

    Raises RegistrationError, with the nearest id, for an unknown one.
    """
    if isinstance(sym_or_id, Symbol):
        return sym_or_id.id
    if isinstance(sym_or_id, str) and row_of(sym_or_id) is not None:
        return sym_or_id
    spelled = operator_of(sym_or_id)
    if spelled is not None:
        return spelled
    library = library_operator(sym_or_id)
    if library is not None:
        return _library_id(library)
    if isinstance(sym_or_id, str):
        return symbol_of(sym_or_id).id
    raise RegistrationError(
        f"{sym_or_id!r} is neither a symbol, an operator id, nor a function of torch that is an operator",
        hint="An id is text, such as 'torch.nn.functional.linear'.",
    )


def _library_id(operator: Any) -> str:
    """Return the id of an operator of `torch.library`, which is registered if no program was traced yet.

    Raises RegistrationError for a packet of several overloads, and for an operator that writes.
    """
    overloads = overloads_of(operator)
    if len(overloads) != 1:
        raise RegistrationError(
            f"{operator} has {len(overloads)} overloads",
            found={"overloads": ", ".join(map(str, overloads))},
            hint="Register an implementation of each.",
        )
    if overloads[0]._schema.is_mutable:
        raise RegistrationError(
            f"{overloads[0]} writes to its arguments",
            found={"schema": overloads[0]._schema},
            hint="register_operator(name, meta=…, fn=…, replaces=it, mutates=(…)) runs it by another kernel.",
        )
    return operator_symbol(overloads[0]).id
