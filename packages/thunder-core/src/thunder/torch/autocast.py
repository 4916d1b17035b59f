"""Autocast: the casts that torch makes in a call, as operators of the trace.

    torch.mm(x, w)   →   t0 = x.to(torch.bfloat16); t1 = w.to(torch.bfloat16); t2 = torch.mm(t0, t1)

Where torch casts between the steps of a function that is one operator here, torch runs the whole function
under autocast; that call is one fallback operator, with torch's metadata and gradients
(:mod:`thunder.torch.fallback.fallback_rows`).
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from thunder.base import dtypes
from thunder.base.autocast_state import AUTOCAST_DEVICES, autocast_now
from thunder.base.errors import OperatorError, UnsupportedOperator
from thunder.base.pytree import tree_map
from thunder.ir.proxies import TensorProxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.symbol import Symbol
from thunder.ops.meta_kernels import raise_torch_error
from thunder.ops.operator import Operator, is_of_package, row_of
from thunder.ops.torch_errors import TORCH_REFUSALS, described_arguments
from thunder.torch.autocast_rules import RULES, STEPS, Action
from thunder.torch.fallback.fallback_rows import record_fallback
from thunder.torch.fallback.schema_probe import CannotProbe
from thunder.torch.namespace import ltorch
from thunder.torch.operator_autocast import (
    action_for,
    has_no_rule,
    replaced_function,
    row_for,
    warn_without_rule,
)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

#: floating-point dtypes that autocast does not cast
_LEFT_ALONE = frozenset({dtypes.float64})

_HINT = "Cast its arguments, and call it under torch.autocast(…, enabled=False)."


class Autocast:
    """The casts of one program. As in torch, casts of weights are cached until a region ends."""

    def __init__(self) -> None:
        self._cached: dict[str, TensorProxy] = {}

    def forget(self) -> None:
        """Clear the cached casts, as ``torch.clear_autocast_cache`` does."""
        self._cached.clear()

    def adapt_call(
        self, symbol: Symbol, args: Args, kwargs: Kwargs
    ) -> tuple[Callable[..., Any], Args, Kwargs]:
        """Return the operator (or function) and arguments to record under the current autocast.

        Raises OperatorError where torch refuses the call under autocast.
        """
        if not torch._C._is_any_autocast_enabled():
            return symbol, args, kwargs
        for kind in reversed(AUTOCAST_DEVICES):  # torch checks CUDA first
            tensors = [t for t in _tensors((args, kwargs)) if t.device.type == kind]
            if not tensors or not torch.is_autocast_enabled(kind):
                continue
            action = action_for(symbol, kind, args, kwargs)
            if action in STEPS:
                if any(map(_may_be_cast, tensors[:1] if action == "inside" else tensors)):
                    inside = torch.get_autocast_dtype(kind) if action == "inside" else None
                    return functools.partial(_by_steps, symbol, inside), args, kwargs
            elif action is not None:
                args, kwargs = self._cast(symbol, action, kind, tensors, args, kwargs)
        return symbol, args, kwargs

    def _cast(
        self,
        symbol: Symbol,
        action: Action,
        kind: str,
        tensors: list[TensorProxy],
        args: Args,
        kwargs: Kwargs,
    ) -> tuple[Args, Kwargs]:
        if action == "banned":
            raise OperatorError(
                f"{symbol.id} is unsafe to autocast", found=described_arguments(args, kwargs), hint=_HINT
            )
        eligible = [t for t in tensors if is_eligible(t)]
        if not eligible:
            return args, kwargs
        if action == "dtype":
            if next(iter(_tensors(args)), None) is not eligible[0]:
                return args, kwargs
            if "dtype" in inspect.signature(symbol.meta).parameters:  # type: ignore[arg-type]
                return _in_float32(symbol, args, kwargs)
            action = "fp32"  # which is the same: the function casts its input to its dtype
        target = _target(action, torch.get_autocast_dtype(kind), eligible)

        def convert(x: TensorProxy) -> TensorProxy:
            cast = x.device.type == kind and is_eligible(x) and x.dtype.torch_dtype is not target
            return self._converted(x, target, kind) if cast else x

        return _each_tensor(args, convert), _each_tensor(kwargs, convert)

    def _converted(self, x: TensorProxy, target: torch.dtype, kind: str) -> TensorProxy:
        is_cached = _is_cached(x, target, kind)
        # As in torch a cached cast is used whatever its dtype, which may be that of an enclosing region.
        cast = self._cached.get(x.name) if is_cached else None
        if cast is None:
            cast = ltorch.to(x, target)
            assert isinstance(cast, TensorProxy), "a cast returns a tensor"
            if is_cached:
                self._cached[x.name] = cast
        return cast


def is_cast_now(symbol: Symbol, args: Args, kwargs: Kwargs) -> bool:
    """Return whether the current autocast would cast an operand of a recorded call."""
    for kind in AUTOCAST_DEVICES:
        action = action_for(symbol, kind, args, kwargs) if torch.is_autocast_enabled(kind) else None
        eligible = [t for t in _tensors((args, kwargs)) if t.device.type == kind and is_eligible(t)]
        if action is None or action in STEPS or not eligible:
            continue
        if action == "promote":
            target = _target(action, torch.get_autocast_dtype(kind), eligible)
        else:
            target = torch.get_autocast_dtype(kind) if action == "lower" else torch.float32
        if any(t.dtype.torch_dtype is not target for t in eligible):
            return True
    return False


def _is_cached(x: TensorProxy, target: torch.dtype, kind: str) -> bool:
    """Return whether torch caches the cast of a tensor: a float32 weight to autocast's dtype."""
    return (
        x.requires_grad
        and x.dtype is dtypes.float32
        and target is torch.get_autocast_dtype(kind)
        and bool(x.declared_leaf)
        and torch.is_autocast_cache_enabled()
        and torch.is_grad_enabled()
    )


