"""Symbolic sizes of a program, and what is known of them, as JSON and back.

A size is a number of the table of variables; what is computed from several, and each fact, is an expression
of Python over their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from thunder.core.entries import (
    FloatFact,
    FreeSizes,
    SizeFact,
    SizeFacts,
    SymbolicInt,
    is_attribute_name,
    new_number,
    new_size,
    number_formula,
    size_expression,
    size_formula,
    text_of,
)
from thunder_store.reasons import NotKept, NotUsed

__all__ = ["read_free", "read_number", "read_sizes", "write_free", "write_number", "write_sizes"]

_RELATIONS: Final = frozenset({"==", "!=", ">="})
_OF_FLOATS: Final = _RELATIONS | {"<", "<=", ">"}


def write_sizes(sizes: SizeFacts) -> dict[str, Any]:
    """Return the sizes and numbers of a compile, and what it knows of them."""
    rows = zip(sizes.names, map(_written_hint, sizes.hints), sizes.sources, strict=True)
    variables = [
        [name, hint, source, sizes.is_size(v), v in sizes.computed]
        for v, (name, hint, source) in enumerate(rows)
    ]
    return {"variables": variables, "facts": [_written_fact(fact, sizes) for fact in sizes.facts]}


def _written_hint(hint: float) -> Any:
    return hint if type(hint) is int else float(hint).hex()


def _written_fact(fact: SizeFact | FloatFact, sizes: SizeFacts) -> list[Any]:
    """Return the two sides of a fact as texts, with their relation and the line that depends on it."""
    if isinstance(fact, SizeFact):
        return [sizes.text(fact.polynomial), fact.relation, None, fact.origin]
    left, right = (text_of(side, sizes.names.__getitem__) for side in fact.sides())
    return [left, fact.relation, right, fact.origin]


def read_sizes(document: Mapping[str, Any]) -> SizeFacts:
    """Return the sizes of a document, about which nothing more can be asked."""
    sizes = SizeFacts()
    for name, hint, source, is_size, is_computed in document["variables"]:
        if type(name) is not str or not is_attribute_name(name):
            raise NotUsed(f"{name!r} does not name a size")
        if type(hint) is int:
            low = 0 if is_size else None
            new_size(sizes, hint, str(source), low, computed=bool(is_computed)).name = name
        else:
            new_number(sizes, float.fromhex(hint), str(source)).name = name
    if len(set(sizes.names)) < len(sizes.names):
        raise NotUsed("two sizes have one name")
    for left, relation, right, origin in document["facts"]:
        if relation not in (_RELATIONS if right is None else _OF_FLOATS):
            raise NotUsed(f"{relation!r} is not a relation of sizes")
        if right is None:
            sizes.state(SizeFact(size_formula(left, sizes), relation, str(origin)))
        else:
            sides = number_formula(left, sizes), number_formula(right, sizes)
            sizes.state(FloatFact(sides[0], relation, sides[1], str(origin)))
    sizes.complete_computed()
    sizes.complete()
    return sizes


def write_number(x: Any) -> Any:
    """Return a size: a number, or the text of an expression."""
    if isinstance(x, SymbolicInt):
        return x.facts.text(x.polynomial)
    if type(x) is not int:
        raise NotKept("sizes", f"a size of type {type(x).__qualname__}")
    return x


def read_number(form: Any, sizes: SizeFacts) -> Any:
    """Return the size that a number or a text is."""
    if type(form) is int:
        return form
    if type(form) is not str:
        raise NotUsed(f"{form!r} is not a size")
    return size_expression(sizes, size_formula(form, sizes))


def write_free(free: FreeSizes) -> list[Any]:
    """Return the shape and the strides of an input, some of which differ from call to call."""
    return [[*map(write_number, free.shape)], [*map(write_number, free.strides)]]


def read_free(form: Sequence[Any], sizes: SizeFacts) -> FreeSizes:
    """Return the shape and the strides of an input."""
    shape, strides = (tuple(read_number(n, sizes) for n in part) for part in form)
    return FreeSizes(shape, strides)
