"""Traces as text: runnable Python, one statement a bound symbol, its decomposition below it as comments.

Everything that is printed is decided here: layout, values, callees, imports. The same program gives the same text in every
process: nothing depends on ``id()``, set order or time, except the provenance line.
"""

from __future__ import annotations

import dataclasses
import enum
import linecache
import math
import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from thunder.core import devices, dtypes
from thunder.core.proxies import NumberProxy, Proxy, TensorProxy

if TYPE_CHECKING:
    from thunder.core.symbol import BoundSymbol
    from thunder.core.trace import TraceCtx

#: short names of modules in the text → how they are imported
MODULES = {
    "ltorch": "import thunder.torch as ltorch",
    "prims": "import thunder.core.prims as prims",
    "dtypes": "import thunder.core.dtypes as dtypes",
    "devices": "import thunder.core.devices as devices",
}
INDENT = "  "


# -- values -----------------------------------------------------------------------------------------------------------


def _float(x: float) -> str:
    if math.isnan(x):
        return "float('NaN')"
    if math.isinf(x):
        return "float('inf')" if x > 0 else "-float('inf')"
    return repr(x)


def _sequence(open_: str, close: str) -> Callable[[Any, Names], str]:
    def text(x: Any, names: Names) -> str:
        inner = ", ".join(value_text(v, names) for v in x)
        return f"{open_}{inner}{',' if len(x) == 1 and close == ')' else ''}{close}"

    return text


def _dict(x: dict[Any, Any], names: Names) -> str:
    return "{" + ", ".join(f"{value_text(k, names)}: {value_text(v, names)}" for k, v in x.items()) + "}"


def _set(x: Any, names: Names) -> str:
    inner = ", ".join(sorted(value_text(v, names) for v in x))
    return f"{{{inner}}}" if inner else "set()"


def _slice(x: slice, names: Names) -> str:
    return f"slice({', '.join(value_text(v, names) for v in (x.start, x.stop, x.step))})"


#: exact type → text; what is not here is printed by structure, or as a name bound in the context
_VALUES: dict[type, Callable[[Any, Any], str]] = {
    type(None): lambda x, n: "None",
    bool: lambda x, n: repr(x),
    int: lambda x, n: repr(x),
    float: lambda x, n: _float(x),
    complex: lambda x, n: f"complex({_float(x.real)}, {_float(x.imag)})",
    str: lambda x, n: repr(x),
    bytes: lambda x, n: repr(x),
    type(...): lambda x, n: "...",
    slice: _slice,
    range: lambda x, n: repr(x),
    tuple: _sequence("(", ")"),
    list: _sequence("[", "]"),
    dict: _dict,
    set: _set,
    frozenset: lambda x, n: f"frozenset({_set(x, n) if x else ''})",
    torch.Size: lambda x, n: f"torch.Size({list(x)!r})",
    torch.dtype: lambda x, n: repr(x),
    torch.layout: lambda x, n: repr(x),
    torch.memory_format: lambda x, n: repr(x),
    torch.device: lambda x, n: f'torch.device("{x}")',
    dtypes.dtype: lambda x, n: n.module("dtypes", f"dtypes.{x.name}"),
    devices.Device: lambda x, n: n.module("devices", f'devices.Device("{x.device_str()}")'),
}


class Names:
    """What a text refers to: the short names of modules, and objects that have no literal form."""

    def __init__(self, trace: TraceCtx | None) -> None:
        self.trace = trace
        self.modules: set[str] = set()
        self.objects: dict[str, Any] = {}

    def module(self, short: str, text: str) -> str:
        """Notes that the text uses a module; returns the text."""
        self.modules.add(short)
        return text

    def obj(self, name: str, value: Any) -> str:
        """Binds ``name`` to an object in the context of the text."""
        self.objects[name] = value
        return name

    def fresh(self, value: Any) -> str:
        """A name for an object without literal form."""
        name = self.trace.make_object_name(value) if self.trace is not None else f"_{type(value).__name__}"
        return self.obj(name, value)


