"""Substitution of proxies in trees and bound symbols.

Most functions take a mapping from names to values, and a value is final: ``x`` may be replaced by ``y``
while ``y`` is replaced by ``z``. Where a pass enters replacements one after another, so that they form
chains, they are a mapping from variables, as :meth:`~thunder.ir.symbol.BoundSymbol.from_bsym_swap_proxies`
follows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from thunder.ir.proxies import Proxy, TensorProxy, Variable, is_proxy
from thunder.ir.proxy_leaves import map_leaves
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_numbers import SymbolicNumber

__all__ = [
    "follow_replacements",
    "rename_results",
    "substitute",
    "substitute_in_tree",
    "substitute_operands",
    "substitute_outputs",
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
    return bsym.from_bsym(
        args=substitute_in_tree(bsym.args, values),
        kwargs=substitute_in_tree(bsym.kwargs, values),
        output=substitute_in_tree(bsym.output, values),
        subsymbols=tuple(substitute(sub, values) for sub in bsym.subsymbols),
    )


def substitute_operands(bsym: BoundSymbol, values: Mapping[str, Any]) -> BoundSymbol:
    """Return ``bsym`` with other operands, also in its decomposition.

    An output that is an operand itself is replaced too; the others keep their names.
    """
    operands = {p.name for p in bsym.flat_proxy_args}
    if operands.isdisjoint(values):
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
    return substitute(bsym, outputs) if outputs else bsym


def follow_replacements(bsym: BoundSymbol, replaced: Mapping[Variable, Any]) -> BoundSymbol:
    """Return ``bsym`` with its operands replaced, following chains; outputs keep their names."""
    if replaced and any(Variable(p) in replaced for p in bsym.flat_proxy_args):
        return bsym.from_bsym_swap_proxies(replaced, skip_output=True)
    return bsym


def rename_results(
    recorded: Iterable[BoundSymbol],
    bsym: BoundSymbol,
    results: Iterable[tuple[Any, Any]],
    replaced: dict[Variable, Any],
) -> list[BoundSymbol]:
    """Return the calls that a rule recorded, with the output names of ``bsym``.

    ``results`` pairs each proxy among the outputs of ``bsym`` with the rule's result for it. Results that the
    rule did not compute (an operand, a constant, a result that occurs before) are entered into ``replaced``.
    """
    recorded = list(recorded)
    operands = {p.name for p in bsym.flat_proxy_args}
    computed = {p.name for b in recorded for p in b.flat_proxy_outs} - operands
    names: dict[Variable, Any] = {}
    for output, result in results:
        if not is_proxy(result):
            replaced[Variable(output)] = result
        elif result.name in computed and Variable(result) not in names:
            names[Variable(result)] = output
        elif output.name != result.name:
            replaced[Variable(output)] = names.get(Variable(result), result)
    return [b.from_bsym_swap_proxies(names) for b in recorded]
