"""The outputs of a call, paired with what a function of a package returned for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from thunder.base.pytree import tree_flatten
from thunder.ir.proxies import is_proxy
from thunder.ir.symbol import BoundSymbol

__all__ = ["described_result", "result_pairs"]


def result_pairs(
    bsym: BoundSymbol, result: Any, is_same_kind: Callable[[Any, Any], bool]
) -> list[tuple[Any, Any]] | None:
    """Return each proxy among the outputs of a call with the value in its place in a result.

    Returns None if the two differ in structure, or if `is_same_kind(output, value)` is False for a leaf.
    """
    outputs, values = tree_flatten(bsym.output)[0], tree_flatten(result)[0]
    same = len(outputs) == len(values) and all(map(is_same_kind, outputs, values))
    if not same or _nesting(bsym.output) != _nesting(result):
        return None
    return [(output, value) for output, value in zip(outputs, values, strict=True) if is_proxy(output)]


def _nesting(tree: Any) -> Any:
    """Return the structure of a result; lists and named tuples count as tuples."""
    if isinstance(tree, Mapping):
        return {name: _nesting(value) for name, value in tree.items()}
    return [_nesting(x) for x in tree] if isinstance(tree, tuple | list) else None


def described_result(tree: Any) -> str:
    """Return the text of a result in errors: the types of its proxies, in their structure."""
    if isinstance(tree, tuple | list):
        inner = ", ".join(map(described_result, tree))
        return f"[{inner}]" if isinstance(tree, list) else f"({inner}{',' if len(tree) == 1 else ''})"
    return f'"{tree.type_string()}"' if is_proxy(tree) else repr(tree)
