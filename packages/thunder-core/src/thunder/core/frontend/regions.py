"""Regions of ambient state inside a program: grad mode, inference mode, default dtype, default device,
autocast.

While tracing, torch's own state is changed, so that whatever asks sees the right answer; it is put back
afterwards. The trace must do the same when it runs. Three ways, by what the state does to operators:

    grad mode, default dtype, inference mode   statements in the trace change the state where the program did
    default device                             factories are recorded with the device spelt out
    autocast                                   operators are recorded with the casts spelt out
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._device import _device_constructors

from thunder.core import dtypes, prims
from thunder.core.errors import OperatorError, ThunderError, UnsupportedOperator
from thunder.core.frontend.rules import lookaside
from thunder.core.metakernel import described_arguments
from thunder.core.operator import row_of
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import Symbol

if TYPE_CHECKING:
    from thunder.core.frontend.tracer import Tracer

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@lookaside(torch._C._set_grad_enabled)
def _set_grad_enabled(tracer: Tracer, args: Args, kwargs: Kwargs) -> None:
    mode = bool(args[0])
    tracer.had_grad_in_inference_mode |= mode and tracer.in_inference_mode
    if mode != torch.is_grad_enabled():
        torch._C._set_grad_enabled(mode)
        prims.set_grad_enabled(mode)


@lookaside(torch.set_default_dtype)
def _set_default_dtype(tracer: Tracer, args: Args, kwargs: Kwargs) -> None:
    torch.set_default_dtype(*args, **kwargs)
    prims.set_default_dtype(torch.get_default_dtype())


# -- inference mode ------------------------------------------------------------------------------------------


@lookaside(torch.inference_mode.__enter__)
def _enter_inference_mode(tracer: Tracer, args: Args, kwargs: Kwargs) -> None:
    mode = bool(tracer.load_attr(args[0], "mode"))
    tracer.inference_regions.append((tracer.in_inference_mode, torch.is_grad_enabled()))
    tracer.in_inference_mode = mode
    tracer.had_inference_regions = True
    torch._C._set_grad_enabled(torch.is_grad_enabled() and not mode)
    prims.enter_inference_mode(mode)


@lookaside(torch.inference_mode.__exit__)
def _exit_inference_mode(tracer: Tracer, args: Args, kwargs: Kwargs) -> None:
    tracer.in_inference_mode, grad = tracer.inference_regions.pop()
    torch._C._set_grad_enabled(grad)
    prims.leave_inference_mode()


@lookaside(torch.is_inference_mode_enabled)
def _is_inference_mode_enabled(tracer: Tracer, args: Args, kwargs: Kwargs) -> bool:
    inherited = torch.is_inference_mode_enabled(*args, **kwargs)
    return tracer.in_inference_mode or inherited


# -- default device ------------------------------------------------------------------------------------------

_FACTORIES = frozenset(_device_constructors())


#: factories whose results have the default dtype, whatever they are given
_OF_DEFAULT_DTYPE = frozenset(
    {
        *(torch.zeros, torch.ones, torch.empty, torch.rand, torch.randn, torch.eye),
        *(torch.linspace, torch.logspace, torch.range, torch.fft.fftfreq, torch.fft.rfftfreq),
        *(torch.bartlett_window, torch.blackman_window, torch.hamming_window, torch.hann_window),
        torch.kaiser_window,
    }
)


def with_defaults(fn: Any, kwargs: Kwargs, default_dtype: torch.dtype) -> Kwargs:
    """The keyword arguments of a factory with the defaults spelt out that the program itself has changed."""
    if (
        kwargs.get("dtype") is None
        and torch.get_default_dtype() is not default_dtype
        and fn in _OF_DEFAULT_DTYPE
    ):
        kwargs = {**kwargs, "dtype": torch.get_default_dtype()}
    return with_default_device(fn, kwargs)


def with_default_device(fn: Any, kwargs: Kwargs) -> Kwargs:
    """The keyword arguments of a factory with the device of the innermost ``with torch.device(…)`` spelt
    out.
    """
    if not torch._C._len_torch_function_stack() or kwargs.get("device") is not None or fn not in _FACTORIES:
        return kwargs
    return {**kwargs, "device": torch.get_default_device()}


@lookaside(torch.get_default_device)
def _get_default_device(tracer: Tracer, args: Args, kwargs: Kwargs) -> torch.device:
    return torch.get_default_device(
        *args, **kwargs
    )  # of the call: guarded as ambient state; of a region: known


# -- autocast ------------------------------------------------------------------------------------------------


def _natively(fn: Callable[..., Any]) -> None:
    @lookaside(fn)
    def rule(tracer: Tracer, args: Args, kwargs: Kwargs) -> Any:
        return fn(*args, **kwargs)


for _name in (
    "set_autocast_enabled",
    "set_autocast_dtype",
    "set_autocast_cache_enabled",
    "autocast_increment_nesting",
    "autocast_decrement_nesting",
    "clear_autocast_cache",
):
    _natively(getattr(torch, _name))

#: dtypes that autocast casts: floating-point ones but float64
_CAST = frozenset({dtypes.float32, dtypes.float16, dtypes.bfloat16})


def adapt_call(symbol: Symbol, args: Args, kwargs: dict[str, Any]) -> tuple[Args, dict[str, Any]]:
    """The arguments with which a call of the program's is recorded, under the autocast that is on now."""
    return cast_arguments(symbol, args, kwargs) if torch._C._is_any_autocast_enabled() else (args, kwargs)


