"""Statements of a trace's text: what is called, arguments, results, and what a line says beside them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from thunder.base.structural_ids import DEL, RETURN
from thunder.base.tags import OpenTag
from thunder.ir.literals import Names
from thunder.ir.proxies import is_proxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.registered_operators import OperatorName, written_operators
from thunder.ir.substitution import substitute
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.text_parts import Part, facts_in, named_types, parts_of, path_of, types_of
from thunder.ir.trace import Source, detached_trace
from thunder.ir.trace_writing import source_of_parts, usual_source
from thunder.ir.value_reading import ValueReader

__all__ = ["Block", "Node", "StatementReader", "check_form", "structural"]

#: what the second comment of a statement may say
_FACTS: Final = ("id", "by", "reads", "output", "tags", "header", "at")


@dataclass
class Node:
    """A statement, and the lines of its decomposition below it."""

    part: Part
    symbol: Symbol
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    more: dict[str, Any] = field(default_factory=dict)
    recorded: BoundSymbol | None = None

    def __post_init__(self) -> None:
        self.parts = Block(source_of_parts(self.symbol, self.more.get("source")))

    def bound(self) -> BoundSymbol:
        """Return the call."""
        if self.recorded is not None and not self.parts.nodes:
            return self.recorded.from_bsym(**self.more)
        parts = tuple([node.bound() for node in self.parts.nodes])
        return BoundSymbol(self.symbol, self.args, self.kwargs, self.output, parts, **self.more)


class Block:
    """Statements, and the line of the next one that says none."""

    def __init__(self, source: Source | None) -> None:
        self.nodes: list[Node] = []
        self.source = source


class StatementReader:
    """Reads statements; ``taken`` are the names that no derived value may have."""

    def __init__(self, values: ValueReader, taken: set[str]) -> None:
        self.values, self.taken = values, taken
        #: the last line of the user's program that is shown
        self.shown: Source | None = None
        self.operators: dict[OperatorName, Symbol | None] = {}

    def read(self, part: Part, into: Block) -> None:
        """Read a statement into a block; raise TraceTextError for what is none."""
        code, types, facts = parts_of(part.text, part.line, part.number, part.start)
        facts, more = facts_in(facts, _FACTS, "a statement")
        if "reads" in more:
            self._declare_reads(facts, more["reads"])
        tree = code.parsed()
        targets = tree.targets[0] if isinstance(tree, ast.Assign) else None
        symbol, args, kwargs = self._called(code, tree, facts, more)
        for typed in types_of(types):
            self.values.declare(*typed)
        node = Node(code, symbol, args, kwargs, None, self.facts_of_call(symbol, facts, more, into))
        if "output" in more:
            node.output = self.values.value(facts, more["output"])
            shown = {n.id for n in _names_in(code, targets)} - {"_"} if targets is not None else set()
            if not shown <= {p.name for p in proxies_in(node.output)}:
                raise code.error("the targets are not those of output=", "the values in output=", targets)
        elif targets is not None:
            self._assign(node, targets)
        into.nodes.append(node)

    def _declare_reads(self, facts: Part, node: ast.expr) -> None:
        if not isinstance(node, ast.Dict):
            raise facts.error("reads= has no types", '{x: "cpu f32[4]"}', node)
        for typed in named_types(facts, node):
            self.values.declare(*typed)

    def _called(
        self, code: Part, tree: ast.stmt, facts: Part, more: Mapping[str, ast.expr]
    ) -> tuple[Symbol, tuple[Any, ...], dict[str, Any]]:
        """Return the operator of a statement and its arguments."""
        match tree:
            case ast.Return(value=value):
                nodes = [] if value is None else _returned(value)
                return structural(RETURN), tuple(self.values.value(code, n) for n in nodes), {}
            case ast.Delete(targets=nodes):
                return structural(DEL), tuple(self.values.value(code, n) for n in nodes), {}
            case ast.Assign(targets=[_], value=ast.Call() as call) | ast.Expr(value=ast.Call() as call):
                return self._operator_and_arguments(code, call, facts, more)
        raise code.error("the line is not a statement of a trace", "y = operator(x), del, or return", tree)

    def _operator_and_arguments(
        self, code: Part, call: ast.Call, facts: Part, more: Mapping[str, ast.expr]
    ) -> tuple[Symbol, tuple[Any, ...], dict[str, Any]]:
        path = path_of(call.func)
        if path is None:
            raise code.error("what is called is not an operator", "the name of an operator", call.func)
        names = {k: self.values.value(facts, more[k]) for k in ("id", "by") if k in more}
        symbol = self._operator(code, call.func, path, names)
        args, kwargs = [self.values.value(code, argument) for argument in call.args], {}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise code.error("** has no name", "arguments", keyword.value)
            kwargs[keyword.arg] = self.values.value(code, keyword.value)
        return symbol, tuple(args), kwargs

    def _operator(self, code: Part, node: ast.expr, path: str, names: Mapping[str, Any]) -> Symbol:
        constant = self.values.constants.get(path)
        if isinstance(constant, Symbol):
            return constant
        callee = f"torch.{path}" if path.startswith("Tensor.") else path
        if not all(isinstance(v, str) for v in names.values()):
            raise code.error("id= and by= are texts", "the id of an operator, the name of an executor", node)
        name = OperatorName(callee, **names)
        if name not in self.operators:
            self.operators[name] = name.symbol
        symbol = self.operators[name]
        if symbol is None:
            told = "".join(f", {k}={v!r}" for k, v in names.items())
            known = {
                *written_operators(),
                *(k for k, v in self.values.constants.items() if isinstance(v, Symbol)),
            }
            expected = "an operator that is registered, or a Symbol in the table of constants"
            code.unknown(f"an operator that thunder knows{told}", path, known, expected, node)
        return symbol

    def facts_of_call(
        self, symbol: Symbol, facts: Part, more: Mapping[str, ast.expr], into: Block
    ) -> dict[str, Any]:
        """Return the tags, the header and the line of a call, as arguments of BoundSymbol."""
        read = {k: self.values.value(facts, more[k]) for k in ("tags", "header", "at") if k in more}
        tags = read.get("tags", ())
        if not (isinstance(tags, list | tuple) and all(isinstance(t, OpenTag) for t in tags)):
            raise facts.error("tags= has no tags", "a list of tags", more["tags"])
        header = read.get("header")
        if not (header is None or isinstance(header, str | list)):
            raise facts.error("header= is no text", "a text, or a list of lines", more["header"])
        source = usual = usual_source(symbol, into.source)
        if "at" in read:
            try:
                source = _source(read["at"], self.shown)
            except (TypeError, ValueError):
                raise facts.error("at= is no line", '("file.py", 12, "", None)', more["at"]) from None
        if usual is into.source:
            into.source = source
        return {"tags": tags, "header": header, "source": source}

    # -- results -------------------------------------------------------------------------------------------

    def _assign(self, node: Node, target: ast.expr) -> None:
        """Give a call the output that the left-hand side shows; derive what the text has no types of."""
        names = list(_names_in(node.part, target))
        known = self.values.proxies
        unknown = [n for n in names if n.id not in known]
        if unknown and node.symbol.meta is None:
            raise node.part.error(
                f"{unknown[0].id} has no type, and {node.symbol.name} has no meta function",
                f'a type at the end of the line: # {unknown[0].id}: "cpu f32[4]"',
                unknown[0],
            )
        if unknown:
            self._derive(node, target)
        else:
            node.output = _tree(target, known)

    def _derive(self, node: Node, target: ast.expr) -> None:
        """Record the call, for the types of its results and its decomposition."""
        part = node.part
        with detached_trace() as scratch, torch.no_grad():
            scratch.names = set(self.taken)
            try:
                result = node.symbol(*node.args, **node.kwargs)
            except Exception as error:  # of an operator's meta function, which packages write too
                asked = f"{node.symbol.name} refuses the arguments: {error}"
                raise part.error(asked, "arguments of the operator", part.parsed()) from error
        bsym = scratch.bound_symbols[-1] if len(scratch.bound_symbols) == 1 else None
        if bsym is None or bsym.output is not result:
            raise part.error(
                f"a call of {node.symbol.name} with these arguments is not one statement of it",
                "the calls that it becomes",
                part.parsed(),
            )
        self.taken |= scratch.names
        renamed = dict(self._pairs(part, target, result))
        values = {p.name: p.replace(name=new) for p, new in renamed.values()}
        bsym = substitute(bsym, values)
        node.recorded, node.symbol = bsym, bsym.sym
        node.args, node.kwargs, node.output = bsym.args, bsym.kwargs, bsym.output
        self.values.known.update({p.name: p for p in proxies_in(bsym.output)})

    def _pairs(self, part: Part, target: ast.expr, result: Any) -> Iterator[tuple[str, tuple[Any, str]]]:
        """Yield the new names of results."""
        match target:
            case ast.Name(id=name):
                if not is_proxy(result):
                    raise part.error(
                        f"{name} is not a value of the program", "a statement with a result", target
                    )
                if result.name not in self.values.known and name != "_":
                    yield result.name, (result, name)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                if not isinstance(result, tuple | list) or len(result) != len(items):
                    raise part.error("the call has another number of results", "a target for each", target)
                for item, value in zip(items, result, strict=True):
                    if is_proxy(value) or not (isinstance(item, ast.Name) and item.id == "_"):
                        yield from self._pairs(part, item, value)


def structural(operator_id: str) -> Symbol:
    """Return a primitive that structures a program."""
    symbol = OperatorName(operator_id).symbol
    assert symbol is not None, "the primitives are registered"
    return symbol


def check_form(node: Node) -> None:
    """Check the arguments of a statement that prints as Python's own, of which no meta function is asked."""
    symbol = node.symbol
    if symbol.python_printer is not None:
        try:
            symbol.normalize(*node.args, **node.kwargs)
            symbol.python_printer(node.bound(), Names())
        except Exception as error:  # of a function that packages write too
            asked = f"{symbol.name} does not take these arguments: {error}"
            raise node.part.error(asked, f"a statement of {symbol.name}") from error


