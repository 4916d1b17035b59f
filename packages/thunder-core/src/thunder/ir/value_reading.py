"""Values in a text of a trace: literals, proxies by name, constants of the table, expressions of sizes."""

from __future__ import annotations

import ast
import re
from collections import ChainMap
from collections.abc import Mapping
from typing import Any, Final

import torch

from thunder.base.errors import TraceTextError
from thunder.ir.literals import READERS, kinds_of_tags, named_value, rebuilds
from thunder.ir.proxy_text import have_same_facts, proxy_of
from thunder.ir.size_facts import SizeFacts
from thunder.ir.size_reading import size_of, sizes_by_name
from thunder.ir.text_parts import Part, path_of
from thunder.ir.trace_writing import SIZES

__all__ = ["ValueReader"]

_EXPECTED: Final = "a value of the program, a literal, a constant of the table, or an expression of sizes"
_LENGTHS: Final = re.compile(r"(\d{1,18}(, \d{1,18})*)?", re.ASCII)
_RETURN_TYPES: Final = "torch.return_types."


class ValueReader:
    """Reads expressions, and knows the values of the program after the lines before."""

    def __init__(self, constants: Mapping[str, Any]) -> None:
        self.constants = constants
        #: name → proxy
        self.known: dict[str, Any] = {}
        facts = constants.get(SIZES)
        self.facts = facts if isinstance(facts, SizeFacts) else None
        self.sizes = {} if self.facts is None else sizes_by_name(self.facts)
        #: the values of the program, sizes included
        self.proxies = ChainMap(self.known, self.sizes)

    def named(self, part: Part, node: ast.Name) -> Any:
        """Return what a name means."""
        for names in (self.known, self.constants, self.sizes):
            if node.id in names:
                return names[node.id]
        part.unknown("defined here", node.id, {*self.proxies, *self.constants}, _EXPECTED, node)

    def value(self, part: Part, node: ast.expr) -> Any:
        """Return the value that an expression is. Raises TraceTextError for any other expression."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name():
                return self.named(part, node)
            case ast.Tuple(elts=items):
                return tuple(self._items(part, items))
            case ast.List(elts=items):
                return self._items(part, items)
            case ast.Set(elts=items):
                return self._made(part, node, set, [self._items(part, items)], {})
            case ast.Dict(keys=keys, values=values) if None not in keys:
                pairs = zip(self._items(part, keys), self._items(part, values), strict=True)
                return self._made(part, node, dict, [pairs], {})
            case ast.UnaryOp(op=ast.USub(), operand=operand) if not self._reads_sizes(operand):
                number = self.value(part, operand)
                if type(number) in (int, float, complex):
                    return -number
            case ast.Attribute():
                return self._attribute(part, node)
            case ast.Call() if (read := self._reader(node)) is not None:
                args = self._items(part, node.args)
                kwargs = {k.arg: self.value(part, k.value) for k in node.keywords if k.arg is not None}
                if len(kwargs) == len(node.keywords):
                    return self._made(part, node, read, args, kwargs)
            case ast.BinOp() | ast.Call() | ast.UnaryOp() if self.facts is not None:
                try:
                    return size_of(node, self.facts)
                except (ValueError, ArithmeticError, RecursionError):
                    pass
        raise part.error(f"{_shown(node)} is not a value", _EXPECTED, node)

    def _items(self, part: Part, nodes: list[Any]) -> list[Any]:
        return [self.value(part, node) for node in nodes]

    def _reads_sizes(self, node: ast.expr) -> bool:
        return any(isinstance(n, ast.Name) and n.id in self.sizes for n in ast.walk(node))

    def _made(self, part: Part, node: ast.expr, read: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return read(*args, **kwargs)
        except Exception as error:  # a constructor of a package is among them
            raise part.error(f"{_shown(node)} is not a value: {error}", "arguments that fit", node) from error

    def _reader(self, node: ast.Call) -> Any:
        path = path_of(node.func)
        if path is None or (path == "float" and self._reads_sizes(node)):
            return None
        if isinstance(node.func, ast.Name) and path in self.constants:
            return rebuilds(self.constants[path]) or READERS.get(path)
        if path.startswith(_RETURN_TYPES):
            return getattr(torch.return_types, path.removeprefix(_RETURN_TYPES), None)
        return READERS.get(path) or kinds_of_tags().get(path)

    def _attribute(self, part: Part, node: ast.Attribute) -> Any:
        path = path_of(node)
        try:
            return named_value(path or "")
        except LookupError:
            expected = "a dtype, a layout, a memory format, or a tag"
            raise part.error(f"{_shown(node)} is not a value", expected, node) from None

    # -- proxies -------------------------------------------------------------------------------------------

    def declare(self, part: Part, name: str, node: ast.expr) -> None:
        """Note a type that a text says of a name."""
        if name in self.sizes:  # whose type a printed text shows
            return
        facts: dict[str, Any] = {}
        expected = 'a type: "cpu f32[4]", "int 2", "Any", and metadata in parentheses'
        if isinstance(node, ast.Call) and not node.args:
            for keyword in node.keywords:
                if keyword.arg is None:
                    raise part.error("metadata without a name", expected, node)
                facts[keyword.arg] = self.value(part, keyword.value)
            node = node.func
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            raise part.error(f"{name} has no type", expected, node)
        try:
            proxy = proxy_of(name, node.value, facts, self._lengths)
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, OverflowError) as error:
            asked = f"{name} has a type that no value has: {error}"
            raise part.error(asked, expected, node) from error
        if name not in self.known or not have_same_facts(self.known[name], proxy):
            self.known[name] = proxy

    def _lengths(self, text: str) -> tuple[Any, ...]:
        """Return the lengths in the type of a tensor."""
        if _LENGTHS.fullmatch(text) is not None:
            return tuple(map(int, text.split(", "))) if text else ()
        inner = Part(f"[{text}]", text, 0, 0)
        try:
            tree = inner.parsed("lengths")
            if not (isinstance(tree, ast.Expr) and isinstance(tree.value, ast.List)):
                raise ValueError(text)
            lengths = tuple(self._items(inner, tree.value.elts))
        except TraceTextError as error:  # of a line that is not one of the text
            raise ValueError(text) from error
        if any(type(n) is bool or not (type(n) is int or hasattr(n, "formula")) for n in lengths):
            raise ValueError(text)
        if any(type(n) is int and not 0 <= n < 2**63 for n in lengths):
            raise ValueError(text)
        return lengths


def _shown(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:57]}..."
