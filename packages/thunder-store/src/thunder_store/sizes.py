"""Symbolic sizes of a program, and what is known of them, as JSON and back.

A size is a number of the table of variables; what is computed from several, and each fact, is an expression
of Python over their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from thunder.core.entries import (
    FreeSizes,
    SizeFact,
    SizeFacts,
    SymbolicInt,
    is_attribute_name,
    new_size,
    size_expression,
    size_formula,
)
from thunder_store.reasons import NotKept, NotUsed

__all__ = ["read_free", "read_number", "read_sizes", "write_free", "write_number", "write_sizes"]

_RELATIONS: Final = frozenset({"==", "!=", ">="})


def write_sizes(sizes: SizeFacts) -> dict[str, Any]:
    """Return the sizes of a compile; raise NotKept for sizes that the program computes, and for floats."""
    if sizes.computed:
        raise NotKept("sizes", "sizes that depend on data")
    if any(type(hint) is not int for hint in sizes.hints):
        raise NotKept("sizes", "numbers of floating point that differ from call to call")
    rows = zip(sizes.names, sizes.hints, sizes.sources, strict=True)
    variables = [[name, hint, source, sizes.is_size(v)] for v, (name, hint, source) in enumerate(rows)]
    facts = []
    for fact in sizes.facts:
        if not isinstance(fact, SizeFact):
            raise NotKept("sizes", "a comparison with a number of floating point")
        facts.append([sizes.text(fact.polynomial), fact.relation, fact.origin])
    return {"variables": variables, "facts": facts}


def read_sizes(document: Mapping[str, Any]) -> SizeFacts:
    """Return the sizes of a document, about which nothing more can be asked."""
    sizes = SizeFacts()
    for name, hint, source, is_size in document["variables"]:
        if type(hint) is not int or type(name) is not str or not is_attribute_name(name):
            raise NotUsed(f"{name!r} does not name a size")
        new_size(sizes, hint, str(source), 0 if is_size else None).name = name
    if len(set(sizes.names)) < len(sizes.names):
        raise NotUsed("two sizes have one name")
    for text, relation, origin in document["facts"]:
        if relation not in _RELATIONS:
            raise NotUsed(f"{relation!r} is not a relation of sizes")
        sizes.state(SizeFact(size_formula(text, sizes), relation, str(origin)))
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
