"""The strides that eager would give the values of a program and the results of a fusion region."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from threading import Lock
from typing import Any, Final

import torch

from thunder.base.artefact_cache import ArtefactCache
from thunder.base.context_variables import assigned
from thunder.base.errors import OperatorError, UnsupportedProgram
from thunder.base.extension_origin import module_of
from thunder.base.memory_layout import contiguous_strides
from thunder.ir.fusion_regions import Region
from thunder.ir.proxies import TensorProxy
from thunder.ir.region_keys import structural_key
from thunder.ir.region_sizes import region_for_sizes, sizes_in, sizes_of, without_sizes
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_sizes import SymbolicInt, hint_of
from thunder.ir.trace import TraceCtx
from thunder.ops.layouts import Layouts, MetaLayouts, absent_device, reads_memory
from thunder.ops.operator import row_of, symbol_of
from thunder.ops.prims.backend_flags import FLAGS, flag_values

__all__ = ["EagerStrides", "ExpectedStrides", "after_forward"]

Strides = tuple[int, ...]

#: for how many combinations of symbolic sizes strides are remembered
_REMEMBERED: Final = 64

#: the forward of the program that is compiled, if that is a backward
_forward: ContextVar[TraceCtx | None] = ContextVar("thunder_forward", default=None)


class EagerStrides:
    """The strides of a region's outputs in eager, which depend on the strides of its inputs.

    A trace does not record the strides of inputs, so they are derived when the region runs: once for each
    combination of input strides and symbolic sizes, by running its calls on tensors without data. Not
    synchronised: two threads may derive the same strides twice.
    """

    def __init__(self, region: Region) -> None:
        self._region, self._has_sizes = region, bool(sizes_of(region))
        self._known: dict[tuple[Strides | None, ...], tuple[Strides | None, ...]] = {}
        self._by_size: OrderedDict[tuple[int, ...], EagerStrides] = OrderedDict()

    def of(self, inputs: Sequence[Any]) -> tuple[Strides | None, ...]:
        """Return the strides (elements) of each output for these inputs; None for one that is not a tensor.

        Raises UnsupportedProgram for a call that cannot be run without data.
        """
        if self._has_sizes:
            sizes = sizes_in(self._region, inputs)
            return self._for_sizes(sizes).of(without_sizes(self._region, inputs))
        key = tuple(x.stride() if isinstance(x, torch.Tensor) else None for x in inputs)
        strides = self._known.get(key)
        if strides is None:
            strides = self._known[key] = self.derived(key)
        return strides

    def apply(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs with eager's strides: those that have others are copied."""
        return [
            _with_strides(output, strides) for output, strides in zip(outputs, self.of(inputs), strict=True)
        ]

    def _for_sizes(self, sizes: dict[str, int]) -> EagerStrides:
        key = tuple(sizes.values())
        found = self._by_size.get(key)
        if found is None:
            found = self._by_size[key] = EagerStrides(region_for_sizes(self._region, sizes))
            if len(self._by_size) > _REMEMBERED:
                self._by_size.popitem(last=False)
        return found

    def derived(self, key: Sequence[Strides | None]) -> tuple[Strides | None, ...]:
        """As `of`, for these strides of the inputs, which may be symbolic sizes; None for a number.

        Raises UnsupportedProgram, too, where torch needs the values of sizes.
        """
        inputs = [
            p.replace(strides=strides) if strides is not None else p
            for p, strides in zip(self._region.inputs, key, strict=True)
        ]
        tensors = (p for p in inputs if isinstance(p, TensorProxy))
        layouts = Layouts(tensors, self._region.bsyms, fixes=False)
        return tuple(layouts.strides(p) if isinstance(p, TensorProxy) else None for p in self._region.outputs)


