"""Operator rows: everything that is known of an operator stands together, and is registered once.

A row makes a symbol. Its id is the dotted path of the public function that it stands for
(``torch.nn.functional.linear``, ``torch.Tensor.to``, ``prims.add``, ``my_executor.rms_norm``), unique, and
refused if it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from thunder.base.errors import RegistrationError, nearest
from thunder.base.tags import OpenTag, OpTags
from thunder.ir.gradient_declarations import (
    NONDIFFERENTIABLE,
    OperatorGradient,
    as_gradient,
    declare_gradient,
    declared_gradient,
)
from thunder.ir.symbol import Symbol

__all__ = [
    "NONDIFFERENTIABLE",
    "GradientDeclaration",
    "Operator",
    "Registered",
    "all_rows",
    "register",
    "row_of",
    "symbol_of",
]

#: ``vjp=`` of a registration; ``as_gradient`` says what each means
GradientDeclaration = OperatorGradient | Mapping[str, Callable[[Any], Any]] | Callable[[Any], Any] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Operator:
    """One operator.

    Exactly one of ``meta`` (a primitive: proxies in, proxies out) and ``decomposition`` (a composite: it
    computes with other operators) is given. ``torch`` are the callables of torch that a program may call
    for it: functions, methods of ``torch.Tensor`` and getters of its properties. ``eager`` is the reference
    implementation, called with the arguments of the row; ``eager_path`` is how the text calls it, by
    default the row's id where that is a path into torch.
    ``samples(device, dtype, requires_grad)`` yields sample inputs as ``(args, kwargs)``.
    """

    id: str
    torch: tuple[Any, ...] = ()
    eager: Callable[..., Any] | None = None
    eager_path: str | None = None
    meta: Callable[..., Any] | None = None
    decomposition: Callable[..., Any] | None = None
    vjp: GradientDeclaration = None
    samples: Callable[..., Iterable[Any]] | None = None
    tags: frozenset[Any] = frozenset()
    module: str | None = None
    python_printer: Callable[..., Any] | None = None
    python_impl: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        as_gradient(self.id, self.vjp)
        _check_tags(self.id, self.tags)

    @property
    def name(self) -> str:
        """The last part of the id."""
        return self.id.rpartition(".")[2]

    @property
    def gradient(self) -> OperatorGradient | None:
        """The declared gradient of the operator: ``vjp``, or what was declared after the registration."""
        return declared_gradient(self.id)


def _check_tags(operator_id: str, tags: Iterable[Any]) -> None:
    for tag in tags:
        if not isinstance(tag, OpenTag) or type(tag).members.get(tag.name) is not tag:
            raise RegistrationError(
                f"a tag of the operator {operator_id!r} is {tag!r}",
                found={"allowed": ", ".join(f"OpTags.{name}" for name in OpTags.members)},
                hint="OpTags.register_tag(name) adds a tag.",
            )


@dataclass(frozen=True, eq=False)
class Registered:
    """A row and the symbol that was made of it."""

    row: Operator
    symbol: Symbol


_registry: dict[str, Registered] = {}


def symbol_from_row(row: Operator, make_symbol: Callable[..., Symbol] = Symbol, **changes: Any) -> Symbol:
    """Return a new symbol with the facts of a row; ``changes`` are fields that differ or that a row lacks."""
    fields = {
        "name": row.name,
        "id": row.id,
        "meta": row.meta or row.decomposition,
        "is_prim": row.meta is not None,
        "tags": row.tags,
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
    declare_gradient(row.id, gradient)
    return symbol


def row_of(symbol_or_id: Symbol | str) -> Operator | None:
    """The row of a symbol or id, or None."""
    found = _registry.get(symbol_or_id.id if isinstance(symbol_or_id, Symbol) else symbol_or_id)
    return found.row if found is not None else None


def symbol_of(operator_id: str) -> Symbol:
    """The symbol of an id; raises RegistrationError with the nearest id."""
    if operator_id not in _registry:
        raise RegistrationError(
            f"there is no operator {operator_id!r}.{_did_you_mean(operator_id)}",
            hint="The id of a function of torch is its path, such as 'torch.nn.functional.linear'.",
        )
    return _registry[operator_id].symbol


def _did_you_mean(operator_id: str) -> str:
    """The operators nearest to an unknown id, by the whole path and by its last part."""
    by_name = {known.rpartition(".")[2]: known for known in _registry}
    close = nearest(operator_id.rpartition(".")[2], by_name)
    found = {nearest(operator_id, _registry), by_name[close] if close is not None else None}
    near = sorted(known for known in found if known is not None)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def all_rows() -> tuple[Operator, ...]:
    """Every row, in the order of registration."""
    return tuple(entry.row for entry in _registry.values())
