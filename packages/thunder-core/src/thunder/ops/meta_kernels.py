"""Metadata by torch itself: a torch function run on meta tensors made from proxies.

Exact by construction (shape, dtype, and the text of errors), and some hundred microseconds a call: for rarely
used operators, and for the text of an error that a hand-written meta function has found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from thunder.base import devices, dtypes
from thunder.base.errors import OperatorError
from thunder.base.pytree import tree_flatten, tree_unflatten
from thunder.ir.proxies import GeneratorProxy, NumberProxy, TensorProxy


class OperatorIndexError(OperatorError, IndexError):
    """Torch raises IndexError for it."""


class OperatorAssertionError(OperatorError, AssertionError):
    """Torch raises AssertionError for it."""


class OperatorAttributeError(OperatorError, AttributeError):
    """Torch raises AttributeError for it."""


class OperatorNotImplementedError(OperatorError, NotImplementedError):
    """Torch raises NotImplementedError for it."""


class OperatorTypeError(OperatorError, TypeError):
    """Torch raises TypeError for it."""


class OperatorValueError(OperatorError, ValueError):
    """Torch raises ValueError for it."""


_REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, AttributeError, AssertionError)
_CLASSES = (
    (AssertionError, OperatorAssertionError),
    (AttributeError, OperatorAttributeError),
    (IndexError, OperatorIndexError),
    (NotImplementedError, OperatorNotImplementedError),
    (TypeError, OperatorTypeError),
    (ValueError, OperatorValueError),
)


def to_meta(x: Any) -> Any:
    """A meta tensor with a proxy's shape, dtype and (where they are known) strides; numbers for number
    proxies; torch's dtypes and devices; for a generator a new one, so that the program's own stays as it is.
    """
    if isinstance(x, TensorProxy):
        dtype = dtypes.to_torch_dtype(x.dtype)
        strides = x.strides
        if strides is None:
            return torch.empty(x.shape, dtype=dtype, device="meta")
        return torch.empty_strided(x.shape, strides, dtype=dtype, device="meta")
    if isinstance(x, NumberProxy):
        return x.value
    if isinstance(x, GeneratorProxy | torch.Generator):
        return torch.Generator()
    if isinstance(x, dtypes.dtype):
        return x.torch_dtype
    if isinstance(x, devices.Device):
        return devices.to_torch_device(x)
    return x


#: number of elements up to which a stand-in has memory of its own; beyond, all its elements are one
_SMALL = 1 << 16


def to_cpu(x: Any) -> Any:
    """As :func:`to_meta`, with a tensor of zeros on the cpu, which costs next to no memory."""
    if not isinstance(x, TensorProxy):
        return to_meta(x)
    dtype = dtypes.to_torch_dtype(x.dtype)
    if math.prod(x.shape) <= _SMALL:
        return torch.zeros(x.shape, dtype=dtype, device="cpu")
    return torch.zeros((), dtype=dtype, device="cpu").expand(x.shape)


def to_regular(x: Any) -> Any:
    """As :func:`to_cpu`, with matrices that have an inverse, and ones in other tensors."""
    stand_in = to_cpu(x)
    if not isinstance(x, TensorProxy) or math.prod(x.shape) > _SMALL:
        return stand_in
    made = torch.ones_like(stand_in)
    return made.tril().triu() if made.dim() > 1 else made


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


def torch_error(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """What torch raises for the call, or None if it does not.

    Eager's kernels on the cpu are asked, for meta tensors have other texts and fewer conditions. A large call
    is asked on meta tensors first, where nothing is computed: if they refuse it, so will the cpu, before it
    computes.
    """
    by_meta = None
    if _elements(args, kwargs) > _SMALL:
        by_meta = meta_error(fn, args, kwargs)
        if by_meta is None:
            return None
    with torch.random.fork_rng(devices=()):
        return _attempt(fn, args, kwargs, to_cpu, "cpu") or by_meta


def meta_error(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """What torch raises for the call on meta tensors, or None if it does not."""
    return _attempt(fn, args, kwargs, to_meta, "meta")


def regular_error(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """As :func:`torch_error`, for functions that refuse matrices of zeros. Large calls are not asked."""
    if _elements(args, kwargs) > _SMALL:
        return None
    with torch.random.fork_rng(devices=()):
        return _attempt(fn, args, kwargs, to_regular, "cpu")


def _elements(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    return sum(math.prod(x.shape) for x in tree_flatten((args, kwargs))[0] if isinstance(x, TensorProxy))


def _attempt(
    fn: Callable[..., Any], args: Any, kwargs: Any, stand_in: Callable[[Any], Any], device: str
) -> Exception | None:
    try:
        _run(fn, args, kwargs, stand_in, device)
    except _REFUSALS as error:
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
        except _REFUSALS as error:
            refused = torch_error(fn, args, kwargs)
            if refused is not None or _elements(args, kwargs):
                raise refusal(refused or error, args, kwargs) from error
            with torch.random.fork_rng(devices=()):
                result = _run(fn, args, kwargs, to_cpu, "cpu")
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


def asking_meta(fn: Callable[..., Any]) -> Callable[..., Any]:
    """As :func:`torch_meta`, for functions of which meta tensors accept what eager's kernels refuse."""
    meta = torch_meta(fn)

    def asking(*args: Any, **kwargs: Any) -> Any:
        error = torch_error(fn, args, kwargs)
        if error is not None:
            raise refusal(error, args, kwargs)
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


def ask_torch(fn: Callable[..., Any] | None, args: Any, kwargs: Any, found: Exception) -> None:
    """Raises OperatorError with torch's text if torch refuses the call too, else returns. Where a tensor may
    stand for a number, zero and one must both be refused.
    """
    if fn is None:
        return
    error = torch_error(fn, args, kwargs)
    if error is not None and any(map(is_number, tree_flatten((args, kwargs))[0])):
        error = regular_error(fn, args, kwargs) and error
    if error is not None:
        raise refusal(error, args, kwargs) from found


def is_number(x: Any) -> bool:
    """Whether torch may take ``x`` for a number: a tensor without dimensions."""
    return isinstance(x, TensorProxy) and not x.shape


def refusal(error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OperatorError:
    """The error that says what torch's says, of a call with these arguments."""
    cls = next((ours for theirs, ours in _CLASSES if isinstance(error, theirs)), OperatorError)
    refused = cls(str(error).strip(), found=described_arguments(args, kwargs))
    refused.torch_class = type(error)
    return refused


def as_torch_raises(error: OperatorError, handled: BaseException | None) -> Exception:
    """The exception that torch raises in place of one of ours, while ``handled`` is being handled: of its
    class, with its text alone.
    """
    cls = error.torch_class or next((t for t, ours in _CLASSES if isinstance(error, ours)), RuntimeError)
    plain = cls(error.asked).with_traceback(error.__traceback__)
    plain.__context__ = handled
    plain.add_note(str(error))
    return plain


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
