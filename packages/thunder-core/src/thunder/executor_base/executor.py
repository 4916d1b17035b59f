"""Executors: which operators they implement, and under which conditions.

An executor is a name, a rank and a table: operator id → `ImplInfo`. `can_execute` and `can_fuse` return True
or a `Refusal` with its reason, which the placement ledger shows.

The table has two layers. The executor's author fills one through `register_implementation`. The other comes
from plugin hooks, is rebuilt whenever a plugin is added or removed, and has precedence field by field: a
plugin that adds a checker to an implementation keeps its other fields.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import wraps
from types import MappingProxyType
from typing import Any, ClassVar

from thunder.base.errors import InvalidArgument, PluginError
from thunder.base.extension_origin import is_of_core, origin_of
from thunder.base.plugin_calls import plugin_call
from thunder.base.public_names import Replaced, declared_names
from thunder.base.signature import omittable
from thunder.executor_base.caller import INNER, caller_frame
from thunder.executor_base.refusal import Refusal
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.trace import detached_trace
from thunder.ir.traced_sizes import call_with_traced_sizes
from thunder.ops.same_operators import CONVERSIONS, as_call_of

__all__ = ["Executor", "ImplInfo", "Rank"]


class Rank(IntEnum):
    """The position of an executor in the default list; numbers in between may be used."""

    KERNEL = 100
    FUSION = 200
    EAGER = 300


@dataclass(frozen=True, slots=True)
class ImplInfo:
    """An executor's implementation of one operator.

    `symbol` is called with the operator's arguments, or `execution_transform` computes its result with other
    symbols. `checker` decides for each call; `grad_transform` is the gradient rule of calls that the
    executor claims. `cost` returns the expected time of a call in microseconds, `workspace` the bytes that it
    allocates for itself; both take the operator's arguments. `rank` is the executor's rank for this operator.
    """

    symbol: Symbol | None = None
    checker: Callable[..., bool | Refusal] | None = None
    execution_transform: Callable[..., Any] | None = None
    grad_transform: Callable[..., Any] | None = None
    cost: Callable[..., float] | None = None
    workspace: Callable[..., int] | None = None
    rank: int | None = None

    @property
    def is_gradient_alone(self) -> bool:
        """Whether there is a gradient rule, and nothing that runs the operator."""
        return self.grad_transform is not None and self.symbol is None and self.execution_transform is None

    def merged_with(self, other: ImplInfo) -> ImplInfo:
        """Return this implementation with the fields of `other` that are set."""
        changes = {f.name: getattr(other, f.name) for f in fields(other)}
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


class Executor:
    """The base class of executors. Equality and hash are by name.

    Args:
        name: unique among executors; the first part of the ids of its operators.
        version: the version of the library that it uses, for reports.
        rank: the position in the default list; each class has a default.
        aliases: other names under which `executors=[...]` finds it.
    """

    default_rank: ClassVar[int] = Rank.KERNEL

    def __init__(
        self,
        name: str,
        *,
        version: object | None = None,
        rank: int | None = None,
        aliases: tuple[str, ...] = (),
    ) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidArgument(
                f"the name of an executor has to be an identifier, and {name!r} is not one",
                hint="It becomes the first part of its operators' ids, as in my_ex.rms_norm.",
            )
        self.name = name
        self.version = None if version is None else str(version)
        self.rank = self.default_rank if rank is None else rank
        self.aliases = tuple(aliases)
        self._own: dict[str, ImplInfo] = {}
        self._from_hooks: Mapping[str, ImplInfo] = {}
        self.hooks_generation: object = None
        self._merged: Mapping[str, ImplInfo] | None = None
        #: the fields of ImplInfo that some implementation sets
        self._used_fields: frozenset[str] | None = None
        self._operators: dict[str, Symbol] = {}
        #: the module that constructed it
        self.defined_in: str = caller_frame().f_globals.get("__name__", "__main__")
        #: the distribution and the module of the plugin that provides it, in words; None if no plugin does
        self.provided_by: str | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not is_of_core(cls):
            for name in _QUERIES & vars(cls).keys():
                setattr(cls, name, _checked_query(name, vars(cls)[name]))

    @property
    def origin(self) -> str:
        """The distribution, with version, and the module of the executor, in words."""
        return self.provided_by or origin_of(self.defined_in)

    def origin_of(self, rule: object) -> str:
        """Return the origin of an entry in its table: plugins may add checkers and transforms."""
        own = (getattr(info, f.name) for info in self._own.values() for f in fields(info))
        return self.origin if isinstance(rule, Symbol) or any(rule is r for r in own) else origin_of(rule)

    # -- tables

    @property
    def implmap(self) -> Mapping[str, ImplInfo]:
        """Operator id → implementation; both layers merged, read-only."""
        if self._merged is None:
            merged = dict(self._own)
            for operator_id, info in self._from_hooks.items():
                if info == ImplInfo(cost=info.cost) and not self._runs(operator_id):
                    continue  # a cost of what another executor runs
                merged[operator_id] = merged.get(operator_id, ImplInfo()).merged_with(info)
            self._merged = MappingProxyType(merged)
        return self._merged

    def _runs(self, operator_id: str) -> bool:
        return operator_id in self._own or any(s.id == operator_id for s in self._operators.values())

    @property
    def opmap(self) -> Mapping[str, Symbol]:
        """Name → symbol of the operators that this executor defines; read-only."""
        return MappingProxyType(self._operators)

    def declare(self, operator_id: str, info: ImplInfo) -> None:
        """Enter an implementation into the author's layer; it replaces an earlier one."""
        self._own[operator_id] = info
        self._merged = self._used_fields = None

    def set_hook_implementations(self, infos: Mapping[str, ImplInfo], generation: object) -> None:
        """Replace the layer of the plugins' hooks; `generation` identifies their state."""
        self._from_hooks = dict(infos)
        self._merged = self._used_fields = None
        self.hooks_generation = generation

    def add_operator(self, symbol: Symbol) -> None:
        """Add an operator that this executor defines."""
        self._operators[symbol.name] = symbol

    # -- queries

    def can_execute(self, bsym: BoundSymbol) -> bool | Refusal:
        """Return True if it runs this call as an operator, or a refusal."""
        return Refusal("kind", f"{self.name} does not run single operators")

    def can_fuse(self, bsym: BoundSymbol) -> bool | Refusal:
        """Return True if this call may be part of its fusions, or a refusal."""
        return Refusal("kind", f"{self.name} does not fuse")

    def no_effect(self) -> Refusal | None:
        """Return why the executor can run nothing on this machine, or None.

        It is asked after each compile. `thunder.explain` shows the answer, and one warning has it.
        """
        return None

    def as_registered(self, bsym: BoundSymbol) -> BoundSymbol:
        """Return the call in the spelling of its operator for which an implementation is registered.

        A call of `torch.softmax` is returned as one of `torch.nn.functional.softmax` if only that is
        registered; any other call is returned as it is.
        """
        operator_id = bsym.sym.id
        if operator_id in CONVERSIONS and operator_id not in self.implmap:
            for other in CONVERSIONS[operator_id]:
                call = as_call_of(bsym, other) if other in self.implmap else None
                if call is not None:
                    return call
        return bsym

    def can_execute_or_fuse(self, bsym: BoundSymbol) -> bool | Refusal:
        """Return True if it runs this call in either way, or the refusal that says more."""
        executes = self.can_execute(bsym)
        if executes:
            return True
        fuses = self.can_fuse(bsym)
        return fuses if fuses or (isinstance(executes, Refusal) and executes.code == "kind") else executes

    def _implementation_of(self, bsym: BoundSymbol) -> ImplInfo | None:
        """Return the implementation of a call's operator, in whichever spelling it is registered, or None."""
        return self.implmap.get(self.as_registered(bsym).sym.id)

    def get_execution_transform(self, bsym: BoundSymbol) -> Callable[..., Any] | None:
        """Return the function that computes this call with other symbols, or None."""
        info = self._implementation_of(bsym)
        return info.execution_transform if info is not None else None

    def get_grad_transform(self, sym: Symbol) -> Callable[..., Any] | None:
        """Return this executor's gradient rule for an operator, or None."""
        info = self.implmap.get(sym.id)
        return info.grad_transform if info is not None else None

    def uses(self, field: str) -> bool:
        """Return whether one of its implementations sets a field, such as `"cost"`."""
        if self._used_fields is None:
            infos = (*self._own.values(), *self._from_hooks.values())
            self._used_fields = frozenset(
                f.name for f in fields(ImplInfo) if any(getattr(info, f.name) is not None for info in infos)
            )
        return field in self._used_fields

    def rank_for(self, bsym: BoundSymbol) -> int | None:
        """Return the rank that the implementation of this call's operator has, or None."""
        info = self._implementation_of(bsym)
        return info.rank if info is not None else None

    def has_cost(self, bsym: BoundSymbol) -> bool:
        """Return whether the implementation of this call's operator has a cost."""
        info = self.implmap.get(bsym.sym.id) if self.uses("cost") else None
        return info is not None and info.cost is not None

    def cost_of(self, bsym: BoundSymbol) -> float | None:
        """Return the expected time of a call in microseconds, or None if the implementation has no cost.

        Raises PluginError if the cost raises, or is not a finite number that is at least 0.
        """
        info = self.implmap.get(bsym.sym.id) if self.uses("cost") else None
        if info is None or info.cost is None:
            return None
        return float(self._amount(info.cost, bsym, "cost", float))

    def workspace_of(self, bsym: BoundSymbol) -> int:
        """Return the bytes that a call allocates for itself; 0 if the implementation does not say.

        Raises PluginError if the workspace raises, or is not an int that is at least 0.
        """
        info = self.implmap.get(bsym.sym.id) if self.uses("workspace") else None
        if info is None or info.workspace is None:
            return 0
        return int(self._amount(info.workspace, bsym, "workspace", int))

    def _amount(self, function: Callable[..., Any], bsym: BoundSymbol, what: str, kind: type) -> Any:
        """Return what a cost or a workspace returns for a call, with sizes that are numbers."""
        bsym = call_with_traced_sizes(bsym)
        amount = self._called(what, function, bsym)
        amount = amount.hint if isinstance(amount, SymbolicNumber) else amount
        if type(amount) not in (int, kind) or not 0 <= amount < math.inf:
            raise self._wrong_answer(what, function, bsym, amount)
        return amount

    def has_gradient_alone(self, bsym: BoundSymbol) -> bool:
        """Return whether it has a gradient rule for this call, whichever executor runs it."""
        info = self._implementation_of(bsym)
        return info is not None and info.is_gradient_alone and bool(self._accepts(bsym))

    def _accepts(self, bsym: BoundSymbol) -> bool | Refusal:
        """Return True if an implementation exists and its checker agrees; else a refusal."""
        bsym = self.as_registered(bsym)
        info = self.implmap.get(bsym.sym.id)
        if info is None:
            return Refusal("no-implementation", f"{self.name} has no implementation of {bsym.sym.id}")
        unsupported = _unsupported_argument(info, bsym)
        if unsupported is not None:
            return Refusal("argument", f"{self.name} does not support {unsupported}= of {bsym.sym.id}")
        if info.checker is None:
            return True
        return self._check(info.checker, bsym)

    def _check(self, checker: Callable[..., bool | Refusal], bsym: BoundSymbol) -> bool | Refusal:
        answer = self._called("checker", checker, bsym)
        if answer is True or isinstance(answer, Refusal):
            return answer
        if answer is False:
            return Refusal("checker", f"{_name_of(checker)} returned False")
        raise self._wrong_answer("checker", checker, bsym, answer)

    def _called(self, kind: str, function: Callable[..., Any], bsym: BoundSymbol) -> Any:
        """Return what a checker, a cost or a workspace answers for a call."""
        with (
            plugin_call(
                lambda: self._described(kind, function, bsym),
                lambda: self.origin_of(function),
                found=lambda: {"call": bsym.line},
                where=bsym.locations,
                hint=_HINTS[kind],
                may_refuse=False,
            ),
            detached_trace(),
        ):  # the calls that it records are not part of the program
            return function(*bsym.args, **bsym.kwargs)

    def _wrong_answer(
        self, kind: str, function: Callable[..., Any], bsym: BoundSymbol, answer: object
    ) -> PluginError:
        what = f"{self._described(kind, function, bsym)} returned {answer!r}"
        return PluginError(what, found={"call": bsym.line}, where=bsym.locations, hint=_HINTS[kind]).blame(
            self.origin_of(function)
        )

    def _described(self, kind: str, function: Callable[..., Any], bsym: BoundSymbol) -> str:
        return f"{kind} {_name_of(function)} of executor {self.name!r} for {bsym.sym.id}"

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError, which says what replaces a name that other projects have."""
        declared = None if name.startswith("__") else declared_names("thunder.extend:Executor").get(name)
        advice = f": {declared.advice}" if isinstance(declared, Replaced) else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{advice}", name=name)

    # -- identity

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, Executor) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        cls = type(self)
        # Classes of these packages are shown under the path from which users import them.
        module = "thunder.extend" if cls.__module__.startswith(INNER) else cls.__module__
        return f"{module}.{cls.__qualname__}({self.name!r})"


#: methods that a subclass may override, which return True, False or a Refusal
_DECISIONS = frozenset({"can_execute", "can_fuse", "can_execute_or_fuse"})
#: all methods that a subclass may override and core calls
_QUERIES = _DECISIONS | {"get_execution_transform", "get_grad_transform"}


def _checked_query(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a query that a subclass overrides, with faults of the subclass as PluginError."""

    @wraps(method)
    def query(self: Executor, *args: Any, **kwargs: Any) -> Any:
        what = f"{type(self).__name__}.{name} of executor {self.name!r}"
        with plugin_call(what, lambda: self.origin, may_refuse=False):
            answer = method(self, *args, **kwargs)
        if name in _DECISIONS:
            fits, expected = isinstance(answer, bool | Refusal), "a bool or a Refusal"
        else:
            fits, expected = answer is None or callable(answer), "a function or None"
        if not fits:
            raise PluginError(f"{what} returned {answer!r}", hint=f"It returns {expected}.").blame(
                self.origin
            )
        return answer

    return query


_HINTS = {
    kind: f"A {kind} has the operator's signature and returns {result}."
    for kind, result in {
        "checker": "a bool or a thunder.extend.Refusal",
        "cost": "the expected time in microseconds, a finite number that is at least 0",
        "workspace": "a number of bytes, an int that is at least 0",
    }.items()
}


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", repr(function)))


def _unsupported_argument(info: ImplInfo, bsym: BoundSymbol) -> str | None:
    """Return an optional argument of the call that an implementation does not take, or None."""
    rare = omittable(bsym.sym.meta) & bsym.kwargs.keys()
    if not rare:
        return None
    meta = info.symbol.meta if info.symbol is not None else None
    rule = info.grad_transform if info.is_gradient_alone else None
    functions = [fn for fn in (info.checker, info.execution_transform, meta, rule) if fn is not None]
    return next((name for name in sorted(rare) for fn in functions if not _takes(fn, name)), None)


def _takes(fn: Callable[..., Any], name: str) -> bool:
    parameters = inspect.signature(fn).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
