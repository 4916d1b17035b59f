"""The final names of a trace's values: of parameters, paths and variables of the program, else numbered."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import torch

from thunder.base.provenance import Path
from thunder.ir.object_names import identifier
from thunder.ir.proxies import GeneratorProxy, TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.trace import TraceCtx
from thunder.wrappers.overrides import OVERRIDES

#: an input of a computation, and its path
Input = tuple[TensorProxy | GeneratorProxy | SymbolicNumber, Path]


_NOT_IN_NAMES = re.compile(r"\W")


def name_values(trace: TraceCtx, inputs: list[Input], parameters: list[str]) -> None:
    """Give every value its final name, in the order of the program.

    The same program always gets the same names.
    """
    trace.names.clear()
    trace._counter = 0
    named: set[int] = set()
    for proxy, path in inputs:
        named.add(id(proxy))
        if isinstance(proxy, SymbolicNumber):
            proxy.name = trace.make_name(prefix=proxy.prefix)
            continue
        prefix = "g" if isinstance(proxy, GeneratorProxy) else "t"
        proxy.name = trace.make_derived_name(input_name(path, parameters, prefix))
    hints = {p.name_hint for bsym in trace.bound_symbols for p in _tensor_outs(bsym)}
    _name_scope(trace, trace.bound_symbols, named, hints)


def _name_scope(trace: TraceCtx, bsyms: Any, named: set[int], hints: set[str | None]) -> None:
    for bsym in bsyms:
        for out in bsym.flat_proxy_outs:
            key = id(out)
            if key not in named:
                named.add(key)
                _name(trace, out, hints)
        if bsym.subsymbols:
            _name_scope(trace, bsym.subsymbols, named, hints)


def _name(trace: TraceCtx, proxy: Any, hints: set[str | None]) -> None:
    hint = proxy.name_hint if isinstance(proxy, TensorProxy) else None
    if hint is not None and hint == identifier(hint) and trace.is_free(hint):
        proxy.name = trace.add_name(hint)
        return
    while f"t{trace._counter}" in hints:  # a variable of the program has this name
        trace._counter += 1
    proxy.name = trace.make_name(
        prefix=getattr(proxy, "prefix", "t") if not isinstance(proxy, TensorProxy) else "t"
    )


def _tensor_outs(bsym: BoundSymbol) -> list[TensorProxy]:
    return [p for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy)]


def parameter_names(fn: Callable[..., Any]) -> list[str]:
    """Return the names of a callable's positional parameters."""
    try:
        signature = inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in signature.parameters.values() if p.kind in kinds]


def input_name(path: Path, parameters: list[str], prefix: str = "t") -> str:
    """Return the name of an input: a parameter's, or ``t`` or ``g`` and the steps of its path."""
    keys = path.keys
    if keys[0] == "args" and len(keys) == 2 and keys[1] < len(parameters):
        return str(parameters[keys[1]])
    if keys[0] == "kwargs" and len(keys) == 2:
        return identifier(str(keys[1]), otherwise=prefix)  # ``f(**{"a b": x})``
    steps = keys[2:] if keys[0] in ("args", "kwargs") and len(keys) > 2 else keys[1:]
    text = "_".join([prefix, *[_NOT_IN_NAMES.sub("_", _word(k)) for k in steps]])
    return text if text.isascii() else identifier(text)


def is_state(path: Path) -> bool:
    """Return whether a path leads to a parameter or buffer of a module, or to an overriding tensor."""
    parent = path.parent
    if parent is None or path.kind != "key":
        return False
    if parent.parent is None:
        return parent.key == OVERRIDES and type(parent.root_object) is dict
    return parent.kind == "instance" and parent.key in ("_parameters", "_buffers")


def is_size(path: Path) -> bool:
    """Return whether a path leads to a size or a stride of a tensor."""
    parent = path.parent
    return parent is not None and (
        parent.kind == "strides" or (parent.kind == "attribute" and parent.key == "shape")
    )


def input_order(path: Path) -> tuple[Any, ...]:
    """Return the sort key of an input.

    Positional arguments come first, then keyword arguments, then state by path: names alphabetically, indices
    numerically.
    """
    keys = path.keys
    if is_size(path):
        return (3, *input_order(path.parent.parent), path.parent.kind == "strides", path.key)  # type: ignore[arg-type, union-attr]
    if keys[0] == "args":
        return (0, tuple(_natural(k) for k in keys[1:]))
    if keys[0] == "kwargs":
        return (1, tuple(_natural(k) for k in keys[1:]))
    steps = ".".join(map(_word, keys[1:])).split(".")  # of an overriding tensor, the dotted name is the path
    return (2, tuple(_natural(k) for k in steps))


def _natural(key: Any) -> tuple[int, int, str]:
    word = _word(key)
    return (0, int(word), "") if word.isdecimal() else (1, 0, word)


def _word(key: Any) -> str:
    """Return the text of a step: of a tensor that is a key its class, since its data are no name."""
    return type(key).__name__ if isinstance(key, torch.Tensor) else str(key)
