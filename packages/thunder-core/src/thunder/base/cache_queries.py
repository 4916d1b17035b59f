"""Questions to the cache of a function under ``functools.lru_cache``, which never run the function."""

from __future__ import annotations

import functools
import gc
from typing import Any

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

    It is one object as long as the wrapper lives, since ``cache_clear`` empties it. C code names it after the
    entries themselves, and three objects before the type of links (``_functools.c``,
    ``lru_cache_tp_traverse``).
    """
    referents = gc.get_referents(fn)
    position = max(i for i, referent in enumerate(referents) if referent is _LINK)
    entries: dict[Any, Any] = referents[position - 3]
    assert type(entries) is dict, "the cache comes before its function and the mark of keywords"
    return entries


class CacheQuery:
    """One question to a cache: the entry of a call of ``fn``, without running it.

    Args:
        fn: a wrapper of ``functools.lru_cache``.
        args, kwargs: the arguments of the call, for which the cache has an entry.
        name: the call as text.

    A call of the query returns the entry, which then counts as used, or ABSENT.
    """

    __slots__ = ("args", "entries", "fn", "key", "kwargs", "name")

    def __init__(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> None:
        self.fn, self.args, self.kwargs, self.name = fn, args, kwargs, name
        self.entries = entries_of(fn)
        self.key = key_of(fn, args, kwargs)

    def __call__(self) -> Any:
        """Return the entry, or ABSENT."""
        return self.fn(*self.args, **self.kwargs) if self.key in self.entries else ABSENT

    def __repr__(self) -> str:
        return self.name


def key_of(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the key under which a cache keeps a call (``_functools.c``, ``lru_cache_make_key``)."""
    is_typed = fn.cache_parameters()["typed"]
    if not is_typed and not kwargs:
        return args[0] if len(args) == 1 and type(args[0]) in (int, str) else args
    key = (*args, _MARK, *(part for item in kwargs.items() for part in item)) if kwargs else args
    return (*key, *map(type, args), *map(type, kwargs.values())) if is_typed else key
