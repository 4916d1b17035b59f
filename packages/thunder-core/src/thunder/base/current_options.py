"""The options of the compile that runs in this context, and which of them are read."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from thunder.base.context_variables import assigned

__all__ = ["changed_options", "current_options", "note_read", "noted_reads", "with_options"]

_options: ContextVar[Mapping[str, Any] | None] = ContextVar("thunder_current_options", default=None)
_reads: ContextVar[dict[str, Any] | None] = ContextVar("thunder_option_reads", default=None)


def current_options() -> Mapping[str, Any] | None:
    """Return the options of the compile that is running by name, or None."""
    return _options.get()


def with_options(options: Mapping[str, Any] | None) -> AbstractContextManager[None]:
    """Within the context, a compile with these options runs."""
    return assigned(_options, options)


def changed_options(changes: Mapping[str, Any] | None) -> AbstractContextManager[None]:
    """Within the context, the compile that runs has other values of some options."""
    options = _options.get()
    return assigned(_options, ChainMap(dict(changes), options or {}) if changes else options)  # type: ignore[arg-type]


@contextmanager
def noted_reads() -> Iterator[Mapping[str, Any]]:
    """Within the context, the options that a plugin reads are noted: name → value. Contexts can be nested."""
    outer, reads = _reads.get(), dict[str, Any]()
    with assigned(_reads, reads):
        yield reads
    if outer is not None:
        outer.update(reads)


def note_read(name: str, value: Any) -> None:
    """Note that a plugin has read an option of the compile that is running."""
    reads = _reads.get()
    if reads is not None:
        reads[name] = value
