"""Python functions that are replaced by code that is traced in their place.

Note [Traced replacement]
A lookaside of a package or of `thunder.jit` is found by the identity of the called function, so it does not
matter how the program reaches it: by name, through a bound method, `super()`, `functools.partial`, or the
call of a module with hooks. The replacement is interpreted as the user's own code is.

    class Block(nn.Module):                        Lookaside(Block, twice)
        def forward(self, x): return self.inner(x)
    def twice(self, x): return 2 * Block.forward(self, x)

    a(x)  →  twice(a, x)  →  Block.forward(a, x), as it is  →  self.inner(x)  →  twice(a.inner, x)  →  …

The interpreted frames decide whether a call is that of the original by its replacement: the innermost frame
of one of the two is the replacement's. If the function is a method, both must have the same first argument;
so a replacement that calls another instance of the class calls the replacement of that one.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch

from thunder.base.cache_queries import CACHED
from thunder.base.errors import PluginError, UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import CallHandler
from thunder.frontend.session import SessionState, TracingSession
from thunder.interpreter.frame import Frame
from thunder.interpreter.machine import Machine
from thunder.interpreter.policy import Policy

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Replacement:
    """A function, and the callable that is traced in its place.

    `owner` restricts it to calls whose first argument is an instance of a class, or a subclass: of a method
    that the class inherits, or of a class method. `provided_by` is the package, for the ledger;
    `reads_code` is that of the lookaside.
    """

    function: Any
    replace_with: Any
    owner: type | None
    provided_by: str
    reads_code: bool = False

    @property
    def key(self) -> tuple[int, type | None]:
        """The function and its owner, of which a compile has one replacement."""
        return id(self.function), self.owner


@dataclass(frozen=True)
class ReplacedFunction:
    """A function that was replaced in a compile: its name, the replacement's, the number of traced calls."""

    function: str
    replacement: str
    provided_by: str
    calls: int

    def __str__(self) -> str:
        times = "1 call" if self.calls == 1 else f"{self.calls} calls"
        return f"{self.function} by {self.replacement} ({times}), of {self.provided_by}"


class ReplacedCalls(SessionState):
    """The replacements that a program has reached, with the numbers of calls."""

    def __init__(self, session: TracingSession) -> None:
        self.calls: dict[int, tuple[Replacement, int]] = {}  # by id of the replacement
        self.table = ReplacementTable()

    def summary(self) -> tuple[ReplacedFunction, ...]:
        """Return the replaced functions, in the order of their first calls."""
        return tuple(
            ReplacedFunction(full_name(r.function), full_name(r.replace_with), r.provided_by, calls)
            for r, calls in self.calls.values()
        )


class ReplacementTable:
    """Replacements by the identity of the replaced function; of two with one key the first is used."""

    def __init__(self, replacements: Iterable[Replacement] = ()) -> None:
        rows: dict[int, dict[type | None, Replacement]] = {}
        for replacement in replacements:
            rows.setdefault(id(replacement.function), {}).setdefault(replacement.owner, replacement)
        self._rows = rows
        readers = [r for row in rows.values() for r in row.values() if r.reads_code]
        self._read = {id(r.function) for r in readers}
        #: the packages whose replacements read code
        self.packages_that_read_code = frozenset(_package(r.replace_with.__module__) for r in readers)

    def is_code(self, value: Any) -> bool:
        """Return whether a value is code: a method of its class is replaced by one that says so."""
        if not self._read:
            return False
        return any(id(member) in self._read for cls in type(value).__mro__ for member in vars(cls).values())

    def of(self, fn: Any) -> dict[type | None, Replacement] | None:
        """Return the replacements of a function by their owners, or None."""
        if not self._rows:
            return None
        row = self._rows.get(id(fn))
        if row is None and type(fn) is CACHED:
            return self._rows.get(id(fn.__wrapped__))
        return row

    def named_in(self, fn: Any) -> str | None:
        """Return a replaced function that a Python function names, also through others, or None.

        Names are those of globals and closures, and of attributes that are replaced methods.
        """
        pending, seen = [fn], {id(fn)}
        functions = [r.function for row in self._rows.values() for r in row.values()]
        methods = {f.__name__: f for f in functions if _class_of(f) is not None}
        while pending and self._rows:
            reached = pending.pop()
            if not isinstance(reached, types.FunctionType):
                continue
            cells = [c.cell_contents for c in reached.__closure__ or () if c != types.CellType()]
            names = reached.__code__.co_names
            values = [*cells, *(reached.__globals__.get(name) for name in names)]
            for value in values:
                if self.of(value) is not None:
                    return full_name(value)
                if id(value) not in seen:
                    seen.add(id(value))
                    pending.append(value)
            for name in names:
                if name in methods:
                    return full_name(methods[name])
        return None

    def applied_after(self, adapt: Callable[[_F], _F]) -> Callable[[_F], _F]:
        """Return what adapts a function, which afterwards calls replacements when it runs.

        The interpreter then runs it, without recording a trace.
        """
        return adapt if not self._rows else lambda fn: self._interpreted(adapt(fn))

    def _interpreted(self, fn: _F) -> _F:
        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            return Machine(_Replacing(self)).call(fn, args, kwargs)

        return cast(_F, run)


class _Replacing(Policy):
    """Plain Python, except for replaced functions."""

    def __init__(self, table: ReplacementTable) -> None:
        self._table = table

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        candidates = self._table.of(fn)
        replacement = None if candidates is None else _chosen(self, candidates, args)
        if replacement is None or _is_called_by_replacement(self, replacement, args):
            return self.machine.generic_call(fn, args, kwargs)
        return self.call(replacement.replace_with, args, kwargs)


