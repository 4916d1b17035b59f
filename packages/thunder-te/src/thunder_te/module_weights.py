"""The linear layers of a trace, and the parameters of the module that are their weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx

__all__ = ["LINEAR", "casts_of", "linear_calls", "parameter_names"]

LINEAR = frozenset({"torch.nn.functional.linear", "prims.linear"})
CAST = "prims.convert_element_type"


def linear_calls(bsyms: Iterable[BoundSymbol], *, nested: bool = True) -> Iterator[BoundSymbol]:
    """Yield the calls of linear layers, also those of which composites consist."""
    for bsym in bsyms:
        if bsym.sym.id in LINEAR:
            yield bsym
        elif nested:
            yield from linear_calls(bsym.subsymbols)


def parameter_names(tensors: Mapping[str, Any], layers: Mapping[str, str]) -> dict[str, str]:
    """Return the names of a trace's inputs that are weights of layers, with the names of the layers."""
    return {p.name: layers[name] for name, p in tensors.items() if name in layers}


def casts_of(trace: TraceCtx, names: Mapping[str, str]) -> dict[str, str]:
    """Return the values that are these inputs or casts of them, as autocast's, with the inputs' layers."""
    values = dict(names)
    _add_casts(trace.bound_symbols, values)
    return values


def _add_casts(bsyms: Iterable[BoundSymbol], values: dict[str, str]) -> None:
    for bsym in bsyms:
        match bsym.flat_proxy_args, bsym.flat_proxy_outs:
            case (operand,), (result,) if operand.name in values and _is_cast(bsym):
                values[result.name] = values[operand.name]
            case _:
                _add_casts(bsym.subsymbols, values)


def _is_cast(bsym: BoundSymbol) -> bool:
    return bsym.sym.id == CAST or (bool(bsym.subsymbols) and all(map(_is_cast, bsym.subsymbols)))
