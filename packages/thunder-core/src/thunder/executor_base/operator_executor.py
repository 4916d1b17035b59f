"""Executors that run operators one by one: `OperatorExecutor` and its two short-lived relatives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from types import MappingProxyType, ModuleType
from typing import Any

import torch

from thunder.base.errors import Location, PluginError, RegistrationError
from thunder.base.langctx import LanguageContext
from thunder.base.pytree import tree_iter
from thunder.executor_base.executor import Executor, ImplInfo, Rank, Refusal, caller_location
from thunder.ir.gradient_declarations import NoGradient, as_gradient
from thunder.ir.proxies import Proxy, TensorProxy
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import get_tracectx
from thunder.ops.operator import NONDIFFERENTIABLE, Operator, register, row_of, symbol_of

__all__ = ["OperatorExecutor", "StatefulExecutor", "TemporaryExecutor", "operator_id", "with_replacements"]


class OperatorExecutor(Executor):
    """An executor that brings operators of its own and implements others."""

    default_rank = Rank.KERNEL

    def __init__(
        self,
        name: str,
        *,
        version: object | None = None,
        rank: int | None = None,
        aliases: tuple[str, ...] = (),
    ) -> None:
        super().__init__(name, version=version, rank=rank, aliases=aliases)
        self._replacements: dict[Callable[..., Any], Symbol] = {}
        self._places: dict[str, Location] = {}

    @property
    def replacements(self) -> Mapping[Callable[..., Any], Symbol]:
        """Python function → operator that traced calls of it become; read-only."""
        return MappingProxyType(self._replacements)

    def register_operator(
        self,
        name: str,
        *,
        meta: Callable[..., Any] | None = None,
        like: Symbol | None = None,
        fn: Callable[..., Any] | None = None,
        module: ModuleType | str | None = None,
        tags: Iterable[Any] | None = None,
        replaces: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
        bind_postprocess: Callable[[BoundSymbol], None] | None = None,
        python_printer: Callable[..., Sequence[str]] | None = None,
        replace: bool = False,
    ) -> Symbol:
        """Makes an operator and returns its symbol, whose id is `"<executor>.<name>"`.

        Exactly one of `meta` and `like` is given. `meta` has the operator's signature, receives proxies and
        Python values, and returns proxies, numbers, None, or nested tuples and lists of them. `like` is a
        symbol whose meta, tags and decomposition are taken.

        `fn` runs it: it stands in the program under its bare name and receives torch tensors. `module` says
        instead that the program calls `module.name`. `replaces` are Python functions whose traced calls
        become this operator.

        Raises RegistrationError for a name that cannot be used, and PluginError if `fn` does not take what
        `meta` takes.
        """
        _check_definition(self, name, meta, like, fn, module)
        place = caller_location()
        self._check_free(name, place, replace)
        if fn is not None:
            _check_signatures(self, name, meta if like is None else like.meta, fn)
        row, call_path = self._row(name, meta, like, fn, module, tags, python_printer)
        make_symbol = partial(
            Symbol,
            executor=self,
            call_path=call_path,
            call_target=row.eager if call_path is not None else None,
            bind_postprocess=bind_postprocess,
        )
        symbol = self._enter(row, make_symbol)
        self.add_operator(symbol)
        self._places[name] = place
        for function in _functions(replaces):
            self._replacements[function] = symbol
        return symbol

    def _row(
        self,
        name: str,
        meta: Callable[..., Any] | None,
        like: Symbol | None,
        fn: Callable[..., Any] | None,
        module: ModuleType | str | None,
        tags: Iterable[Any] | None,
        python_printer: Callable[..., Sequence[str]] | None,
    ) -> tuple[Operator, str | None]:
        own = f"{self.name}.{name}"
        call_path = None
        if module is not None:
            call_path = f"{module if isinstance(module, str) else module.__name__}.{name}"
        composite = like is not None and not like.is_prim
        definition = meta if like is None else like.meta
        without_gradient = like is not None and isinstance(like.declared_gradient, NoGradient)
        row = Operator(
            id=own,
            eager=fn if fn is not None or not isinstance(module, ModuleType) else getattr(module, name, None),
            eager_path=call_path,
            meta=None if composite else _checked_meta(self, own, definition),
            decomposition=definition if composite else None,
            vjp=NONDIFFERENTIABLE if without_gradient else None,
            tags=frozenset(tags or ()) | (like.tags if like is not None else frozenset()),
            python_printer=python_printer,
            python_impl=fn,
        )
        return row, call_path

    def _enter(self, row: Operator, make_symbol: Callable[..., Symbol]) -> Symbol:
        return register(row, replace=True, make_symbol=make_symbol)

    def _check_free(self, name: str, place: Location, replace: bool) -> None:
        own = f"{self.name}.{name}"
        if replace or row_of(own) is None:
            return
        # An earlier executor of the same name made the operator: a notebook cell runs again. Its symbol
        # stays good for
        # the traces that hold it; the id goes to the new executor. Everything else that has the id keeps it.
        owner = symbol_of(own).executor
        if isinstance(owner, Executor) and owner is not self and owner.name == self.name:
            return
        raise RegistrationError(
            f"the operator {own!r} is registered already",
            found={"first": self._places.get(name, "not by this executor"), "second": place},
            hint="Choose another name, or pass replace=True.",
        )

    def register_implementation(
        self,
        sym_or_id: Symbol | str,
        op: Symbol | None = None,
        *,
        checker: Callable[..., bool | Refusal] | None = None,
        execution_transform: Callable[..., Any] | None = None,
        grad_transform: Callable[..., Any] | None = None,
    ) -> None:
        """Says how this executor runs an operator; an earlier record for it is replaced.

        `op` is called with the operator's arguments; `execution_transform` has the operator's signature and
        computes its result with any symbols. One of the two is required. `checker` has the operator's
        signature, sees proxies, and returns a bool or a Refusal. `grad_transform` has the operator's
        signature, computes and returns the result, and moves gradients with `get_grad` and `put_grads`.

        Raises RegistrationError for an unknown id (with the nearest one), or if there is nothing to run.
        """
        target = operator_id(sym_or_id)
        if op is None and execution_transform is None:
            raise RegistrationError(
                f"executor {self.name!r} registers an implementation of {target!r} with nothing to run",
                hint="Pass one of the two: op= (a symbol of this executor) or execution_transform=.",
            )
        if op is not None and not isinstance(op, Symbol):
            raise RegistrationError(
                f"op= of an implementation of {target!r} is a symbol, and this is {op!r}",
                hint="register_operator(name, like=symbol, fn=function) makes one of a function.",
            )
        self.record(target, ImplInfo(op, checker, execution_transform, grad_transform))

    def can_execute(self, bsym: BoundSymbol) -> bool | Refusal:
        """Whether it runs this call: it has a record that accepts it, or the operator is its own."""
        info = self.implmap.get(bsym.sym.id)
        own = bsym.sym.executor is self and bsym.sym.name in self._operators
        if info is None and own:
            return True
        answer = self._accepts(bsym)
        if (
            answer
            and not own
            and info is not None
            and info.symbol is None
            and info.execution_transform is None
        ):
            return Refusal(
                "no-implementation", f"{self.name} has a checker for {bsym.sym.id} and nothing to run it"
            )
        return answer


class TemporaryExecutor(OperatorExecutor):
    """An executor whose operators belong to one compile.

    An operator's name gets a number that is free in the current trace, so that the same program gives the
    same names in every process. Nothing outlives the traces: the operators are in no registry.
    """

    def _enter(self, row: Operator, make_symbol: Callable[..., Symbol]) -> Symbol:
        return make_symbol(
            name=row.name,
            id=row.id,
            meta=row.meta or row.decomposition,
            is_prim=row.meta is not None,
            tags=row.tags,
            python_printer=row.python_printer,
            python_impl=row.python_impl,
            gradient=as_gradient(row.id, row.vjp),
        )

    def register_operator(self, name: str, **definition: Any) -> Symbol:
        """As `OperatorExecutor.register_operator`, under the name `<name>_<n>`."""
        return super().register_operator(self._numbered(name), **definition)

    def _numbered(self, name: str) -> str:
        trace = get_tracectx()
        number = 0
        # The trace's own names are the record of what is taken: passes hand them on from trace to trace.
        while f"{name}_{number}" in self._operators or (
            trace is not None and trace.has_name(f"{name}_{number}")
        ):
            number += 1
        if trace is not None:
            trace.add_name(f"{name}_{number}")
        return f"{name}_{number}"


class StatefulExecutor(TemporaryExecutor):
    """An executor whose operators carry state that lives as long as the trace."""

    def register_stateful_operator(
        self, name: str, state_class: Callable[[], Callable[..., Any]], *, meta: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Returns a callable for use under a trace. Each call makes an operator `<name>_<n>` of its own,
        which runs a new `state_class()` with the call's arguments.
        """

        @wraps(meta)
        def call(*args: Any, **kwargs: Any) -> Any:
            symbol = self.register_operator(name, meta=meta, fn=state_class())
            # The trace holds the symbol and with it the state. Were it in our table too, it would never be
            # freed.
            del self._operators[symbol.name]
            return symbol(*args, **kwargs)

        return call


