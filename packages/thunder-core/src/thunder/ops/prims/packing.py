"""Primitives of epilogues: they write computed values to the user's objects.

    self.count = self.count + 1; d["k"] = y   →   pack_buffer(self, 'count', t0); pack_setitem(d, 'k', y)

A value is a proxy, a literal, or an :class:`Expression` that builds an object from proxies. ``pack_list``,
``construct_tuple`` and ``dataclass_new`` construct objects for results, in the epilogues of transforms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from thunder.base.errors import InvalidArgument
from thunder.base.tags import OpTags
from thunder.ir.literals import Names, value_text
from thunder.ir.object_names import Expression
from thunder.ir.proxies import AnyProxy, ListProxy, TupleProxy
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.prims.declaration import primitive

# fmt: off
__all__ = [
    "Expression", "construct_tuple", "dataclass_new", "pack_attr", "pack_buffer", "pack_list", "pack_setitem",
]
# fmt: on


def _no_result(o: Any, key: Any, value: Any) -> None:
    """The meta function of a write."""


def _no_result_of_attr(o: Any, key: str, value: Any, by: str | None = None) -> None:
    """The meta function of a write of an attribute."""


def _print_attr(bsym: BoundSymbol, names: Names) -> list[str]:
    o, key, value, by = bsym.args
    target, text = value_text(o, names), value_text(value, names)
    return [f"{target}.{key} = {text}" if by is None else f"{by}.__setattr__({target}, {key!r}, {text})"]


def _print_setitem(bsym: BoundSymbol, names: Names) -> list[str]:
    o, key, value = (value_text(argument, names) for argument in bsym.args)
    return [f"{o}[{key}] = {value}"]


def _print_buffer(bsym: BoundSymbol, names: Names) -> list[str]:
    o, key, value = (value_text(argument, names) for argument in bsym.args)
    return [f"{o}._buffers[{key}] = {value}"]


def _packing(name: str, printer: Callable[..., Any], meta: Callable[..., None] = _no_result) -> Symbol:
    return primitive(name, meta, python_printer=printer, vjp=NONDIFFERENTIABLE, tags=(OpTags.DONT_DCE,))


#: ``o.key = value``; with ``by="object"`` (or ``"type"``) past the descriptors of the class, which have run
pack_attr = _packing("pack_attr", _print_attr, _no_result_of_attr)
#: ``o[key] = value``
pack_setitem = _packing("pack_setitem", _print_setitem)
#: a new tensor as a buffer that a module has
pack_buffer = _packing("pack_buffer", _print_buffer)


# -- objects that an epilogue returns or stores --------------------------------------------------------------


def _pack_list_meta(*items: Any) -> ListProxy:
    return ListProxy()


def _pack_list(*items: Any) -> list[Any]:
    return list(items)


def _construct_tuple_meta(items: Sequence[Any]) -> TupleProxy:
    return TupleProxy()


def _construct_tuple(items: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(items)


def _dataclass_new_meta(cls: type, *args: Any, **kwargs: Any) -> AnyProxy:
    if not dataclasses.is_dataclass(cls):
        raise InvalidArgument("dataclass_new constructs dataclasses", found={"class": cls})
    return AnyProxy()


def _dataclass_new(cls: type, *args: Any, **kwargs: Any) -> Any:
    return cls(*args, **kwargs)


#: a new list of the values
pack_list = primitive("pack_list", _pack_list_meta, python_impl=_pack_list)
#: a tuple of the values of a sequence
construct_tuple = primitive("construct_tuple", _construct_tuple_meta, python_impl=_construct_tuple)
#: a dataclass constructed by its ``__init__``: ``dataclass_new(cls, *args, **kwargs)``
dataclass_new = primitive("dataclass_new", _dataclass_new_meta, python_impl=_dataclass_new)
