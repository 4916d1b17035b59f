"""Substitution of proxies in trees and bound symbols.

The functions take a mapping from names to values, and a value is final: ``x`` may be replaced by ``y`` while
``y`` is replaced by ``z``. :meth:`~thunder.ir.symbol.BoundSymbol.from_bsym_swap_proxies` follows chains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from thunder.ir.proxies import Proxy, TensorProxy, is_proxy
from thunder.ir.proxy_leaves import map_leaves
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_numbers import SymbolicNumber

__all__ = [
    "in_place_of",
    "rename_results",
    "substitute",
    "substitute_in_tree",
    "substitute_operands",
    "substitute_outputs",
    "with_leaves",
]


def substitute_in_tree(tree: Any, values: Mapping[str, Any]) -> Any:
    """Return a pytree with proxies replaced by name."""
    return map_leaves(partial(_substituted, values), tree)


def _substituted(values: Mapping[str, Any], leaf: Any) -> Any:
    if isinstance(leaf, SymbolicNumber):
        leaf.refuse_other_sizes(values)
        return leaf
    return values.get(leaf.name, leaf) if isinstance(leaf, TensorProxy | Proxy) else leaf


def substitute(bsym: BoundSymbol, values: Mapping[str, Any]) -> BoundSymbol:
    """Return ``bsym`` with proxies replaced in operands, outputs and decomposition."""
    return with_leaves(partial(_substituted, values), bsym) if values else bsym


def with_leaves(
    fn: Callable[[Any], Any], bsym: BoundSymbol, line: Callable[[Any], Any] = lambda source: source
) -> BoundSymbol:
    """Return ``bsym`` with ``fn`` of each leaf that may be a proxy, also in its decomposition.

    ``line`` returns the source line of a copy for that of a call.
    """
    return bsym.of_other_values(
        map_leaves(fn, bsym.args),
        map_leaves(fn, bsym.kwargs) if bsym.kwargs else {},
        map_leaves(fn, bsym.output),
        tuple([with_leaves(fn, part, line) for part in bsym.subsymbols]) if bsym.subsymbols else (),
        line(bsym.source),
    )


def substitute_operands(bsym: BoundSymbol, values: Mapping[str, Any]) -> BoundSymbol:
    """Return ``bsym`` with other operands, also in its decomposition.

    An output that is an operand itself is replaced too; the others keep their names.
    """
    if not values:
        return bsym
    operands = {p.name for p in bsym.flat_proxy_args}
    if values.keys().isdisjoint(operands):  # the other way round, a set looks at all keys
        return bsym
    passed_on = {name: values[name] for name in operands if name in values}
    return bsym.from_bsym(
        args=substitute_in_tree(bsym.args, values),
        kwargs=substitute_in_tree(bsym.kwargs, values),
        output=substitute_in_tree(bsym.output, passed_on),
        subsymbols=tuple(substitute_operands(sub, values) for sub in bsym.subsymbols),
    )


def substitute_outputs(bsym: BoundSymbol, values: Mapping[str, Any]) -> BoundSymbol:
    """Return ``bsym`` with other proxies for its computed outputs, also in its decomposition."""
    operands = {p.name for p in bsym.flat_proxy_args}
    computed = {p.name for p in bsym.flat_proxy_outs} - operands
    outputs = {name: values[name] for name in computed if name in values}
    return substitute(bsym, outputs)


def rename_results(
    recorded: Iterable[BoundSymbol],
    bsym: BoundSymbol,
    results: Iterable[tuple[Any, Any]],
    replaced: dict[str, Any],
) -> list[BoundSymbol]:
    """Return the calls that a rule recorded, with the output names of ``bsym``.

    ``results`` pairs each proxy among the outputs of ``bsym`` with the rule's result for it. Results that the
    rule did not compute (an operand, a constant, a result that occurs before) are entered into ``replaced``.
    """
    recorded = list(recorded)
    operands = {p.name for p in bsym.flat_proxy_args}
    computed = {p.name for b in recorded for p in b.flat_proxy_outs} - operands
    names: dict[str, Any] = {}
    for output, result in results:
        if not is_proxy(result):
            replaced[output.name] = result
        elif result.name in computed and result.name not in names:
            names[result.name] = output
        elif output.name != result.name:
            replaced[output.name] = names.get(result.name, result)
    return [substitute(b, names) for b in recorded]


def in_place_of(bsym: BoundSymbol, calls: Iterable[BoundSymbol]) -> list[BoundSymbol]:
    """Return calls that replace another, with its source line, its tags, and its header on the first."""
    placed = [
        call.from_bsym(source=call.source or bsym.source, tags=call.own_tags | bsym.own_tags)
        for call in calls
    ]
    if placed and placed[0].header is None:
        placed[0].header = bsym.header
    return placed
