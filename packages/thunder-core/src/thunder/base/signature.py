"""Functions that bind a call's arguments to a signature and fill in the defaults.

``inspect.Signature.bind`` costs about ten microseconds a call; a function generated once per operator costs a
fraction of one.
"""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable
from typing import Any, TypeVar

P = inspect.Parameter
Normaliser = Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]
Fn = TypeVar("Fn", bound=Callable[..., Any])


def omit_if_none(*names: str) -> Callable[[Fn], Fn]:
    """Mark keyword arguments that a bound call has only if they are not None.

    For rarely used arguments: an executor need not support them, and the text of other calls does not mention
    them.
    """

    def mark(fn: Fn) -> Fn:
        setattr(fn, _OMITTABLE, frozenset(names))
        return fn

    return mark


_OMITTABLE = "__thunder_omit_if_none__"


def omittable(fn: Callable[..., Any] | None) -> frozenset[str]:
    """Return the keyword arguments that :func:`omit_if_none` has marked."""
    return getattr(fn, _OMITTABLE, frozenset())


def make_normaliser(fn: Callable[..., Any], name: str) -> Normaliser:
    """Return a function with ``fn``'s signature that returns ``(args, kwargs)`` with defaults.

    For example::

        def add(a, b, *, alpha=1): …   →   def add(a, b, *, alpha=1): return (a, b,), {'alpha': alpha}

    Positional parameters are returned positionally, so that a printed call reads as the signature does.
    Arguments that :func:`omit_if_none` has marked are returned if they are not None.
    """
    rare = omittable(fn)
    parameters = inspect.signature(fn).parameters.values()
    defaults = {f"_default_{p.name}": p.default for p in parameters if p.default is not P.empty}
    written, positional, keywords = [], [], []
    starred = False
    for p in parameters:
        default = f"=_default_{p.name}" if p.default is not P.empty else ""
        if p.kind is P.VAR_POSITIONAL:
            written.append(f"*{p.name}")
            positional.append(f"*{p.name}")
            starred = True
        elif p.kind is P.VAR_KEYWORD:
            written.append(f"**{p.name}")
            keywords.append(f"**{p.name}")
        elif p.kind is P.KEYWORD_ONLY:
            if not starred:
                written.append("*")
                starred = True
            written.append(f"{p.name}{default}")
            entry = f"{p.name!r}: {p.name}"
            keywords.append(f"**({{}} if {p.name} is None else {{{entry}}})" if p.name in rare else entry)
        else:
            written.append(f"{p.name}{default}")
            positional.append(p.name)
    if any(p.kind is P.POSITIONAL_ONLY for p in parameters):
        written.insert(sum(p.kind is P.POSITIONAL_ONLY for p in parameters), "/")
    returned = f"({', '.join(positional)}{',' if positional else ''}), {{{', '.join(keywords)}}}"
    is_plain = name.isascii() and name.isidentifier() and not name.startswith("__")
    label = name if is_plain and not keyword.iskeyword(name) else "call"
    namespace: dict[str, Any] = dict(defaults)
    exec(f"def {label}({', '.join(written)}): return {returned}", namespace)
    return namespace[label]  # type: ignore[no-any-return]


def accepted_keywords(fn: Callable[..., Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Return those keyword arguments that a function's signature accepts."""
    parameters = inspect.signature(fn).parameters
    if any(p.kind is P.VAR_KEYWORD for p in parameters.values()):
        return keywords
    return {name: value for name, value in keywords.items() if name in parameters}
