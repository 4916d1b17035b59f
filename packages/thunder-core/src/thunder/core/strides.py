"""The strides of intermediate tensors, found when a program asks for them.

Traces record no strides. The rows that lead to a tensor are run once more, by their eager functions, on
torch's fake tensors: they have no data, and they follow the real device's kernels where meta tensors do not
(channels-last convolution, attention).
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from thunder.core.devices import Device, to_torch_device
from thunder.core.dtypes import dtype, to_torch_dtype
from thunder.core.errors import UnsupportedProgram
from thunder.core.operator import row_of
from thunder.core.proxies import NumberProxy, TensorProxy
from thunder.core.pytree import tree_iter, tree_map
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx


def strides_of(proxy: TensorProxy, trace: TraceCtx | None) -> tuple[int, ...]:
    """The strides that eager would give the tensor. Raises UnsupportedProgram if that cannot be found out."""
    known = proxy.__dict__.get("strides")
    if known is None:
        known = proxy.__dict__["strides"] = _found(proxy, trace)
    return known


def _found(proxy: TensorProxy, trace: TraceCtx | None) -> tuple[int, ...]:
    needed = _leading_to(proxy, trace.bound_symbols if trace is not None else [])
    values: dict[str, Any] = {}
    with FakeTensorMode(), torch.no_grad(), torch._C.DisableTorchFunction():
        for bsym in needed:
            _run(bsym, values)
        if proxy.name not in values:
            raise UnsupportedProgram(
                f"the strides of {proxy.name} are not known here",
                found={proxy.name: f'"{proxy.type_string()}"'},
                hint="Call contiguous() first, or do not ask for strides.",
            )
        return tuple(values[proxy.name].stride())


def _leading_to(proxy: TensorProxy, program: list[BoundSymbol]) -> list[BoundSymbol]:
    """The calls that the tensor depends on, in order; in-place writes do not move memory."""
    wanted, needed = {proxy.name}, []
    for bsym in reversed(program):
        if any(out.name in wanted for out in bsym.flat_proxy_outs):
            needed.append(bsym)
            wanted.update(p.name for p in bsym.flat_proxy_args if "strides" not in p.__dict__)
    return needed[::-1]


def _run(bsym: BoundSymbol, values: dict[str, Any]) -> None:
    row = row_of(bsym.sym)
    if row is None or row.eager is None:
        for sub in bsym.subsymbols:
            _run(sub, values)
        return
    args, kwargs = tree_map(lambda leaf: _value(leaf, values), (bsym.args, bsym.kwargs))
    result = row.eager(*args, **kwargs)
    tensors = iter([r for r in tree_iter(result) if isinstance(r, torch.Tensor)])
    for output in bsym.flat_proxy_outs:
        if isinstance(output, TensorProxy):
            values.setdefault(output.name, next(tensors))


def _value(leaf: Any, values: dict[str, Any]) -> Any:
    if isinstance(leaf, TensorProxy):
        if leaf.name not in values:
            values[leaf.name] = _stand_in(leaf)
        return values[leaf.name]
    if isinstance(leaf, NumberProxy):
        return leaf.value
    if isinstance(leaf, dtype):
        return to_torch_dtype(leaf)
    return to_torch_device(leaf) if isinstance(leaf, Device) else leaf


def _stand_in(proxy: TensorProxy) -> torch.Tensor:
    options: dict[str, Any] = {"dtype": to_torch_dtype(proxy.dtype), "device": to_torch_device(proxy.device)}
    strides = proxy.__dict__.get("strides")
    if strides is None:
        return torch.empty(proxy.shape, **options)
    return torch.empty_strided(proxy.shape, strides, **options)
