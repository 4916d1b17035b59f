"""The statements of a printed program: what each calls, on which values, and what it binds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from thunder_store.edited.refusals import EditedProgramError
from thunder_store.edited.texts import Definition

__all__ = ["Program", "Statement", "Value", "program_of"]

#: calls that only release memory
_RELEASES: Final = frozenset({"clear_mutable_collection"})
_TYPE: Final = re.compile(r'([^\W\d]\w*): "([^"]*)"')


@dataclass(frozen=True)
class Value:
    """A value as an argument: its name, and where it is computed (a position; inputs are negative)."""

    name: str
    producer: int
    #: which of the producer's results it is
    index: int = 0


@dataclass(frozen=True)
class Statement:
    """A statement of a program.

    Attributes:
        operator: what it calls, as the text names it; ``"return"`` for the last one.
        arguments: (position or keyword, text of a constant or a :class:`Value`), nested ones in order.
        results: the names that it binds, with their types where the text says them.
        text: the line, without its decomposition.
        line: the number of the line in the text, from 1.
    """

    operator: str
    arguments: tuple[tuple[str, str | Value], ...]
    results: tuple[tuple[str, str], ...]
    text: str = field(compare=False)
    line: int = field(compare=False)

    @property
    def operands(self) -> list[Value]:
        """The values among its arguments, in order."""
        return [x for _, x in self.arguments if isinstance(x, Value)]

    @property
    def constants(self) -> list[tuple[str, str]]:
        """The other arguments."""
        return [(where, x) for where, x in self.arguments if isinstance(x, str)]


@dataclass(frozen=True)
class Program:
    """A function of a text: the types of its inputs, and its statements without releases."""

    name: str
    inputs: tuple[tuple[str, str], ...]
    statements: tuple[Statement, ...]


def program_of(definition: Definition) -> Program:
    """Return the statements of a printed function; raise EditedProgramError for a line that is none."""
    return _Reader(definition).program()


class _Reader:
    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.statements: list[Statement] = []
        #: name → where it is computed last
        self.values = {name: Value(name, -1 - i) for i, name in enumerate(definition.parameters)}

    def program(self) -> Program:
        for number, text in self._lines():
            code, _, comment = text.partition("  #")
            tree = self._parsed(code.strip(), number)
            if not isinstance(tree, ast.Delete | ast.Pass):
                self._add(tree, text.strip(), number, dict(_TYPE.findall(comment)))
        inputs = tuple((name, self.definition.types.get(name, "")) for name in self.definition.parameters)
        return Program(self.definition.name, inputs, tuple(self.statements))

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Yield the lines of statements; those of a block of ``with`` are indented."""
        is_below, is_inside = False, False
        for number, line in enumerate(self.definition.text.split("\n"), 1):
            is_below |= line.startswith("def ")
            content = line.strip()
            if not is_below or line.startswith("def ") or not content or content.startswith("#"):
                continue
            if content.startswith("with ") and content.endswith(":"):
                is_inside = True
            elif line.startswith("    ") and not is_inside:
                raise self._refused(number, content)
            else:
                is_inside &= line.startswith("    ")
                yield number, line

    def _parsed(self, code: str, number: int) -> ast.stmt:
        try:
            (tree,) = ast.parse(code).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self._refused(number, code) from None
        return tree

    def _refused(self, number: int, text: str) -> EditedProgramError:
        return EditedProgramError(
            "a line is not a statement of a program", found={"line": f"{number}   {text[:120]}"}
        )

    def _add(self, tree: ast.stmt, text: str, number: int, types: dict[str, str]) -> None:
        targets: list[str] = []
        match tree:
            case ast.Return(value=value):
                operator, arguments = "return", [] if value is None else [("", value)]
            case ast.Assign(targets=[target], value=ast.Call() as call):
                targets = _names(target)
                operator, arguments = ast.unparse(call.func), _arguments(call)
            case ast.Assign(targets=[target], value=value):
                targets, operator, arguments = _names(target), "unpack", [("", value)]
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets, operator, arguments = _names(target), "unpack", [("", value)]
            case ast.Expr(value=ast.Call() as call):
                operator, arguments = ast.unparse(call.func), _arguments(call)
            case _:
                raise self._refused(number, text)
        if operator in _RELEASES:
            return
        found = tuple(pair for where, node in arguments for pair in self._argument(where, node))
        results = tuple((name, types.get(name, "")) for name in targets)
        position = len(self.statements)
        self.statements.append(Statement(operator, found, results, text, number))
        if not targets and operator != "return":  # a write: what it reads has another content now
            targets = [x.name for _, x in found if isinstance(x, Value)]
        self.values.update({name: Value(name, position, i) for i, name in enumerate(targets)})

    def _argument(self, where: str, node: ast.expr) -> Iterator[tuple[str, str | Value]]:
        """Yield the values and the constants in an argument, with the structure around them."""
        match node:
            case ast.Name(id=name) if name in self.values:
                yield where, self.values[name]
            case ast.Tuple(elts=items) | ast.List(elts=items):
                yield where, f"{type(node).__name__.lower()} of {len(items)}"
                for i, item in enumerate(items):
                    yield from self._argument(f"{where}[{i}]", item)
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    name = "**" if key is None else ast.unparse(key)
                    yield from self._argument(f"{where}[{name}]", value)
            case _:
                yield where, ast.unparse(node)


def _arguments(call: ast.Call) -> list[tuple[str, ast.expr]]:
    named = [(keyword.arg or "**", keyword.value) for keyword in call.keywords]
    return [*((str(i), node) for i, node in enumerate(call.args)), *named]


def _names(target: ast.expr) -> list[str]:
    return list(_targets([target]))


def _targets(nodes: Iterable[Any]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Tuple | ast.List):
            yield from _targets(node.elts)
        else:
            yield ast.unparse(node)
