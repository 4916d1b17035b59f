"""A small evaluator of traces, for tests of operators and passes: each row's eager function, called in order.

It shares nothing with the compiler's executors, and gives copies and in-place writes torch's own meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.devices import Device
from thunder.base.dtypes import dtype
from thunder.base.pytree import tree_flatten, tree_map, tree_unflatten
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, tracectx
from thunder.ops import prims
from thunder.ops.operator import row_of


def traced(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> TraceCtx:
    """The trace of ``fn`` on proxies of the tensors among its arguments, which become ``t_0``, ``t_1`` …"""
    trace = TraceCtx()
    with tracectx(trace), torch.no_grad():
        leaves, spec = tree_flatten((args, kwargs))
        proxies = [_proxy(leaf, i) for i, leaf in enumerate(leaves)]
        trace.args = [p for p in proxies if isinstance(p, TensorProxy)]
        proxy_args, proxy_kwargs = tree_unflatten(proxies, spec)
        prims.python_return(fn(*proxy_args, **proxy_kwargs))
    return trace


def _proxy(leaf: Any, i: int) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return TensorProxy(f"t_{i}", like=leaf, strides=leaf.stride())


def evaluated(trace: TraceCtx, tensors: Sequence[torch.Tensor], *, primitives: bool = False) -> Any:
    """What the trace returns for these inputs; with ``primitives``, its primitives run and not its
    composites.
    """
    values = {p.name: t for p, t in zip(trace.args, tensors, strict=True)}
    for bsym in trace.bound_symbols:
        if bsym.sym.name == "python_return":
            return read(bsym.args[0] if len(bsym.args) == 1 else bsym.args, values)
        run(bsym, values, primitives)
    return None


def read(tree: Any, values: dict[str, Any]) -> Any:
    """The tree with its proxies' values."""

    def value(leaf: Any) -> Any:
        return values[leaf.name] if isinstance(leaf, TensorProxy) else leaf

    return tree_map(value, tree)


def run(bsym: BoundSymbol, values: dict[str, Any], primitives: bool) -> None:
    """Runs one bound symbol: by its row's eager function, or else by its subsymbols."""
    row = row_of(bsym.sym)
    writes = any(s.sym.name == "copy_" for s in bsym.subsymbols)
    if row is None or row.eager is None or ((primitives or writes) and bsym.subsymbols):
        for sub in bsym.subsymbols:
            run(sub, values, primitives)
        return
    args, kwargs = read((bsym.args, bsym.kwargs), values)
    if bsym.sym.module == "ltorch":  # torch's functions take torch's devices and dtypes
        args, kwargs = tree_map(_torch_value, (args, kwargs))
    result = row.eager(*args, **kwargs)
    _bind(bsym.output, result, values)


def _torch_value(x: Any) -> Any:
    if isinstance(x, dtype):
        return x.torch_dtype
    return torch.device(x.device_str()) if isinstance(x, Device) else x


def _bind(output: Any, result: Any, values: dict[str, Any]) -> None:
    if isinstance(output, TensorProxy):
        values[output.name] = result
    elif isinstance(output, (tuple, list)):
        for o, r in zip(output, result, strict=True):
            _bind(o, r, values)
