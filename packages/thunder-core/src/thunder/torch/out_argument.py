"""The ``out=`` argument: results are written to tensors of the program and returned.

    torch.sort(x, out=(v, i))      →      t0, t1 = torch.sort(x); v.copy_(t0); i.copy_(t1)

Rows have no parameter ``out``. Torch itself judges whether a function takes ``out``, and these tensors.

Note [What out decides]

In torch, ``out`` is more than a place. A function with a parameter ``dtype`` computes in that of ``out`` by
default (``torch.sum(x, 0, out=y)`` adds up in ``y.dtype``), a factory creates its numbers on the device of
``out``, and autocast does not change the call.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.autocast_state import autocast_kinds, autocast_off
from thunder.base.devices import to_torch_device
from thunder.base.errors import OperatorError, UnsupportedProgram
from thunder.base.pytree import tree_flatten, tree_iter, tree_unflatten
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.trace_context import get_tracectx
from thunder.ops.meta_kernels import eager_error, eager_error_on_identity, meta_error
from thunder.ops.torch_errors import described_arguments, operator_error
from thunder.torch.autocast_rules import RULES, STEPS
from thunder.torch.inplace import write_back
from thunder.torch.tensor_attributes import is_contiguous

Fn = Callable[..., Any]


def write_to_out(
    name: str, fns: Sequence[Fn], compute: Fn, args: tuple[Any, ...], kwargs: dict[str, Any], is_random: bool
) -> Any:
    """Write what ``compute`` returns for the other arguments to ``out``, and return ``out``.

    ``fns`` are torch's functions that the call may mean, one of which must accept it. Raises OperatorError
    where torch refuses the call, UnsupportedProgram where torch would change the shape of ``out``.
    """
    inputs = dict(kwargs)
    targets = [t for t in tree_iter(inputs.pop("out")) if isinstance(t, TensorProxy)]
    if _is_recorded_by_autograd() and any(map(requires_grad, tree_iter((args, kwargs)))):
        raise OperatorError(
            f"{name.rpartition('.')[2]}(): functions with out=... arguments don't support automatic "
            "differentiation, but one of the arguments requires grad.",
            found=described_arguments(args, kwargs),
            hint="Leave out= out, or call it under torch.no_grad().",
        )
    _refuse_casts_within(name, args, inputs)
    if is_random and not all(map(is_contiguous, targets)):
        raise UnsupportedProgram(
            f"{name} draws random numbers into an out= that is not contiguous",
            found=described_arguments((), {"out": kwargs["out"]}),
            hint="Leave out= out, and copy_ what it returns.",
        )
    try:
        with autocast_off():
            result = compute(*args, **inputs)
    except OperatorError:
        _ask_about_out(fns, args, kwargs)  # torch may refuse the dtype of out
        raise
    values, spec = tree_flatten(result)
    if len(values) == len(targets):
        _check_shapes(name, values, targets)
    _ask_about_out(fns, args, kwargs)
    if len(values) != len(targets):
        raise OperatorError(f"{name} has {len(values)} results, and out= is for {len(targets)}")
    for value, target in zip(values, targets, strict=True):
        write_back(value, target)
    return tree_unflatten(targets, spec)


def _refuse_casts_within(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise UnsupportedProgram where torch casts between the steps of the function."""
    tensors = [t for t in tree_iter((args, kwargs)) if isinstance(t, TensorProxy)]
    for kind in {t.device.type for t in tensors} & autocast_kinds():
        if RULES[kind].get(name) in STEPS:
            raise UnsupportedProgram(
                f"{name} with out= under autocast, within which torch casts",
                found=described_arguments(args, kwargs),
                hint="Leave out= out, and copy_ what it returns.",
            )


def _is_recorded_by_autograd() -> bool:
    """Return whether torch would record the call for a backward, which ``out=`` rules out."""
    trace = get_tracectx()
    return torch.is_grad_enabled() and not (trace is not None and trace.recorder.in_backward)


def _check_shapes(name: str, values: Sequence[Any], targets: Sequence[TensorProxy]) -> None:
    for value, target in zip(values, targets, strict=True):
        if value.shape != target.shape:
            raise UnsupportedProgram(
                f"{name} would give its out= another shape, {list(value.shape)}",
                found={"out": f'"{target.type_string()}"'},
                hint="Make out with that shape, or leave out= out and use what the function returns.",
            )


#: methods of torch.Tensor and getters of its properties, as ``torch`` of a row has them
_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType)


def _is_method(fn: Fn) -> bool:
    """Return whether a function is a method of torch.Tensor. No method takes ``out``."""
    return isinstance(fn, _METHODS) or getattr(fn, "__module__", None) == torch._tensor.__name__


def _ask_about_out(fns: Sequence[Fn], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise OperatorError with torch's text if each of the functions refuses ``out``.

    Methods are not counted. A function that refuses zeros (they have no inverse) is called with other data.
    """
    fns = [fn for fn in fns if not _is_method(fn)] or fns
    without = {key: value for key, value in kwargs.items() if key != "out"}
    for ask in (eager_error, eager_error_on_identity, meta_error):
        answers = [ask(fn, args, kwargs) for fn in fns if ask(fn, args, without) is None]
        errors = [answer for answer in answers if answer is not None]
        if errors and len(errors) == len(answers):
            raise operator_error(errors[0], args, kwargs)
        if answers:
            return


def kwargs_from_out(fn: Fn, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> dict[str, Any]:
    """Return the keyword arguments ``dtype`` and ``device`` that ``out`` sets for ``fn``.

    Only those that ``fn`` has as parameters and that the call leaves out. See Note [What out decides].
    """
    if not isinstance(out, TensorProxy):
        return {}
    try:
        bound = inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:  # the call itself raises the error
        return {}
    bound.apply_defaults()
    decided = {"dtype": out.dtype.torch_dtype, "device": to_torch_device(out.device)}
    return {key: value for key, value in decided.items() if bound.arguments.get(key, key) is None}