def is_eligible(x: TensorProxy) -> bool:
    """Return whether autocast casts a tensor of its dtype."""
    return x.dtype.is_floating_point and x.dtype not in _LEFT_ALONE


def _may_be_cast(x: TensorProxy) -> bool:
    """Return whether the steps of a function may cast the tensor; integers may become float32."""
    return not (x.dtype in _LEFT_ALONE or x.dtype.is_complex)


def _target(action: Action, lower: torch.dtype, tensors: Iterable[TensorProxy]) -> torch.dtype:
    """Return the dtype to which a call's tensors are cast.

    For ``promote``, see ``prioritize`` in ``aten/src/ATen/autocast_mode.h``.
    """
    if action != "promote":
        return lower if action == "lower" else torch.float32
    widest = lower
    for t in tensors:
        dtype = t.dtype.torch_dtype
        if torch.float32 in (widest, dtype):
            widest = torch.float32
        elif dtype is not lower:
            raise OperatorError(
                "Unexpected floating ScalarType in at::autocast::prioritize",
                found={t.name: t.type_string()},
                hint=f"Autocast to {lower} takes tensors of that dtype and of torch.float32.",
            )
    return widest


def _in_float32(symbol: Symbol, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    bound = inspect.signature(symbol.meta).bind(*args, **kwargs)  # type: ignore[arg-type]
    if bound.arguments.get("dtype") is not None:
        return args, kwargs
    bound.arguments["dtype"] = torch.float32
    bound.apply_defaults()
    return bound.args, bound.kwargs


def _each_tensor(tree: Any, convert: Callable[[TensorProxy], TensorProxy]) -> Any:
    """Apply ``convert`` to each tensor among the arguments, once if the tensor occurs twice."""
    return tree_map(lambda leaf: convert(leaf) if isinstance(leaf, TensorProxy) else leaf, tree)


def _tensors(tree: Any) -> list[TensorProxy]:
    return [leaf for leaf in proxies_in(tree) if isinstance(leaf, TensorProxy)]


# -- functions with casts within -------------------------------------------------------------------


def is_interpreted(fn: Any, symbol: Any) -> bool:
    """Return whether, under the current autocast, a function's Python code replaces its operator."""
    if not torch._C._is_any_autocast_enabled():
        return False
    if has_no_rule(symbol):
        warn_without_rule(symbol)
        return True
    if not isinstance(fn, types.FunctionType):
        return False
    row_id = row_for(fn, symbol)
    return any(
        torch.is_autocast_enabled(k) and RULES[k].get(row_id) == "interpreted" for k in AUTOCAST_DEVICES
    )


@functools.cache
def _with_results_in(dtype: torch.dtype, fn: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return ``fn`` with its result cast to ``dtype``.

    Tensors without data show another dtype.
    """

    def run(*args: Any, **kwargs: Any) -> torch.Tensor:
        return fn(*args, **kwargs).to(dtype)

    run.__name__ = run.__qualname__ = getattr(fn, "__name__", "function")
    return run


def _by_steps(symbol: Symbol, dtype: torch.dtype | None, *args: Any, **kwargs: Any) -> Any:
    """Record a call of an operator, within which torch casts under the current autocast.

    Of an operator that a package defines, the replaced function is called: its own function has no casts.
    """
    if is_of_package(symbol):
        return replaced_function(symbol)(*args, **kwargs)
    row = row_of(symbol)
    assert row is not None, f"{symbol.id} is in the table of autocast rules, whose keys are ids of rows"
    return _run_by_torch(row, dtype, *args, **kwargs)


def _run_by_torch(row: Operator, dtype: torch.dtype | None, *args: Any, **kwargs: Any) -> Any:
    """Record a call that torch runs under the current autocast. Raises UnsupportedOperator."""
    fn = row.eager
    error: Exception | None
    assert fn is not None, f"{row.id} has casts within, so torch has it"
    try:
        return record_fallback(row.id, fn if dtype is None else _with_results_in(dtype, fn), args, kwargs)
    except CannotProbe as problem:
        why, error = problem.reason, None
    except UnsupportedOperator:
        raise
    except TORCH_REFUSALS as raised:
        raise_torch_error(fn, args, kwargs, raised)
        why, error = str(raised).strip().partition("\n")[0], raised
    raise UnsupportedOperator(
        f"{row.id} under {autocast_now().label} autocast, within which torch casts: {why}",
        found=described_arguments(args, kwargs),
        hint=_HINT,
    ) from error
