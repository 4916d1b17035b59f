"""The keys of measured calls and regions: texts that are equal for equal calls, in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import torch

from thunder.core.analysis import SymbolicNumber
from thunder.core.devices import Device
from thunder.core.dtypes import dtype as ThunderDtype
from thunder.core.entries import SymbolicInt
from thunder.core.proxies import NumberProxy, Proxy, TensorProxy
from thunder.core.pytree import tree_iter
from thunder.core.rewrite import with_leaves
from thunder.core.symbol import BoundSymbol
from thunder.extend import Region, structural_key
from thunder_autotune.buckets import Buckets, is_size_of_input

__all__ = ["NO_BUCKETS", "call_key", "described", "has_symbolic_sizes", "region_key"]

#: constants whose `repr` says what they are, in every process
_PLAIN = (type(None), bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, type(...))


#: without ranges, no call with symbolic sizes has a key
NO_BUCKETS: Final = Buckets(())


class _NoText(Exception):
    """An argument has no text that determines it."""


def call_key(bsym: BoundSymbol, buckets: Buckets = NO_BUCKETS) -> str | None:
    """Return the operator of a call with what its arguments are, or None.

        torch.matmul(cpu f32[4, 8] grad, cpu f32[8, 16])
        torch.exp(cpu f32[n0, 2*n0]) with n0 in 17..32

    Tensors have device, dtype and shape, strides where the program knows that they are not contiguous, and
    ``grad`` where they require grad. Symbolic sizes are numbered in the order of their occurrence, each with
    its bucket. There is no key for a call with a symbolic size without buckets, or with one that is no size
    of an input, or with an argument that no text describes, such as a function.
    """
    sizes = Sizes(buckets)
    try:
        arguments = [
            *(_text(value, sizes) for value in bsym.args),
            *(f"{name}={_text(value, sizes)}" for name, value in bsym.kwargs.items()),
        ]
    except _NoText:
        return None
    return f"{bsym.sym.id}({', '.join(arguments)}){sizes.ranges()}"


def region_key(region: Region, buckets: Buckets = NO_BUCKETS) -> str | None:
    """Return the digest of a region's structure and of the strides that its inputs have, or None.

    Strides count where the program knows them; which of several devices of a kind it is, and in which memory
    results are computed, does not count. The buckets of symbolic sizes follow the digest. There is no key
    for a region with symbolic sizes without buckets, or that has no structural key.
    """
    sizes = Sizes(buckets)
    plain = _plain(region)
    structure = structural_key(plain)
    if structure is None:
        return None
    try:
        text = "\n".join([structure, *(with_strides(p, sizes) for p in plain.inputs)])
        for p in (p for call in region.bsyms for p in call.flat_proxy_outs):
            with_strides(p, sizes)  # the sizes in it have ranges too
    except _NoText:
        return None
    return hashlib.sha256(text.encode()).hexdigest()[:16] + sizes.ranges()


class Sizes:
    """The symbolic sizes in a key, by numbers in the order of their occurrence, with their buckets."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets
        self._numbers: dict[str, int] = {}
        self._ranges: list[str] = []

    def text(self, number: Any) -> str:
        """Return the text of a size; raises _NoText for one that has no bucket."""
        if not isinstance(number, SymbolicNumber):
            return str(number)
        if not self._buckets or not isinstance(number, SymbolicInt):
            raise _NoText
        return number.formula.text(lambda variable: self._name(number, variable))

    def _name(self, number: SymbolicInt, variable: int) -> str:
        root = number if number.is_input else number.facts.symbols[variable]
        if not is_size_of_input(root):
            raise _NoText
        if root.name not in self._numbers:
            self._numbers[root.name] = len(self._numbers)
            self._ranges.append(self._buckets.of(root))
        return f"n{self._numbers[root.name]}"

    def ranges(self) -> str:
        """Return the ranges of all: `` with n0 in 17..32, n1 in 0..16``."""
        texts = (f"n{number} in {text}" for number, text in enumerate(self._ranges))
        return f" with {', '.join(texts)}" if self._ranges else ""


def _plain(region: Region) -> Region:
    """Return what a region computes, on the first devices of each kind in the order of their occurrence."""
    numbers: dict[Device, int] = {}

    def number(device: Device) -> Device:
        if device.index is None:
            return device
        if device not in numbers:
            numbers[device] = sum(other.devicetype is device.devicetype for other in numbers)
        return Device(device.devicetype, numbers[device])

    def leaf(value: Any) -> Any:
        if isinstance(value, TensorProxy):
            return value.replace(device=number(value.device))
        return number(value) if isinstance(value, Device) else value

    read = {p.name for bsym in region.bsyms for p in bsym.flat_proxy_args}
    return replace(
        region,
        bsyms=tuple(with_leaves(leaf, bsym) for bsym in region.bsyms),
        inputs=tuple(leaf(p) for p in region.inputs if p.name in read or not isinstance(p, TensorProxy)),
        outputs=tuple(map(leaf, region.outputs)),
        copied=(),
        reused=(),
    )


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


def _text(value: Any, sizes: Sizes) -> str:
    if isinstance(value, TensorProxy):
        return with_strides(value, sizes) + (" grad" if value.requires_grad else "")
    if isinstance(value, (tuple, list)):
        items = ", ".join(_text(item, sizes) for item in value)
        return f"[{items}]" if isinstance(value, list) else f"({items},)" if len(value) == 1 else f"({items})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_text(item, sizes)}" for key, item in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({', '.join(_text(x, sizes) for x in (value.start, value.stop, value.step))})"
    if isinstance(value, SymbolicNumber):
        return sizes.text(value)
    if isinstance(value, NumberProxy) and isinstance(value.value, _PLAIN):
        return repr(value.value)
    if isinstance(value, (ThunderDtype, Device)):
        return str(value)
    if isinstance(value, Proxy) or not isinstance(value, _PLAIN):
        raise _NoText
    return repr(value)


def with_strides(value: Any, sizes: Sizes) -> str:
    """Return kind of device, dtype, shape, and strides (elements) if they are not contiguous."""
    if isinstance(value, SymbolicNumber):
        return sizes.text(value)
    if not isinstance(value, TensorProxy):
        return str(type(value).__name__)
    plain = value.replace(shape=(), strides=None) if has_symbolic_sizes([value]) else value
    _, _, metadata = plain.type_string().partition(" ")
    text = f"{value.device.type} {metadata}"  # whichever of several equal devices it is
    if plain is not value:
        text = text.partition("[")[0] + f"[{', '.join(map(sizes.text, value.shape))}]"
    if value.strides is None:
        return text
    strides = tuple(map(sizes.text, value.strides))
    if strides == tuple(map(sizes.text, _contiguous(value.shape))):
        return text
    return f"{text} strides ({', '.join(strides)}{',' if len(strides) == 1 else ''})"


def _contiguous(shape: Iterable[Any]) -> tuple[Any, ...]:
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(tuple(shape)):
        strides.insert(0, step)
        step = step * (size if isinstance(size, SymbolicNumber) else max(int(size), 1))
    return tuple(strides)


def tensors_of(values: Any) -> list[TensorProxy]:
    """Return the tensors in arguments, each once."""
    return list({p.name: p for p in tree_iter(values) if isinstance(p, TensorProxy)}.values())
