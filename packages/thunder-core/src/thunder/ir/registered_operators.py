"""The operators that a text of a trace can mean: those that are registered in the process.

Layers above the IR have the registers; each declares a function that looks into its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from thunder.ir.symbol import Symbol
from thunder.ir.verify import META_ERRORS

__all__ = [
    "OperatorName",
    "callee_of",
    "declare_finder",
    "declared_symbol",
    "name_of",
    "takes",
    "written_operators",
]


@dataclasses.dataclass(frozen=True)
class OperatorName:
    """How a text names an operator.

    ``callee`` is what a statement calls: ``ltorch.sin``, ``torch.sin``, ``rms_norm``. Where others have it,
    ``id`` is the id of the operator, and ``by`` the name of the executor that runs the call, "" for none.
    """

    callee: str
    id: str | None = None
    by: str | None = None

    def is_of(self, symbol: Symbol) -> bool:
        """Return whether a statement that calls a symbol may have the name."""
        by = getattr(symbol.executor, "name", "")
        is_called = self.callee in (callee_of(symbol), symbol.name)
        return is_called and self.id in (None, symbol.id) and self.by in (None, by)

    @property
    def symbols(self) -> Iterator[Symbol]:
        """The operators that may have the name, in the order of the finders."""
        return (s for find in _finders for s in find(self) if self.is_of(s))

    @property
    def symbol(self) -> Symbol | None:
        """The first operator that may have the name; None if there is none."""
        return next(self.symbols, None)


def takes(symbol: Symbol, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call of an operator with arguments is one, as far as its signature says."""
    try:
        symbol.normalize(*args, **kwargs)
    except META_ERRORS:
        return False
    return True


#: returns operators with a name, the likeliest first; some may have other ones
Finder = Callable[[OperatorName], Iterable[Symbol]]
_finders: list[Finder] = []
#: operators that no register has, by what calls them
_declared: dict[str, Symbol] = {}
_listings: list[Callable[[], Iterable[str]]] = [lambda: _declared]


def declare_finder(find: Finder, names: Callable[[], Iterable[str]] = tuple) -> None:
    """Enter a function that finds registered operators, and one that lists callees, for suggestions."""
    _finders.append(find)
    _listings.append(names)


def declared_symbol(symbol: Symbol) -> Symbol:
    """Enter an operator that has no row, so that a text can name it; return it."""
    _declared[callee_of(symbol)] = symbol
    return symbol


declare_finder(lambda name: filter(None, [_declared.get(name.callee)]))


def written_operators() -> Iterator[str]:
    """Yield the callees that a text may have, as far as they are listed."""
    for names in _listings:
        yield from names()


def callee_of(symbol: Symbol) -> str:
    """Return what a statement calls that is read again: the operator's own name, with its module or path."""
    if symbol.module is not None:
        return f"{symbol.module}.{symbol.name}"
    if symbol.call_path is not None:
        return symbol.call_path
    return symbol.name


def name_of(symbol: Symbol, *, whole: bool = False) -> OperatorName | None:
    """Return the shortest name by which the operator, and no other one, is found; None if there is none.

    With ``whole`` it is the longest: no other executor is imported to find it.
    """
    callee, by = callee_of(symbol), getattr(symbol.executor, "name", None)
    names = [OperatorName(callee, symbol.id), OperatorName(callee, symbol.id, by)]
    if whole:
        names = [OperatorName(callee, symbol.id, by or ""), *names]
    elif "." in callee or callee in _declared:  # a bare name may have other owners in another process
        names = [OperatorName(callee), OperatorName(callee, by=by), *names]
    for name in names:
        found = name.symbol
        if found is not None and are_same(found, symbol):
            return name
    return None


def are_same(a: Symbol, b: Symbol) -> bool:
    """Return whether two symbols agree in every field."""
    return a is b or (type(a) is type(b) and all(_is_equal(*pair) for pair in _fields(a, b)))


def _fields(a: Symbol, b: Symbol) -> Iterator[tuple[Any, Any]]:
    for f in dataclasses.fields(a):
        yield getattr(a, f.name), getattr(b, f.name)


def _is_equal(x: Any, y: Any) -> bool:
    return x is y or (isinstance(x, str | frozenset | tuple) and type(x) is type(y) and x == y)
