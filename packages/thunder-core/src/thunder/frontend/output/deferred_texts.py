"""Texts of values that a program prints, logs, returns or stores: made in each call.

    print(f"loss {loss.item():.3f}")      →   print_text('loss <0>', (t3,), ('.3f',))

While tracing, such a text is a ``str`` with a mark in the place of each value. Texts are put together. Where
anything else looks into one, ``self.layers[str(n)]``, its numbers are decisions, and the text of a tensor is
refused, as other values that cannot be read.
"""

from __future__ import annotations

import operator
import re
from typing import Any

import torch

from thunder.base.errors import ThunderError, UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.objects.unknown_values import DeferredText
from thunder.frontend.output import output_replay
from thunder.frontend.output.node_names import node_name
from thunder.frontend.places import MAKES_TEXT, Place
from thunder.frontend.raised_errors import text_refusal
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.torch_functions.override_state import seen_type
from thunder.ir.proxies import AnyProxy, NumberProxy, TensorProxy
from thunder.ir.symbol import has_tags
from thunder.ops import prims

__all__ = [
    "DeferredText",
    "Texts",
    "can_defer",
    "combined",
    "copies_texts",
    "deferred",
    "template_of",
    "text_of_number",
]

_MARK = output_replay.MARK


class Texts(SessionState):
    """The values in the texts of a program, each with its format specification, or None for ``repr``."""

    def __init__(self, session: TracingSession) -> None:
        self.values: list[tuple[Any, str | None]] = []
        self.starts: list[int] = []  # the number of calls before each


#: native functions that copy texts into a text
_METHODS = ("__add__", "__mod__", "__str__", "join", "format")
_COPYING = frozenset(
    map(
        id,
        (
            *(operator.add, operator.iadd, operator.mod, str, format, str.__new__),
            *(vars(str)[name] for name in _METHODS),
        ),
    )
)
#: those that format by ``%``, and the templates that neither pad, cut nor quote a text
_PERCENT = (operator.mod, vars(str)["__mod__"])
_PLAIN = re.compile(r"(?:[^%]|%%|%(?:\(\w+\))?s)*")


def can_defer(session: TracingSession) -> bool:
    """Return whether a text of values can be made in each call where the program is now."""
    return session.speculation is not None and session.place.allows(MAKES_TEXT)


def deferred(session: TracingSession, proxy: Any, spec: str | None) -> str | None:
    """Return the text of a value, to be made in each call; None where no statement can hold the value.

    Native code that runs the program, as ``set(map(str, numbers))`` does, looks into its results: then it is
    the text of the value, a decision.
    """
    if not can_defer(session) or not isinstance(spec, str | None) or type(spec) is DeferredText:
        return None
    if session.native_reads and not isinstance(proxy, TensorProxy):
        return text_of_number(proxy, spec) if isinstance(proxy, NumberProxy) else None
    name = None if spec else node_name(session, proxy)
    if name is not None and (spec is None or proxy.shape):
        spec = output_replay.NODE + name
    texts = session.state(Texts)
    regions = session.place.parts(Place.REGION)  # the calls of which become one call
    texts.starts.append(regions[0].start if regions else len(session.trace.bound_symbols))
    texts.values.append((proxy, spec))
    return _tracked(session, f"{_MARK}{len(texts.values) - 1}{_MARK}")


def _tracked(session: TracingSession, content: str) -> DeferredText:
    text = DeferredText(content)
    entry = ObjectEntry(text, session.object_root(text, "a text of values"), text)
    entry.refusal, entry.reader = _refusal(session, content), lambda: _read(session, content)
    session.objects.entries[id(text)] = session.objects.unread[id(text)] = entry
    return text


def _refusal(session: TracingSession, content: str) -> ThunderError:
    index = int(content.split(_MARK)[1])
    return text_refusal(session.state(Texts).values[index][0])


def _read(session: TracingSession, content: str) -> str | None:
    """Return a text with the values of its numbers, which are decisions; None for the text of a tensor."""
    pieces = str.split(content, _MARK)
    indices = [int(index) for index in pieces[1::2]]
    if not all(_is_of_number(session, index) for index in indices):
        return None
    for i, index in enumerate(indices):
        value, spec = session.state(Texts).values[index]
        number = prims.item(value) if isinstance(value, TensorProxy) else value
        pieces[2 * i + 1] = text_of_number(number, spec)
    return "".join(pieces)


def _is_of_number(session: TracingSession, index: int) -> bool:
    """Return whether a text is that of a number, which is that of a tensor without dimensions as well."""
    texts = session.state(Texts)
    value, spec = texts.values[index]
    if not isinstance(value, TensorProxy):
        return isinstance(value, NumberProxy)
    written = any(has_tags(b, {OpTags.IN_PLACE}) for b in session.trace.bound_symbols[texts.starts[index] :])
    is_formatted = spec is not None and not spec.startswith(output_replay.NODE) and not written
    return is_formatted and not value.shape and seen_type(session, value) is torch.Tensor


def text_of_number(number: NumberProxy, spec: str | None = None) -> str:
    """Return the text of the value of a number, which is a decision or a fixed size."""
    value = number.fixed("a text that the program reads")
    return repr(value) if spec is None else format(value, spec)


def combined(session: TracingSession, text: Any) -> Any:
    """Return a text; if native code has copied texts of values into it, as one of these."""
    if type(text) is str and _MARK in text and session.state(Texts).values:
        return _tracked(session, text)
    return text


def copies_texts(session: TracingSession, fn: Any, descriptor: Any, args: tuple[Any, ...]) -> bool:
    """Return whether a call only puts texts together, or makes an exception of one."""
    if not session.state(Texts).values:
        return False
    if isinstance(fn, type) and issubclass(fn, BaseException):
        return True
    if issubclass(getattr(descriptor, "__objclass__", object), BaseException):
        return True
    if id(descriptor) not in _COPYING or (fn is format and args[1:] != ("",)[: len(args) - 1]):
        return False
    if descriptor in _PERCENT and not (isinstance(args[0], str) and _PLAIN.fullmatch(args[0])):
        return False
    parts = [p for a in args for p in ((a, *a) if type(a) in (list, tuple) else (a,))]
    unread = session.objects.unread
    return all(type(p) is DeferredText or id(p) not in unread for p in parts)


def _can_change(value: Any) -> bool:
    return type(value) is not AnyProxy


def template_of(
    session: TracingSession, text: DeferredText
) -> tuple[str, tuple[Any, ...], tuple[str | None, ...]]:
    """Return a text with marks numbered from 0, its values, and their format specifications.

    Raises UnsupportedProgram if the program has written to a tensor since it made a part of the text.
    """
    texts = session.state(Texts)
    pieces = str.split(text, _MARK)
    indices = [int(index) for index in pieces[1::2]]
    calls = session.trace.bound_symbols
    start = min((texts.starts[i] for i in indices if _can_change(texts.values[i][0])), default=len(calls))
    if any(has_tags(b, {OpTags.IN_PLACE}) for b in calls[start:]):
        raise UnsupportedProgram(
            "the program uses a text of values after it has written to a tensor in place",
            hint="Print or return the text before the write.",
        )
    used = [texts.values[i] for i in indices]
    for i in range(len(used)):
        pieces[2 * i + 1] = f"{_MARK}{i}{_MARK}"
    return "".join(pieces), tuple(v for v, _ in used), tuple(spec for _, spec in used)
