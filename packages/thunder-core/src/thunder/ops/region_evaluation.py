"""Evaluation of a fusion region by torch, call by call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from thunder.base.autocast_state import OFF, autocast_as
from thunder.base.devices import Device, to_torch_device
from thunder.base.dtypes import dtype, to_torch_dtype
from thunder.base.errors import InternalError, TraceError
from thunder.base.pytree import tree_map
from thunder.base.runtime_errors import note_call
from thunder.ir.fusion_regions import Region
from thunder.ir.proxies import NumberProxy, TensorProxy, is_proxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ops.operator import row_of

__all__ = ["evaluate_calls", "evaluate_region"]


def evaluate_region(region: Region, inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs of a region: each call is computed by the torch function of its operator.

    `inputs` are tensors of any kind that torch's functions take, in the order of `region.inputs`. With fake
    tensors under `torch.fx.experimental.proxy_tensor.make_fx`, the region becomes a graph of ATen operators.
    A call whose operator has no torch function is computed from the calls into which it decomposes, and so is
    one of which torch's decomposition for fake tensors has other dtypes than its kernel.

    Gradients are not recorded, and autocast is off. Raises TraceError for a call that has neither.
    """
    values = {p.name: x for p, x in zip(region.inputs, inputs, strict=True)}
    evaluate_calls(region.bsyms, values)
    return [values[p.name] for p in region.outputs]


def evaluate_calls(calls: Iterable[BoundSymbol], values: dict[str, Any]) -> None:
    """Compute calls as `evaluate_region` does, and enter their results into `values`, by name.

    An error has a note with the call that raised it, and its line.
    """
    with torch.no_grad(), autocast_as(OFF):
        for call in calls:
            try:
                _run((call,), values)
            except Exception as error:  # of any class: a kernel raised it
                note_call(error, call.line, call.locations)
                raise


def _run(calls: Iterable[BoundSymbol], values: dict[str, Any]) -> None:
    """Compute calls in order, and enter their results into `values` by name."""

    def value(leaf: Any) -> Any:
        if isinstance(leaf, SymbolicNumber):
            return leaf.for_values(values)
        if is_proxy(leaf):
            if leaf.name in values:
                return values[leaf.name]
            if isinstance(leaf, NumberProxy):
                return leaf.value
            raise InternalError("a value is read that no earlier call computes", found={"value": leaf.name})
        if isinstance(leaf, dtype):
            return to_torch_dtype(leaf)
        if isinstance(leaf, slice):  # a leaf of pytrees, whose bounds may be symbolic sizes
            return slice(value(leaf.start), value(leaf.stop), value(leaf.step))
        return to_torch_device(leaf) if isinstance(leaf, Device) else leaf

    for call in calls:
        row = row_of(call.sym)
        if row is not None and row.eager is not None:
            args, kwargs = tree_map(value, (call.args, call.kwargs))
            result = row.eager(*args, **kwargs)
            if call.subsymbols and not _has_dtypes(call.output, result):
                _run(call.subsymbols, values)
            else:
                _bind(call.output, result, values)
        elif call.subsymbols:
            _run(call.subsymbols, values)
        else:
            raise TraceError(f"torch has no function that computes {call.sym.id}", found={"call": call.line})


def _bind(output: Any, result: Any, values: dict[str, Any]) -> None:
    """Enter the results of a call under the names of the proxies in its output."""
    if is_proxy(output):
        values.setdefault(output.name, result)
    elif isinstance(output, tuple | list):
        for part, value in zip(output, result, strict=True):
            _bind(part, value, values)


def _has_dtypes(output: Any, result: Any) -> bool:
    """Return whether the tensors of a result have the dtypes of the proxies in an output."""
    if isinstance(output, TensorProxy):
        return not isinstance(result, torch.Tensor) or result.dtype is to_torch_dtype(output.dtype)
    if isinstance(output, tuple | list):
        return all(map(_has_dtypes, output, result))
    return True