def value_text(x: Any, names: Names) -> str:
    """A value as it stands in a statement."""
    if isinstance(x, TensorProxy | Proxy):
        return x.name
    printer = _VALUES.get(type(x))
    if printer is not None:
        return printer(x, names)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        fields = ", ".join(f"{f}={value_text(v, names)}" for f, v in zip(x._fields, x, strict=True))
        return f"{names.obj(_type_name(type(x)), type(x))}({fields})"
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        fields = ", ".join(f"{f.name}={value_text(getattr(x, f.name), names)}" for f in dataclasses.fields(x) if f.init)
        return f"{names.obj(_type_name(type(x)), type(x))}({fields})"
    if isinstance(x, enum.Enum):
        return names.obj(f"_{type(x).__name__}_{x.name}", x)
    if isinstance(x, type):
        return names.obj(x.__name__, x)
    return names.fresh(x)


def _type_name(cls: type) -> str:
    return f"{cls.__module__.replace('.', '_')}_{cls.__qualname__.replace('.', '_').replace('<locals>', 'locals')}"


# -- statements -------------------------------------------------------------------------------------------------------


def output_text(output: Any, unread: set[str] | None = None, fusion: bool = False) -> str:
    """The left-hand side. Python values, and proxies that nobody reads, print ``_``."""
    if output is None or (isinstance(output, tuple | list) and not output):
        return ""
    if isinstance(output, tuple | list):
        inner = ", ".join(_output_item(o, unread) for o in output)
        if fusion:
            return f"[{inner}] = "
        return f"({inner}{',' if len(output) == 1 else ''}) = "
    return f"{_output_item(output, unread)} = "


def _output_item(o: Any, unread: set[str] | None) -> str:
    if isinstance(o, TensorProxy | Proxy):
        return "_" if unread is not None and o.name in unread else o.name
    if isinstance(o, tuple | list):
        return f"({', '.join(_output_item(i, unread) for i in o)}{',' if len(o) == 1 else ''})"
    return "_"


def arguments_text(bsym: BoundSymbol, names: Names) -> str:
    """The arguments: positional as the meta function names them, then keywords."""
    parts = [value_text(a, names) for a in bsym.args]
    parts += [f"{k}={value_text(v, names)}" for k, v in bsym.kwargs.items()]
    return ", ".join(parts)


def callee_text(bsym: BoundSymbol, names: Names) -> str:
    """How the statement calls: a bare bound name, a public torch path, or ``module.name``."""
    sym = bsym.sym
    if sym.python_impl is not None:
        return names.obj(sym.name, sym.python_impl)
    if sym.call_path is not None:
        owner, _, name = sym.call_path.rpartition(".")
        if owner == "torch.Tensor":
            return names.module("Tensor", f"Tensor.{name}")
        return names.module(owner, sym.call_path)
    if sym.module is not None:
        return names.module(sym.module, f"{sym.module}.{sym.name}")
    return sym.name


def type_comment(output: Any) -> str:
    """The trailing comment of a statement whose output is a single proxy."""
    if isinstance(output, TensorProxy | NumberProxy):
        return f'  # {output.name}: "{output.type_string()}"'
    return ""


def statement_lines(
    bsym: BoundSymbol,
    *,
    indent: int = 0,
    commented: bool = False,
    print_depth: int = 1,
    names: Names | None = None,
    unread: set[str] | None = None,
) -> list[str]:
    """The lines of a bound symbol: header, statement, and the subsymbols as comments, one level deeper each."""
    names = names if names is not None else Names(None)
    comment = "# " if commented else ""
    lead = INDENT * indent + comment
    lines = [f"{lead}# {h}" if not commented else f"{lead}{h}" for h in _headers(bsym.header)]
    if bsym.sym.python_printer is not None:
        lines += [f"{lead}{line}" for line in bsym.sym.python_printer(bsym, names)]
    else:
        left = output_text(bsym.output, unread, bsym.sym.is_fusion)
        call = f"{callee_text(bsym, names)}({arguments_text(bsym, names)})"
        lines.append(f"{lead}{left}{call}{type_comment(bsym.output)}")
    if print_depth != 1:
        inner = Names(names.trace)  # comments need no imports
        for sub in bsym.subsymbols:
            lines += statement_lines(sub, indent=indent + 1, commented=True, print_depth=print_depth - 1, names=inner)
    return lines


