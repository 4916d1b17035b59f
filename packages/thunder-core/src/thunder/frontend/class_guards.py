"""The conditions of a guard function on attributes of classes.

    'config' in Module_dict or 'training' in Module_dict    →    not Module_lacks(('config', 'training'))

Most attributes that a program reads are not found in most of the classes along the MRO, so that a class has
one condition for all names that it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from thunder.frontend.facts import Fact
from thunder.frontend.objects.class_kinds import is_immutable
from thunder.ops import prims

__all__ = ["ClassGuards", "is_of_class"]

_IDENTITIES = (prims.check_same_object, prims.check_none)


def is_of_class(fact: Fact) -> bool:
    """Return whether a fact is about the identity, or the absence, of an attribute of a class."""
    return fact.sym in _IDENTITIES and fact.path.kind == "typeattr"


class ClassGuards:
    """The writer of the conditions under which attributes of classes have changed.

    The conditions are on constants. They precede all others, which then may rely on them: reading an object's
    ``__dict__`` runs no code of a class whose ``__getattribute__`` is the one that was found.

    Args:
        identity: returns the name of an object in the text.
        named: adds an object to those of the text, and returns its name, which begins as one that is given.
    """

    def __init__(self, identity: Callable[[Any], str], named: Callable[[Any, str], str]) -> None:
        self._identity, self._named = identity, named
        self._dictionaries: dict[type, str] = {}

    def conditions(self, facts: Iterable[Fact]) -> list[str]:
        """Return the conditions under which one of the facts fails.

        They compare the dictionaries along the MRO that were searched, and no others.
        """
        lacking: dict[type, dict[str, None]] = {}
        orders: dict[type, None] = {}
        found = []
        for fact in facts:
            assert fact.path.parent is not None, "a class attribute is read from a class"
            cls, name = fact.path.parent.root_object, fact.path.key
            orders[cls] = None
            for base in cls.__mro__:
                if name in base.__dict__:
                    if not is_immutable(base):
                        found.append(
                            f"{self._dictionary(base)}[{name!r}] is not {self._identity(fact.expected)}"
                        )
                    break
                if not is_immutable(base):
                    lacking.setdefault(base, {})[name] = None
        return [
            *(f"{self._identity(c)}.__mro__ is not {self._identity(c.__mro__)}" for c in orders),
            *(
                f"not {self._named(c.__dict__.keys().isdisjoint, f'{c.__name__}_lacks')}({_tuple(names)})"
                for c, names in lacking.items()
            ),
            *found,
        ]

    def _dictionary(self, cls: type) -> str:
        """Return the name of the live view of a class's dictionary."""
        name = self._dictionaries.get(cls)
        if name is None:
            name = self._dictionaries[cls] = self._named(cls.__dict__, f"{cls.__name__}_dict")
        return name


def _tuple(names: Iterable[str]) -> str:
    return f"({''.join(f'{name!r}, ' for name in names)})"
