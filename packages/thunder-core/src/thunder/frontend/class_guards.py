"""The conditions of a guard function on attributes of classes.

    'config' in Module_dict or 'training' in Module_dict    →    not Module_lacks(('config', 'training'))

Most attributes that a program reads are not found in most of the classes along the MRO, so that a class has
one condition for all names that it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from thunder.frontend.facts import Fact
from thunder.frontend.objects.class_kinds import is_immutable
from thunder.ops import prims

__all__ = ["conditions_on_classes", "is_of_class"]

_IDENTITIES = (prims.check_same_object, prims.check_none)


def is_of_class(fact: Fact) -> bool:
    """Return whether a fact is about the identity, or the absence, of an attribute of a class."""
    return fact.args[0].kind == "typeattr" and fact.sym in _IDENTITIES and not fact.is_relation


class Names(Protocol):
    """The names of objects in the text of a guard function."""

    def identity(self, value: Any) -> str:
        """Return a name for an object that is compared by identity."""

    def named(self, value: Any, base: str) -> str:
        """Return a new name for an object, which begins as ``base``."""


def conditions_on_classes(facts: Iterable[Fact], names: Names) -> list[str]:
    """Return the conditions under which one of the facts about attributes of classes fails.

    They compare the dictionaries along the MRO that were searched, and no others. The conditions are on
    constants. They precede all others, which then may rely on them: reading an object's ``__dict__`` runs no
    code of a class whose ``__getattribute__`` is the one that was found.
    """
    lacking: dict[type, dict[str, None]] = {}
    orders: dict[type, None] = {}
    dictionaries: dict[type, str] = {}  # the names of their live views
    found = []
    for fact in facts:
        assert fact.path.parent is not None, "a class attribute is read from a class"
        cls, name = fact.path.parent.root_object, fact.path.key
        orders[cls] = None
        for base in cls.__mro__:
            if name in base.__dict__:
                if not is_immutable(base):
                    if base not in dictionaries:
                        dictionaries[base] = names.named(base.__dict__, f"{base.__name__}_dict")
                    found.append(f"{dictionaries[base]}[{name!r}] is not {names.identity(fact.expected)}")
                break
            if not is_immutable(base):
                lacking.setdefault(base, {})[name] = None
    return [
        *(f"{names.identity(c)}.__mro__ is not {names.identity(c.__mro__)}" for c in orders),
        *(
            f"not {names.named(c.__dict__.keys().isdisjoint, f'{c.__name__}_lacks')}({_tuple(lacked)})"
            for c, lacked in lacking.items()
        ),
        *found,
    ]


def _tuple(names: Iterable[str]) -> str:
    return f"({''.join(f'{name!r}, ' for name in names)})"
