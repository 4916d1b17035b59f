"""Executors of single operators: `OperatorExecutor`, and two for one compile."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from types import MappingProxyType, ModuleType
from typing import Any

from thunder.base.errors import Location, RegistrationError
from thunder.base.langctx import LanguageContext
from thunder.base.plugin_calls import plugin_call
from thunder.base.tags import OpTags
from thunder.executor_base.caller import caller_location
from thunder.executor_base.executor import Executor, ImplInfo, Rank
from thunder.executor_base.functional_forms import (
    FUNCTIONAL,
    check_mutates,
    functional_meta,
    on_copies,
    writing_call,
)
from thunder.executor_base.implementation_hints import check_implementation
from thunder.executor_base.operator_definitions import (
    check_definition,
    check_signatures,
    narrowed,
    replaced_functions,
)
from thunder.executor_base.operator_ids import operator_id
from thunder.executor_base.refusal import Refusal
from thunder.executor_base.torch_spellings import other_spellings
from thunder.ir.autocast_declarations import INHERIT, AutocastDeclaration, check_autocast
from thunder.ir.gradient_declarations import as_gradient, row_gradient
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import get_tracectx
from thunder.ops.layout_rules import Layout
from thunder.ops.operator import (
    GradientDeclaration,
    Integers,
    Operator,
    register,
    row_of,
    symbol_from_row,
    symbol_of,
)
from thunder.ops.package_functions import checked_bind_postprocess, checked_meta, checked_printer
from thunder.ops.same_operators import symbol_of_function
from thunder.ops.view_rules import ViewRule

__all__ = [
    "OperatorExecutor",
    "StatefulExecutor",
    "TemporaryExecutor",
    "with_replacements",
]


class OperatorExecutor(Executor):
    """An executor that defines operators and implements others."""

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
        self._functional: dict[str, tuple[Symbol, tuple[str, ...]]] = {}

    @property
    def replacements(self) -> Mapping[Callable[..., Any], Symbol]:
        """Python function → operator that traced calls of it become; read-only."""
        return MappingProxyType(self._replacements)

    def register_operator(
        self,
        name: str,
        *,
        meta: Callable[..., Any] | None = None,
        like: Symbol | Callable[..., Any] | None = None,
        fn: Callable[..., Any] | None = None,
        module: ModuleType | str | None = None,
        tags: Iterable[Any] | None = None,
        replaces: Callable[..., Any] | str | Sequence[Callable[..., Any] | str] | None = None,
        autocast: AutocastDeclaration = INHERIT,
        bind_postprocess: Callable[[BoundSymbol], None] | None = None,
        python_printer: Callable[..., Sequence[str]] | None = None,
        vjp: GradientDeclaration = None,
        batch: Callable[[Any], Any] | None = None,
        integers: Integers = "decided",
        layout: Layout | None = None,
        view: ViewRule | None = None,
        mutates: str | Sequence[str] = (),
        replace: bool = False,
    ) -> Symbol:
        """Define an operator and return its symbol, whose id is `"<executor>.<name>"`.

        Exactly one of `meta` and `like` is required. `meta` has the operator's signature, receives proxies
        and Python values, and returns proxies, numbers, strings, None, or nested tuples and lists of them.
        `like` is a symbol whose meta function, tags, gradient and decomposition are used, the function of
        torch that this symbol is, or a Python function that computes the same with torch: it becomes the
        decomposition, through which the operator has a gradient.

        `fn` runs it: the program calls it under its bare name, with torch tensors. With `module` the program
        calls `module.name` instead. `replaces` are functions, or names of operators of `torch.library`, whose
        traced calls become this operator, in all their spellings.
        `vjp` declares its gradient: a formula of the call for each argument, None for one without gradient,
        or a function from the call to the gradients by argument. `batch` is its batching rule: a function
        from the call, whose batched tensors have the batch as their first dimension, to the results of all
        examples. `integers`: whether the program is compiled for each integer out of a tensor among the
        arguments (`"decided"`), or for any (`"values"`). `layout`: which strides the results have, where
        `meta` declares none. `view`: what a write to the view (tag `VIEW`) makes of the argument.

        `autocast` says what autocast does with the arguments: `"lower"` casts them to its dtype, `"fp32"` to
        float32, `"promote"` to the widest dtype among them, None does nothing. By default it does what it
        does with a torch function that the operator replaces, or with `like`; within a Python function that
        computes with torch, it casts as in any program.

        `mutates` are the names of arguments to which `fn` writes: tensors, or lists of them. A call is then
        an effect, in the program's order, with eager's results; it has no gradient.

        Raises RegistrationError for a name that cannot be used, and PluginError if `fn` does not take the
        arguments of `meta`.
        """
        like = symbol_of_function(like) or like
        if isinstance(like, Symbol) and fn is not None and replaces is None:
            like = narrowed(like, fn)
        check_definition(self, name, meta, like, fn, module)
        place = caller_location()
        self._check_free(name, place, replace)
        if fn is not None:
            check_signatures(self, name, like.meta if isinstance(like, Symbol) else meta or like, fn)
        functions = replaced_functions(replaces)
        if mutates:
            names = check_mutates(f"{self.name}.{name}", mutates, meta, fn, vjp)
            assert meta is not None, "check_mutates refuses others"
            assert fn is not None, "check_mutates refuses others"
            like = self._define_functional(name, meta, fn, names, tags, python_printer)
            meta, fn, tags = None, None, (OpTags.IN_PLACE,)
        facts = {"batch": batch, "integers": integers, "layout": layout, "view": view}
        row, call_path = self._row(name, meta, like, fn, module, tags, autocast, python_printer, vjp, **facts)
        symbol = self._symbol(
            row,
            autocast_sources=(*functions, *((like,) if isinstance(like, Symbol) else ())),
            executor=self,
            call_path=call_path,
            call_target=row.eager if call_path is not None else None,
            bind_postprocess=checked_bind_postprocess(bind_postprocess, row.id, lambda: self.origin),
        )
        self.add_operator(symbol)
        self._places[name] = place
        self._replacements.update(dict.fromkeys(functions, symbol))
        return symbol

    def _row(
        self,
        name: str,
        meta: Callable[..., Any] | None,
        like: Symbol | Callable[..., Any] | None,
        fn: Callable[..., Any] | None,
        module: ModuleType | str | None,
        tags: Iterable[Any] | None,
        autocast: AutocastDeclaration,
        python_printer: Callable[..., Sequence[str]] | None,
        vjp: GradientDeclaration,
        **facts: Any,
    ) -> tuple[Operator, str | None]:
        own = f"{self.name}.{name}"
        path = module.__name__ if isinstance(module, ModuleType) else module
        call_path = None if path is None else f"{path}.{name}"
        symbol = like if isinstance(like, Symbol) else None
        composite = like is not None and (symbol is None or not symbol.is_prim)
        definition = symbol.meta if symbol is not None else meta or like
        if symbol is None or not composite:
            assert definition is not None, "a definition has a meta function or like="
            definition = checked_meta(definition, own, lambda: self.origin, is_primitive=not composite)
        inherited = row_gradient(symbol.id) or symbol.gradient if symbol is not None else None
        row = Operator(
            id=own,
            eager=fn if fn is not None or not isinstance(module, ModuleType) else getattr(module, name, None),
            eager_path=call_path,
            meta=None if composite else definition,
            decomposition=definition if composite else None,
            vjp=inherited if vjp is None else vjp,
            autocast=autocast,
            tags=frozenset(tags or ()) | (symbol.tags if symbol is not None else frozenset()),
            python_printer=checked_printer(python_printer, own, lambda: self.origin),
            python_impl=fn,
            **facts,
        )
        return row, call_path

    def _define_functional(
        self,
        name: str,
        meta: Callable[..., Any],
        fn: Callable[..., Any],
        names: Sequence[str],
        tags: Iterable[Any] | None,
        python_printer: Callable[..., Sequence[str]] | None,
    ) -> Callable[..., Any]:
        """Define the functional form of an operator that writes; return what a call records."""
        functional = self.register_operator(
            name + FUNCTIONAL,
            meta=functional_meta(meta, names),
            fn=on_copies(fn, meta, names),
            tags={*(tags or ()), OpTags.NONDIFFERENTIABLE},
            python_printer=python_printer,
            autocast=None,
            replace=True,
        )
        self._functional[f"{self.name}.{name}"] = functional, tuple(names)
        return writing_call(f"{self.name}.{name}", functional, meta, names)

    @property
    def functional_forms(self) -> Mapping[str, tuple[Symbol, tuple[str, ...]]]:
        """Id of an operator with `mutates=` → its functional form, the names of what it writes; read-only."""
        return MappingProxyType(self._functional)

    def _symbol(self, row: Operator, **fields: Any) -> Symbol:
        """Register a row and return its symbol."""
        return register(row, replace=True, **fields)

    def _check_free(self, name: str, place: Location, replace: bool) -> None:
        own = f"{self.name}.{name}"
        if replace or row_of(own) is None:
            return
        # An earlier executor of the same name defined the operator: a notebook cell runs again. Existing
        # traces keep its symbol; the id goes to the new executor. Any other operator with this id keeps it.
        owner = symbol_of(own).executor
        if isinstance(owner, Executor) and owner is not self and owner.name == self.name:
            return
        raise RegistrationError(
            f"the operator {own!r} is already registered",
            found={"first": self._places.get(name, "not by this executor"), "second": place},
            hint="Choose another name, or pass replace=True.",
        )

    def register_implementation(
        self,
        sym_or_id: Symbol | str | Callable[..., Any],
        op: Symbol | None = None,
        *,
        checker: Callable[..., bool | Refusal] | None = None,
        execution_transform: Callable[..., Any] | None = None,
        grad_transform: Callable[..., Any] | None = None,
        cost: Callable[..., float] | None = None,
        workspace: Callable[..., int] | None = None,
        rank: int | None = None,
    ) -> None:
        """Declare this executor's implementation of an operator; an earlier one is replaced.

        The operator is given by its symbol, its id, a function of torch, or the path of one; one of
        `torch.library` by its name (`"acme::norm"`), packet, overload or definition.

        `op` is called with the operator's arguments; `execution_transform` has the operator's signature and
        computes its result with any symbols. `checker` has the operator's signature, sees proxies, and
        returns a bool or a Refusal. `grad_transform` has the operator's signature, computes and returns the
        result, and moves gradients with `get_grad` and `put_grads`.

        One of `op`, `execution_transform` and `grad_transform` is required. A `grad_transform` alone is the
        gradient of calls that others run; an implementation that was declared before stays. The same function
        may be both transforms: where no gradient is needed, its backward is left out.

        `cost` takes the operator's arguments and returns the expected time in microseconds: of executors
        with costs that accept a call, the one with the least runs it. `rank` is the executor's rank for this
        operator. `workspace` takes the arguments and returns the bytes that a call allocates for itself,
        which plans count.

        Raises RegistrationError for an unknown id (with the nearest one), or if there is nothing to declare.
        """
        target = operator_id(sym_or_id)
        self._check_runs(target, op, execution_transform, grad_transform)
        if target in self._functional:
            if execution_transform is not None or grad_transform is not None:
                raise RegistrationError(
                    f"operator {target!r} has mutates=, and its implementation a transform",
                    hint="Its calls are run by its fn=: pass op= and checker= alone.",
                )
            functional = self._functional[target][0]
            target, op = functional.id, functional if op is None or op.id == target else op
        info = ImplInfo(op, checker, execution_transform, grad_transform, cost, workspace, rank)
        check_implementation(self, target, info)
        if info.is_gradient_alone and target in self._own:
            info = self._own[target].merged_with(info)
        self.declare(target, info)

    def _check_runs(self, target: str, op: Any, execution_transform: Any, grad_transform: Any) -> None:
        """Raise RegistrationError where there is nothing to run, or what is no function or symbol."""
        if op is None and execution_transform is None and grad_transform is None:
            raise RegistrationError(
                f"executor {self.name!r} registers an implementation of {target!r} with nothing to run",
                hint="Pass one of op= (a symbol of this executor), execution_transform= and grad_transform=.",
            )
        for what, function in (("execution", execution_transform), ("grad", grad_transform)):
            if function is not None and not callable(function):
                raise RegistrationError(
                    f"{what}_transform= of an implementation of {target!r} has to be a function, and is "
                    f"{function!r}"
                )
        if op is not None and not isinstance(op, Symbol):
            raise RegistrationError(
                f"op= of an implementation of {target!r} has to be a symbol, and is {op!r}",
                hint="register_operator(name, like=symbol, fn=function) defines one that runs a function.",
            )

    def can_execute(self, bsym: BoundSymbol) -> bool | Refusal:
        """Return True if it implements or defines the operator of the call; else a refusal."""
        info = self._implementation_of(bsym)
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
                "no-implementation",
                f"{self.name} has a {'checker' if info.grad_transform is None else 'gradient rule'} for "
                f"{bsym.sym.id} and nothing to run it",
            )
        return answer


#: numbers for temporary executors without a name: executors are told apart by their names
_unnamed = itertools.count()


class TemporaryExecutor(OperatorExecutor):
    """An executor whose operators belong to one compile.

    The name of an operator is extended by a number that is unused in the current trace, so that the same
    program has the same names in every process. The operators are not registered, so they are freed with the
    traces.
    """

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        """Take the settings of `OperatorExecutor`; without a name, `temporary_<n>`."""
        super().__init__(f"temporary_{next(_unnamed)}" if name is None else name, **settings)

    def _symbol(self, row: Operator, **fields: Any) -> Symbol:
        """Return the symbol of a row that is not registered."""
        return symbol_from_row(row, gradient=as_gradient(row.id, row.vjp), **fields)

    def register_operator(self, name: str, **definition: Any) -> Symbol:
        """Define an operator as `OperatorExecutor` does, under the name `<name>_<n>`."""
        return super().register_operator(self._numbered(name), **definition)

    def _numbered(self, name: str) -> str:
        trace = get_tracectx()
        number = 0
        # The trace knows all names that are in use: passes copy them from trace to trace.
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
        self,
        name: str,
        state_class: Callable[[], Callable[..., Any]],
        *,
        meta: Callable[..., Any],
        autocast: AutocastDeclaration = INHERIT,
    ) -> Callable[..., Any]:
        """Return a callable for use under a trace.

        Each call defines a new operator `<name>_<n>`, which runs a new `state_class()` with the call's
        arguments.
        """
        check_autocast(f"{self.name}.{name}", autocast)

        @wraps(meta)
        def call(*args: Any, **kwargs: Any) -> Any:
            with plugin_call(f"the state class of operator {self.name}.{name}", lambda: self.origin):
                state = state_class()
            symbol = self.register_operator(name, meta=meta, fn=state, autocast=autocast)
            # The trace holds the symbol and its state; in the executor's table they would never be freed.
            del self._operators[symbol.name]
            return symbol(*args, **kwargs)

        return call


def with_replacements(language: LanguageContext, executors: Iterable[Executor]) -> LanguageContext:
    """Return the language in which functions that executors replace are their operators.

    An operator of torch is replaced in all its spellings.
    """
    replaced: dict[Any, Callable[..., Any]] = {}
    for executor in executors:
        if isinstance(executor, OperatorExecutor):
            for function, symbol in executor.replacements.items():
                replaced.setdefault(function, symbol)
            for function, symbol in executor.replacements.items():
                for other, call in other_spellings(function, symbol).items():
                    replaced.setdefault(other, call)
    return LanguageContext(language.name, {**language.functions, **replaced}) if replaced else language
