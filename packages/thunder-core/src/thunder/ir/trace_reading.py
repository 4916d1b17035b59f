"""A trace from its text: `load`.

The text is read line by line, and nothing of it runs: a statement calls an operator that is registered or in
the table of constants, its arguments are literals, values and constants. What a line leaves out is derived,
by the meta function of its operator; so a line that was written by hand needs no types.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NoReturn

from thunder.base.errors import TraceError, TraceTextError
from thunder.base.structural_ids import BLOCK, BLOCK_END, COMMENT, LINES, UNPACK
from thunder.ir.proxies import AnyProxy
from thunder.ir.statement_reading import Block, Node, StatementReader, check_form, structural
from thunder.ir.text_parts import Part, facts_in, parts_of, path_of, types_of
from thunder.ir.trace import Source, TraceCtx, TraceProvenance, tracectx
from thunder.ir.trace_writing import PROGRAM_FACTS, is_plain
from thunder.ir.value_reading import ValueReader
from thunder.ir.verify import check_trace

__all__ = ["load"]

_INDENT: Final = 2
_DEFINITION: Final = re.compile(r"def ([^\W\d]\w*)\((.*)\):")
_TYPE: Final = re.compile(r'[^\W\d]\w*: "')
_SOURCE: Final = re.compile(r"(.+):(\d+):(?: \t(.*))?")
_PROVENANCE: Final = re.compile(r"# Constructed by (.*?)(?: \(took (\d+) milliseconds\))?", re.ASCII)
_PROGRAM: Final = "program: "
#: what a printed text says in place of types of values that nothing reads
_LEFT_OUT: Final = ("_ (unused)", "None")
_SINK: Final = "sink: "
_EMPTY: Final = re.compile(r"(\w+) \(empty sequence\)")
_NAME: Final = re.compile(r"[^\W\d]\w*")


def load(text: str, constants: Mapping[str, Any] = MappingProxyType({})) -> TraceCtx:
    """Return the trace whose text it is, after `check_trace` of it.

    Args:
        text: what :func:`~thunder.core.trace.dump` has written, or what a trace prints, edited or not. What
            it says no metadata of has those of its operator's meta function; nothing else of the text runs.
        constants: the objects that the text names, by name.

    Raises TraceTextError, with the line and the column, for a text that is not that of a trace: it names
    what stands there and what was expected.
    """
    return _Reader(text, constants).read()


class _Reader:
    """Reads a text; ``number`` is the line that is read, from 1."""

    def __init__(self, text: str, constants: Mapping[str, Any]) -> None:
        self.lines = text.split("\n")
        self.number = 0
        self.values = ValueReader(constants)
        self.statements = StatementReader(self.values, set(_NAME.findall(text)))
        self.trace = TraceCtx()
        self.block = Block(None)
        self.nodes = self.block.nodes
        self.facts: dict[str, Any] = {}
        self.inputs: dict[str, Any] = {}
        #: whether `dump` has written the text, which ends in a line of facts
        self.is_dump = any(line.startswith(f"{' ' * _INDENT}# {_PROGRAM}") for line in self.lines)
        #: how much deeper the statements of a block are
        self.inside = 0

    def read(self) -> TraceCtx:
        """Return the trace."""
        decorators = self._head()
        if not decorators and not self.is_dump:
            self._read_lines_alone()
        for part, depth in self._body():
            self._line(part, depth)
        self._end_block()
        self.statements.settle(1)
        trace = self.trace
        trace.bound_symbols = [node.bound() for node in self.nodes]
        self._add_facts(decorators)
        self._check()
        return trace

    # -- lines ---------------------------------------------------------------------------------------------

    @property
    def line(self) -> str:
        return self.lines[self.number - 1] if 0 < self.number <= len(self.lines) else ""

    def _here(self, asked: str, expected: str) -> TraceTextError:
        number = min(max(self.number, 1), len(self.lines))
        return Part(self.lines[number - 1], self.lines[number - 1], number, 0).error(asked, expected)

    def _head(self) -> list[str]:
        """Read the lines up to the definition; return the decorators."""
        decorators: list[str] = []
        for number, line in enumerate(self.lines, 1):
            self.number = number
            if (made := _PROVENANCE.fullmatch(line)) is not None:
                took = None if made[2] is None else int(made[2][:18]) * 1_000_000
                self.trace.provenance = TraceProvenance(made[1], took)
            elif line in ("@torch.no_grad()", "@no_autocast"):
                decorators.append(line)
            elif line.startswith("def "):
                self._definition(line)
                return decorators
            elif line.strip() and not line.startswith(("import ", "from ", "#")):
                raise self._here(f"{line.strip()[:60]!r} stands before the function", "an import, or def")
        raise self._here("the text has no function", "def computation(x):")

    def _definition(self, line: str) -> None:
        found = _DEFINITION.fullmatch(line)
        if found is None:
            raise self._here("the function has another form", "def computation(x, w):")
        self.trace.name = found[1]
        self.trace.star_args = found[2] == "*args, **kwargs"
        self.parameters = [] if self.trace.star_args else [n for n in found[2].split(", ") if n]
        for name in self.parameters:
            if not name.isidentifier():
                raise self._here(f"{name!r} is not a parameter", "names of inputs")

    def _body(self) -> Iterator[tuple[Part, int]]:
        """Yield the lines below the definition, with their depths: 1, and more in decompositions."""
        while self.number < len(self.lines):
            self.number += 1
            line = first = self.line
            while line.endswith("\\") and self.number < len(self.lines):
                self.number += 1
                line = line[:-1] + self.line.lstrip(" ")
            content = line.lstrip(" ")
            if not content.strip():
                continue
            indent = len(line) - len(content)
            if not indent or indent % _INDENT:
                raise self._here(f"the line is indented by {indent}", "a multiple of 2, and not 0")
            yield Part(content.rstrip(), first, self.number, indent), indent // _INDENT

    def _line(self, part: Part, depth: int) -> None:
        comment = part.text.removeprefix("#").removeprefix(" ") if part.text.startswith("#") else None
        if self.inside and depth == 1:
            self._end_block()
        depth -= self.inside
        if comment is None:
            if depth != 1:
                raise part.error(f"the statement is indented by {depth * _INDENT}", "an indentation by 2")
            if part.text == "with below_autograd():" and not self.inside:
                self.inside = 1
                self._add(Node(part, structural(BLOCK), (), {}, None))
            elif part.text.startswith("with "):
                self._add(self._lines_of_python(part))
            else:
                self.statements.read(part, self.block, 1)
        elif depth == 1:
            self._comment(part, comment)
        else:
            inner = Part(comment, part.line, part.number, part.start + len(part.text) - len(comment))
            self.statements.read(inner, self._decomposition(part, depth), depth)

    def _add(self, node: Node) -> None:
        self.statements.settle(1)
        self.statements.add(node, self.block)

    def _end_block(self) -> None:
        if self.inside:
            self.inside = 0
            self._add(Node(self.nodes[-1].part, structural(BLOCK_END), (), {}, None))

    def _decomposition(self, part: Part, depth: int) -> Block:
        block = self.block
        for _ in range(depth - 1):
            if not block.nodes:
                raise part.error("the line belongs to no statement", "a decomposition one step deeper")
            block = block.nodes[-1].parts
        return block

    def _comment(self, part: Part, comment: str) -> None:
        start = part.start + len(part.text) - len(comment)
        inner = Part(comment, part.line, part.number, start)
        if comment.startswith(_PROGRAM):
            facts = Part(comment.removeprefix(_PROGRAM), part.line, part.number, start + len(_PROGRAM))
            facts, named = facts_in(facts, PROGRAM_FACTS, "a program")
            self.statements.declare_reads(facts, named.pop("reads", None))
            self.facts |= {name: self.values.value(facts, node) for name, node in named.items()}
        elif _TYPE.match(comment):
            for typed in types_of(inner):
                self.values.declare(*typed)
                if not self.nodes:
                    self.inputs[typed[1]] = self.values.proxies[typed[1]]
        elif (found := _SOURCE.fullmatch(comment)) is not None and found[2].isascii():
            self.block.source = self.statements.shown = _source_of(found[1], int(found[2]), found[3] or "")
        elif not self.is_dump and not comment.startswith(_LEFT_OUT):
            self._printed_comment(inner)

    def _printed_comment(self, part: Part) -> None:
        """Read a comment of a printed text: a line of text, the unpacking of nothing, or a use of values."""
        empty = _EMPTY.fullmatch(part.text)
        if part.text.startswith(_SINK):
            read = Part(f"sink({part.text.removeprefix(_SINK)})", part.line, part.number, part.start)
            self.statements.read(read, self.block, 1)
        elif empty is not None and empty[1] in self.values.known:
            args: tuple[Any, ...] = (self.values.known[empty[1]], 0)
            self._add(Node(part, structural(UNPACK), args, {}, ()))
        else:
            self._add(Node(part, structural(COMMENT), (part.text,), {}, None))

    # -- lines of Python -----------------------------------------------------------------------------------

    def _read_lines_alone(self) -> None:
        """Read a printed function without decorators as the lines of Python that it is."""
        lines = [line[_INDENT:] for line in self.lines[self.number :]]
        first = min(self.number, len(self.lines) - 1)
        part = Part(self.lines[first].strip(), self.lines[first], first + 1, 0)
        if any(line[:_INDENT].strip() for line in self.lines[self.number :]):
            raise part.error("a line is not indented", "lines of the function")
        words = set(_NAME.findall("\n".join(lines)))
        objects = {name: value for name, value in self.values.constants.items() if name in words}
        self.number = len(self.lines)
        self._check_python(lines)
        self._add(Node(part, structural(LINES), (tuple(lines), MappingProxyType(objects)), {}, None))

    def _lines_of_python(self, part: Part) -> Node:
        """Read the lines of a prologue or an epilogue, which are code of the program that runs."""
        code, types, facts = parts_of(part.text, part.line, part.number, part.start)
        head = Part(f"{code.text}\n  pass", code.line, code.number, code.start).parsed()
        call = head.items[0].context_expr if isinstance(head, ast.With) else None
        if not isinstance(call, ast.Call) or path_of(call.func) != "python_lines" or call.keywords:
            raise code.error("with begins no block of a trace", "with python_lines(…):", call)
        if types.text:
            raise types.error("a block has no types", "facts of a statement", offset=0)
        facts, more = facts_in(facts, ("tags", "header", "at"), "a block")
        symbol, objects = structural(LINES), {}
        for argument in call.args:
            if not isinstance(argument, ast.Name):
                raise code.error("an object of a block has no name", "names of constants", argument)
            objects[argument.id] = self.values.named(code, argument)
        lines = []
        while self.number < len(self.lines) and self.lines[self.number].startswith(" " * 2 * _INDENT):
            self.number += 1
            lines.append(self.line[2 * _INDENT :])
        self._check_python(lines)
        args = (tuple(lines), MappingProxyType(objects))
        facts_of_call = self.statements.facts_of_call(symbol, facts, more, self.block)
        return Node(code, symbol, args, {}, None, facts_of_call)

    def _check_python(self, lines: Sequence[str]) -> None:
        first = self.number - len(lines)
        body = "\n".join(["def block():", *[f" {line}" for line in lines], " pass"])
        try:
            ast.parse(body)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            number = first + min(max((getattr(error, "lineno", None) or 2) - 1, 1), max(len(lines), 1))
            line = self.lines[number - 1]
            offset = (getattr(error, "offset", None) or 1) - 2 + 2 * _INDENT
            raise Part(line, line, number, 0).error(
                f"the line is not Python: {error.args[0]}", "Python", offset=offset
            ) from None

    # -- the program ---------------------------------------------------------------------------------------

    def _add_facts(self, decorators: Sequence[str]) -> None:
        trace, facts, known = self.trace, self.facts, self.values
        trace.grad_enabled = bool(decorators) and "@torch.no_grad()" not in decorators
        trace.plain = is_plain(trace.star_args, bool(decorators))
        trace.args = [self._input(name) for name in self.parameters]
        if facts.get("args") is not None:
            trace.args = list(facts["args"])
        for name, value in facts.items():
            usual = PROGRAM_FACTS[name]
            if usual is not None and type(value) is not type(usual):
                raise self._here(f"{name}= of the program is {value!r}", f"a {type(usual).__name__}")
        self._set_facts(facts)
        trace.names |= {name for name in known.known if name.isidentifier()}

    def _set_facts(self, facts: Mapping[str, Any]) -> None:
        trace = self.trace
        trace.plain = trace.plain if facts.get("plain") is None else bool(facts["plain"])
        trace.grad_enabled |= bool(facts.get("grad_enabled"))
        for name in ("kwargs", "tags", "input_aliases", "computed_inputs", "input_forms"):
            if name in facts:
                setattr(trace, name, facts[name])
        trace._counter = facts.get("counter", 0)
        trace._next_numbers = facts.get("next_numbers", {})
        trace.names = set(facts.get("other_names", ()))

    def _input(self, name: str) -> Any:
        """Return an input: a value, a size, or the name alone where the text has no type of it.

        A printed epilogue has names alone, a printed computation no type of what nothing reads.
        """
        if not self.is_dump and self.trace.plain:
            return name
        if name in self.inputs or name in self.values.sizes or self.is_dump:
            return self.inputs.get(name, self.values.sizes.get(name, name))
        with tracectx(None):
            return AnyProxy(name)

    def _check(self) -> None:
        """Check the trace; raise the fault at the line of its statement."""
        for node in self.nodes:
            check_form(node)
        try:  # what a prologue unpacks has a type that no meta function knows
            check_trace(self.trace, stage="load", check_meta=not self.trace.star_args)
        except TraceError as error:
            index = error.facts.get("index")
            self._raise_fault(error, index if isinstance(index, int) else -1)

    def _raise_fault(self, error: TraceError, index: int) -> NoReturn:
        fault = str(error.facts.get("fault", error.asked))
        if not 0 <= index < len(self.nodes):
            self.number = len(self.lines)
            raise self._here(fault, "a return as the last statement") from error
        raise self.nodes[index].part.error(fault, "a program that check_trace accepts") from error


def _source_of(file: str, number: int, text: str) -> Source:
    found = linecache.getline(file, number).rstrip()
    return Source(file, number, text=None if found == text.rstrip() else text)
