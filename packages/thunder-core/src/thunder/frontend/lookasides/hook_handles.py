"""Handles of hooks: each has a number that no other handle has.

    RemovableHandle(hooks)    →   handle.id = 7, a number that this program keeps; fact: hooks has no key 7

Torch counts the handles of the process, and a program that read the counter would be compiled for each count.
A hook that stays registered is another key of the dictionary, so that the next call is compiled for it.
"""

from __future__ import annotations

import operator
import weakref
from typing import Any, Final

from torch.utils.hooks import RemovableHandle

from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import WRITES
from thunder.frontend.session import TracingSession

TABLE: Final = LookasideTable(WRITES)


@TABLE.with_parameters(RemovableHandle.__init__)
def _make(session: TracingSession, handle: Any, hooks_dict: Any, *, extra_dict: Any = None) -> None:
    number = RemovableHandle.next_id
    RemovableHandle.next_id += 1
    session.call(operator.contains, (hooks_dict, number), {})
    others = extra_dict if isinstance(extra_dict, list) else [] if extra_dict is None else [extra_dict]
    reference, *more = (session.call(weakref.ref, (hooks,), {}) for hooks in (hooks_dict, *others))
    for name, value in (("hooks_dict_ref", reference), ("id", number), ("extra_dict_ref", tuple(more))):
        session.store_attr(handle, name, value)