def with_replacements(language: LanguageContext, executors: Iterable[Executor]) -> LanguageContext:
    """The language in which functions that executors replace stand for their operators; first wins."""
    replaced: dict[Any, Callable[..., Any]] = {}
    for executor in executors:
        if isinstance(executor, OperatorExecutor):
            for function, symbol in executor.replacements.items():
                replaced.setdefault(function, symbol)
    return LanguageContext(language.name, {**language.functions, **replaced}) if replaced else language


# --- checks on definitions


def operator_id(sym_or_id: Symbol | str) -> str:
    """The id of an operator given by symbol or id. Raises RegistrationError, with the nearest id, if there is
    none.
    """
    if isinstance(sym_or_id, Symbol):
        return sym_or_id.id
    if isinstance(sym_or_id, str):
        return symbol_of(sym_or_id).id
    raise RegistrationError(
        f"{sym_or_id!r} is neither a symbol nor an operator id",
        hint="An id is text, such as 'torch.nn.functional.linear'.",
    )


def _check_definition(
    executor: Executor,
    name: str,
    meta: Callable[..., Any] | None,
    like: Symbol | None,
    fn: Callable[..., Any] | None,
    module: ModuleType | str | None,
) -> None:
    label = f"{executor.name}.{name}"
    if not isinstance(name, str) or not name.isidentifier():
        raise RegistrationError(
            f"the operator name {name!r} cannot be printed as a call; it is no identifier"
        )
    if (meta is None) == (like is None):
        raise RegistrationError(
            f"operator {label!r} got {'neither' if meta is None else 'both'} of meta= and like=",
            hint="Pass exactly one: meta= for a primitive of your own, like= for another's definition.",
        )
    if like is not None and (not isinstance(like, Symbol) or like.meta is None):
        raise RegistrationError(
            f"like= of operator {label!r} is a symbol with a meta function, and this is {like!r}"
        )
    if fn is not None and module is not None:
        raise RegistrationError(
            f"operator {label!r} got both of fn= and module=",
            hint="fn= runs under its bare name; module= makes the program call module.name. Pass one.",
        )