def _headers(header: str | list[str] | None) -> list[str]:
    if header is None:
        return []
    return header.splitlines() if isinstance(header, str) else list(header)


# -- programs ---------------------------------------------------------------------------------------------------------


def _source_lines(bsym: BoundSymbol, last: Any) -> Iterator[str]:
    source = bsym.source
    if source is None or source == last:
        return
    text = linecache.getline(source.file, source.line).rstrip("\n")
    yield ""
    yield f"{INDENT}# {source.file}:{source.line}: \t{text}".rstrip()


def _input_lines(trace: TraceCtx, used: set[str]) -> Iterator[str]:
    for arg in trace.args:
        if isinstance(arg, TensorProxy | Proxy):
            if arg.name in used:
                yield f'{INDENT}# {arg.name}: "{arg.type_string()}"'
            else:
                yield f"{INDENT}# {arg.name} (unused)"


def body_lines(trace: TraceCtx, names: Names, print_depth: int) -> list[str]:
    """The lines of the function's body."""
    used = {p.name for b in trace.bound_symbols for p in b.flat_proxy_args}
    lines = list(_input_lines(trace, used))
    last = None
    for bsym in trace.bound_symbols:
        lines += _source_lines(bsym, last)
        last = bsym.source or last
        unread = {p.name for p in bsym.flat_proxy_outs if p.name not in used}
        lines += statement_lines(bsym, indent=1, print_depth=print_depth, names=names, unread=unread)
    return lines or [f"{INDENT}pass"]


def _parameter_text(trace: TraceCtx) -> str:
    if trace.star_args:
        return "*args, **kwargs"
    return ", ".join(a.name if isinstance(a, TensorProxy | Proxy) else str(a) for a in trace.args)


def _import_lines(names: Names, decorators: Iterable[str]) -> list[str]:
    lines = {"torch": "import torch"}
    for module in names.modules:
        if module == "Tensor":
            lines["torch.Tensor"] = "from torch import Tensor"
        elif module in MODULES:
            lines[MODULES[module].split()[1]] = MODULES[module]
        else:
            lines[module] = f"import {module}"
    ordered = [lines[k] for k in sorted(lines)]
    if "@no_autocast" in decorators:
        ordered.append("from thunder.executors.torchex import no_autocast")
    return ordered


def decorators_of(trace: TraceCtx) -> list[str]:
    """The decorators of the printed function; a prologue and an epilogue only run Python."""
    if trace.star_args or trace.plain:
        return []
    return ["@no_autocast"] if trace.grad_enabled else ["@torch.no_grad()", "@no_autocast"]


def program_text(trace: TraceCtx, *, print_depth: int = 1, decorators: bool = True, timing: bool = True) -> str:
    """The whole text of a trace."""
    names = Names(trace)
    body = body_lines(trace, names, print_depth)
    decorations = decorators_of(trace) if decorators else []
    lines = []
    if trace.provenance is not None:
        took = trace.provenance.took_ns
        timed = f" (took {took // 1_000_000} milliseconds)" if timing and took is not None else ""
        lines.append(f"# Constructed by {trace.provenance.pss}{timed}")
    lines += [*_import_lines(names, decorations), "", *decorations]
    lines += [f"def {trace.name}({_parameter_text(trace)}):", *body]
    return "\n".join(lines)


def program_context(trace: TraceCtx) -> dict[str, Any]:
    """The objects that the text refers to and does not import."""
    names = Names(trace)
    body_lines(trace, names, 1)
    return {k: v for k, v in names.objects.items() if not isinstance(v, types.ModuleType)}
