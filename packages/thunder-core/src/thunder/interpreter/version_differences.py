"""Differences between CPython versions apart from the bytecode (``opcode_tables``)."""

from __future__ import annotations

import collections
import functools
import importlib
import sys
from typing import Any, Final

from thunder.base.python_versions import python_refusal

if python_refusal():  # here, since what is imported first asks for these
    raise ImportError(python_refusal())


class _Storing(collections.defaultdict[int, int]):
    """Notes whether an item is stored by its method."""

    def __setitem__(self, key: int, value: int) -> None:
        self.stored = True


def _name_of_annotate() -> str:
    made: dict[str, Any] = {}
    exec(compile("def f() -> int: ...", "<annotated>", "exec", dont_inherit=True), made)
    name: str = made["f"].__annotate__.__qualname__
    return name


def _missing_item() -> _Storing:
    items = _Storing(int)
    items[0]
    return items


#: each ``locals()`` of a function is a new dictionary (PEP 667)
LOCALS_ARE_SNAPSHOTS: Final = sys.version_info >= (3, 13)
#: ``classmethod(property(f))`` calls the property, as from 3.9 to 3.12
CLASSMETHOD_BINDS_DESCRIPTORS: Final = sys.version_info < (3, 13)
#: ``throw`` and ``close`` of a generator that delegates are ended by bytecode (CLEANUP_THROW)
DELEGATION_ENDS_BY_BYTECODE: Final = sys.version_info >= (3, 12)
#: annotations are computed when they are first read, by ``__annotate__`` (PEP 649)
ANNOTATIONS_ARE_DEFERRED: Final = sys.version_info >= (3, 14)
#: a function gives the function that computes its annotations its name, from a release within 3.14 on
ANNOTATE_IS_NAMED: Final = ANNOTATIONS_ARE_DEFERRED and _name_of_annotate() == "f.__annotate__"
#: ``functools.reduce`` takes its start as a keyword
REDUCE_TAKES_KEYWORD: Final = sys.version_info >= (3, 14)
#: ``defaultdict.__missing__`` stores the new item by ``__setitem__``, up to a release within 3.14
MISSING_CALLS_SETITEM: Final = "stored" in vars(_missing_item())
#: ``pow(a, b, c)`` calls ``b.__rpow__``
POW_HAS_REFLECTED: Final = sys.version_info >= (3, 14)
#: the methods by which ``int(x)`` reads an object, in this order
READ_BY_INT: Final = (
    ("__int__", "__index__", "__trunc__") if sys.version_info < (3, 14) else ("__int__", "__index__")
)

#: the noun in the message of a match statement whose class pattern is not a class
CLASS_PATTERN_NOUN: Final = "type" if sys.version_info < (3, 12) else "class"
#: what an object lacks that is neither container nor iterable, in the message of ``in``
CONTAINER_NOUN: Final = "iterable" if sys.version_info < (3, 14) else "a container or iterable"
#: the message of ``await`` of an object of a class
NOT_AWAITABLE: Final = (
    "object {} can't be used in 'await' expression"
    if sys.version_info < (3, 14)
    else "'{}' object can't be awaited"
)
#: the end of the message on a list, tuple or dict that is unpacked and too long
COUNT_OF_UNPACKED: Final = "" if sys.version_info < (3, 14) else ", got {}"

#: what stands in a ``functools.partial`` for an argument of its call; no value before 3.14
PLACEHOLDER: Final = getattr(functools, "Placeholder", object())
#: the module of template strings (PEP 750), which no earlier byte code makes
templatelib: Any = importlib.import_module("string.templatelib") if sys.version_info >= (3, 14) else None
