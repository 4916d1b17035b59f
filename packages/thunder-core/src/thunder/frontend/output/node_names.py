"""Names of the nodes that eager's texts of tensors show: ``tensor(2., grad_fn=<MeanBackward0>)``."""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.pytree import tree_map
from thunder.frontend.lookasides.tensors import original_of
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy, is_proxy
from thunder.ops.operator import row_of
from thunder.ops.stand_ins import empty_tensor

#: operators whose nodes depend on the device
_BY_DEVICE = frozenset({"torch.nn.functional.scaled_dot_product_attention"})

__all__ = ["node_name"]


def node_name(session: TracingSession, x: Any) -> str | None:
    """Return the name of the node of a tensor that the program computed, or None.

    Torch runs the call that computes it on tensors without data. None: the tensor requires no gradients, or
    is an input, or torch has no function for the call.
    """
    if not isinstance(x, TensorProxy) or not x.requires_grad or x.declared_leaf:
        return None
    x = original_of(session, x)
    if session.entry_of(x) is not None or torch.is_autocast_enabled("cpu"):
        return None
    calls = (b for b in reversed(session.trace.bound_symbols) if any(p is x for p in b.flat_proxy_outs))
    call = next(calls, None)
    row = row_of(call.sym) if call is not None else None
    if (
        call is None
        or row is None
        or row.eager is None
        or call.sym.id in _BY_DEVICE
        or call.sym.executor is not None
        or any(map(_is_number, call.flat_proxy_args))
    ):
        return None
    index = next(i for i, p in enumerate(call.flat_proxy_outs) if p is x)
    try:
        args, kwargs = _as_written(*tree_map(_without_data, (call.args, call.kwargs)))
        with torch.random.fork_rng(devices=()), torch.enable_grad():
            results = row.eager(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None
    if results is None:  # it writes to its first argument
        results = args[0]
    outs = list(results) if isinstance(results, list | tuple) else [results]
    node = outs[index].grad_fn if index < len(outs) and isinstance(outs[index], torch.Tensor) else None
    return None if node is None else type(node).__name__


def _as_written(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call without those that ``x.mean()`` leaves out: it has another node."""
    first = next((i for i, a in enumerate(args) if a is None), len(args))
    if any(a is not None and a is not False for a in args[first:]):
        first = len(args)
    leaves_out = first < len(args) or ("dim" in kwargs and kwargs["dim"] is None)
    left_out = {"stable", "keepdim"} if leaves_out else {"stable"}
    return args[:first], {k: v for k, v in kwargs.items() if v is not None and (v or k not in left_out)}


def _is_number(x: Any) -> bool:
    return not isinstance(x, TensorProxy)


def _without_data(x: Any) -> Any:
    if not isinstance(x, TensorProxy):
        assert not is_proxy(x), "numbers of the trace are refused before"
        return x
    tensor = empty_tensor(x, "meta")
    return tensor.requires_grad_().clone() if x.requires_grad else tensor
