"""The text of traces: runnable Python, with decompositions as comments.

This module decides the layout: statements, source lines, imports, decorators. The same program has the same
text in every process: nothing depends on ``id()``, set order or time, except the provenance line.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thunder.base.structural_ids import BLOCK, BLOCK_END, CLEAR, COMMENT, DEL
from thunder.ir.literals import MODULES, Names, value_text
from thunder.ir.proxies import Proxy, TensorProxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.symbolic_numbers import SymbolicNumber

if TYPE_CHECKING:
    from thunder.ir.symbol import BoundSymbol
    from thunder.ir.trace import Source, TraceCtx

__all__ = [
    "Program",
    "arguments_text",
    "body_lines",
    "callee_text",
    "output_text",
    "program",
    "statement_lines",
    "type_comment",
    "unread_results",
]

INDENT = "  "


# -- statements --------------------------------------------------------------------------------------------


def output_text(output: Any, unread: frozenset[str] | set[str] = frozenset(), fusion: bool = False) -> str:
    """Return the left-hand side; Python values and unused proxies print as ``_``."""
    if output is None or (isinstance(output, (tuple, list, dict)) and not output):
        return ""
    if fusion and isinstance(output, (tuple, list)):
        return f"[{', '.join([_target(o, unread) for o in output])}] = "
    return f"{_target(output, unread)} = "


def _target(o: Any, unread: frozenset[str] | set[str]) -> str:
    if isinstance(o, (TensorProxy, Proxy)):
        return "_" if o.name in unread else o.name
    if isinstance(o, (tuple, list)) and o:
        return f"({', '.join([_target(i, unread) for i in o])}{',' if len(o) == 1 else ''})"
    return "_"


def arguments_text(bsym: BoundSymbol, names: Names) -> str:
    """Return the arguments: positional ones as in the meta function, then keywords."""
    parts = [value_text(a, names) for a in bsym.args]
    parts += [f"{k}={value_text(v, names)}" for k, v in bsym.kwargs.items()]
    return ", ".join(parts)


def callee_text(bsym: BoundSymbol, names: Names) -> str:
    """Return the callee of a statement: a bare name, a public path, or ``module.name``."""
    sym = bsym.sym
    if sym.python_impl is not None:
        return names.obj(sym.name, sym.python_impl)
    if sym.call_path is not None:
        return names.path(sym.call_path, sym.call_target)
    if sym.module is not None:
        return names.module(sym.module, f"{sym.module}.{sym.name}")
    return str(sym.name)


def type_comment(output: Any) -> str:
    """Return the trailing comment of a statement whose output is a single proxy, or ends with a size."""
    if isinstance(output, (TensorProxy, Proxy)):
        return f'  # {output.name}: "{output.type_string()}"'
    if isinstance(output, tuple) and output and isinstance(output[-1], SymbolicNumber):
        types = [f'{p.name}: "{p.type_string()}"' for p in proxies_in(output)]
        return f"  # {', '.join(types)}"
    return ""


def _statement(bsym: BoundSymbol, names: Names, lead: str) -> list[str]:
    lines = [f"{lead}# {h}" for h in _headers(bsym.header)]
    if bsym.sym.python_printer is not None:
        return lines + [f"{lead}{line}" for line in bsym.sym.python_printer(bsym, names)]
    left = output_text(bsym.output, names.unread, bsym.sym.is_fusion)
    call = f"{callee_text(bsym, names)}({arguments_text(bsym, names)})"
    lines.append(f"{lead}{left}{call}{type_comment(bsym.output)}")
    return lines


def _decomposition(bsym: BoundSymbol, names: Names, indent: int, depth: int) -> list[str]:
    lines: list[str] = []
    for sub in bsym.subsymbols if depth != 0 else ():
        lines += _statement(sub, names, f"{INDENT * indent}# ")
        lines += _decomposition(sub, names, indent + 1, depth - 1)
    return lines


def statement_lines(
    bsym: BoundSymbol,
    *,
    indent: int = 0,
    commented: bool = False,
    print_depth: int = 1,
    names: Names | None = None,
) -> list[str]:
    """Return the lines of a bound symbol: header, statement, and subsymbols as comments.

    Each level of subsymbols is indented by one step more.
    """
    names = names if names is not None else Names()
    statement = _statement(bsym, names, INDENT * indent + ("# " if commented else ""))
    return statement + _decomposition(bsym, names.for_comments(), indent + 1, print_depth - 1)


def _headers(header: str | Sequence[str] | None) -> Sequence[str]:
    if header is None:
        return ()
    return header.splitlines() if isinstance(header, str) else header


# -- programs ----------------------------------------------------------------------------------------------


def unread_results(bsyms: Iterable[BoundSymbol]) -> set[str]:
    """Return the names of results that are never read, which print as ``_``.

    A ``del`` directly after the statement does not count as a reader: it prints ``_`` too. A later one does,
    because other statements may have bound ``_`` in between.
    """
    results: set[str] = set()
    read: set[str] = set()
    last: frozenset[str] = frozenset()
    for bsym in bsyms:
        arguments = [p.name for p in bsym.flat_proxy_args]
        if bsym.sym.id == DEL:
            read.update([name for name in arguments if name not in last])
            continue
        read.update(arguments)
        if bsym.sym.id not in (COMMENT, CLEAR):
            last = frozenset([p.name for p in bsym.flat_proxy_outs])
            # types of tensors show sizes by their names
            results |= last - {p.name for p in bsym.flat_proxy_outs if isinstance(p, SymbolicNumber)}
    return results - read


def _source_lines(bsym: BoundSymbol, last: Source | None, lead: str) -> Iterator[str]:
    source = bsym.source
    if source is None or source == last:
        return
    yield ""
    yield f"{lead}{source_line(source)}"


def source_line(source: Source) -> str:
    """Return the comment that shows a line of the user's program."""
    text = source.text if source.text is not None else linecache.getline(source.file, source.line)
    return f"# {source.file}:{source.line}: \t{text}".rstrip()


