"""The primitives of gradient rules.

    def sin(input):
        out = ltorch.sin(input)
        put_grad(input, get_grad(out) * ltorch.cos(input))
        return out

They are in a program only until the rules of all its calls have run: the autograd pass replaces each
``get_grad`` by the sum of the gradients that were put, in the order of the backward.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import torch

from thunder.base.errors import PluginError
from thunder.base.tags import OpTags
from thunder.ir.gradient_declarations import NONDIFFERENTIABLE
from thunder.ir.proxies import TensorProxy
from thunder.ops.prims.declaration import primitive

__all__ = ["add_unmodelled", "get_grad", "put_grad", "put_grads", "raise_error"]


def _get_grad_meta(a: TensorProxy) -> TensorProxy:
    # It requires grad, so that a second derivative is recorded.
    return TensorProxy(like=a, requires_grad=True)


def _put_grad_meta(grad_for: TensorProxy, grad: TensorProxy | None) -> None:
    for name, value in (("first", grad_for), ("second", grad)):
        if not isinstance(value, TensorProxy) and (value is not None or name == "first"):
            raise PluginError(
                f"the {name} argument of put_grad is {value!r}, and not a tensor of the program",
                hint="It takes an argument of the rule, and the gradient of that argument.",
            )
    if grad is not None and _type(grad) != _type(grad_for):
        raise PluginError(
            f"put_grad got a gradient of {grad_for.name} that does not fit it",
            found={grad_for.name: grad_for.type_string(), "gradient": grad.type_string()},
            hint="A gradient has the shape, dtype and device of its value.",
        )


def _type(x: TensorProxy) -> tuple[object, ...]:
    return tuple(x.shape), x.dtype, x.device


#: the gradient of a value
get_grad = primitive("get_grad", _get_grad_meta, tags=(OpTags.DONT_DCE,))

#: the gradient of a value, or None where a backward has none
get_grad_or_none = primitive("get_grad_or_none", _get_grad_meta, tags=(OpTags.DONT_DCE,))

#: adds to the gradient of a value; None declares that it has no gradient
put_grad = primitive("put_grad", _put_grad_meta, tags=(OpTags.DONT_DCE,))


def _add_unmodelled_meta(a: TensorProxy, b: TensorProxy) -> TensorProxy:
    return TensorProxy(like=a, requires_grad=False)


#: the sum of two gradients of a tensor that only torch computes with
add_unmodelled = primitive(
    "add_unmodelled", _add_unmodelled_meta, eager=torch.add, tags=(OpTags.DONT_RECOMPUTE_IN_BACKWARD,)
)


def _like(like: TensorProxy, after: TensorProxy, kind: type[Exception], arguments: tuple[Any, ...]) -> Any:
    return TensorProxy(like=like, requires_grad=False)


def _raise(like: Any, after: Any, kind: type[Exception], arguments: tuple[Any, ...]) -> NoReturn:
    raise kind(*arguments)


#: raises ``kind(*arguments)`` once ``after`` is computed; its result would be a tensor like ``like``
raise_error = primitive("raise_error", _like, eager=_raise, vjp=NONDIFFERENTIABLE)


def put_grads(values: Iterable[TensorProxy | None], grads: Iterable[TensorProxy | None]) -> None:
    """Add each gradient to that of its value; None declares that a value has no gradient.

    Raises PluginError, with the index, where the two differ in number or a gradient does not fit its value.
    """
    values, grads = tuple(values), tuple(grads)
    if len(values) != len(grads):
        raise PluginError(
            f"put_grads got {len(values)} values and {len(grads)} gradients",
            hint="Each value has a gradient, or None in its place.",
        )
    for index, (value, grad) in enumerate(zip(values, grads, strict=True)):
        if grad is None and not isinstance(value, TensorProxy):
            continue
        try:
            put_grad(value, grad)
        except PluginError as error:
            error.asked = f"gradient {index} of put_grads: {error.asked}"
            raise
