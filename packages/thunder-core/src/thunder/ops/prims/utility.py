"""Primitives that print as statements: return, del, print, call, comment, unpacking."""

from __future__ import annotations

from collections.abc import MutableMapping, MutableSequence, MutableSet
from typing import Any

from thunder.base.held_output import perform, show
from thunder.base.tags import OpTags
from thunder.ir.codegen import INDENT, type_comment
from thunder.ir.literals import Names, value_text
from thunder.ir.proxies import AnyProxy, CollectionProxy, Proxy, TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.primitive_batching import batched_shapes as batched
from thunder.ops.prims.declaration import primitive

# fmt: off
__all__ = [
    "check_values", "clear_mutable_collection", "comment", "python_call", "python_del", "python_print",
    "python_return", "sink", "unpack_sequence", "unpack_trivial",
]
# fmt: on

#: the width (columns) at which the targets of an unpacking wrap
_WRAP_AT = 80


def _nothing(*args: Any, **kwargs: Any) -> None:
    """The meta function of a statement without result."""


def _print_return(bsym: BoundSymbol, names: Names) -> list[str]:
    values = ", ".join(value_text(a, names) for a in bsym.args)
    return [f"return {values}".rstrip()]


def _print_del(bsym: BoundSymbol, names: Names) -> list[str]:
    # Unread results are all bound to `_`, so one `del _` releases the last of them.
    read = [p.name for p in bsym.args if p.name not in names.unread]
    unread = ["_"] if len(read) < len(bsym.args) else []
    return [f"del {', '.join([*read, *unread])}"] if bsym.args else []


def _print_print(bsym: BoundSymbol, names: Names) -> list[str]:
    parts = [value_text(a, names) for a in bsym.args]
    parts += [f"{k}={value_text(v, names)}" for k, v in bsym.kwargs.items()]
    return [f"{names.obj('print', show)}({', '.join(parts)})"]


def _print_call(bsym: BoundSymbol, names: Names) -> list[str]:
    fn, *args = bsym.args
    parts = [value_text(a, names) for a in args]
    parts += [f"{k}={value_text(v, names)}" for k, v in bsym.kwargs.items()]
    return [f"{names.obj('perform', perform)}({', '.join([names.obj(fn.__name__, fn), *parts])})"]


def _print_comment(bsym: BoundSymbol, names: Names) -> list[str]:
    return [f"# {line}".rstrip() for line in str(bsym.args[0]).splitlines()]


def _print_sink(bsym: BoundSymbol, names: Names) -> list[str]:
    return [f"# sink: {', '.join(value_text(a, names) for a in bsym.args)}"]


#: the end of a program; its arguments are what the program returns
python_return = primitive(
    "python_return", _nothing, short_id="RETURN", python_printer=_print_return, tags=(OpTags.DONT_DCE,)
)

#: the end of a value's life
python_del = primitive(
    "python_del", _nothing, short_id="DEL", python_printer=_print_del, tags=(OpTags.DONT_DCE,)
)

#: writes a value to standard output
python_print = primitive(
    "python_print",
    _nothing,
    short_id="PRINT",
    python_printer=_print_print,
    tags=(OpTags.DONT_DCE, OpTags.SKIPPED_EARLY),
)

#: calls a Python function for its effect: ``python_call(fn, *args, **kwargs)``
python_call = primitive(
    "python_call",
    _nothing,
    short_id="CALL",
    python_printer=_print_call,
    tags=(OpTags.DONT_DCE, OpTags.SKIPPED_EARLY),
)

#: a line of text
comment = primitive("comment", _nothing, python_printer=_print_comment, tags=(OpTags.DONT_DCE,))

#: a use of values that computes nothing
sink = primitive(
    "sink",
    _nothing,
    python_printer=_print_sink,
    tags=(OpTags.DONT_DCE, OpTags.NEVER_RAISES, OpTags.SKIPPED_EARLY),
)


def _check_values(condition: Any, kind: type[Exception], text: str) -> None:
    if not bool(condition.all()):
        raise kind(text)


#: raises ``kind(text)`` unless all elements of ``condition`` are true, as torch's kernel does for an operator
#: whose decomposition would not
check_values = primitive(
    "check_values",
    _nothing,
    eager=_check_values,
    vjp=NONDIFFERENTIABLE,
    tags=(OpTags.DONT_DCE,),
    batch=batched.check_values,
)


def _clear(collection: Any) -> None:
    """Empty a mutable collection, so that it does not keep its elements alive."""
    if isinstance(collection, (MutableSequence, MutableMapping, MutableSet)):
        collection.clear()


def _print_clear(bsym: BoundSymbol, names: Names) -> list[str]:
    names.obj("clear_collection", _clear)  # the name in text that older versions printed
    return [f"{names.obj('clear_mutable_collection', _clear)}({value_text(bsym.args[0], names)})"]


#: removes the elements of a collection
clear_mutable_collection = primitive(
    "clear_mutable_collection",
    _nothing,
    python_impl=_clear,
    python_printer=_print_clear,
    tags=(OpTags.DONT_DCE,),
)


# -- unpacking ---------------------------------------------------------------------------------------------


def _same(x: Any, *, name: str | None = None) -> Any:
    return x


def _print_trivial(bsym: BoundSymbol, names: Names) -> list[str]:
    x = bsym.output
    return [f'# {x.name}: "{x.type_string()}"'] if isinstance(x, (TensorProxy, Proxy)) else []


#: an input under its name
unpack_trivial = primitive(
    "unpack_trivial", _same, python_printer=_print_trivial, tags=(OpTags.DONT_DCE, OpTags.SKIPPED_EARLY)
)


def _elements(coll: Any, n: int) -> tuple[Any, ...]:
    if isinstance(coll, CollectionProxy):
        return tuple(AnyProxy() for _ in range(n))
    return tuple(coll)


def _print_sequence(bsym: BoundSymbol, names: Names) -> list[str]:
    """Print `C0, C1, = saved`, wrapped at the limit, then the type of each element."""
    collection, elements = value_text(bsym.args[0], names), bsym.output or ()
    if not elements:
        return [f"# {collection} (empty sequence)"]
    lines, line = [], ""
    for element in elements:
        target = f"{_read_name(element, names) or '_'}, "
        if len(INDENT) + len(line) + len(target) > _WRAP_AT:
            lines.append(f"{line}\\")
            line = ""
        line += target
    lines.append(f"{line}= {collection}")
    return lines + [_element_comment(e, names) for e in elements]


def _read_name(element: Any, names: Names) -> str | None:
    if isinstance(element, (TensorProxy, Proxy)) and element.name not in names.unread:
        return element.name
    return None


def _element_comment(element: Any, names: Names) -> str:
    return type_comment(element).strip() if _read_name(element, names) else "# None"


#: the elements of a collection; for an opaque one they are given as `output=` of `bind`
unpack_sequence = primitive(
    "unpack_sequence", _elements, python_printer=_print_sequence, tags=(OpTags.DONT_DCE,)
)
