"""Context variables: a value that the program reads is a fact, one that it sets is set again in each call.

While tracing, variables are set for real, so that tokens are Python's; they are reset at the end.
"""

from __future__ import annotations

import contextvars
import functools
import itertools
from collections.abc import Callable, Iterator
from contextvars import Context, ContextVar, Token
from typing import TYPE_CHECKING, Any, NoReturn

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.natives.libraries import is_settings
from thunder.frontend.objects.class_kinds import IDENTITY_TYPES, LEAVES, OfTheTrace
from thunder.frontend.objects.object_table import describe
from thunder.frontend.objects.writes import Write, WrittenNames
from thunder.frontend.places import READS_SURROUNDINGS
from thunder.frontend.session import SessionState, TracingSession

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

__all__ = ["TABLE", "ContextVariables", "load_attr"]

TABLE = LookasideTable(READS_SURROUNDINGS)


class ContextVariables(SessionState):
    """The tokens of the variables that the program has set and not reset in the running context.

    ``contexts`` are the contexts that the program has copied, by id, each with the ids of the variables that
    the program had set before, and with the tokens of those that it has set in the context.
    """

    def __init__(self, session: TracingSession) -> None:
        self._tokens = WrittenNames()  # a variable and its tokens, by its id
        self._set_before: frozenset[int] = frozenset()
        self.contexts: dict[int, tuple[Context, frozenset[int], WrittenNames]] = {}

    def is_set(self, variable: ContextVar[Any]) -> bool:
        """Return whether the program has set a variable and not reset it."""
        return id(variable) in self._tokens or id(variable) in self._set_before

    def note_copy(self, context: Context, source: Context | None) -> None:
        """Note a copy of a context, or of the running one."""
        before, tokens = self._set_before, self._tokens
        if source is not None:
            _, before, tokens = self.contexts[id(source)]
        self.contexts[id(context)] = context, before | tokens.keys(), WrittenNames()

    def run(self, context: Context, call: Callable[[], Any]) -> Any:
        """Return the result of ``call`` in a context that the program has copied."""
        outside = self._tokens, self._set_before
        _, self._set_before, self._tokens = self.contexts[id(context)]
        try:
            return context.run(call)
        finally:
            self._tokens, self._set_before = outside

    def set(self, variable: ContextVar[Any], value: Any) -> Token[Any]:
        """Set a variable until the end of the acquisition."""
        token = variable.set(value)
        if id(variable) not in self._tokens:
            self._tokens[id(variable)] = variable, []
        self._tokens[id(variable)][1].append(token)
        return token

    def reset(self, variable: ContextVar[Any], token: Token[Any]) -> None:
        """Give a variable the value that it had before the token was made."""
        variable.reset(token)
        _, tokens = self._tokens.get(id(variable), (variable, []))
        if token in tokens:
            del tokens[tokens.index(token) :]
        if not tokens:
            self._tokens.pop(id(variable), None)

    def writes(self) -> Iterator[Write]:
        return itertools.starmap(self._write, self._tokens.values())

    def _write(self, variable: ContextVar[Any], tokens: list[Token[Any]]) -> Write:
        value, name = variable.get(), f"the context variable {variable.name}"
        return Write(
            name=name,
            emit=functools.partial(_emit, variable, value),
            owner=variable,
            path=self._session.object_root(variable, name),
            content=(value,),
            values=(value,),
            before=(tokens[0].old_value,),
            moment=self._tokens.moments[id(variable)],
            read_anywhere=True,  # also by library code
        )

    def end(self) -> None:
        self.contexts.clear()
        for variable, tokens in self._tokens.values():
            variable.reset(tokens[0])
        self._tokens.clear()


def _emit(variable: ContextVar[Any], value: Any, builder: EpilogueBuilder) -> None:
    """Set the variable."""
    text = builder.constant("settings", value) if is_settings(value) else builder.expression(value)
    builder.emit(f"{builder.constant('variable', variable)}.set({text})")


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
            self._session.note_state(query, f"{variable.name}.get()", value)
        return variable.get(*default)

    def set(self, value: Any) -> Token[Any]:
        """Set the value, in each call."""
        self._session.note_write()
        return self._session.state(ContextVariables).set(self._variable, value)

    def reset(self, token: Token[Any]) -> None:
        """Set the value from before the token."""
        self._session.note_write()
        self._session.state(ContextVariables).reset(self._variable, token)


def _can_be_fact(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_can_be_fact, value))
    return value is ABSENT or type(value) in LEAVES or isinstance(value, IDENTITY_TYPES)


class CopiedContext(OfTheTrace):
    """A copy of the context in which the program runs, as the traced program sees it."""

    __slots__ = ("_context", "_session")

    def __init__(self, session: TracingSession, context: Context, source: Context | None = None) -> None:
        self._session, self._context = session, context
        session.state(ContextVariables).note_copy(context, source)

    def description(self) -> str:
        return "a copy of its context"

    def run(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the result of a function that runs in the context."""
        session = self._session
        own = [(variable, variable.get()) for variable in contextvars.copy_context() if _is_own(variable)]

        def call() -> Any:
            for variable, value in own:  # what thunder itself keeps in the running context
                variable.set(value)
            return session.call(fn, args, kwargs)

        return session.state(ContextVariables).run(self._context, call)

    def copy(self) -> CopiedContext:
        """Return a copy of the context."""
        return CopiedContext(self._session, self._context.copy(), self._context)

    def get(self, variable: ContextVar[Any], default: Any = None) -> Any:
        """Return the value of a variable in the context, or the default."""
        self.run(_Methods(self._session, variable).get, None)
        return self._context.get(variable, default)

    def __getitem__(self, variable: ContextVar[Any]) -> Any:
        """Return the value of a variable in the context."""
        self.get(variable)
        return self._context[variable]

    def __contains__(self, variable: ContextVar[Any]) -> bool:
        """Return whether the context has a value of a variable."""
        self.get(variable)
        return variable in self._context

    def listed(self) -> NoReturn:
        """Raise UnsupportedProgram, since which variables are set is not guarded."""
        raise UnsupportedProgram(
            "the program lists the variables of a copy of its context",
            hint="Read the variables that it needs: context.get(variable).",
        )

    __iter__ = __len__ = keys = values = items = listed


def _is_own(variable: ContextVar[Any]) -> bool:
    return variable.name.startswith("thunder_")


@TABLE.lookaside(contextvars.copy_context)
def _copy_context(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CopiedContext:
    return CopiedContext(session, contextvars.copy_context(*args, **kwargs))


def _runs_natively(method: Callable[..., Any]) -> None:
    TABLE.lookaside(method)(lambda session, args, kwargs: method(*args, **kwargs))


for _name in ("run", "copy", "get", "__getitem__", "__contains__", "listed"):
    _runs_natively(vars(CopiedContext)[_name])


def load_attr(session: TracingSession, variable: ContextVar[Any], name: str) -> Any:
    """Return an attribute of a context variable."""
    if name in ("get", "set", "reset"):
        return getattr(_Methods(session, variable), name)
    return getattr(variable, name)
