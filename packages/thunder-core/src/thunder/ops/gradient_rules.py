"""Gradient rules: the three forms in which they are declared, and how they are evaluated.

The most general form has the signature of its operator, computes the result, and moves gradients:

    @gradient_rule("torch.nn.functional.layer_norm")
    def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05):
        out, mean, rstd = ltorch.native_layer_norm(input, normalized_shape, weight, bias, eps)
        ...
        put_grads((input, weight, bias), ltorch.layer_norm_backward(get_grad(out), input, mean, rstd, ...))
        return out

Most operators need less: the gradient of each argument, as a formula of the call.

    formulas("torch.mul", input=lambda c: c.g * conj(c.other), other=lambda c: c.g * conj(c.input))

Where the gradients share work, one function returns them all:

    @vjp("torch.atan2")
    def atan2(c):
        scale = c.g / (c.input * c.input + c.other * c.other)
        return {"input": scale * c.other, "other": scale * -c.input}

The result of a formula is fitted to its argument (:func:`fitted`): broadcast dimensions are summed, dtype and
device are converted, and for a real argument the real part is taken.

Note [What a rule may save]

A backward uses values of the forward. Those that depend on something that requires grad may be saved only if
gradients flow back into them, or a second derivative would miss them: the arguments and results of the
operators that the program called. What a rule computes for itself (``s = sigmoid(x)``) is computed again in
the backward, where it is differentiated like any other value. The exception are results that an operator
declares to carry no gradient (``mean`` and ``rstd`` above); an operator that takes such a value has a rule
for what it depends on.

Conventions for complex numbers are torch's: the gradient of a real loss with respect to ``z = x + iy`` is
``dL/dx + i dL/dy``, so a holomorphic ``f`` has the rule ``g * conj(f'(z))`` (torch's "Autograd for complex
numbers").
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from thunder.base.errors import OperatorError, PluginError, RegistrationError
from thunder.base.pytree import tree_iter
from thunder.ir.gradient_declarations import (
    Formulas,
    JointRule,
    OperatorGradient,
    Vjp,
    declare_gradient,
    declared_gradient,
)
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_sizes import are_same
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.extension_code import call_extension
from thunder.ops.operator import NONDIFFERENTIABLE, row_of, symbol_of
from thunder.ops.prims.gradient import put_grad

Formula = Callable[["VjpCall"], Any]
#: the gradients of a call's arguments, by name
VjpFunction = Callable[["VjpCall"], Mapping[str, Any]]


class VjpCall:
    """A call that is differentiated, as the argument of formulas.

    Arguments are attributes under the operator's names (``c.input``). ``c.out`` is the result, ``c.g`` its
    cotangent, with the shape and dtype of the result. Where the result is a tuple, so is ``c.g``; an element
    is None if the program's results do not depend on it.
    """

    __slots__ = ("_arguments", "g", "out")

    def __init__(self, arguments: Mapping[str, Any], out: Any, g: Any) -> None:
        self._arguments, self.out, self.g = arguments, out, g

    def __getattr__(self, name: str) -> Any:
        try:
            return self._arguments[name]
        except KeyError:
            raise AttributeError(f"the operator has no argument {name!r}") from None

    @property
    def arguments(self) -> Mapping[str, Any]:
        """All arguments by name; an operator with ``*args`` has them under ``args``."""
        return self._arguments

    def needs(self, name: str) -> bool:
        """Return whether an argument, or a tensor in it, needs a gradient."""
        return wants_grad(self._arguments[name])


def wants_grad(value: Any) -> bool:
    """Return whether a value is, or contains, a tensor that requires grad."""
    if isinstance(value, TensorProxy):
        return value.requires_grad
    return any(map(requires_grad, tree_iter(value)))


# -- declaring -----------------------------------------------------------------------------------------------


def formulas(*ids: str, **by_argument: Formula) -> None:
    """Declare the gradients of operators by one formula ``call → gradient`` for each argument.

    For an argument that is a sequence of tensors the formula returns a sequence. Arguments without a formula
    have no gradient. Raises RegistrationError for an unknown operator or argument, and for an operator with a
    declared gradient.
    """
    for operator_id in ids:
        names = _parameters(operator_id)
        for name in by_argument:
            if name not in names:
                raise RegistrationError(
                    f"{operator_id} has no argument {name!r}", found={"arguments": ", ".join(names)}
                )
        _declare(operator_id, Formulas(dict(by_argument)))


def vjp(*ids: str) -> Callable[[VjpFunction], VjpFunction]:
    """Declare the gradients of operators by a function ``call → {argument: gradient}``."""

    def decorate(fn: VjpFunction) -> VjpFunction:
        for operator_id in ids:
            _declare(operator_id, Vjp(fn))
        return fn

    return decorate


def gradient_rule(*ids: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the gradients of operators by a function that computes the result too."""

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        for operator_id in ids:
            _declare(operator_id, JointRule(fn))
        return fn

    return decorate


