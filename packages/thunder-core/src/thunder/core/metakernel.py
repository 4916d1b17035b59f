"""Metadata by torch itself: a torch function run on meta tensors made from proxies.

Exact by construction (shape, dtype, and the text of errors), and some hundred microseconds a call: for rarely used operators, and for the text
of an error that a hand-written meta function has found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from thunder.core import devices, dtypes
from thunder.core.errors import OperatorError
from thunder.core.proxies import NumberProxy, TensorProxy
from thunder.core.pytree import tree_flatten, tree_unflatten


class OperatorIndexError(OperatorError, IndexError):
    """Torch raises IndexError for it."""


class OperatorTypeError(OperatorError, TypeError):
    """Torch raises TypeError for it."""


class OperatorValueError(OperatorError, ValueError):
    """Torch raises ValueError for it."""


_CLASSES = ((IndexError, OperatorIndexError), (TypeError, OperatorTypeError), (ValueError, OperatorValueError))


def to_meta(x: Any) -> Any:
    """A meta tensor with a proxy's shape, dtype and (where they are known) strides; numbers for number proxies; torch's dtypes and devices."""
    if isinstance(x, TensorProxy):
        dtype = dtypes.to_torch_dtype(x.dtype)
        strides = x.__dict__.get("strides")
        if strides is None:
            return torch.empty(x.shape, dtype=dtype, device="meta")
        return torch.empty_strided(x.shape, strides, dtype=dtype, device="meta")
    if isinstance(x, NumberProxy):
        return x.value
    if isinstance(x, dtypes.dtype):
        return x.torch_dtype
    if isinstance(x, devices.Device):
        return devices.to_torch_device(x)
    return x


def on_meta(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``fn`` on meta tensors: its result, of meta tensors and Python values."""
    leaves, spec = tree_flatten((args, kwargs))
    # The proxies' own __torch_function__, and the mode under which programs are traced, must not see these calls.
    with torch._C.DisableTorchFunction(), torch.no_grad():
        metas = [to_meta(leaf) for leaf in leaves]
        asked = next((leaf for leaf in metas if isinstance(leaf, torch.device)), None)
        metas = [torch.device("meta") if leaf is asked and asked is not None else leaf for leaf in metas]
        meta_args, meta_kwargs = tree_unflatten(metas, spec)
        if "device" in meta_kwargs and isinstance(meta_kwargs["device"], str):
            meta_kwargs["device"] = "meta"
        return fn(*meta_args, **meta_kwargs)


def torch_meta(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A meta function that runs ``fn`` on meta tensors. Raises OperatorError with torch's text.

    Results are on the inputs' device (a ``device`` argument wins; tensors of no dimension give way to others, as in torch).
    """

    def meta(*args: Any, **kwargs: Any) -> Any:
        try:
            result = on_meta(fn, args, kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            _refuse(error, args, kwargs)
        device = kwargs.get("device")
        device = devices.to_device(device) if device is not None else device_of((args, kwargs))
        leaves, spec = tree_flatten(result)
        return tree_unflatten(
            [
                TensorProxy(shape=tuple(o.shape), dtype=o.dtype, device=device) if isinstance(o, torch.Tensor) else o
                for o in leaves
            ],
            spec,
        )

    meta.__name__ = getattr(fn, "__name__", "meta")
    return meta


def device_of(tree: Any) -> devices.Device:
    """The device of an operator's result: that of the first tensor with dimensions, else of the first tensor, else the default's."""
    first = None
    for leaf in tree_flatten(tree)[0]:
        if isinstance(leaf, TensorProxy):
            if leaf.shape:
                return leaf.device
            first = first if first is not None else leaf
    return first.device if first is not None else devices.to_device(torch.get_default_device())


def ask_torch(name: str, fn: Callable[..., Any] | None, args: Any, kwargs: Any, found: Exception) -> None:
    """Raises OperatorError with torch's text if torch refuses the call too, else returns."""
    if fn is None:
        return
    try:
        on_meta(fn, args, kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        _refuse(error, args, kwargs, cause=found)


def _refuse(
    error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any], cause: Exception | None = None
) -> NoReturn:
    cls = next((ours for theirs, ours in _CLASSES if isinstance(error, theirs)), OperatorError)
    raise cls(str(error).strip(), found=described_arguments(args, kwargs)) from (cause or error)


def described_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str]:
    """Each argument as an error message shows it: a tensor by name and type, another value as it is."""
    shown: dict[str, str] = {}
    for label, value in [*((str(i), a) for i, a in enumerate(args)), *kwargs.items()]:
        if isinstance(value, TensorProxy):
            shown[value.name if label.isdecimal() else label] = f'"{value.type_string()}"'
        else:
            leaves = tree_flatten(value)[0]
            tensors = [f'{x.name}: "{x.type_string()}"' for x in leaves if isinstance(x, TensorProxy)]
            shown[f"argument {label}" if label.isdecimal() else label] = ", ".join(tensors) or repr(value)
    return shown
