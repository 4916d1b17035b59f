"""Statements of a trace's text: what is called, arguments, results, and what a line says beside them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import torch

from thunder.base.structural_ids import DEL, RETURN, UNPACK
from thunder.base.tags import OpenTag
from thunder.ir.literals import Names
from thunder.ir.proxies import is_proxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.registered_operators import OperatorName, takes, written_operators
from thunder.ir.substitution import substitute
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.text_parts import Part, facts_in, named_types, parts_of, path_of, types_of
from thunder.ir.trace import Source, detached_trace
from thunder.ir.trace_writing import source_of_parts, usual_source
from thunder.ir.value_reading import ValueReader

__all__ = ["Block", "Node", "StatementReader", "check_form", "structural"]

#: what the second comment of a statement may say
_FACTS: Final = ("id", "by", "reads", "output", "tags", "header", "at")
#: primitives that print as calls of other names
_PRINTED: Final = {"perform": "prims.python_call", "print": "prims.python_print"}


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
    #: the left-hand side, while it is not known what it is
    target: ast.expr | None = None

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
        #: the statement that is read, below those of whose decompositions it is
        self.path: list[Node] = []
        #: the results of the last statement that nothing reads, which a text calls ``_``
        self.unread: list[Any] = []
        self.operators: dict[OperatorName, Symbol | None] = {}

    def read(self, part: Part, into: Block, depth: int) -> None:
        """Read a statement into a block; raise TraceTextError for what is none."""
        self.settle(depth)
        code, types, facts = parts_of(part.text, part.line, part.number, part.start)
        facts, more = facts_in(facts, _FACTS, "a statement")
        self.declare_reads(facts, more.get("reads"))
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
            self._assign(node, targets, [typed[1] for typed in types_of(types)])
        self.add(node, into)

    def add(self, node: Node, into: Block) -> None:
        """Add a statement to a block."""
        into.nodes.append(node)
        self.path.append(node)

    def settle(self, depth: int) -> None:
        """End the statements from a depth on: their results are known now, or are derived."""
        while len(self.path) >= depth:
            node = self.path.pop()
            if node.target is not None:
                self._settle(node, node.target)
                node.target = None

    def declare_reads(self, facts: Part, node: ast.expr | None) -> None:
        """Note the types of operands that the lines before say others of, or none."""
        if node is None:
            return
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
                return structural(DEL), tuple(p for n in nodes for p in self._deleted(code, n)), {}
            case ast.Assign(targets=[ast.Tuple(elts=elements)], value=ast.Name() as collection):
                return structural(UNPACK), (self.values.named(code, collection), len(elements)), {}
            case ast.Assign(targets=[_], value=ast.Call() as call) | ast.Expr(value=ast.Call() as call):
                return self._operator_and_arguments(code, call, facts, more)
        raise code.error("the line is not a statement of a trace", "y = operator(x), del, or return", tree)

    def _deleted(self, code: Part, node: ast.expr) -> list[Any]:
        if isinstance(node, ast.Name) and node.id == "_" and self.unread:
            return self.unread
        return [self.values.value(code, node)]

    def _operator_and_arguments(
        self, code: Part, call: ast.Call, facts: Part, more: Mapping[str, ast.expr]
    ) -> tuple[Symbol, tuple[Any, ...], dict[str, Any]]:
        path = path_of(call.func)
        if path is None:
            raise code.error("what is called is not an operator", "the name of an operator", call.func)
        names = {k: self.values.value(facts, more[k]) for k in ("id", "by") if k in more}
        args, kwargs = [self.values.value(code, argument) for argument in call.args], {}
        for keyword in call.keywords:
            if keyword.arg is None:
                raise code.error("** has no name", "arguments", keyword.value)
            kwargs[keyword.arg] = self.values.value(code, keyword.value)
        return self._operator(code, call.func, path, names, (tuple(args), kwargs)), tuple(args), kwargs

    def _operator(
        self,
        code: Part,
        node: ast.expr,
        path: str,
        names: Mapping[str, Any],
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
    ) -> Symbol:
        constant = self.values.constants.get(path)
        if isinstance(constant, Symbol):
            return constant
        if callable(constant) and not isinstance(constant, type):
            printed = _PRINTED.get(path)
            return self._function(path, constant, code) if printed is None else structural(printed)
        callee = f"torch.{path}" if path.startswith("Tensor.") else path
        if not all(isinstance(v, str) for v in names.values()):
            raise code.error("id= and by= are texts", "the id of an operator, the name of an executor", node)
        name = OperatorName(callee, **names)
        if name not in self.operators:
            self.operators[name] = name.symbol
        symbol = self.operators[name]
        if symbol is not None and not takes(symbol, *arguments):  # another one with the name may
            symbol = next((s for s in name.symbols if takes(s, *arguments)), symbol)
        if symbol is None:
            told = "".join(f", {k}={v!r}" for k, v in names.items())
            known = {
                *written_operators(),
                *(k for k, v in self.values.constants.items() if isinstance(v, Symbol)),
            }
            expected = "an operator that is registered, or a Symbol in the table of constants"
            code.unknown(f"an operator that thunder knows{told}", path, known, expected, node)
        return symbol

    def _function(self, name: str, fn: Callable[..., Any], code: Part) -> Symbol:
        """Return the operator that runs a function of the table: a region returns a list."""
        registered = OperatorName(name).symbol
        if registered is not None and registered.python_impl is fn:
            return registered
        return Symbol(name, name, python_impl=fn, is_fusion=code.text.startswith("["))

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

    def _assign(self, node: Node, target: ast.expr, typed: Sequence[str]) -> None:
        """Give a call the output that the left-hand side shows, or note that it is not known yet."""
        known = self.values.proxies
        if isinstance(target, ast.Name) and target.id == "_" and len(typed) == 1:
            node.output = known[typed[0]]
            self.unread = [node.output]
        elif all(name.id in known for name in _names_in(node.part, target)):
            node.output = _tree(target, known)
        else:
            node.target = target

    def _settle(self, node: Node, target: ast.expr) -> None:
        """Give a call the output that its decomposition or the lines below show, or that is derived."""
        shown = dict(self._shown_below(node, target))
        unknown = [n for n in _names_in(node.part, target) if not self._is_known(n, shown)]
        if not unknown:
            node.output = _tree(target, self.values.proxies, shown)
        elif node.symbol.meta is not None:
            self._derive(node, target)
        else:
            raise node.part.error(
                f"{unknown[0].id} has no type, and {node.symbol.name} has no meta function",
                f'a type at the end of the line: # {unknown[0].id}: "cpu f32[4]"',
                unknown[0],
            )
        names = {n.id for n in _names_in(node.part, target)}
        self.unread = [p for p in proxies_in(node.output) if p.name not in names]

    def _is_known(self, name: ast.Name, shown: Mapping[int, Any]) -> bool:
        return name.id in self.values.proxies if name.id != "_" else id(name) in shown

    def _shown_below(self, node: Node, target: ast.expr) -> Iterator[tuple[int, Any]]:
        """Yield what ``_`` is among the targets, by ``id``, if a part of the call has the other targets."""
        known = {n.id for n in _names_in(node.part, target)} - {"_"}
        for part in reversed(node.parts.nodes):
            pairs = list(_aligned(target, part.output))
            if pairs and known <= {p.name for _, p in pairs if is_proxy(p)}:
                yield from ((id(n), p) for n, p in pairs if n.id == "_")
                return

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
        aligned = list(_aligned(target, result))
        pairs = [(n, p) for n, p in aligned if n.id != "_"]
        if [n for n, p in pairs if is_proxy(p)] != [n for n in _names_in(part, target) if n.id != "_"]:
            raise part.error("the call has other results", "a target for each value", target)
        self.taken |= scratch.names
        known = self.values.known
        values = {
            p.name: known[n.id] if n.id in known else p.replace(name=n.id)
            for n, p in pairs
            if p.name not in known
        }
        unread = [p for n, p in aligned if n.id == "_" and is_proxy(p)]
        values |= _computed_below(node, unread, values, bsym)
        bsym = substitute(bsym, values)
        node.recorded, node.symbol = bsym, bsym.sym
        node.args, node.kwargs, node.output = bsym.args, bsym.kwargs, bsym.output
        known.update({p.name: p for p in proxies_in(bsym.output)})


def _computed_below(
    node: Node, unread: Sequence[Any], values: Mapping[str, Any], recorded: BoundSymbol
) -> dict[str, Any]:
    """Return values of the decomposition for results that nothing reads, by the names of these.

    It is the value where the recorded call computes the result, or else the first one of its type.
    """
    computed = [p for part in node.parts.nodes for p in proxies_in(part.output)]
    places = [p.name for part in recorded.subsymbols for p in proxies_in(part.output)]
    at_place = dict(zip(places, computed, strict=False))
    left = [p for p in computed if p.name not in {value.name for value in values.values()}]
    found = dict[str, Any]()
    for result in unread:
        candidates = sorted(left, key=lambda p: p is not at_place.get(result.name))
        same = next((p for p in candidates if p.type_string() == result.type_string()), None)
        if same is not None:
            left = [p for p in left if p is not same]
            found[result.name] = same
    return found


def structural(operator_id: str) -> Symbol:
    """Return a primitive that structures a program."""
    symbol = OperatorName(operator_id.rpartition(".")[2], operator_id).symbol
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
    for part in node.parts.nodes:
        check_form(part)


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


def _tree(target: ast.expr, known: Mapping[str, Any], shown: Mapping[int, Any] = MappingProxyType({})) -> Any:
    match target:
        case ast.Tuple(elts=items):
            return tuple(_tree(item, known, shown) for item in items)
        case ast.List(elts=items):
            return [_tree(item, known, shown) for item in items]
    assert isinstance(target, ast.Name), "the targets are names"
    return shown[id(target)] if id(target) in shown else known[target.id]


def _aligned(target: ast.expr, output: Any) -> Iterator[tuple[ast.Name, Any]]:
    """Yield targets with the values that they are of an output, as far as the two have one structure."""
    match target:
        case ast.Name():
            yield target, output
        case ast.Tuple(elts=items) | ast.List(elts=items):
            if isinstance(output, tuple | list) and len(output) == len(items):
                for item, value in zip(items, output, strict=True):
                    yield from _aligned(item, value)


def _source(fact: Any, current: Source | None) -> Source | None:
    """Return the line that the fact ``at`` says."""
    if fact is None:
        return None
    file, number, module, inner = fact
    if not (isinstance(file, str) and type(number) is int and isinstance(module, str)):
        raise TypeError
    text = current.text if current is not None and (current.file, current.line) == (file, number) else None
    return Source(file, number, _source(inner, None), module, text)
