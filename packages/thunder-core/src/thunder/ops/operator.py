"""Operator rows: the facts about an operator, registered once.

A row's id is unique: the dotted path of the public function that it represents
(``torch.nn.functional.linear``, ``torch.Tensor.to``, ``prims.add``, ``my_executor.rms_norm``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import Any, Literal, TypeGuard, get_args

from thunder.base.errors import RegistrationError, nearest
from thunder.base.tags import OpenTag, OpTags
from thunder.ir.autocast_declarations import INHERIT, AutocastDeclaration, check_autocast
from thunder.ir.gradient_declarations import (
    NONDIFFERENTIABLE,
    OperatorGradient,
    as_gradient,
    declare_gradient,
    declared_gradient,
)
from thunder.ir.registered_operators import OperatorName, callee_of, declare_finder
from thunder.ir.symbol import Symbol
from thunder.ops.in_place import InPlaceForm
from thunder.ops.layout_rules import Layout
from thunder.ops.view_rules import ViewRule

__all__ = [
    "NONDIFFERENTIABLE",
    "GradientDeclaration",
    "Integers",
    "Operator",
    "Registered",
    "all_rows",
    "declare_rows",
    "is_of_package",
    "register",
    "row_of",
    "symbol_of",
    "symbols_named",
]

#: ``vjp=`` of a registration; ``as_gradient`` says what each means
GradientDeclaration = OperatorGradient | Mapping[str, Callable[[Any], Any]] | Callable[[Any], Any] | None
#: ``integers=`` of a row
Integers = Literal["decided", "values", "sizes"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Operator:
    """The row of one operator.

    Exactly one of ``meta`` (a primitive: proxies in, proxies out) and ``decomposition`` (a composite: it
    calls other operators) is given. ``torch`` are the callables of torch that become the operator in a traced
    program: functions, methods of ``torch.Tensor`` and getters of its properties. ``eager`` is the reference
    implementation, called with the arguments of the row; ``eager_path`` is its path in generated text, by
    default the row's id where that is a path into torch. ``vjp`` declares the gradient (:attr:`gradient`).
    ``batch`` is the batching rule, a function of a :class:`~thunder.ops.batched_call.BatchedCall`.
    ``autocast`` says what autocast does with the arguments (``"lower"``, ``"fp32"``, ``"promote"``, or None),
    ``"inherit"`` that it does what it does with the functions in ``torch``.
    ``integers`` says what becomes of integers of the trace among the arguments: ``"decided"`` makes them
    numbers, since metadata may depend on them; ``"values"`` leaves them, as tensors without dimensions;
    ``"sizes"`` decides on such tensors too, except on an operand ``input``.
    ``layout`` says which strides the results have, where calls without data do not show it.
    ``in_place`` is the form of the eager function that writes to an argument. ``with_out`` computes an
    elementwise operator in the memory ``out``, which may be that of a tensor operand.
    ``view`` says which elements a view has, by which writes to it reach its argument.
    ``workspace`` takes the output and the arguments of a call, and returns the bytes that the eager function
    allocates for itself beside them; arguments that are not dense it copies first.
    ``samples(device, dtype, requires_grad)`` yields sample inputs as ``(args, kwargs)``. ``tags`` are
    ``OpTags``. A row with another ``vjp``, ``autocast``, ``integers`` or tag raises RegistrationError.
    """

    id: str
    torch: tuple[Any, ...] = ()
    eager: Callable[..., Any] | None = None
    eager_path: str | None = None
    meta: Callable[..., Any] | None = None
    decomposition: Callable[..., Any] | None = None
    vjp: GradientDeclaration = None
    batch: Callable[[Any], Any] | None = None
    autocast: AutocastDeclaration = INHERIT
    integers: Integers = "decided"
    layout: Layout | None = None
    in_place: InPlaceForm | None = None
    with_out: Callable[..., Any] | None = None
    view: ViewRule | None = None
    workspace: Callable[..., int] | None = None
    samples: Callable[..., Iterable[Any]] | None = None
    tags: frozenset[Any] = frozenset()
    module: str | None = None
    python_printer: Callable[..., Any] | None = None
    python_impl: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        as_gradient(self.id, self.vjp)
        check_autocast(self.id, self.autocast)
        if self.batch is not None and not callable(self.batch):
            raise RegistrationError(
                f"operator {self.id!r} has batch={self.batch!r}, and a batching rule is a function"
            )
        if self.integers not in get_args(Integers):
            raise RegistrationError(
                f"operator {self.id!r} has integers={self.integers!r}",
                found={"allowed": ", ".join(map(repr, get_args(Integers)))},
            )
        _check_tags(self.id, self.tags)

    @property
    def name(self) -> str:
        """The last part of the id; of a library's operator also the parts before it: ``acme_norm_out``."""
        _, library, operator = self.id.rpartition("torch.ops.")
        return operator.removesuffix(".default").replace(".", "_") if library else operator.rpartition(".")[2]

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters."""
        definition = self.meta or self.decomposition
        assert definition is not None, "a row has a meta function or a decomposition"
        return tuple(signature(definition).parameters)

    @property
    def gradient(self) -> OperatorGradient | None:
        """The declared gradient: ``vjp``, or a declaration after the registration."""
        return declared_gradient(self.id)


def _check_tags(operator_id: str, tags: Iterable[Any]) -> None:
    for tag in tags:
        if not isinstance(tag, OpenTag) or type(tag).members.get(tag.name) is not tag:
            raise RegistrationError(
                f"operator {operator_id!r} has the tag {tag!r}, which is not a registered tag",
                found={"allowed": ", ".join(f"OpTags.{name}" for name in OpTags.members)},
                hint="OpTags.register_tag(name) adds a tag.",
            )


@dataclass(frozen=True, eq=False)
class Registered:
    """A row and its symbol."""

    row: Operator
    symbol: Symbol


_registry: dict[str, Registered] = {}
#: the ids of the rows that a text may mean, by what calls them there
_callees: dict[str, list[str]] = {}


#: each registers the row of an id, if it is one of those that programs register when they call a function
_makers: list[Callable[[str], None]] = []


def declare_rows(make: Callable[[str], None]) -> None:
    """Enter a function that registers the row of an id that a text names, if it can."""
    _makers.append(make)


def symbols_named(name: OperatorName) -> Iterator[Symbol]:
    """Yield the operators that a name in a text may mean, as their rows have them."""
    if name.id is not None and name.id not in _registry:
        for make in _makers:
            make(name.id)
    ids = _callees.get(name.callee, ()) if name.id is None else (name.id,)
    return (_registry[operator_id].symbol for operator_id in ids if operator_id in _registry)


declare_finder(symbols_named, lambda: _callees)


def symbol_from_row(row: Operator, make_symbol: Callable[..., Symbol] = Symbol, **changes: Any) -> Symbol:
    """Return a new symbol with the facts of a row.

    ``changes`` are fields that differ, or that a row lacks.
    """
    fields = {
        "name": row.name,
        "id": row.id,
        "meta": row.meta or row.decomposition,
        "is_prim": row.meta is not None,
        "tags": row.tags,
        "autocast": row.autocast,
        "module": row.module,
        "python_printer": row.python_printer,
        "python_impl": row.python_impl,
    }
    return make_symbol(**fields | changes)


def register(
    row: Operator, *, replace: bool = False, make_symbol: Callable[..., Symbol] = Symbol, **changes: Any
) -> Symbol:
    """Add a row and return its symbol, which :func:`symbol_from_row` constructs.

    Raises RegistrationError if the id is taken (unless ``replace``), or not exactly one of meta and
    decomposition is given.
    """
    if (row.meta is None) == (row.decomposition is None):
        raise RegistrationError(f"operator {row.id!r} needs exactly one of meta and decomposition")
    if row.id in _registry and not replace:
        raise RegistrationError(
            f"the operator id {row.id!r} is taken",
            found=f"the row {_registry[row.id].row!r}",
            hint="Use another id.",
        )
    gradient = as_gradient(row.id, row.vjp)
    symbol = symbol_from_row(row, make_symbol, **changes)
    _registry[row.id] = Registered(row, symbol)
    for callee in {callee_of(symbol), symbol.name}:
        ids = _callees.setdefault(callee, [])
        if row.id not in ids:
            ids.append(row.id)
    declare_gradient(row.id, gradient)
    return symbol


def row_of(symbol_or_id: Symbol | str) -> Operator | None:
    """Return the row of a symbol or id, or None."""
    operator_id = symbol_or_id if type(symbol_or_id) is str else symbol_or_id.id  # type: ignore[union-attr]
    entry = _registry.get(operator_id)
    return entry.row if entry is not None else None


def symbol_of(operator_id: str) -> Symbol:
    """Return the symbol of an id. Raises RegistrationError with the nearest id."""
    if operator_id not in _registry:
        raise RegistrationError(
            f"there is no operator {operator_id!r}.{_did_you_mean(operator_id)}",
            hint="The id of a function of torch is its path, such as 'torch.nn.functional.linear'.",
        )
    return _registry[operator_id].symbol


def _did_you_mean(operator_id: str) -> str:
    """Return a question that names the operators nearest to an unknown id."""
    by_name = {row_id.rpartition(".")[2]: row_id for row_id in _registry}
    name = nearest(operator_id.rpartition(".")[2], by_name)
    candidates = {nearest(operator_id, _registry), by_name[name] if name is not None else None}
    near = sorted(row_id for row_id in candidates if row_id is not None)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def is_of_package(symbol: Any) -> TypeGuard[Symbol]:
    """Return whether an operator is defined by a package or the program, and not by core."""
    return isinstance(symbol, Symbol) and symbol.is_of_package


def all_rows() -> tuple[Operator, ...]:
    """Return every row, in the order of registration."""
    return tuple(entry.row for entry in _registry.values())
