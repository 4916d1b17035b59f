"""Language contexts as a decorator and a context manager."""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import EnumType, StrEnum
from typing import NoReturn

from thunder.core.langctxs import LanguageContext, current_language, using_language

__all__ = ["Languages", "get_default_langctx", "get_langctx", "langctx"]


class _Languages(EnumType):
    """The type of ``Languages``: a member that it lacks is an error with the language to write."""

    def __getattr__(cls, name: str) -> NoReturn:
        raise AttributeError(
            f"there is no language {name!r} here: write torch, thunder.torch "
            "(`import thunder.torch as ltorch`) or thunder.core.prims, in Languages.TORCH"
        )


class Languages(StrEnum, metaclass=_Languages):
    """The languages that there are."""

    TORCH = "torch"


def langctx(language: LanguageContext | str) -> AbstractContextManager[LanguageContext]:
    """Return a context manager, and decorator, in which proxies resolve their methods in a language.

    Raises InvalidArgument for an unknown one.
    """
    return using_language(language)


def get_langctx() -> LanguageContext:
    """Return the language in which proxies resolve their methods now."""
    return current_language()


def get_default_langctx() -> LanguageContext:
    """Return the language of programs that name none: torch's."""
    with using_language(None) as language:
        return language
