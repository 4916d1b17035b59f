"""Metadata by torch itself: a torch function run on meta tensors made from proxies.

Exact by construction (shape, dtype, and the text of errors), and some hundred microseconds a call: for rarely
used operators, and for the text of an error that a hand-written meta function has found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from thunder.base import devices
from thunder.base.pytree import tree_flatten, tree_unflatten
from thunder.ir.proxies import TensorProxy
from thunder.ops.stand_ins import SMALL, to_cpu_identity, to_cpu_zeros, to_meta
from thunder.ops.torch_errors import TORCH_REFUSALS, operator_error


def _run(fn: Callable[..., Any], args: Any, kwargs: Any, stand_in: Callable[[Any], Any], device: str) -> Any:
    leaves, spec = tree_flatten((args, kwargs))
    # The proxies' own __torch_function__, and the mode under which programs are traced, must not see these
    # calls.
    with torch._C.DisableTorchFunction(), torch.no_grad():
        stand_ins = [stand_in(leaf) for leaf in leaves]
        stand_ins = [torch.device(device) if isinstance(x, torch.device) else x for x in stand_ins]
        args, kwargs = tree_unflatten(stand_ins, spec)
        if isinstance(kwargs.get("device"), str):
            kwargs["device"] = device
        return fn(*args, **kwargs)


def on_meta(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``fn`` on meta tensors: its result, of meta tensors and Python values."""
    return _run(fn, args, kwargs, to_meta, "meta")


def eager_error(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """What torch raises for the call, or None if it does not.

    Eager's kernels on the cpu are asked, for meta tensors have other texts and fewer conditions. A large call
    is asked on meta tensors first, where nothing is computed: if they refuse it, so will the cpu, before it
    computes.
    """
    by_meta = None
    if _elements(args, kwargs) > SMALL:
        by_meta = meta_error(fn, args, kwargs)
        if by_meta is None:
            return None
    with torch.random.fork_rng(devices=()):
        return _attempt(fn, args, kwargs, to_cpu_zeros, "cpu") or by_meta


def meta_error(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """What torch raises for the call on meta tensors, or None if it does not."""
    return _attempt(fn, args, kwargs, to_meta, "meta")


def eager_error_on_identity(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception | None:
    """As :func:`eager_error`, on identity matrices, for functions that refuse matrices of zeros.

    None for a large call.
    """
    if _elements(args, kwargs) > SMALL:
        return None
    with torch.random.fork_rng(devices=()):
        return _attempt(fn, args, kwargs, to_cpu_identity, "cpu")


def _elements(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    return sum(math.prod(x.shape) for x in tree_flatten((args, kwargs))[0] if isinstance(x, TensorProxy))


def _attempt(
    fn: Callable[..., Any], args: Any, kwargs: Any, stand_in: Callable[[Any], Any], device: str
) -> Exception | None:
    try:
        _run(fn, args, kwargs, stand_in, device)
    except TORCH_REFUSALS as error:
        return error.with_traceback(None)  # which has the frames that are going to hold the error
    return None


def torch_meta(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A meta function that runs ``fn`` on meta tensors. Raises OperatorError with torch's text.

    Results are on the inputs' device (a ``device`` argument wins; tensors of no dimension give way to others,
    as in torch). Calls without elements, on which a result could depend, are run on the cpu where only meta
    tensors refuse them (``interpolate`` of an empty batch).
    """

    def meta(*args: Any, **kwargs: Any) -> Any:
        try:
            result = on_meta(fn, args, kwargs)
        except TORCH_REFUSALS as error:
            refused = eager_error(fn, args, kwargs)
            if refused is not None or _elements(args, kwargs):
                raise operator_error(refused or error, args, kwargs) from error
            with torch.random.fork_rng(devices=()):
                result = _run(fn, args, kwargs, to_cpu_zeros, "cpu")
        return as_proxies(result, args, kwargs)

    meta.__name__ = getattr(fn, "__name__", "meta")
    return meta


def as_proxies(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call on meta tensors, as proxies on the device where the call with these arguments puts
    it.
    """
    device = kwargs.get("device")
    device = devices.to_device(device) if device is not None else device_of((args, kwargs))
    leaves, spec = tree_flatten(result)
    return tree_unflatten(
        [
            TensorProxy(shape=tuple(o.shape), dtype=o.dtype, device=device)
            if isinstance(o, torch.Tensor)
            else o
            for o in leaves
        ],
        spec,
    )


def eager_checked_meta(fn: Callable[..., Any]) -> Callable[..., Any]:
    """As :func:`torch_meta`, for functions of which meta tensors accept what eager's kernels refuse."""
    meta = torch_meta(fn)

    def asking(*args: Any, **kwargs: Any) -> Any:
        error = eager_error(fn, args, kwargs)
        if error is not None:
            raise operator_error(error, args, kwargs)
        return meta(*args, **kwargs)

    return asking


def device_of(tree: Any) -> devices.Device:
    """The device of an operator's result: that of the first tensor with dimensions, else of the first tensor,
    else the default's.
    """
    first = None
    for leaf in tree_flatten(tree)[0]:
        if isinstance(leaf, TensorProxy):
            if leaf.shape:
                return leaf.device
            first = first if first is not None else leaf
    return first.device if first is not None else devices.to_device(torch.get_default_device())


def raise_torch_error(fn: Callable[..., Any] | None, args: Any, kwargs: Any, found: Exception) -> None:
    """Raises OperatorError with torch's text if torch refuses the call too, else returns. Where a tensor may
    stand for a number, zero and one must both be refused.
    """
    if fn is None:
        return
    error = eager_error(fn, args, kwargs)
    if error is not None and any(map(is_number, tree_flatten((args, kwargs))[0])):
        error = eager_error_on_identity(fn, args, kwargs) and error
    if error is not None:
        raise operator_error(error, args, kwargs) from found


def is_number(x: Any) -> bool:
    """Whether torch may take ``x`` for a number: a tensor without dimensions."""
    return isinstance(x, TensorProxy) and not x.shape
