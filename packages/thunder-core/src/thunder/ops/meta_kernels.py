"""Meta functions by torch's meta kernels, and torch's errors for calls on proxies.

Shapes, dtypes and texts of errors are exact by construction. A call takes some hundred microseconds, so this
is for rarely used operators, and for the text of an error that a hand-written meta function has found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import torch

from thunder.base import devices
from thunder.base.errors import InternalError
from thunder.base.pytree import tree_flatten, tree_unflatten
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_sizes import hint_of
from thunder.ops.stand_ins import (
    SMALL,
    to_cpu_identity,
    to_cpu_zeros,
    to_hinted_meta,
    to_meta,
    to_symbolic_meta,
)
from thunder.ops.torch_errors import TORCH_REFUSALS, operator_error
from thunder.ops.torch_sizes import facts_in, shape_in, size_in, with_symbolic_sizes

_Function = TypeVar("_Function", bound=Callable[..., Any])
_ldl_solve = torch.ops.aten.linalg_ldl_solve

#: functions whose kernels do not check their arguments: zeros as pivots corrupt memory
_UNCHECKED: set[Any] = {torch.linalg.ldl_solve, _ldl_solve, _ldl_solve.default, _ldl_solve.out}


def without_checks(fn: _Function) -> _Function:
    """Declare that the kernel of a function reads memory by shapes that it does not compare.

    A decorator of a row's eager function. The row compares the shapes: no call of the function runs to find
    out whether torch refuses the call.
    """
    _UNCHECKED.add(fn)
    return fn


def is_unchecked(fn: Callable[..., Any]) -> bool:
    """Return whether :func:`without_checks` declares that the kernel of a function is not safe to ask."""
    return fn in _UNCHECKED


def _run(fn: Callable[..., Any], args: Any, kwargs: Any, stand_in: Callable[[Any], Any], device: str) -> Any:
    """Run ``fn`` on the stand-ins of its arguments, on ``device``; one tensor has one stand-in."""
    leaves, spec = tree_flatten((args, kwargs))
    # The proxies' own __torch_function__, and the mode under which programs are traced, must not intercept
    # these calls.
    with torch._C.DisableTorchFunction(), torch.no_grad():
        by_leaf = {id(leaf): stand_in(leaf) for leaf in leaves}
        stand_ins = [by_leaf[id(leaf)] for leaf in leaves]
        stand_ins = [torch.device(device) if isinstance(x, torch.device) else x for x in stand_ins]
        args, kwargs = tree_unflatten(stand_ins, spec)
        if isinstance(kwargs.get("device"), str):
            kwargs["device"] = device
        return fn(*args, **kwargs)


def on_meta(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of ``fn`` on meta tensors: meta tensors and Python values.

    Symbolic sizes are torch's (Note [Sizes within torch]), and numbers where that fails.
    """
    facts = facts_in((args, kwargs))
    if facts is not None:
        with suppress(*TORCH_REFUSALS), with_symbolic_sizes(facts):
            return _run(fn, args, kwargs, to_symbolic_meta, "meta")
    return _run(fn, args, kwargs, to_meta, "meta")


