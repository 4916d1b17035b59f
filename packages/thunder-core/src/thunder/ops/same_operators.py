"""Operators of torch that are one operator under several ids, with other signatures.

`torch.softmax(x, dim)` and `torch.nn.functional.softmax(x, dim)` have different rows, since their arguments
differ. An executor that implements one of them implements the other: a call is given the form of the other
row by the conversion that the rows declare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from thunder.base.attribute_paths import find_torch
from thunder.base.langctx import TORCH
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ops.operator import row_of, symbol_of

__all__ = [
    "CONVERSIONS",
    "as_call_of",
    "declare_same",
    "declare_spelling",
    "operator_of",
    "same_operators",
    "spellings",
    "symbol_of_function",
]

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
#: the arguments of a row → those of another row that mean the same; None if there are none
Conversion = Callable[..., Arguments | None]

_conversions: dict[str, dict[str, Conversion]] = {}
#: operator id → the rows that are the same operator, if there are any, with the conversions to them
CONVERSIONS: Final[Mapping[str, Mapping[str, Conversion]]] = MappingProxyType(_conversions)
_NO_CONVERSIONS: Mapping[str, Conversion] = MappingProxyType({})
#: functions of torch with other arguments than the row's → the operator's id, the conversion to the row's
_spellings: dict[Any, tuple[str, Conversion]] = {}


def declare_same(first: Symbol, second: Symbol, to_second: Conversion, to_first: Conversion) -> None:
    """Declare that two rows are one operator, with conversions of the arguments."""
    _conversions.setdefault(first.id, {})[second.id] = to_second
    _conversions.setdefault(second.id, {})[first.id] = to_first


def declare_spelling(function: Any, symbol: Symbol, to_row: Conversion) -> None:
    """Declare that a function of torch calls an operator, with a conversion of its arguments to the row's."""
    _spellings[function] = symbol.id, to_row


def same_operators(operator_id: str) -> Mapping[str, Conversion]:
    """Return the ids of the rows that are the same operator, with conversions of the arguments to them."""
    return _conversions.get(operator_id, _NO_CONVERSIONS)


def symbol_of_function(function: Any) -> Symbol | None:
    """Return the symbol that calls of a function of torch become; None for another function."""
    meaning = TORCH.resolve(function) if callable(function) else None
    return meaning if isinstance(meaning, Symbol) else None


def operator_of(function_or_path: Any) -> str | None:
    """Return the id of the operator that a function of torch, or the one at a path, calls; None if none."""
    function = find_torch(function_or_path) if isinstance(function_or_path, str) else function_or_path
    meaning = TORCH.resolve(function) if function is not None else None
    if isinstance(meaning, Symbol):
        return meaning.id
    return _spellings[function][0] if meaning is not None and function in _spellings else None


def spellings(operator_id: str) -> dict[Any, tuple[str, Conversion]]:
    """Return the functions of torch that call an operator.

    Each has the id of a row, and a conversion of its arguments to those of the row, which raises TypeError
    for arguments that do not fit.
    """
    functions: dict[Any, tuple[str, Conversion]] = {}
    for row_id in (operator_id, *same_operators(operator_id)):
        row = row_of(row_id)
        if row is not None:
            functions.update(dict.fromkeys(row.torch, (row_id, symbol_of(row_id).normalize)))
        functions.update({f: spelled for f, spelled in _spellings.items() if spelled[0] == row_id})
    return functions


def as_call_of(bsym: BoundSymbol, operator_id: str) -> BoundSymbol | None:
    """Return a call as one of another row of the same operator; None if the arguments have no such form."""
    arguments = converted(bsym.sym.id, operator_id, bsym.args, bsym.kwargs)
    if arguments is None:
        return None
    args, kwargs = arguments
    return bsym.from_bsym(sym=symbol_of(operator_id), args=args, kwargs=kwargs, subsymbols=bsym.subsymbols)


def converted(from_id: str, to_id: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments | None:
    """Return the arguments of a row's call in the form of another row of the same operator, or None."""
    if from_id == to_id:
        return args, kwargs
    arguments = same_operators(from_id)[to_id](*args, **kwargs)
    return None if arguments is None else symbol_of(to_id).normalize(*arguments[0], **arguments[1])