# -- parts of statements -----------------------------------------------------------------------------------


def _returned(value: ast.expr) -> list[ast.expr]:
    """Return the values of a return; ``return (a, b)`` has one, ``return a, b`` two."""
    if isinstance(value, ast.Tuple) and value.elts and value.elts[0].col_offset == value.col_offset:
        return value.elts
    return [value]


def _names_in(part: Part, target: ast.expr) -> Iterator[ast.Name]:
    match target:
        case ast.Name():
            yield target
        case ast.Tuple(elts=items) | ast.List(elts=items):
            for item in items:
                yield from _names_in(part, item)
        case _:
            raise part.error("the target is not a name", "names, in tuples or lists", target)


def _tree(target: ast.expr, known: Mapping[str, Any]) -> Any:
    match target:
        case ast.Tuple(elts=items):
            return tuple(_tree(item, known) for item in items)
        case ast.List(elts=items):
            return [_tree(item, known) for item in items]
    assert isinstance(target, ast.Name), "the targets are names"
    return known[target.id]


def _source(fact: Any, current: Source | None) -> Source | None:
    """Return the line that the fact ``at`` says."""
    if fact is None:
        return None
    file, number, module, inner = fact
    if not (isinstance(file, str) and type(number) is int and isinstance(module, str)):
        raise TypeError
    text = current.text if current is not None and (current.file, current.line) == (file, number) else None
    return Source(file, number, _source(inner, None), module, text)
