"""Shadow copies of containers that a program reaches from its inputs.

C code works on a shadow natively; the original is never touched while tracing. What differs between shadow
and snapshot at the end is what the program wrote, and becomes the epilogue.

    def f(xs):            →   trace:     works on a copy of xs whose tensors are proxies
        xs.append(y)          epilogue:  xs[:] = [xs_0, y]
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from thunder.base.provenance import Path

#: container types that are shadowed, by exact type → the items to track as (key, value) pairs, and how a copy
#: is made of new values
MAPPINGS: dict[type, Callable[[Any, dict[Any, Any]], Any]] = {
    dict: lambda original, items: items,
    OrderedDict: lambda original, items: OrderedDict(items),
    defaultdict: lambda original, items: defaultdict(original.default_factory, items),
    Counter: lambda original, items: _counter(items),
}
SEQUENCES: dict[type, Callable[[Any, list[Any]], Any]] = {
    list: lambda original, items: items,
    deque: lambda original, items: deque(items, original.maxlen),
}


CONTAINERS: frozenset[type] = frozenset({*MAPPINGS, *SEQUENCES, set})


def _counter(items: dict[Any, Any]) -> Counter[Any]:
    counter: Counter[Any] = Counter()
    dict.update(counter, items)
    return counter


@dataclass(eq=False, slots=True)
class ItemOverlay:
    """Items of a dict that were read or replaced one by one, without a shadow of the dict.

    ``owner`` is the object whose attribute the dict is, ``path`` that of the dict. A shadow that is made
    later starts with what was written here, and the overlay ends.
    """

    owner: Any
    path: Path
    items: dict[Any, Any] = field(default_factory=dict)
    writes: dict[Any, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Shadow:
    """A container of the user, the copy that the program sees, and the copy's first content."""

    original: Any
    path: Path
    copy: Any
    snapshot: Any

    @classmethod
    def of(cls, original: Any, path: Path) -> Shadow:
        """Return a shadow without content; :meth:`fill` adds the items once they are tracked."""
        t = type(original)
        if t in MAPPINGS:
            return cls(original, path, MAPPINGS[t](original, {}), None)
        if t in SEQUENCES:
            return cls(original, path, SEQUENCES[t](original, []), None)
        if t is bytearray:
            return cls(original, path, bytearray(original), bytes(original))
        if t is set:  # its copy gives the elements in the same order
            return cls(original, path, original.copy(), None)
        if issubclass(t, dict | list) and not issubclass(
            t, defaultdict
        ):  # its ``__init__`` may be Python code
            new: Any = t.__new__(t)  # type: ignore[type-var]
            return cls(original, path, new, None)
        return cls(original, path, t(), None)  # a subclass that adds nothing

    def fill(self, items: Any) -> None:
        """Add the tracked items: pairs for a mapping, values for a sequence or set."""
        if isinstance(self.copy, dict):
            # neither dict.update, which ignores the order of an OrderedDict, nor an update written in Python
            put = OrderedDict.__setitem__ if isinstance(self.copy, OrderedDict) else dict.__setitem__
            for key, value in items:
                put(self.copy, key, value)
            self.snapshot = list(self.copy.items())
        else:
            (self.copy.update if isinstance(self.copy, set) else self.copy.extend)(items)
            self.snapshot = set(items) if isinstance(self.copy, set) else list(items)

    @property
    def is_written(self) -> bool:
        """Return whether the program changed the container: its items by identity, or their order."""
        if isinstance(self.copy, set | bytearray):
            return bool(self.copy != self.snapshot)
        now = list(self.copy.items()) if isinstance(self.copy, dict) else list(self.copy)
        if len(now) != len(self.snapshot):
            return True
        if isinstance(self.copy, dict):
            return any(a is not c or b is not d for (a, b), (c, d) in zip(now, self.snapshot, strict=True))
        return any(a is not b for a, b in zip(now, self.snapshot, strict=True))


def views_whole(view: memoryview) -> bool:
    """Return whether a view is one of all bytes of a bytes object or bytearray, byte by byte.

    A view that has been released is none.
    """
    try:
        owner, shape = view.obj, view.shape
    except ValueError:
        return False
    if not isinstance(owner, bytes | bytearray) or type(owner) not in (bytes, bytearray):
        return False
    return view.format == "B" and shape == (len(owner),) and view.strides == (1,)
