"""The classes in C whose objects the objects of a polyfill stand for: a program sees no other class."""

from __future__ import annotations

import functools
import itertools
from typing import Final

from thunder.polyfills.folds import Key, KeyMaker
from thunder.polyfills.groups import Group, Groups

__all__ = ["NATIVE_CLASSES"]

NATIVE_CLASSES: Final[dict[type, type]] = {
    Groups: itertools.groupby,
    Group: type(next(itertools.groupby([0]))[1]),
    **dict.fromkeys((KeyMaker, Key), type(functools.cmp_to_key(max))),
}