def replacing(candidates: dict[type | None, Replacement], handler: CallHandler | None) -> CallHandler:
    """Return the handler that calls a replacement, or the function as ``handler`` does."""

    def call(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        replacement = _chosen(session, candidates, args)
        if replacement is not None and not _is_called_by_replacement(session, replacement, args):
            calls = session.state(ReplacedCalls).calls
            _, count = calls.get(id(replacement), (replacement, 0))
            calls[id(replacement)] = replacement, count + 1
            if not _takes(replacement.function, args, kwargs):  # the program's error
                return session.machine.generic_call(fn, args, kwargs)
            if not _takes(replacement.replace_with, args, kwargs):
                raise _unfit(replacement)
            return session.call(_adopted(session, replacement.replace_with), args, kwargs)
        if handler is not None:
            return handler(session, fn, args, kwargs)
        return session.machine.generic_call(fn, args, kwargs)

    return call


def _class_of(function: Any) -> str | None:
    """Return the qualified name of the class in which a function is defined, or None."""
    owner = function.__qualname__.rpartition(".")[0]
    return owner if owner and not owner.endswith("<locals>") else None


def _takes(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a callable takes these arguments; True for one without a signature."""
    try:
        signature = inspect.signature(fn, follow_wrapped=False)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _unfit(replacement: Replacement) -> PluginError:
    original, other = replacement.function, replacement.replace_with
    return PluginError(
        f"{full_name(other)} does not take the arguments of {full_name(original)}, which it replaces",
        found={"replaced": str(inspect.signature(original)), "replacement": str(inspect.signature(other))},
        hint="A replacement has the parameters of the function, with self for a method.",
    ).blame(replacement.provided_by)


def refuse_replaced_callees(session: TracingSession, fn: Any) -> None:
    """Raise UnsupportedProgram for a cached function that names a replaced one.

    A function under ``functools.lru_cache`` runs as it is, and what it returned before is in its cache.
    """
    table = session.state(ReplacedCalls).table
    name = table.named_in(fn.__wrapped__)
    if name is not None:
        raise UnsupportedProgram(
            f"{full_name(fn)} is under functools.lru_cache, and calls {name}, which a lookaside replaces",
            hint=f"Call its __wrapped__, or replace {full_name(fn)} itself.",
        )


def _chosen(
    policy: Policy, candidates: dict[type | None, Replacement], args: Sequence[Any]
) -> Replacement | None:
    """Return the replacement for the class of the first argument, the most derived one, or for all."""
    owners = [owner for owner in candidates if owner is not None]
    if owners and args:
        query = issubclass if isinstance(args[0], type) else isinstance
        fitting = [owner for owner in owners if policy.call(query, (args[0], owner), {})]
        cls = args[0] if isinstance(args[0], type) else type(args[0])
        if fitting:
            return candidates[min(fitting, key=cls.__mro__.index)]
    return candidates.get(None)


def _adopted(session: TracingSession, replacement: Any) -> Any:
    """Return what the traced program sees of a replacement: its reads become facts."""
    objects = session.objects
    return objects.adopt(replacement, objects.object_root(replacement, full_name(replacement)))


# -- the original, called by its replacement -----------------------------------------------------------------


def _is_called_by_replacement(policy: Policy, replacement: Replacement, args: Sequence[Any]) -> bool:
    function, bound = python_function(replacement.replace_with)
    is_method = bool(args) and _is_method_of(replacement.function, args[0])
    for frame in reversed(policy.machine.frames) if function is not None else ():
        if frame.function is replacement.function:
            return False
        if frame.function is function:
            first = _argument(frame, bound)
            return not is_method or first is _UNKNOWN or first is args[0]
    return False


def python_function(callee: Any) -> tuple[types.FunctionType | None, int]:
    """Return the function that a call of ``callee`` interprets, and how many arguments it adds in front."""
    bound = 0
    while isinstance(callee, types.MethodType | functools.partial):
        if isinstance(callee, functools.partial):
            callee, bound = callee.func, bound + len(callee.args)
        else:
            callee, bound = callee.__func__, bound + 1
    if isinstance(callee, types.FunctionType):
        return callee, bound
    name = "forward" if isinstance(callee, torch.nn.Module) else "__call__"
    method = getattr(type(callee), name, None)
    return (method, bound + 1) if isinstance(method, types.FunctionType) else (None, bound)


def _is_method_of(function: Any, owner: Any) -> bool:
    """Return whether an object's class has a function as a method or as the getter of a property."""
    return any(_getter(value) is function for cls in type(owner).__mro__ for value in vars(cls).values())


def _getter(value: Any) -> Any:
    if isinstance(value, property):
        return value.fget
    return value.func if isinstance(value, functools.cached_property) else value


_UNKNOWN = object()


def _argument(frame: Frame, position: int) -> Any:
    """Return the positional argument of a running function, or _UNKNOWN."""
    code = frame.code
    if position < code.co_argcount:
        value = frame.fast[position]
        return value.cell_contents if isinstance(value, types.CellType) else value
    if code.co_flags & _HAS_VARARGS:
        rest = frame.fast[code.co_argcount + code.co_kwonlyargcount]
        index = position - code.co_argcount
        return rest[index] if isinstance(rest, tuple) and index < len(rest) else _UNKNOWN
    return _UNKNOWN


_HAS_VARARGS = 0x04  # CO_VARARGS


def _package(module: str) -> str:
    return module.partition(".")[0]


def full_name(fn: Any) -> str:
    """Return the module and qualified name of a callable."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    owner = getattr(fn, "__objclass__", named)  # methods that are implemented in C have no module
    return f"{owner.__module__}.{named.__qualname__}"
