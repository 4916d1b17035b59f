"""The parts of a line of a trace's text, with their places, and the errors that name these."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from thunder.base.errors import TraceTextError, did_you_mean

__all__ = ["Part", "facts_in", "named_types", "parts_of", "path_of", "types_of"]

#: what Python's parser raises for a text that is no program, or nests too deeply
_REFUSALS: Final = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Part:
    """A part of a line: the code of a statement, its types, or its facts; ``start`` is its first column."""

    text: str
    line: str
    number: int
    start: int

    def error(
        self, asked: str, expected: str, node: ast.AST | None = None, *, offset: int = 0
    ) -> TraceTextError:
        """Return the error at a node of the part, or at an offset."""
        if node is not None:
            encoded = self.text.encode()[: getattr(node, "col_offset", 0)]
            offset = len(encoded.decode(errors="ignore"))
        column = min(max(self.start + offset, 0), max(len(self.line) - 1, 0)) + 1
        return TraceTextError(asked, line=self.number, column=column, text=self.line, expected=expected)

    def unknown(self, what: str, name: str, known: Iterable[str], expected: str, node: ast.AST) -> NoReturn:
        """Raise the error for a name that means nothing, with the nearest one that does."""
        raise self.error(f"{name!r} is not {what}.{did_you_mean(name, known)}", expected, node)

    def between(self, before: str, after: str) -> Part:
        """Return the part between other characters, which are at no place of the line."""
        return Part(f"{before}{self.text}{after}", self.line, self.number, self.start - len(before))

    def parsed(self, expected: str = "a statement") -> ast.stmt:
        """Return the one statement that the part is."""
        try:
            statements = ast.parse(self.text).body
        except _REFUSALS as error:
            offset = (getattr(error, "offset", None) or 1) - 1
            raise self.error(f"the text is not Python: {error.args[0]}", expected, offset=offset) from None
        if len(statements) != 1:
            raise self.error("the line does not have one statement", expected)
        return statements[0]


#: a name with its type: the part of a line, the name, the type's expression
Typed = tuple[Part, str, ast.expr]
_TYPES: Final = 'types: name: "cpu f32[4]"'
_QUOTED: Final = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")


def parts_of(text: str, line: str, number: int, start: int) -> tuple[Part, Part, Part]:
    """Return the code of a statement, its types, and its facts, which ``#`` separates."""
    bare = _QUOTED.sub(lambda quoted: "x" * len(quoted[0]), text)
    ends = [i for i, c in enumerate(bare) if c == "#"][:2]
    ends += [len(text)] * (2 - len(ends))
    pieces = (0, ends[0]), (ends[0] + 1, ends[1]), (ends[1] + 1, len(text))
    code, types, facts = (_stripped(text, line, number, start, a, b) for a, b in pieces)
    return code, types, facts


def _stripped(text: str, line: str, number: int, start: int, a: int, b: int) -> Part:
    piece = text[a:b]
    return Part(piece.strip(), line, number, start + a + len(piece) - len(piece.lstrip()))


def types_of(part: Part) -> Iterator[Typed]:
    """Yield the names that a comment says the types of."""
    if part.text:
        whole = part.between("{", "}")
        match whole.parsed(_TYPES):
            case ast.Expr(value=ast.Dict() as types):
                yield from named_types(whole, types)
            case _:
                raise part.error("the comment does not say types", _TYPES)


def named_types(part: Part, types: ast.Dict) -> Iterator[Typed]:
    """Yield the names and types of ``{x: "cpu f32[4]"}``."""
    for key, value in zip(types.keys, types.values, strict=True):
        if not isinstance(key, ast.Name):
            raise part.error("a type has no name", 'a name: y: "cpu f32[4]"', key or value)
        yield part, key.id, value


def facts_in(part: Part, allowed: Collection[str], what: str) -> tuple[Part, dict[str, ast.expr]]:
    """Return the facts of a comment by name, and the part that they are in."""
    if not part.text:
        return part, {}
    whole, facts = part.between("_(", ")"), dict[str, ast.expr]()
    match whole.parsed(f"facts of {what}: name=value"):
        case ast.Expr(value=ast.Call(func=ast.Name(), args=[], keywords=keywords)):
            for keyword in keywords:
                if str(keyword.arg) not in allowed:
                    expected = f"one of {', '.join(allowed)}"
                    whole.unknown(f"a fact of {what}", str(keyword.arg), allowed, expected, keyword)
                facts[str(keyword.arg)] = keyword.value
        case _:
            raise part.error(f"the comment does not say facts of {what}", "name=value")
    return whole, facts


def path_of(node: ast.expr) -> str | None:
    """Return the dotted path that an expression is, or None."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else None