class ExpectedStrides:
    """The strides that values of a program will probably have when it runs, for compilers of regions.

    They are derived from the strides of the program's inputs; those of a backward's residuals from the inputs
    of its forward. Cotangents, and results of kernels that need data, have no strides and are taken to be
    contiguous. So code that was compiled for them checks the strides of its inputs.
    """

    def __init__(self, trace: TraceCtx) -> None:
        forward = _forward.get()
        self._traces = (trace,) if forward is None else (forward, trace)
        self._lock = Lock()

    @cached_property
    def _layouts(self) -> tuple[Layouts, ...]:
        """The layouts of the values; most compiles of regions ask for none."""
        values: dict[str, tuple[TensorProxy, bool]] = {}  # with whether a call computes it without data
        for part in self._traces:
            _enter(_with_hinted_strides(part.args), False, values)
            for bsym in part.bound_symbols:  # a backward's first calls unpack what its forward computes
                _enter(bsym.flat_proxy_outs, _runs_without_data(bsym), values)
        inputs = [p for p, is_computed in values.values() if not is_computed]
        calls = [bsym for part in self._traces for bsym in part.bound_symbols]
        return tuple(kind(inputs, calls, fixes=False) for kind in (MetaLayouts, Layouts))

    def of_all(self, values: Sequence[TensorProxy], cache: ArtefactCache) -> list[Strides]:
        """Return the expected strides (elements) of values; `cache` keeps those for which calls are run.

        Torch imports sympy and TorchDynamo to run calls without data, which takes a second. A later process
        has the strides of an equal program from the cache, whose versions are those of core and torch.
        """
        computed = {p.name: p for p in values if self._layouts[0].runs_calls_for(p)}
        key = self._key(computed.values()) if computed else None
        content = None if key is None else cache.get(key)
        if content is None:
            found = {name: self.of(p) for name, p in computed.items()}
            if key is not None:
                cache.put(key, json.dumps([*found.values()]).encode())
        else:
            found = dict(zip(computed, map(tuple, json.loads(content)), strict=True))
        return [found[p.name] if p.name in found else self.of(p) for p in values]

    def _key(self, values: Iterable[TensorProxy]) -> str | None:
        """Return a text that determines the strides of values, with the versions; None if there is none.

        Torch's flags are in it, by which functions of torch choose kernels.
        """
        region = Region.of((call for part in self._traces for call in _unfused(part)), ())
        if sizes_of(region) or not all(map(_is_of_torch, region.bsyms)):
            return None
        structure = structural_key(replace(region, outputs=tuple(values)))
        strides = [p.strides for p in region.inputs if isinstance(p, TensorProxy)]
        state = f"{absent_device()} {flag_values(FLAGS)}"
        return structure and f"expected strides {structure} {strides} {state}"

    def of(self, proxy: TensorProxy) -> Strides:
        """Return the expected strides (elements) of a value of the program."""
        with self._lock:  # regions may be compiled in threads
            for layouts in self._layouts:  # the second one takes longer, and knows the kernels of the device
                try:
                    return layouts.strides(proxy)
                except (OperatorError, UnsupportedProgram):  # a call that reads data
                    continue
        return contiguous_strides(proxy.shape)


def _with_hinted_strides(arguments: Sequence[Any]) -> list[Any]:
    """Return arguments with the strides of the traced call where no sizes determine them.

    A region takes sizes as numbers, no strides (Note [Free strides]).
    """
    tensors = [p for p in arguments if isinstance(p, TensorProxy)]
    lengths: list[Any] = [n for p in tensors for n in p.shape if isinstance(n, SymbolicInt)]
    sizes = {root.name for n in lengths for root in n.roots}

    def stride(step: Any) -> Any:
        is_free = isinstance(step, SymbolicInt) and any(root.name not in sizes for root in step.roots)
        return hint_of(step) if is_free else step

    return [
        p.replace(strides=tuple(map(stride, p.strides)), input_offset=p.input_offset)
        if isinstance(p, TensorProxy) and p.strides is not None
        else p
        for p in arguments
    ]


def _enter(proxies: Iterable[Any], is_computed: bool, values: dict[str, tuple[TensorProxy, bool]]) -> None:
    """Enter tensors by name, unless an earlier call has computed them."""
    for p in proxies:
        if isinstance(p, TensorProxy):
            values.setdefault(p.name, (p, is_computed))


def after_forward(trace: TraceCtx | None) -> AbstractContextManager[None]:
    """Within the context, programs are backwards of a forward, whose names they have."""
    return assigned(_forward, trace)


def _runs_without_data(bsym: BoundSymbol) -> bool:
    """Return whether a call can be run on fake tensors: it is torch's, or consists of such calls."""
    row = row_of(bsym.sym)
    if row is None or row.eager is None or reads_memory(row.eager):
        return bool(bsym.subsymbols) and all(map(_runs_without_data, bsym.subsymbols))
    return True


def _unfused(trace: TraceCtx) -> Iterator[BoundSymbol]:
    """Yield the calls of a program, with the calls of a region in its place."""
    for call in trace.bound_symbols:
        yield from call.subsymbols if call.sym.is_fusion else (call,)


def _is_of_torch(call: BoundSymbol) -> bool:
    """Return whether the versions of core and torch determine an operator, and not those of a package."""
    row = row_of(call.sym)
    if row is None:
        return not call.sym.is_of_package
    if symbol_of(call.sym.id).is_of_package or (row.eager is not None and reads_memory(row.eager)):
        return False
    return module_of(row.eager).partition("torch._ops.")[2] in ("", "aten")


def _with_strides(output: Any, strides: Strides | None) -> Any:
    if strides is None or output.stride() == strides:
        return output
    return output.new_empty_strided(output.shape, strides).copy_(output)
