"""Language contexts: the symbols that torch functions and methods of proxies resolve to.

A language is a table. The torch language fills the one named ``"torch"``; a proxy looks up its operators in
the language of the current context, so that IR code can write ``a + b`` without importing addition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder.base.errors import InvalidArgument, UnsupportedProgram, nearest


@dataclass(frozen=True, eq=False)
class LanguageContext:
    """A named table from Python callables to symbols.

    The callables are functions, methods of ``torch.Tensor`` and getters of its properties.
    """

    name: str
    functions: dict[Any, Callable[..., Any]] = field(default_factory=dict)

    def resolve(self, fn: Any) -> Callable[..., Any] | None:
        """Return the symbol of the callable ``fn``, or None."""
        try:
            return self.functions.get(fn)
        except TypeError:  # an unhashable callable cannot be registered
            return None


TORCH = LanguageContext("torch")
_languages: dict[str, LanguageContext] = {TORCH.name: TORCH}
_current: ContextVar[LanguageContext] = ContextVar("thunder_language", default=TORCH)


def resolve_language(language: LanguageContext | str | None) -> LanguageContext:
    """Return a language from an object or registered name; ``None`` is the torch language.

    Raises InvalidArgument for an unknown name.
    """
    if language is None:
        return TORCH
    if isinstance(language, LanguageContext):
        return language
    if language in _languages:
        return _languages[language]
    raise InvalidArgument(f"there is no language {language!r}", hint=nearest(str(language), _languages))


def current_language() -> LanguageContext:
    """Return the language in which proxies resolve their methods now."""
    return _current.get()


class _Unknown:
    """The key under which a language has its handler of functions that it lacks."""


UNKNOWN = _Unknown()


def unknown_torch_function(func: Any) -> Callable[..., Any]:
    """Return the callable for a torch function that the current language lacks.

    The language decides whether that is a fallback or a refusal.
    """
    unknown = current_language().functions.get(UNKNOWN)
    if unknown is None:
        raise UnsupportedProgram(
            f"{torch.overrides.resolve_name(func) or func} is not an operator thunder knows"
        )
    return unknown(func)  # type: ignore[no-any-return]


@contextmanager
def using_language(language: LanguageContext | str | None) -> Iterator[LanguageContext]:
    """Within the context, proxies resolve their methods in ``language``."""
    resolved = resolve_language(language)
    token = _current.set(resolved)
    try:
        yield resolved
    finally:
        _current.reset(token)
