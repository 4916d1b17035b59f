"""The forms in which a distributing transform is given: alone, with a module, with a compiled module."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol

from torch import nn

import thunder
from thunder.core.errors import InvalidArgument
from thunder.core.transforms import add_transform
from thunder.extend import attach_transform

__all__ = ["Forms", "forms_of"]

P = ParamSpec("P")


class Forms(Protocol[P]):
    """A function that takes a module or None, and the arguments of a transform class."""

    def __call__(self, model: Any = None, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Return the transform, the module with the transform attached, or a new compiled module with it."""


def forms_of(transform: Callable[P, Any], purpose: str) -> Forms[P]:
    """Return the function that gives a transform class its three forms; `purpose` is for its docstring."""

    def forms(model: Any = None, *args: P.args, **kwargs: P.kwargs) -> Any:
        return _applied(transform(*args, **kwargs), model)

    own = inspect.signature(transform)
    given = inspect.Parameter("model", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
    forms.__signature__ = own.replace(parameters=[given, *own.parameters.values()], return_annotation=Any)  # type: ignore[attr-defined]
    forms.__name__ = forms.__qualname__ = transform.made_by  # type: ignore[attr-defined]
    forms.__module__ = transform.__module__
    forms.__doc__ = f"""Return a transform for {purpose}, or a module with it.

    Without a module the result is a :class:`{transform.__name__}`. A module is returned with the transform
    attached, which `thunder.jit` applies; of a compiled module a new one with the transform. The arguments
    are those of the class.
    """
    return forms


def _applied(transform: Any, model: Any) -> Any:
    """Return the transform itself, the module with the transform attached, or a new compiled module with it.

    Raises InvalidArgument for another object; the transform's own errors for a module that it refuses.
    """
    if model is None:
        return transform
    if isinstance(model, thunder.ThunderModule):
        return add_transform(model, transform=transform)
    if not isinstance(model, nn.Module):
        raise InvalidArgument(
            f"{transform.made_by} takes a module, and received {type(model).__name__}",
            hint=f"thunder.jit(module, transforms=[{transform.made_by}()]) is the general form.",
        )
    transform.validate(model, {})
    return attach_transform(model, transform)
