"""Context variables: a value that the program reads is a fact, one that it sets is set again in each call.

While tracing, variables are set for real, so that tokens are Python's; they are reset at the end.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar, Token
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT
from thunder.frontend.objects.class_kinds import IDENTITY_TYPES, LEAVES, OfTheTrace
from thunder.frontend.objects.object_table import describe
from thunder.frontend.session import SessionState, TracingSession

__all__ = ["ContextVariables", "load_attr"]


class ContextVariables(SessionState):
    """The tokens of the variables that the program has set and not reset, by the id of the variable."""

    def __init__(self, session: TracingSession) -> None:
        self._tokens: dict[int, tuple[ContextVar[Any], list[Token[Any]]]] = {}

    def is_set(self, variable: ContextVar[Any]) -> bool:
        """Return whether the program has set a variable and not reset it."""
        return id(variable) in self._tokens

    def set(self, variable: ContextVar[Any], value: Any) -> Token[Any]:
        """Set a variable until the end of the acquisition."""
        token = variable.set(value)
        self._tokens.setdefault(id(variable), (variable, []))[1].append(token)
        return token

    def reset(self, variable: ContextVar[Any], token: Token[Any]) -> None:
        """Give a variable the value that it had before the token was made."""
        variable.reset(token)
        _, tokens = self._tokens.get(id(variable), (variable, []))
        if token in tokens:
            del tokens[tokens.index(token) :]
        if not tokens:
            self._tokens.pop(id(variable), None)

    def values(self) -> list[tuple[ContextVar[Any], Any]]:
        """Return the variables that are set, with their values."""
        return [(variable, variable.get()) for variable, _ in self._tokens.values()]

    def end(self) -> None:
        for variable, tokens in self._tokens.values():
            variable.reset(tokens[0])
        self._tokens.clear()


class _Methods(OfTheTrace):
    """The methods of a context variable, as the traced program calls them."""

    def __init__(self, session: TracingSession, variable: ContextVar[Any]) -> None:
        self._session, self._variable = session, variable

    def description(self) -> str:
        return f"a method of the context variable {self._variable.name}"

    def get(self, *default: Any) -> Any:
        """Return the value; one that the program has not set is a fact."""
        variables, variable = self._session.state(ContextVariables), self._variable
        if not variables.is_set(variable):
            query = functools.partial(variable.get, ABSENT)
            value = query()
            if not _can_be_fact(value):
                raise UnsupportedProgram(
                    f"the context variable {variable.name} holds {describe(value)}, "
                    "which thunder cannot guard",
                    hint="Keep numbers, strings, functions or classes in it, or pass the object.",
                )
            self._session.note("state", self._session.object_root(query, f"{variable.name}.get()"), value)
        return variable.get(*default)

    def set(self, value: Any) -> Token[Any]:
        """Set the value, in each call."""
        self._session.note_write()
        return self._session.state(ContextVariables).set(self._variable, value)

    def reset(self, token: Token[Any]) -> None:
        """Set the value from before the token."""
        self._session.state(ContextVariables).reset(self._variable, token)


def _can_be_fact(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_can_be_fact, value))
    return value is ABSENT or type(value) in LEAVES or isinstance(value, IDENTITY_TYPES)


def load_attr(session: TracingSession, variable: ContextVar[Any], name: str) -> Any:
    """Return an attribute of a context variable."""
    if name in ("get", "set", "reset"):
        return getattr(_Methods(session, variable), name)
    return getattr(variable, name)