def _input_lines(trace: TraceCtx) -> Iterator[str]:
    read = {p.name for b in trace.bound_symbols for p in b.flat_proxy_args}
    for arg in trace.args:
        if isinstance(arg, (TensorProxy, Proxy)):
            yield (
                f'{INDENT}# {arg.name}: "{arg.type_string()}"'
                if arg.name in read
                else f"{INDENT}# _ (unused)"
            )


def body_lines(trace: TraceCtx, names: Names, print_depth: int) -> list[str]:
    """Return the lines of the function's body.

    All statements are printed before the first decomposition, so that objects have the same names at every
    depth.
    """
    bsyms = trace.running_symbols
    names.unread = unread_results(bsyms)
    statements: list[list[str]] = []
    depths: list[int] = []
    last, depth = None, 1
    for bsym in bsyms:
        depth -= bsym.sym.id == BLOCK_END
        above = _source_lines(bsym, last, INDENT * depth) if trace.shows_lines else ()
        statements.append([*above, *_statement(bsym, names, INDENT * depth)])
        depths.append(depth)
        depth += bsym.sym.id == BLOCK
        last = bsym.source or last
    lines = [] if trace.star_args else list(_input_lines(trace))
    comments = names.for_comments()
    for bsym, statement, depth in zip(bsyms, statements, depths, strict=True):
        lines += [*statement, *_decomposition(bsym, comments, depth + 1, print_depth - 1)]
    return lines if statements else [*lines, f"{INDENT}pass"]


def _parameter_text(trace: TraceCtx) -> str:
    if trace.star_args:
        return "*args, **kwargs"
    return ", ".join(a.name if isinstance(a, (TensorProxy, Proxy)) else str(a) for a in trace.args)


def import_lines(modules: Iterable[str], decorators: Sequence[str]) -> list[str]:
    """Return the imports of a text that uses these modules and decorators."""
    lines = {"torch": "import torch"}
    for module in modules:
        line = MODULES.get(module, f"import {module}")
        lines[line.split()[1] if not line.startswith("from") else f"torch.{module}"] = line
    ordered = [lines[k] for k in sorted(lines)]
    if "@no_autocast" in decorators:
        ordered.append("from thunder.executors.torchex import no_autocast")
    return ordered


def decorators_of(trace: TraceCtx) -> list[str]:
    """Return the decorators of the function; a prologue and an epilogue have none."""
    if trace.star_args or trace.plain:
        return []
    return ["@no_autocast"] if trace.grad_enabled else ["@torch.no_grad()", "@no_autocast"]


def provenance_line(trace: TraceCtx, timing: bool) -> list[str]:
    """Return the first line of a text, which has the pass and its time; nothing if the pass is not known."""
    if trace.provenance is None:
        return []
    took = trace.provenance.took_ns
    timed = f" (took {took // 1_000_000} milliseconds)" if timing and took is not None else ""
    return [f"# Constructed by {trace.provenance.pss}{timed}"]


@dataclass(frozen=True)
class Program:
    """The text of a trace with its namespace.

    ``context`` has every name that the text uses and does not import, ``targets`` the functions of its dotted
    paths.
    """

    text: str
    context: dict[str, Any]
    targets: dict[str, Any]


def program(
    trace: TraceCtx, *, print_depth: int = 1, decorators: bool = True, timing: bool = True
) -> Program:
    """Return the text of a trace, with its namespace.

    Names that occur only in comments are neither imported nor bound: the text at ``print_depth`` 1 is
    everything that runs.
    """
    names = Names(trace.names, trace.object_names())
    body = body_lines(trace, names, print_depth)
    decorations = decorators_of(trace) if decorators else []
    lines = [
        *provenance_line(trace, timing),
        *import_lines(names.modules, decorations),
        "",
        *decorations,
        f"def {trace.name}({_parameter_text(trace)}):",
        *body,
    ]
    return Program("\n".join(lines), names.objects, names.targets)
