"""Symbols (operators) and bound symbols (their calls in a trace)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, Protocol, Self

from thunder.base.context_variables import assigned
from thunder.base.errors import Location, OutsideTrace, TraceError
from thunder.base.extension_origin import is_of_core
from thunder.base.pytree import tree_flatten_with_dataclass
from thunder.base.signature import make_normaliser
from thunder.base.tags import OpenTag, OpTags
from thunder.ir.autocast_declarations import INHERIT, AutocastDeclaration
from thunder.ir.call_values import (
    NO_CONTAINERS,
    is_identity,
    refuse_number,
    require_grad,
    require_no_grad,
    with_copied_containers,
)
from thunder.ir.codegen import statement_lines
from thunder.ir.gradient_declarations import (
    NONDIFFERENTIABLE,
    Formulas,
    NoGradient,
    OperatorGradient,
    declared_gradient,
)
from thunder.ir.proxies import Variable
from thunder.ir.proxy_leaves import hashable, proxies_in, with_replaced
from thunder.ir.recorder import PLAIN
from thunder.ir.requires_grad import any_requires_grad, results_require_grad
from thunder.ir.trace import Source, get_tracectx


class BoundSymbolTag(OpenTag):
    """A property of a call; :meth:`register_tag` adds one."""


BoundSymbolTag.register_tag("RECOMPUTE_IN_BACKWARD")
BoundSymbolTag.register_tag("BACKWARD")
BoundSymbolTag.register_tag("COMPUTED_AGAIN")
BoundSymbolTag.register_tag("SUM_OF_GRADIENTS")

#: the fields on which the subsymbols of a call depend
_COMPUTATION = frozenset({"sym", "args", "kwargs", "output"})

_header: ContextVar[str | None] = ContextVar("thunder_bsym_header", default=None)


def bsym_header(text: str) -> AbstractContextManager[None]:
    """Within the context, new bound symbols have ``text`` as their header."""
    return assigned(_header, text)


class SymbolOwner(Protocol):
    """An executor, as far as the IR needs it: its name."""

    @property
    def name(self) -> str:
        """The name, unique among executors."""


@dataclass(frozen=True, eq=False)
class Symbol:
    """An operator. Two symbols are equal if their ids are.

    ``meta`` computes the outputs' metadata; of a composite (``is_prim`` False) it is the decomposition,
    whose calls become the subsymbols. ``module`` is the short name under which the text refers to the
    symbol (``prims``, ``ltorch``), ``call_path`` the dotted path that runs it
    (``torch.nn.functional.linear``), ``python_impl`` a function that runs it under its bare name.
    """

    name: str
    id: str
    meta: Callable[..., Any] | None = None
    is_prim: bool = True
    is_fusion: bool = False
    tags: frozenset[OpenTag] = frozenset()
    #: the executor that registered the operator or the fusion
    executor: SymbolOwner | None = None
    module: str | None = None
    call_path: str | None = None
    #: the function at ``call_path`` when the symbol's row was registered; it runs even if the path changes
    call_target: Callable[..., Any] | None = field(default=None, repr=False)
    python_impl: Callable[..., Any] | None = None
    python_printer: Callable[..., Sequence[str]] | None = None
    bind_postprocess: Callable[[BoundSymbol], None] | None = field(default=None, repr=False)
    #: what autocast does with a call, see ``thunder.ir.autocast_declarations``
    autocast: AutocastDeclaration = INHERIT
    #: functions and symbols whose place in autocast an operator inherits
    autocast_sources: tuple[Any, ...] = field(default=(), repr=False)
    #: the gradient of an operator that has no row
    gradient: OperatorGradient | None = field(default=None, repr=False)

    @property
    def declared_gradient(self) -> OperatorGradient | None:
        """The rule of ``register_grad``, else the gradient in the row, else the symbol's, or None.

        The tag ``NONDIFFERENTIABLE`` is another way to declare that there is none.
        """
        declared = declared_gradient(self.id) or self.gradient
        if declared is None and OpTags.NONDIFFERENTIABLE in self.tags:
            return NONDIFFERENTIABLE
        return declared

    @cached_property
    def is_of_package(self) -> bool:
        """Whether a package or the program defines the operator, and not core."""
        return self.executor is not None or not is_of_core(self.meta or self.python_impl)

    @cached_property
    def _normaliser(self) -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
        if self.meta is None:
            return lambda *args, **kwargs: (args, kwargs)
        return make_normaliser(self.meta, self.name)

    def normalize(self, *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with defaults filled in.

        Raises TypeError as a call of the operator would.
        """
        return self._normaliser(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record a call into the current trace and return its output.

        Raises OutsideTrace where no trace is current.
        """
        trace = get_tracectx()
        if trace is None:
            raise OutsideTrace(
                f"{self.name} was called where no trace is current",
                hint="A symbol can be called in a traced program, a meta function, a gradient rule, "
                "or under tracectx(trace).",
            )
        if self.meta is None:
            raise TraceError(f"{self.name} has no meta function and can only be bound")
        args, kwargs = self._normaliser(*args, **kwargs)
        if not NO_CONTAINERS.issuperset(map(type, (*args, *kwargs.values()))):
            args, kwargs = with_copied_containers(args), with_copied_containers(kwargs)
        recorder = trace.recorder
        is_outermost = recorder is not PLAIN and len(trace.open_scopes) == 1
        if is_outermost:
            adapted, args, kwargs = recorder.adapt_call(self, args, kwargs)
            if adapted is not self:
                return adapted(*args, **kwargs)
        subsymbols: list[BoundSymbol] = []
        if self.is_prim:
            try:
                output = self.meta(*args, **kwargs)
            except AttributeError as error:
                if len(trace.open_scopes) == 1 and not self.is_of_package:  # else a fault of who calls it
                    refuse_number(self.name, zip(self._parameters, args, strict=False), kwargs, error)
                raise
            if any_requires_grad(args):
                if results_require_grad() and self._passes_gradient(args):
                    require_grad(output)
                else:
                    require_no_grad(output, args)
        else:
            trace.open_scopes.append(subsymbols)
            try:
                output = self.meta(*args, **kwargs)
            finally:
                trace.open_scopes.pop()
            if not subsymbols and is_identity(output, args):
                return output
            if not subsymbols and any_requires_grad(args) and results_require_grad():
                require_grad(output)  # a meta function in place of a decomposition
            if isinstance(self.declared_gradient, NoGradient):
                require_no_grad(output, args)
        bsym = BoundSymbol(self, args, kwargs, output, tuple(subsymbols))
        if is_outermost:
            bsym.source = recorder.location()
            recorder.check_call(bsym)
        if self.bind_postprocess is not None:
            self.bind_postprocess(bsym)
        trace.record(bsym)
        return output

    def _passes_gradient(self, args: tuple[Any, ...]) -> bool:
        """Return whether results require grad, where an argument does.

        They do not if the operator, or the formula of each argument that requires grad, is declared without
        gradient.
        """
        declared = self.declared_gradient
        if isinstance(declared, Formulas) and None in declared.by_argument.values():
            names = self._parameters
            return any(
                any_requires_grad((x,)) and declared.by_argument.get(name, x) is not None
                for name, x in zip(names, args, strict=False)
            )
        return not isinstance(declared, NoGradient)

    @cached_property
    def _parameters(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.meta).parameters) if self.meta is not None else ()

    def bind(
        self, *args: Any, output: Any, subsymbols: Sequence[BoundSymbol] = (), **kwargs: Any
    ) -> BoundSymbol:
        """Return a bound symbol with this output, without recording or running the meta function."""
        if self.meta is not None:
            args, kwargs = self._normaliser(*args, **kwargs)
        bsym = BoundSymbol(self, args, kwargs, output, tuple(subsymbols))
        trace = get_tracectx()
        if trace is not None and trace.recorder is not PLAIN:
            bsym.source = trace.recorder.location()
        if self.bind_postprocess is not None:
            self.bind_postprocess(bsym)
        return bsym

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


def with_parts(bsyms: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    """Yield each call, followed by the calls that it decomposes into, down to primitives."""
    for bsym in bsyms:
        yield bsym
        if bsym.subsymbols:
            yield from _parts(bsym)


def _parts(bsym: BoundSymbol) -> list[BoundSymbol]:
    parts: list[BoundSymbol] = []
    for part in bsym.subsymbols:
        parts += [part, *_parts(part)] if part.subsymbols else [part]
    return parts


def _refused(name: str) -> Callable[[Any, Any], None]:
    """Return the setter of a field that cannot be set, because traces share bound symbols."""

    def refuse(bsym: Any, value: Any) -> None:
        raise AttributeError(
            f"{name} of a bound symbol cannot be assigned. bsym.from_bsym({name}=...) returns a changed copy",
            name=name,
        )

    return refuse


class BoundSymbol:
    """One call of a symbol: ``output = sym(*args, **kwargs)``, with its decomposition.

    Equality and hash are by identity, so that a bound symbol can be a key; :attr:`rhs` compares structure.
    """

    __slots__ = (
        "__weakref__",
        "_args",
        "_kwargs",
        "_output",
        "_own_tags",
        "_subsymbols",
        "_sym",
        "_tags",
        "all_tags",
        "flat_proxy_args",
        "flat_proxy_outs",
        "header",
        "source",
        "views",
    )

    def __init__(
        self,
        sym: Symbol,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
        subsymbols: tuple[BoundSymbol, ...] = (),
        *,
        source: Source | None = None,
        header: str | list[str] | None = None,
        tags: Iterable[OpenTag] = (),
    ) -> None:
        self._sym, self._args, self._kwargs, self._output = sym, tuple(args), kwargs, output
        self._subsymbols, self._own_tags = tuple(subsymbols), frozenset(tags)
        self._tags: frozenset[OpenTag] = self._own_tags | sym.tags if self._own_tags else sym.tags
        self.source = source
        self.header: str | list[str] | None = header if header is not None else _header.get()
        #: of a composite, the views among its outputs, once ``thunder.ir.aliasing`` has read them off
        self.views: Any = None

    #: the proxies among the arguments
    flat_proxy_args: tuple[Any, ...]
    #: the proxies among the outputs
    flat_proxy_outs: tuple[Any, ...]
    #: the tags of the call and of everything below it
    all_tags: frozenset[OpenTag]

    def __getattr__(self, name: str) -> Any:
        """Find one of the three above, whose slot is empty until it is read: every pass reads them."""
        if name == "flat_proxy_args":
            arguments = (self._args, self._kwargs) if self._kwargs else self._args
            self.flat_proxy_args = proxies = proxies_in(arguments)
            return proxies
        if name == "flat_proxy_outs":
            self.flat_proxy_outs = proxies = proxies_in(self._output)
            return proxies
        if name == "all_tags":
            tags = self._tags
            if self._subsymbols:
                tags = tags.union(*[part.all_tags for part in self._subsymbols])
            self.all_tags = tags
            return tags
        raise AttributeError(f"a bound symbol has no attribute {name!r}", name=name, obj=self)

    sym = property(attrgetter("_sym"), _refused("sym"), doc="The symbol that is called.")
    args = property(attrgetter("_args"), _refused("args"), doc="Positional arguments, a tuple.")
    kwargs = property(attrgetter("_kwargs"), _refused("kwargs"), doc="Keyword arguments.")
    output = property(attrgetter("_output"), _refused("output"), doc="A pytree of proxies and Python values.")
    subsymbols = property(
        attrgetter("_subsymbols"),
        _refused("subsymbols"),
        doc="The calls that this one decomposes into.",
    )
    tags = property(attrgetter("_tags"), _refused("tags"), doc="The tags of the call and of its symbol.")
    own_tags = property(attrgetter("_own_tags"), doc="The tags of the call, without those of its symbol.")
    source_filename = property(lambda self: self.source.file if self.source else None, doc="The user's file.")
    source_positions = property(
        lambda self: self.source.line if self.source else None, doc="The user's line."
    )

    @property
    def locations(self) -> list[Location]:
        """The user's line, as errors take it: a list of at most one."""
        return [self.source.location] if self.source is not None else []

    def from_bsym(self, **changes: Any) -> Self:
        """Return a copy with fields replaced.

        With another symbol, other arguments or other outputs the copy has no subsymbols, unless they are
        given: those of a composite are recorded again where they are needed.
        """
        fields: dict[str, Any] = {
            "sym": self._sym,
            "args": self._args,
            "kwargs": self._kwargs,
            "output": self._output,
            "subsymbols": self._subsymbols,
            "source": self.source,
            "header": self.header,
            "tags": self._own_tags,
            **changes,
        }
        new = type(self)(**fields)
        if new._args is self._args and new._kwargs is self._kwargs:
            new.flat_proxy_args = self.flat_proxy_args
        if new._output is self._output:
            new.flat_proxy_outs = self.flat_proxy_outs
        if self._subsymbols and "subsymbols" not in changes and not changes.keys().isdisjoint(_COMPUTATION):
            is_same = (
                new.rhs == self.rhs
                and new.flat_variableified_proxy_outs == self.flat_variableified_proxy_outs
            )
            new._subsymbols = self._subsymbols if is_same else ()
        return new

    def of_other_values(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: Any,
        subsymbols: tuple[BoundSymbol, ...],
        source: Source | None,
    ) -> BoundSymbol:
        """Return the same call, with the same tags, of other values, at a line."""
        new = object.__new__(BoundSymbol)
        new._sym, new._args, new._kwargs, new._output = self._sym, args, kwargs, output
        new._subsymbols, new._own_tags, new._tags = subsymbols, self._own_tags, self._tags
        new.source, new.header, new.views = source, self.header, None
        new.all_tags = self.all_tags
        return new

    def from_bsym_swap_proxies(
        self,
        swap_map: Mapping[Variable, Any],
        skip_inputs: bool = False,
        skip_output: bool = False,
        skip_subsymbols: bool = False,
    ) -> Self:
        """Return a copy in which proxies are replaced by name.

        Chains in ``swap_map`` are followed; a cycle raises TraceError.
        """
        if not swap_map:
            return self

        return self.from_bsym(
            args=self._args if skip_inputs else with_replaced(swap_map, self._args),
            kwargs=self._kwargs if skip_inputs else with_replaced(swap_map, self._kwargs),
            output=self._output if skip_output else with_replaced(swap_map, self._output),
            subsymbols=self._subsymbols
            if skip_subsymbols
            else tuple(
                s.from_bsym_swap_proxies(swap_map, skip_inputs, skip_output) for s in self._subsymbols
            ),
        )

    @property
    def flat_args(self) -> list[Any]:
        """The leaves of the arguments."""
        return tree_flatten_with_dataclass((self._args, self._kwargs))[0]

    @property
    def flat_outs(self) -> list[Any]:
        """The leaves of the output."""
        return tree_flatten_with_dataclass(self._output)[0]

    @property
    def flat_variableified_proxy_args(self) -> tuple[Variable, ...]:
        """The proxies among the arguments, as variables."""
        return tuple(Variable(p) for p in self.flat_proxy_args)

    @property
    def flat_variableified_proxy_outs(self) -> tuple[Variable, ...]:
        """The proxies among the outputs, as variables."""
        return tuple(Variable(p) for p in self.flat_proxy_outs)

    def has_input(self, variables: Iterable[Any]) -> bool:
        """Return whether any of the variables (or proxies) is an argument."""
        names = {v.name for v in variables}
        return any(p.name in names for p in self.flat_proxy_args)

    @property
    def rhs(self) -> tuple[Any, ...]:
        """The right-hand side, hashable: the symbol and the arguments with their types."""
        leaves, spec = tree_flatten_with_dataclass((self._args, self._kwargs))
        return (self._sym.id, spec, tuple(hashable(leaf) for leaf in leaves))

    def python(self, indent: int = 0, commented: bool = False, print_depth: int = 1) -> list[str]:
        """Return the lines of the statement."""
        return statement_lines(self, indent=indent, commented=commented, print_depth=print_depth)

    @property
    def line(self) -> str:
        """The statement by itself, as errors show it."""
        return "; ".join(line.strip() for line in self.from_bsym(header=None).python())

    def __repr__(self) -> str:
        return "\n".join(self.python(print_depth=-1))


def gather_tags(bsym: BoundSymbol) -> frozenset[OpenTag]:
    """Return the tags of a bound symbol and of everything below it."""
    return bsym.all_tags


def has_tags(bsym: BoundSymbol, tags: Iterable[OpenTag]) -> bool:
    """Return whether a bound symbol, or anything below it, carries one of the tags."""
    return not bsym.all_tags.isdisjoint(tags)