def cast_arguments(symbol: Symbol, args: Args, kwargs: dict[str, Any]) -> tuple[Args, dict[str, Any]]:
    """The arguments of an operator as autocast would cast them: by its row, to the lower dtype, to float32,
    or to the widest.

    Torch's rules: https://pytorch.org/docs/stable/amp.html, "Autocast Op Reference".
    """
    row = row_of(symbol)
    if row is None or row.autocast is None:
        return args, kwargs
    tensors = [a for a in _flat((*args, *kwargs.values())) if a.dtype in _CAST]
    if not tensors:
        return args, kwargs
    device = tensors[0].device.type
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return args, kwargs
    said = row.autocast(*args, **kwargs) if callable(row.autocast) else row.autocast
    policy = said.get(device) if isinstance(said, Mapping) else said
    if policy is None:
        return args, kwargs
    if policy in _REFUSED:
        kind, why = _REFUSED[policy]
        raise kind(
            f"{row.id} {why}",
            found=described_arguments(args, kwargs),
            hint="Cast its arguments, and call it under torch.autocast(…, enabled=False).",
        )
    cast = _Caster(_target(policy, device, tensors))
    return tuple(map(cast, args)), {k: cast(v) for k, v in kwargs.items()}


#: policies under which there is no call, with what is raised
_REFUSED: dict[str, tuple[type[ThunderError], str]] = {
    "banned": (OperatorError, "is unsafe to autocast"),
    "within": (
        UnsupportedOperator,
        "under autocast: torch casts between the steps of it, which are one here",
    ),
}


def _target(policy: str, device: str, tensors: list[TensorProxy]) -> dtypes.dtype:
    if policy == "lower":
        return dtypes.to_dtype(torch.get_autocast_dtype(device))
    if policy == "fp32":
        return dtypes.float32
    widest = tensors[0].dtype
    for t in tensors[1:]:
        widest = dtypes.to_dtype(torch.promote_types(widest.torch_dtype, t.dtype.torch_dtype))
    return widest


class _Caster:
    """Casts the tensors among arguments; the cast is an operator of the trace."""

    def __init__(self, target: dtypes.dtype) -> None:
        self.target = target.torch_dtype

    def __call__(self, x: Any) -> Any:
        if isinstance(x, TensorProxy):
            return x.to(self.target) if x.dtype in _CAST and x.dtype.torch_dtype is not self.target else x
        if isinstance(x, list | tuple) and any(isinstance(v, TensorProxy) for v in x):
            return type(x)(map(self, x))
        return x


def _flat(values: Any) -> list[TensorProxy]:
    found: list[TensorProxy] = []
    for v in values:
        if isinstance(v, TensorProxy):
            found.append(v)
        elif isinstance(v, list | tuple):
            found.extend(_flat(v))
    return found
