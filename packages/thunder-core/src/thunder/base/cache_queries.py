"""Questions to the cache of a function under ``functools.lru_cache``, which never run the function."""

from __future__ import annotations

import functools
import gc
from typing import Any

from thunder.base import opaque_results
from thunder.base.provenance import ABSENT

#: the type of functions under functools.lru_cache
CACHED = type(functools.lru_cache(len))


def _probe() -> tuple[type, object]:
    """Return the type of the links of a bounded cache, and the object before the keywords of keys."""
    probe = functools.lru_cache(1)(lambda **kwargs: None)
    probe(k=0)
    (entries,) = (d for d in gc.get_referents(probe) if type(d) is dict and d is not vars(probe))
    (((mark, *_), link),) = entries.items()
    return type(link), mark


_LINK, _MARK = _probe()


def entries_of(fn: Any) -> dict[Any, Any]:
    """Return the dictionary in which an ``lru_cache`` wrapper keeps its entries.

    It is one object as long as the wrapper lives, since ``cache_clear`` empties it.
    """
    referents = gc.get_referents(fn)
    entries: dict[Any, Any] = referents[_position_of_entries(referents)]
    return entries


def _position_of_entries(referents: list[Any]) -> int:
    """Return where C code names the dictionary: after the entries themselves, three before the type of links.

    Each entry of a bounded cache is its key, its result and that type, the least recently used first
    (``_functools.c``, ``lru_cache_tp_traverse``).
    """
    position = max(i for i, referent in enumerate(referents) if referent is _LINK) - 3
    assert type(referents[position]) is dict, "the cache comes before its function and the mark of keywords"
    return position


class CacheQuery:
    """One question to a cache: the entry of a call of ``fn``, without running it.

    Args:
        fn: a wrapper of ``functools.lru_cache``.
        args, kwargs: the arguments of the call, for which the cache has an entry.
        name: the call as text.

    A call of the query returns the entry or ABSENT, and counts as no use: neither the hits nor the order in
    which a bounded cache evicts its entries change. :meth:`count` counts a use.
    """

    __slots__ = ("args", "entries", "fn", "key", "kwargs", "name", "seen")

    def __init__(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> None:
        self.fn, self.args, self.kwargs, self.name = fn, args, kwargs, name
        self.entries = entries_of(fn)
        self.key = key_of(fn, args, kwargs)
        #: the link of the entry in a bounded cache, the cache's misses, and the result, when it was last read
        self.seen: tuple[Any, int, Any] = (ABSENT, -1, ABSENT)

    def __call__(self) -> Any:
        """Return the entry, or ABSENT."""
        found = self.entries.get(self.key, ABSENT)
        if type(found) is not _LINK:
            return found
        # another key may have had the link in between, after a miss
        misses = self.fn.cache_info().misses
        link, known, result = self.seen
        if link is not found or known != misses:
            result = self._read()
            self.seen = found, misses, result
        return result

    def _read(self) -> Any:
        """Return the result of an entry that a bounded cache has."""
        referents = gc.get_referents(self.fn)
        end = _position_of_entries(referents)
        start = end - 3 * len(self.entries)
        number = hash(self.key)
        for key, result in zip(referents[start:end:3], referents[start + 1 : end : 3], strict=True):
            if key is self.key or (hash(key) == number and key == self.key):
                return result
        return ABSENT

    def count(self) -> None:
        """Count a use of the entry, as a call of the function does, if it is there."""
        if self.key in self.entries:
            self.fn(*self.args, **self.kwargs)

    def repeat(self) -> None:
        """Count a use in a call of the compiled program, unless it was counted while that was traced."""
        if not opaque_results.take_use(self.use):
            self.count()

    @property
    def use(self) -> tuple[int, Any]:
        """The cache and the key."""
        return id(self.entries), self.key

    def __repr__(self) -> str:
        return self.name


def key_of(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the key under which a cache keeps a call (``_functools.c``, ``lru_cache_make_key``)."""
    is_typed = fn.cache_parameters()["typed"]
    if not is_typed and not kwargs:
        return args[0] if len(args) == 1 and type(args[0]) in (int, str) else args
    key = (*args, _MARK, *(part for item in kwargs.items() for part in item)) if kwargs else args
    return (*key, *map(type, args), *map(type, kwargs.values())) if is_typed else key