def _on_hints(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """As :func:`on_meta`, with the sizes of the call that is traced, without a fact."""
    return _run(fn, args, kwargs, to_hinted_meta, "meta")


def eager_error(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """Return what torch raises for the call, or None if it does not.

    The call runs by eager's kernels on zeros on the cpu: meta kernels have other texts and check less. A
    large call runs by meta kernels first, which compute nothing: what they refuse, the cpu refuses before it
    computes. Meta kernels alone decide about a function for which zeros are not safe.
    """
    if fn in _UNCHECKED:
        return meta_error(fn, args, kwargs)
    from_meta = None
    if _elements(args, kwargs) > SMALL:
        from_meta = meta_error(fn, args, kwargs)
        if from_meta is None:
            return None
    with torch.random.fork_rng(devices=()):
        return _error_of(fn, args, kwargs, to_cpu_zeros, "cpu") or from_meta


def meta_error(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """Return what torch raises for the call on meta tensors, or None if it does not."""
    return _error_of(fn, args, kwargs, to_meta, "meta")


def eager_error_on_identity(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception | None:
    """Return what torch raises for the call on identity matrices; None for a large call.

    For functions that refuse matrices of zeros, and for tensors without dimensions that represent a number.
    """
    if fn in _UNCHECKED:
        return meta_error(fn, args, kwargs)
    if _elements(args, kwargs) > SMALL:
        return None
    with torch.random.fork_rng(devices=()):
        return _error_of(fn, args, kwargs, to_cpu_identity, "cpu")


def _elements(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, TensorProxy)]
    return sum(math.prod(map(hint_of, x.shape)) for x in tensors)


def _error_of(
    fn: Callable[..., Any], args: Any, kwargs: Any, stand_in: Callable[[Any], Any], device: str
) -> Exception | None:
    try:
        _run(fn, args, kwargs, stand_in, device)
    except TORCH_REFUSALS as error:
        return error.with_traceback(None)  # its frames would hold the error: a reference cycle
    return None


def torch_meta(
    fn: Callable[..., Any],
    shape: Callable[..., Sequence[Any]] | None = None,
    usual: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Return a meta function that runs ``fn`` on meta tensors.

    Results are on the device that :func:`as_proxies` returns. ``shape`` computes the shape of the results
    from symbolic sizes, which torch's function would fix; it must be torch's for the call that is traced.
    ``usual`` returns the results of usual calls without symbolic sizes, for which ``fn`` does not run, and
    None for others.
    """

    def meta(*args: Any, **kwargs: Any) -> Any:
        is_symbolic = (shape is not None or usual is not None) and facts_in((args, kwargs)) is not None
        if usual is not None and not is_symbolic:
            results = usual(*args, **kwargs)
            if results is not None:
                return results
        if shape is None or not is_symbolic:
            return as_proxies(_accepted(on_meta, fn, args, kwargs), args, kwargs)
        return as_proxies(_accepted(_on_hints, fn, args, kwargs), args, kwargs, shape(*args, **kwargs))

    meta.__name__ = getattr(fn, "__name__", "meta")
    return meta


def torch_check(fn: Callable[..., Any], usual: Callable[..., bool] | None = None) -> Callable[..., None]:
    """Return a function that raises the error with which torch refuses a call, on meta tensors.

    What torch cannot tell of symbolic sizes is decided for the call that is traced, without a fact. ``usual``
    returns whether a call without symbolic sizes is one that torch accepts for certain.
    """

    def check(*args: Any, **kwargs: Any) -> None:
        facts = facts_in((args, kwargs))
        if facts is None and usual is not None and usual(*args, **kwargs):
            return
        if facts is not None:
            with suppress(*TORCH_REFUSALS), with_symbolic_sizes(facts):
                _run(fn, args, kwargs, to_symbolic_meta, "meta")
                return
        _accepted(_on_hints, fn, args, kwargs)

    return check


def _accepted(
    run: Callable[..., Any], fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return the result of ``fn`` without data; raise OperatorError if eager refuses the call.

    A call without elements that meta kernels refuse and eager accepts (``interpolate`` of an empty batch)
    runs on the cpu.
    """
    try:
        return run(fn, args, kwargs)
    except TORCH_REFUSALS as error:
        from_eager = eager_error(fn, args, kwargs)
        if from_eager is not None or _elements(args, kwargs):
            raise operator_error(from_eager or error, args, kwargs) from error
        with torch.random.fork_rng(devices=()):
            return _run(fn, args, kwargs, to_cpu_zeros, "cpu")


def as_proxies(
    result: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shape: Sequence[Any] | None = None
) -> Any:
    """Return the result of a call on meta tensors as proxies, all with ``shape`` where that is given.

    They are on the device that the argument ``device`` names, else on :func:`device_of` the arguments.
    """
    device = kwargs.get("device")
    device = devices.to_device(device) if device is not None else device_of((args, kwargs))
    leaves, spec = tree_flatten(result)
    return tree_unflatten(
        [
            TensorProxy(shape=_shape_of(o, shape), dtype=o.dtype, device=device)
            if isinstance(o, torch.Tensor)
            else size_in(o)
            for o in leaves
        ],
        spec,
    )


def _shape_of(result: torch.Tensor, computed: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return the shape of a result; raise InternalError if the computed one is another in the traced call."""
    if computed is None:
        return shape_in(result)
    if tuple(map(hint_of, computed)) != tuple(result.shape):
        raise InternalError(f"a result has the shape {tuple(result.shape)}, and not {tuple(computed)}")
    return tuple(computed)


def eager_checked_meta(fn: Callable[..., Any]) -> Callable[..., Any]:
    """As :func:`torch_meta`, where meta kernels accept calls that eager's refuse."""
    meta = torch_meta(fn)

    def checked(*args: Any, **kwargs: Any) -> Any:
        error = eager_error(fn, args, kwargs)
        if error is not None:
            raise operator_error(error, args, kwargs)
        return meta(*args, **kwargs)

    return checked


def device_of(tree: Any) -> devices.Device:
    """Return the device of an operator's result with these arguments.

    That of the first tensor with dimensions, else of the first tensor, else the default device.
    """
    first = None
    for leaf in tree_flatten(tree)[0]:
        if isinstance(leaf, TensorProxy):
            if leaf.shape:
                return leaf.device
            first = first if first is not None else leaf
    return first.device if first is not None else devices.to_device(torch.get_default_device())


def raise_torch_error(fn: Callable[..., Any] | None, args: Any, kwargs: Any, found: Exception) -> None:
    """Raise OperatorError with torch's text if torch refuses the call too, else return.

    ``found`` is our own error. Where a tensor may represent a number, zero and one must both be refused.
    """
    if fn is None:
        return
    error = eager_error(fn, args, kwargs)
    if error is not None and any(map(is_number, tree_flatten((args, kwargs))[0])):
        error = eager_error_on_identity(fn, args, kwargs) and error
    if error is not None:
        raise operator_error(error, args, kwargs) from found


def is_number(x: Any) -> bool:
    """Return whether torch may read ``x`` as a number: a tensor without dimensions."""
    return isinstance(x, TensorProxy) and not x.shape
