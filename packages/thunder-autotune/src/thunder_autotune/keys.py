"""The keys of measured calls and regions: texts that are equal for equal calls, in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from thunder.core.analysis import SymbolicNumber
from thunder.core.devices import Device
from thunder.core.dtypes import dtype as ThunderDtype
from thunder.core.proxies import NumberProxy, Proxy, TensorProxy
from thunder.core.pytree import tree_iter
from thunder.core.symbol import BoundSymbol
from thunder.extend import Region, structural_key

__all__ = ["call_key", "described", "has_symbolic_sizes", "region_key", "with_strides"]

#: constants whose `repr` says what they are, in every process
_PLAIN = (type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, type(...))


class _NoText(Exception):
    """An argument has no text that determines it."""


def call_key(bsym: BoundSymbol) -> str | None:
    """Return the operator of a call with what its arguments are, or None.

        torch.matmul(cpu f32[4, 8] grad, cpu f32[8, 16])

    Tensors have device, dtype and shape, strides where the program knows that they are not contiguous, and
    ``grad`` where they require grad. There is no key for a call with a symbolic size, or with an argument
    that no text describes, such as a function.
    """
    if has_symbolic_sizes(bsym.flat_proxy_args):
        return None
    try:
        arguments = [
            *map(_text, bsym.args),
            *(f"{name}={_text(value)}" for name, value in bsym.kwargs.items()),
        ]
    except _NoText:
        return None
    return f"{bsym.sym.id}({', '.join(arguments)})"


def region_key(region: Region) -> str | None:
    """Return the digest of a region's structure and of the strides that its inputs have, or None.

    Strides count where the program knows them. There is no key for a region with symbolic sizes, or that
    has no structural key.
    """
    proxies = (*region.inputs, *region.outputs)
    structure = None if has_symbolic_sizes(proxies) else structural_key(region)
    if structure is None:
        return None
    text = "\n".join([structure, *(with_strides(p) for p in region.inputs)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def described(bsyms: Iterable[BoundSymbol]) -> str:
    """Return the operators of a region with how often each occurs in a row, for readers."""
    names = [str(b.sym.id).rpartition(".")[2] for b in bsyms]
    parts: list[tuple[str, int]] = []
    for name in names:
        if parts and parts[-1][0] == name:
            parts[-1] = (name, parts[-1][1] + 1)
        else:
            parts.append((name, 1))
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in parts)


def has_symbolic_sizes(values: Iterable[Any]) -> bool:
    """Return whether a size, or a number, is a symbol."""
    return any(isinstance(x, SymbolicNumber) for x in _numbers(values))


def _numbers(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from (*value.shape, *(value.strides or ())) if isinstance(value, TensorProxy) else (value,)


def _text(value: Any) -> str:
    if isinstance(value, TensorProxy):
        return with_strides(value) + (" grad" if value.requires_grad else "")
    if isinstance(value, (tuple, list)):
        items = ", ".join(map(_text, value))
        return f"[{items}]" if isinstance(value, list) else f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({_text(value.start)}, {_text(value.stop)}, {_text(value.step)})"
    if isinstance(value, torch.Size):
        return _text(tuple(value))
    if isinstance(value, NumberProxy) and isinstance(value.value, _PLAIN):
        return repr(value.value)
    if isinstance(value, (ThunderDtype, Device)):
        return str(value)
    if isinstance(value, Proxy) or not isinstance(value, _PLAIN):
        raise _NoText
    return repr(value)


def with_strides(value: Any) -> str:
    """Return kind of device, dtype, shape, and strides (elements) if they are not contiguous."""
    if not isinstance(value, TensorProxy):
        return str(type(value).__name__)
    _, _, metadata = value.type_string().partition(" ")
    text = f"{value.device.type} {metadata}"  # whichever of several equal devices it is
    strides = value.strides
    if strides is None or tuple(strides) == _contiguous(value.shape):
        return text
    return f"{text} strides {tuple(strides)}"


def _contiguous(shape: Iterable[Any]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(tuple(shape)):
        strides.insert(0, step)
        step *= max(int(size), 1)
    return tuple(strides)


def tensors_of(values: Any) -> list[TensorProxy]:
    """Return the tensors in arguments, each once."""
    return list({p.name: p for p in tree_iter(values) if isinstance(p, TensorProxy)}.values())