def nondifferentiable(*ids: str) -> None:
    """Declare that no gradient flows through operators."""
    for operator_id in ids:
        _declare(operator_id, NONDIFFERENTIABLE)


def _declare(operator_id: str, gradient: OperatorGradient) -> None:
    if declared_gradient(symbol_of(operator_id).id) is not None:
        raise RegistrationError(
            f"{operator_id} has a gradient already", hint="An operator has one gradient declaration."
        )
    declare_gradient(operator_id, gradient)


@functools.cache
def _parameters(operator_id: str) -> tuple[str, ...]:
    meta = symbol_of(operator_id).meta
    assert meta is not None, "a row has a definition"
    return tuple(inspect.signature(meta).parameters)


# -- running -------------------------------------------------------------------------------------------------


def _run(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    return fn(*args, **kwargs)


def vjp_function(gradient: Formulas | Vjp, run: Callable[..., Any] = _run) -> VjpFunction:
    """Return the function of a call that computes the gradients of its arguments.

    ``run(fn, args, kwargs)`` calls the declared functions.
    """
    if isinstance(gradient, Vjp):
        fn = gradient.fn
        return lambda call: run(fn, (call,), {})
    by_argument = gradient.by_argument

    def gradients(call: VjpCall) -> dict[str, Any]:
        return {
            name: run(formula, (call,), {}) if formula is not None else None
            for name, formula in by_argument.items()
            if formula is None or call.needs(name)
        }

    return gradients


def put_gradients(gradient: Formulas | Vjp, call: BoundSymbol, g: Any, is_complete: bool) -> None:
    """Put the gradients of a call with cotangents ``g``.

    Raises PluginError for a gradient that does not fit its argument, and with ``is_complete`` for an argument
    that requires grad and has neither a gradient nor None.
    """
    arguments = _bound(call)
    run = call_extension if is_complete else _run
    gradients = vjp_function(gradient, run)(VjpCall(arguments, call.output, g))
    if not isinstance(gradients, Mapping):
        raise PluginError(
            f"a function of gradients returned {gradients!r}, and not a mapping from arguments to gradients"
        )
    unknown = gradients.keys() - arguments.keys()
    missing = [n for n, x in arguments.items() if is_complete and n not in gradients and wants_grad(x)]
    for name in (*sorted(unknown), *missing):
        raise PluginError(
            f"a gradient of {name!r}, which {call.sym.id} does not have as an argument"
            if name in unknown
            else f"there is no gradient of {name!r}, which requires grad",
            found={"arguments": ", ".join(arguments), "gradients": ", ".join(gradients)},
            hint="None in place of a gradient declares that there is none.",
        )
    types = None
    if is_complete:
        types = [x for x in (*call.flat_proxy_args, *call.flat_proxy_outs) if isinstance(x, TensorProxy)]
    for name, value in gradients.items():
        _put(name, arguments[name], value, types)


def _bound(call: BoundSymbol) -> dict[str, Any]:
    """Return the arguments of a call by name."""
    meta = call.sym.meta
    if row_of(call.sym) is not None or meta is None:
        names = _parameters(call.sym.id)
    else:  # an operator of one compile is not registered
        names = tuple(inspect.signature(meta).parameters)
    if names[:1] == ("args",):
        return {"args": call.args, **call.kwargs}
    return {**dict(zip(names, call.args, strict=False)), **call.kwargs}


def _put(name: str, value: Any, gradient: Any, types: Sequence[TensorProxy] | None) -> None:
    """Put the gradient of an argument; ``types`` are the tensors whose dtypes and devices it may have."""
    if gradient is None:
        return
    if isinstance(value, TensorProxy):
        if value.requires_grad:
            _check_fits(name, value, gradient, types)
            put_grad(value, fitted(gradient, value))
    elif isinstance(value, Sequence):
        if not isinstance(gradient, Sequence) or len(gradient) != len(value):
            raise _unfit(name, f"a sequence of {len(value)}", gradient)
        for index, (item, part) in enumerate(zip(value, gradient, strict=True)):
            _put(f"{name}[{index}]", item, part, types)
    elif types is not None:
        raise _unfit(name, value, gradient)


def _check_fits(name: str, value: TensorProxy, gradient: Any, types: Sequence[TensorProxy] | None) -> None:
    """Raise PluginError unless summation and conversion make a gradient one of ``value``."""
    is_fitting = isinstance(gradient, TensorProxy) and gradient.dtype.is_inexact
    if is_fitting and (gradient.ndim != value.ndim or gradient.shape != value.shape):
        shape, of = tuple(value.shape), tuple(gradient.shape)[gradient.ndim - value.ndim :]
        is_fitting = gradient.ndim >= value.ndim and all(n in (1, m) for n, m in zip(shape, of, strict=True))
    if is_fitting and types is not None:
        is_fitting = any(gradient.dtype is x.dtype for x in types) and any(
            gradient.device is x.device for x in types
        )
    if not is_fitting:
        raise _unfit(name, value, gradient)


def _unfit(name: str, value: Any, gradient: Any) -> PluginError:
    def described(x: Any) -> str:
        return f'"{x.type_string()}"' if isinstance(x, TensorProxy) else str(x)

    return PluginError(
        f"the gradient of {name!r} does not fit it",
        found={"argument": described(value), "gradient": described(gradient)},
        hint="A gradient has the shape, dtype and device of its argument. Broadcast dimensions are summed; "
        "the dtype and device of the result are converted.",
    )


def fitted(g: TensorProxy, like: TensorProxy) -> TensorProxy:
    """Return ``g`` as a gradient of ``like``: with its shape, its dtype, and on its device.

    Broadcast dimensions are summed; the real part is taken where ``like`` is real.
    """
    if g.dtype.is_complex and not like.dtype.is_complex:
        g = prims.real(g)
    g = cast(summed_to(g, tuple(like.shape)), like.dtype)
    return g if g.device is like.device else prims.device_put(g, like.device)


def summed_to(g: TensorProxy, shape: tuple[int, ...]) -> TensorProxy:
    """Return the sum of ``g`` over the dimensions that broadcasting ``shape`` expands."""
    if are_same(g.shape, tuple(shape)):
        return g
    leading = g.ndim - len(shape)
    if leading < 0:
        raise OperatorError("a gradient has fewer dimensions than its value", found={"gradient": g.shape})
    expanded = tuple(i + leading for i, n in enumerate(shape) if n == 1 and g.shape[i + leading] != 1)
    dims = (*range(leading), *expanded)
    summed = prims.sum(g, dims) if dims else g
    return summed if are_same(summed.shape, tuple(shape)) else prims.reshape(summed, shape)


def conj(x: Any) -> Any:
    """Return the complex conjugate; a real value as it is."""
    if isinstance(x, TensorProxy):
        return prims.conj(x) if x.dtype.is_complex else x
    return x.conjugate() if isinstance(x, complex) else x
