"""In-place operators: the functional operator, a cast to the target's dtype, and a write."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from thunder.base.errors import OperatorError
from thunder.ir.aliasing import DisjointSets, views_of
from thunder.ir.proxies import TensorProxy
from thunder.ir.trace_context import get_tracectx
from thunder.ops import prims
from thunder.ops.layouts import Layouts


def write_back(value: TensorProxy, target: TensorProxy) -> TensorProxy:
    """Write ``value`` to ``target`` and return ``target``.

    Raises OperatorError where torch does: the value has another shape or a type that the target's cannot
    hold, or the target is a leaf that requires grad.
    """
    if value.shape != target.shape:
        raise OperatorError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(value.shape)}"
        )
    source, destination = value.dtype.torch_dtype, target.dtype.torch_dtype
    if source != destination:
        if not torch.can_cast(source, destination):
            raise OperatorError(
                f"result type {source} can't be cast to the desired output type {destination}"
            )
        value = prims.convert_element_type(value, target.dtype)
    return assign(value, target)


def assign(value: TensorProxy, target: TensorProxy) -> TensorProxy:
    """Record that ``target`` holds ``value`` from this point; return ``target``."""
    grad_enabled = torch.is_grad_enabled()
    if grad_enabled and target.requires_grad and is_leaf(target):
        raise OperatorError(
            "a leaf Variable that requires grad is being used in an in-place operation.",
            found={target.name: f'"{target.type_string()}"'},
            hint="Write under torch.no_grad(), or use the out-of-place form.",
        )
    prims.copy_(value, target, grad_enabled=grad_enabled)
    if grad_enabled and value.requires_grad and not target.requires_grad:
        for proxy in _of_one_base(target):
            if not proxy.requires_grad:
                proxy.requires_grad = proxy.requires_grad_since_write = True
    return target


def _of_one_base(target: TensorProxy) -> Iterable[TensorProxy]:
    """Return the recorded tensors that share a base with ``target`` in torch's autograd.

    These are the base and all its views, except those through ``detach`` and those created where gradients
    are off.
    """
    trace = get_tracectx()
    if trace is None:
        return [target]
    families, proxies, mode = DisjointSets(), {target.name: target}, trace.grad_enabled
    recorded = [bsym for scope in trace.scopes for bsym in scope]
    layouts = Layouts((a for a in trace.args if isinstance(a, TensorProxy)), recorded)
    for bsym in recorded:
        if bsym.sym is prims.set_grad_enabled:
            mode = bsym.args[0]
        for view in views_of(bsym) if mode else ():
            if view.is_detached:
                continue
            if view.certain or layouts.share_memory(view.output, view.source):
                families.union(view.output.name, view.source.name)
                proxies.update({p.name: p for p in (view.output, view.source)})
    base = families.find(target.name)
    return [p for name, p in proxies.items() if families.find(name) == base]


def is_leaf(proxy: TensorProxy) -> bool:
    """Return whether the proxy is a leaf, as ``tensor.is_leaf`` does."""
    if not proxy.requires_grad:
        return True
    if proxy.declared_leaf is not None:
        return proxy.declared_leaf and not proxy.requires_grad_since_write
    trace = get_tracectx()
    if trace is None:
        return True
    return not any(
        out is proxy for scope in trace.scopes for bsym in reversed(scope) for out in bsym.flat_proxy_outs
    )
