"""Torch's own parsing of arguments, which judges a call before a row binds it.

A row says what an operator computes, and has its parameters in one form. Which calls torch accepts is a fact
of torch's parser: overloads, types, keyword names, what may be given by position. So torch's function is
called under a mode that answers in its place: torch parses the arguments, finds the mode, and computes
nothing.

    x.sum(0, foo=1)   →   torch.Tensor.sum(x, 0, foo=1) under the mode   →   torch's TypeError

A call costs about a microsecond.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from thunder.core.devices import Device, to_torch_device
from thunder.core.dtypes import dtype
from thunder.core.errors import ThunderError
from thunder.core.metakernel import refusal
from thunder.core.proxies import GeneratorProxy, NumberProxy, TensorProxy
from thunder.core.pytree import tree_flatten, tree_unflatten

Fn = Callable[..., Any]

#: torch's functions that run, or look at their arguments, without a question to the mode
SILENT: frozenset[Any] = frozenset(
    {torch.range, torch.is_tensor, torch.Tensor.set_, torch.nn.init.trunc_normal_}
)

_NATIVE = (types.BuiltinFunctionType, types.MethodDescriptorType)


class _Judge:
    """A mode that answers each call with itself."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> _Judge:
        return self


_JUDGE = _Judge()
_push, _pop = torch._C._push_on_torch_function_stack, torch._C._pop_torch_function_stack
#: whether a function is torch's and asks the mode
_known: dict[Any, bool] = {}


def is_judged(fn: Any) -> bool:
    """Whether ``fn`` is a function of torch that parses its arguments and then asks the mode."""
    known = _known.get(fn)
    if known is None:
        known = _known[fn] = fn not in SILENT and (
            isinstance(fn, _NATIVE)
            or (isinstance(fn, types.FunctionType) and str(fn.__module__).partition(".")[0] == "torch")
        )
    return known


def parse(fn: Fn, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """NotImplemented where ``fn`` is an operator's method that declines these operands, else None.

    Raises OperatorError with torch's text, and of its class, for arguments that torch does not accept.
    """
    if any(map(_is_tracked_number, args)) or (kwargs and any(map(_is_tracked_number, kwargs.values()))):
        args = tuple(map(_with_gradient, args))
        kwargs = {key: _with_gradient(value) for key, value in kwargs.items()}
    _push(_JUDGE)
    try:
        found = fn(*args, **kwargs)
    except ThunderError:
        raise
    except Exception as error:
        problem = error
    else:
        return NotImplemented if found is NotImplemented else None
    finally:
        _pop()
    leaves, spec = tree_flatten((args, kwargs))
    stand_ins = [_stand_in(leaf) for leaf in leaves]
    if all(a is b for a, b in zip(leaves, stand_ins, strict=True)):
        problem.args = tuple(str(part).replace("TensorProxy", "Tensor") for part in problem.args)
        raise refusal(problem, args, kwargs)
    args, kwargs = tree_unflatten(stand_ins, spec)
    return parse(fn, args, kwargs)


def _is_tracked_number(x: Any) -> bool:
    """Whether torch would take ``x`` for a number, were it not that it requires grad, which a proxy hides."""
    return type(x) is TensorProxy and not x.__dict__["shape"] and x.__dict__["requires_grad"]


def _with_gradient(x: Any) -> Any:
    if not _is_tracked_number(x):
        return x
    return torch.empty((), dtype=x.dtype.torch_dtype, device="meta").requires_grad_()


def _stand_in(x: Any) -> Any:
    """What torch's parser takes for a value that only a trace has."""
    if isinstance(x, NumberProxy):
        return x.python_type(1 if x.value is None else x.value)
    if isinstance(x, GeneratorProxy):
        return torch.Generator()
    if isinstance(x, dtype):
        return x.torch_dtype
    return to_torch_device(x) if isinstance(x, Device) else x
