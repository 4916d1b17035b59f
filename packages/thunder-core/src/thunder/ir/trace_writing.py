"""The text of a trace that is read again: `dump`.

It has the layout of the text that is printed (``thunder.ir.codegen``), and each line says beside it what a
reader cannot derive, after a second ``#``:

    y = torch.sin(x)  # y: "cpu f32[4]"(requires_grad=True)  # by='torch', tags=[BoundSymbolTag.BACKWARD]

Statements that print as several lines, or as Python's own, are calls of their operators here; a return, a
``del`` and the lines of a prologue stay. ``FACTS`` and ``PROGRAM_FACTS`` are what the second comment may say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from thunder.base.structural_ids import DEL, LINES, RETURN, STRUCTURAL
from thunder.ir.codegen import (
    INDENT,
    arguments_text,
    decorators_of,
    import_lines,
    provenance_line,
    source_line,
)
from thunder.ir.literals import Names, value_text
from thunder.ir.proxies import TensorProxy, is_proxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.proxy_text import have_same_facts, proxy_text
from thunder.ir.registered_operators import OperatorName, name_of
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.trace import Source, TraceCtx

__all__ = [
    "PROGRAM_FACTS",
    "SIZES",
    "Printed",
    "dump",
    "is_plain",
    "source_fact",
    "source_of_parts",
    "usual_source",
]

#: the constant that has what is known of symbolic sizes
SIZES: Final = "sizes"

#: what the last line says of the program: the name of the fact → its value in a trace without it
PROGRAM_FACTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "reads": {},
        "plain": None,  # as the text shows
        "grad_enabled": False,
        "args": None,  # the parameters
        "kwargs": {},
        "tags": set(),
        "input_aliases": (),
        "computed_inputs": {},
        "input_forms": {},
        "counter": 0,
        "next_numbers": {},
        "other_names": [],
    }
)


@dataclass(frozen=True)
class Printed:
    """A trace as text, and the constants that it names: objects without literal, operators of one process.

    ``load(text, constants)`` is the trace. A constant is a :class:`~thunder.ir.symbol.Symbol` where a
    statement calls it: the operator of a fusion region, or one that is not registered.
    """

    text: str
    constants: Mapping[str, Any]


def dump(trace: TraceCtx) -> Printed:
    """Return the text of a trace from which `load` makes it again, with the constants that it names.

    All metadata of all values, tags, lines and names are in the text.
    """
    return _Writer(trace).written()


def source_fact(source: Source | None) -> Any:
    """Return what the fact ``at`` says of a line: literals, from which `Source` is made."""
    return None if source is None else (source.file, source.line, source.module, source_fact(source.inner))


def usual_source(symbol: Symbol, last: Source | None) -> Source | None:
    """Return the line of a statement that says none: that of the one before, unless it is of no line."""
    return None if symbol.id in STRUCTURAL else last


def source_of_parts(symbol: Symbol, source: Source | None) -> Source | None:
    """Return the line of the first part of a call that says none: that of a call without meta function."""
    return source if symbol.meta is None else None


def is_plain(star_args: bool, decorated: bool) -> bool:
    """Return whether a function of which a text shows this much runs without decorators."""
    return not decorated and not star_args


def is_tree_of_proxies(output: Any) -> bool:
    """Return whether a tree of targets of an assignment shows an output."""
    if type(output) in (tuple, list) and output:
        return all(map(is_tree_of_proxies, output))
    return is_proxy(output) and output.name.isidentifier()


class _Writer:
    """Writes line by line, and knows what a reader knows of each value after the lines before."""

    def __init__(self, trace: TraceCtx) -> None:
        self.trace = trace
        self.names = Names(trace.names, for_reading=True)
        self.known: dict[str, Any] = {}
        self.callees: dict[int, tuple[Symbol, OperatorName]] = {}
        #: the line that is shown above the statements
        self.shown: Source | None = None

    def written(self) -> Printed:
        trace = self.trace
        inputs = [line for p in proxies_in((trace.args, trace.kwargs)) for line in self._input_line(p)]
        statements = self._statements(trace.running_symbols, 1, None)
        last = self._program_facts()
        decorations = decorators_of(trace)
        lines = [
            *provenance_line(trace, timing=True),
            *import_lines(self.names.modules, decorations),
            "",
            *decorations,
            f"def {trace.name}({self._parameters()}):",
            *inputs,
            *statements,
            *last,
        ]
        return Printed("\n".join(lines), MappingProxyType(self.names.objects))

    # -- the program ---------------------------------------------------------------------------------------

    def _parameters(self) -> str:
        if self.trace.star_args:
            return "*args, **kwargs"
        return ", ".join(a if isinstance(a, str) else a.name for a in self.trace.args if _is_parameter(a))

    def _input_line(self, p: Any) -> Iterator[str]:
        if isinstance(p, SymbolicNumber):
            self._note_sizes(p)
        else:
            self.known[p.name] = p
            yield f"{INDENT}# {p.name}: {proxy_text(p, self.names)}"

    def _program_facts(self) -> list[str]:
        trace = self.trace
        decorated = bool(decorators_of(trace))
        sizes = getattr(self.names.objects.get(SIZES), "names", ())
        has_others = not all(_is_parameter(a) and not (type(a) is str and a in sizes) for a in trace.args)
        reads = self._new_facts(tuple(alias.proxy for group in trace.input_aliases for alias in group))
        facts = {
            "plain": None if trace.plain is is_plain(trace.star_args, decorated) else trace.plain,
            "grad_enabled": trace.grad_enabled and not decorated,
            "args": trace.args if has_others else None,
            "kwargs": trace.kwargs,
            "tags": trace.tags,
            "input_aliases": trace.input_aliases,
            "computed_inputs": dict(trace.computed_inputs),
            "input_forms": dict(trace.input_forms),
            "counter": trace._counter,
            "next_numbers": trace._next_numbers,
            "other_names": sorted(trace.names - self.known.keys()),
        }
        written = [
            f"{k}={value_text(v, self.names)}"
            for k, v in facts.items()
            if v != PROGRAM_FACTS[k] or k == "counter"  # a reader knows the text by this line
        ]
        written = [f"reads={{{', '.join(reads)}}}", *written] if reads else written
        return [f"{INDENT}# program: {', '.join(written)}"]

    # -- statements ----------------------------------------------------------------------------------------

    def _statements(self, bsyms: Sequence[BoundSymbol], depth: int, usual: Source | None) -> list[str]:
        """Return the lines of calls; ``usual`` is the line that the next one has if it says no other."""
        lead = INDENT * depth + ("# " if depth > 1 else "")
        lines = list[str]()
        for bsym in bsyms:
            shown = bsym.source if depth == 1 and self.trace.shows_lines else None
            if shown is not None and shown != self.shown:
                self.shown, usual = shown, Source(shown.file, shown.line)
                lines += ["", f"{lead}{source_line(shown)}"]
            expected = usual_source(bsym.sym, usual)
            lines += [f"{lead}{line}" for line in self._call(bsym, expected, at_top=depth == 1)]
            if expected is usual:
                usual = bsym.source
            lines += self._statements(bsym.subsymbols, depth + 1, source_of_parts(bsym.sym, bsym.source))
        return lines

    def _call(self, bsym: BoundSymbol, usual: Source | None, *, at_top: bool) -> list[str]:
        reads = self._new_facts(bsym.flat_proxy_args)
        computed = self._new_facts(bsym.flat_proxy_outs)
        callee, facts = self._callee(bsym.sym)
        if reads:
            facts["reads"] = f"{{{', '.join(reads)}}}"
        left, of_output = self._target(bsym.output)
        facts |= of_output
        if bsym.own_tags:
            facts["tags"] = value_text(sorted(bsym.own_tags, key=repr), self.names)
        if bsym.header is not None:
            facts["header"] = value_text(bsym.header, self.names)
        if source_fact(bsym.source) != source_fact(usual):
            facts["at"] = value_text(source_fact(bsym.source), self.names)
        comment = f"  # {', '.join(computed)}" if computed else ""
        if facts:
            comment += f"{'' if computed else '  #'}  # {', '.join(f'{k}={v}' for k, v in facts.items())}"
        special = _SPECIAL.get(bsym.sym.id) if at_top and not left else None
        lines = None if special is None else special(bsym, self.names)
        if lines is not None:
            return [f"{lines[0]}{comment}", *lines[1:]]
        return [f"{left}{callee}({arguments_text(bsym, self.names)}){comment}"]

    def _new_facts(self, proxies: tuple[Any, ...]) -> list[str]:
        """Return the types of values of which the lines before say another one, or none."""
        types = []
        for p in proxies:
            if isinstance(p, SymbolicNumber):
                self._note_sizes(p)
            elif p.name not in self.known or not have_same_facts(self.known[p.name], p):
                self.known[p.name] = p
                types.append(f"{p.name}: {proxy_text(p, self.names)}")
            if isinstance(p, TensorProxy):
                for n in (*p.shape, *(p.strides or ())):
                    if isinstance(n, SymbolicNumber):
                        self._note_sizes(n)
        return types

    def _note_sizes(self, number: SymbolicNumber) -> None:
        self.names.objects[SIZES] = number.facts

    def _target(self, output: Any) -> tuple[str, dict[str, str]]:
        """Return the left-hand side, and what it does not show of an output."""
        if output is None:
            return "", {}
        if is_tree_of_proxies(output):
            return f"{_target_text(output)} = ", {}
        return f"{_target_text(output)} = ", {"output": value_text(output, self.names)}

    def _callee(self, symbol: Symbol) -> tuple[str, dict[str, str]]:
        """Return the callee, and how the operator is told from others with it."""
        entry = self.callees.get(id(symbol))
        if entry is None:
            name = name_of(symbol)
            if name is None:
                name = OperatorName(self.names.obj(symbol.name, symbol))
            elif "." in name.callee:
                name = OperatorName(self._path(symbol, name.callee), name.id, name.by)
            entry = self.callees[id(symbol)] = (symbol, name)
        name = entry[1]
        facts = {"id": name.id, "by": name.by}
        return name.callee, {k: repr(v) for k, v in facts.items() if v is not None}

    def _path(self, symbol: Symbol, callee: str) -> str:
        if symbol.module is not None:
            return self.names.module(symbol.module, callee)
        return self.names.path(callee)


def _is_parameter(a: Any) -> bool:
    """Return whether an input is a parameter; those of an epilogue are names alone."""
    name = a.name if is_proxy(a) else a
    return isinstance(name, str) and name.isidentifier()


def _target_text(output: Any) -> str:
    """Return the targets of an output; ``_`` is one that is no value of the program, or no tree of them."""
    if is_proxy(output):
        return output.name if output.name.isidentifier() else "_"
    if not isinstance(output, (tuple, list)) or not output:
        return "_"
    items = ", ".join(map(_target_text, output))
    if type(output) is list:
        return f"[{items}]"
    return f"({items}{',' if len(output) == 1 else ''})"


def _write_return(bsym: BoundSymbol, names: Names) -> list[str] | None:
    return None if bsym.kwargs else [f"return {arguments_text(bsym, names)}".rstrip()]


def _write_del(bsym: BoundSymbol, names: Names) -> list[str] | None:
    return [f"del {arguments_text(bsym, names)}"] if bsym.args and not bsym.kwargs else None


_WORD: Final = re.compile(r"[^\W\d]\w*")


def _write_lines(bsym: BoundSymbol, names: Names) -> list[str] | None:
    """Write lines of Python below a line that names the objects in them."""
    lines, objects = bsym.args
    if any("\n" in line for line in lines):
        return None
    words = set(_WORD.findall("\n".join(lines)))
    used = {name: value for name, value in objects.items() if name in words}
    if any(names.objects.get(name, value) is not value for name, value in used.items()):
        return None
    for name, value in used.items():
        names.bind(name, value)
    head = f"with {bsym.sym.name}({', '.join(used)}):"
    return [head, *[f"{INDENT}{line}" for line in lines]]


#: the statements that are not written as calls, where that shows them as they are
_SPECIAL: Final[dict[str, Callable[[BoundSymbol, Names], list[str] | None]]] = {
    RETURN: _write_return,
    DEL: _write_del,
    LINES: _write_lines,
}
