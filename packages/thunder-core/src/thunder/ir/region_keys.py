"""Structural keys of fusion regions: equal for regions that compute the same from equal types of values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import torch

from thunder.base import devices, dtypes
from thunder.ir.fusion_regions import Region
from thunder.ir.literals import Names, value_text
from thunder.ir.proxies import Proxy, TensorProxy
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.symbolic_sizes import SymbolicInt, SymbolicNumber, has_symbols

__all__ = ["structural_key"]

#: Types whose printed values have nothing left out. A region with a constant of another type has no key.
_PRINTED = (
    *(type(None), bool, int, float, complex, str, bytes, type(...), range),
    *(torch.dtype, torch.layout, torch.memory_format, torch.device, dtypes.dtype, devices.Device),
)
#: those of them that `repr` writes as statements have them
_BY_REPR = frozenset({type(None), bool, int, str})


class _NotPrinted(Exception):
    """A constant of a region has no text that determines it."""


def structural_key(region: Region, *, requires_grad: bool = False) -> str | None:
    """Return a key that is equal for regions of equal structure, in every process.

    The structure is: the operators in their order with their constants; which argument of a call is which
    input or which value of an earlier call; which values are outputs; the type, shape, dtype and device of
    each value, and of results the strides that their operator declares; which outputs are written to inputs;
    with `requires_grad` also whether values require grad, for executors whose code depends on it. An operator
    of the program itself, such as an autograd.Function, counts by its decomposition: another one may have its
    id. Names, source lines and other decompositions do not count. What inputs are only when the region runs
    (their strides, the memory that they share) is not in it either.

    Symbolic sizes count by their places, not by their values, so that regions of other sizes have the key.

    Returns None for a region with a constant that has no complete text, such as a function or a generator.
    """
    keys = _keys.setdefault(region, {})
    if requires_grad not in keys:
        keys[requires_grad] = _key(region, requires_grad)
    return keys[requires_grad]


#: the keys of regions, by whether `requires_grad` is set; several stages of a compile ask for one
_keys: WeakKeyDictionary[Region, dict[bool, str | None]] = WeakKeyDictionary()


def _key(region: Region, requires_grad: bool) -> str | None:
    writer = _Writer(requires_grad)
    try:
        lines = [writer.definitions(map(_without_strides, region.inputs))]
        lines += map(writer.call, region.bsyms)
        lines.append(f"return {writer.text(region.outputs)}")
        lines += [f"write {output} {target}" for output, target in region.copied]
        lines += [f"reuse {output} {target}" for output, target in region.reused]
    except _NotPrinted:
        return None
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _without_strides(p: Any) -> Any:
    """Return an input without the strides that it had in the first call of the program."""
    return p.replace(strides=None) if isinstance(p, TensorProxy) else p


def _is_its_decomposition(symbol: Symbol) -> bool:
    """Return whether nothing runs an operator but its decomposition, so that its id alone says little."""
    return not (symbol.is_prim or symbol.call_path or symbol.python_impl)


class _Writer:
    """Writes values, with proxies numbered in the order of their first occurrence."""

    def __init__(self, requires_grad: bool) -> None:
        self._requires_grad = requires_grad
        self._numbers: dict[str, int] = {}

    def call(self, call: BoundSymbol) -> str:
        """Return the text of a call; raises _NotPrinted."""
        parts = [self.call(part) for part in call.subsymbols] if _is_its_decomposition(call.sym) else []
        operator = f"{{{'; '.join(parts)}}}" if parts else call.sym.id
        arguments = f"{self.text(call.args)} {self.text(call.kwargs)}"
        return f"{operator} {arguments} → {self.definitions(call.flat_proxy_outs)}"

    def definitions(self, proxies: Iterable[Any]) -> str:
        """Return the text of values where they first occur, with their metadata."""
        return ", ".join(f"{self.text(p)}: {self._metadata(p)}" for p in proxies)

    def text(self, value: Any) -> str:
        """Return the text of an argument; raises _NotPrinted."""
        kind = type(value)
        if kind in _BY_REPR:
            return f"{kind.__name__} {value!r}"
        if kind is TensorProxy:
            return f"%{self._numbers.setdefault(value.name, len(self._numbers))}"
        if isinstance(value, SymbolicNumber):  # sizes by number, in the order of their first occurrence
            return f"({value.formula.text(lambda v: self._size(value.facts.names[v]))})"
        if isinstance(value, TensorProxy | Proxy):  # of a subclass
            return f"%{self._numbers.setdefault(value.name, len(self._numbers))}"
        if isinstance(value, slice):
            return f"slice{self.text((value.start, value.stop, value.step))}"
        if kind in (tuple, list, torch.Size):
            return f"{kind.__name__}({', '.join(map(self.text, value))})"
        if kind is dict:
            return f"{{{', '.join(f'{self.text(k)}: {self.text(v)}' for k, v in value.items())}}}"
        if kind not in _PRINTED:
            raise _NotPrinted(value)
        return f"{kind.__name__} {value_text(value, Names())}"

    def _size(self, name: str) -> str:
        return f"size{self._numbers.setdefault(name, len(self._numbers))}"

    def _metadata(self, p: Any) -> str:
        if isinstance(p, SymbolicInt):
            return "size"
        if isinstance(p, TensorProxy) and has_symbols((*p.shape, *(p.strides or ()))):
            sizes = ", ".join(map(self.text, p.shape))
            tracked = p.requires_grad if self._requires_grad else ""
            return f"{p.device} {p.dtype} [{sizes}] {self.text(p.strides)} {tracked}"
        if not isinstance(p, TensorProxy):
            return f"{p.type_string()} {getattr(p, 'value', None)!r}"
        return f"{p.type_string()} {p.strides} {p.requires_grad if self._requires_grad else ''}"
