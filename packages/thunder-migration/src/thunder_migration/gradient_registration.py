"""Gradient rules in two halves: an augmented forward, which returns residuals, and a backward of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from thunder.core.proxies import TensorProxy
from thunder.core.pytree import tree_iter
from thunder.core.symbol import Symbol
from thunder.core.transforms import get_grad, put_grad, register_grad
from thunder.extend import operator_id

__all__ = ["VJPDual", "register_augmented_forward", "register_backward"]

_Fn = TypeVar("_Fn", bound=Callable[..., Any])


class VJPDual(NamedTuple):
    """The result of an augmented forward: the operator's result, and what its backward receives first."""

    primal: Any
    residuals: Any


@dataclass
class _Halves:
    forward: Callable[..., Any] | None = None
    backward: Callable[..., Any] | None = None


_halves: dict[str, _Halves] = {}


def register_augmented_forward(sym_or_id: Symbol | str) -> Callable[[_Fn], _Fn]:
    """Return a decorator of the first half of an operator's gradient rule.

    The function has the operator's signature and returns `VJPDual(result, residuals)`. The rule takes effect
    when `register_backward` has the second half. Raises RegistrationError for an unknown id.
    """
    return _register(operator_id(sym_or_id), "forward")


def register_backward(sym_or_id: Symbol | str) -> Callable[[_Fn], _Fn]:
    """Return a decorator of the second half of an operator's gradient rule.

    The function receives the residuals, then the gradient of each tensor in the result. It returns the
    gradients of the operator's positional arguments in their order (one, or a tuple with None for those that
    have none; trailing ones may be left out), or a mapping of parameter names to gradients.
    """
    return _register(operator_id(sym_or_id), "backward")


def _register(id: str, half: str) -> Callable[[_Fn], _Fn]:
    def decorate(fn: _Fn) -> _Fn:
        halves = _halves.setdefault(id, _Halves())
        setattr(halves, half, fn)
        if halves.forward is not None and halves.backward is not None:
            register_grad(id, _rule(halves.forward, halves.backward))
        return fn

    return decorate


def _rule(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """Return the two halves as one rule, of the operator's signature."""

    @functools.wraps(forward)  # an error of the rule names the author's module
    def rule(*args: Any, **kwargs: Any) -> Any:
        dual = forward(*args, **kwargs)
        if not isinstance(dual, tuple) or len(dual) != 2:
            raise TypeError(
                f"the augmented forward returns VJPDual(result, residuals), and returned {dual!r}"
            )
        primal, residuals = dual
        saved = residuals if isinstance(residuals, Sequence) else (residuals,)
        results = [leaf for leaf in tree_iter(primal) if isinstance(leaf, TensorProxy)]
        gradients = backward(*saved, *map(get_grad, results))
        for argument, gradient in _pairs(forward, gradients, args, kwargs):
            if gradient is not None:
                put_grad(argument, gradient)
        return primal

    return rule


def _pairs(
    forward: Callable[..., Any], gradients: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[Any, Any]]:
    """Return the arguments of the operator with their gradients."""
    if isinstance(gradients, Mapping):
        arguments = inspect.signature(forward).bind(*args, **kwargs).arguments
        for name in gradients:
            if name not in arguments:
                raise ValueError(f"the backward returned a gradient for {name!r}, which is not an argument")
        return [(arguments[name], gradient) for name, gradient in gradients.items()]
    listed = tuple(gradients) if isinstance(gradients, Sequence) else (gradients,)
    if len(listed) > len(args):
        raise ValueError(
            f"the backward returned {len(listed)} gradients for {len(args)} positional arguments"
        )
    return list(zip(args, listed, strict=False))