def _functions(
    replaces: Callable[..., Any] | Sequence[Callable[..., Any]] | None,
) -> tuple[Callable[..., Any], ...]:
    given = () if replaces is None else (replaces,) if callable(replaces) else tuple(replaces)
    for function in given:
        if not callable(function):
            raise RegistrationError(f"replaces= takes functions, and {function!r} is none")
    return given


def _check_signatures(
    executor: Executor, name: str, meta: Callable[..., Any] | None, fn: Callable[..., Any]
) -> None:
    """Refuses an `fn` that cannot be called with what `meta` takes: the program would fail when it runs."""
    assert meta is not None, "a definition has a meta function"
    try:
        taken, given = inspect.signature(fn), inspect.signature(meta)
    except (TypeError, ValueError):  # a function of C that does not say what it takes
        return
    kinds = inspect.Parameter
    parameters = given.parameters.values()
    if any(p.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD) for p in parameters):
        return
    keywords = {p.name: None for p in parameters if p.kind is kinds.KEYWORD_ONLY}
    label = f"{executor.name}.{name}"
    try:
        taken.bind(*(p.name for p in parameters if p.name not in keywords), **keywords)
    except TypeError as error:
        raise PluginError(
            f"fn of operator {label!r} does not take what its meta function takes: {error}",
            found={"meta": given, "fn": taken},
            hint="Both have the operator's signature.",
        ).blame(executor.origin) from error


def _checked_meta(executor: Executor, label: str, meta: Callable[..., Any] | None) -> Callable[..., Any]:
    """The meta function of a plugin's operator, with its results checked."""
    assert meta is not None, "a primitive has a meta function"

    @wraps(meta)
    def checked(*args: Any, **kwargs: Any) -> Any:
        result = meta(*args, **kwargs)
        for leaf in tree_iter(result):
            if not _is_meta_result(leaf):
                raise PluginError(
                    f"the meta function of operator {label!r} returned {_kind_of(leaf)}",
                    found={"returned": repr(leaf)},
                    hint="It returns proxies (TensorProxy(like=x)), numbers, None, or nested tuples of them.",
                ).blame(executor.origin)
        return result

    return checked


def _is_meta_result(leaf: object) -> bool:
    return leaf is None or isinstance(leaf, TensorProxy | Proxy | bool | int | float | complex)


def _kind_of(leaf: object) -> str:
    return "a torch tensor" if isinstance(leaf, torch.Tensor) else f"an object of type {type(leaf).__name__}"
