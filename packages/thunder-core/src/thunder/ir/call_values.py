"""Arguments and outputs of a symbol's call, before they are recorded as a bound symbol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any

import torch

from thunder.base.errors import OperatorError
from thunder.base.pytree import is_builtin_node, tree_iter, with_children
from thunder.ir.proxies import NumberProxy, Proxy, TensorProxy
from thunder.ir.symbolic_sizes import SizeTuple

#: the most frequent types of arguments that are not containers
NO_CONTAINERS = frozenset(
    {TensorProxy, int, float, bool, str, type(None), slice, torch.dtype, torch.device, torch.Size}
)


def with_copied_containers(value: Any) -> Any:
    """Return an argument with its containers copied.

    The program may change its list after a call of ``torch.cat``.
    """
    cls = type(value)
    if cls is tuple and NO_CONTAINERS.issuperset(map(type, value)):
        return value
    if cls is SizeTuple:
        return tuple(value)
    if cls is list or cls is tuple:
        return cls([v if type(v) in NO_CONTAINERS else with_copied_containers(v) for v in value])
    if cls is dict:
        return {k: with_copied_containers(v) for k, v in value.items()}
    if cls not in NO_CONTAINERS and is_builtin_node(cls):  # an OrderedDict, a deque, a named tuple
        children = value.values() if isinstance(value, dict) else value
        return with_children(value, map(with_copied_containers, children))
    return value


def refuse_number(
    name: str, args: Iterable[tuple[str, Any]], kwargs: Mapping[str, Any], error: AttributeError
) -> None:
    """Raise OperatorError if a meta function read a tensor's attribute of a number that it received.

    ``args`` are the positional arguments with the names of their parameters.
    """
    number = error.obj
    if not isinstance(number, Number | NumberProxy):
        return
    for parameter, value in (*args, *kwargs.items()):
        places = {parameter: value}
        if isinstance(value, list | tuple):
            places.update({f"{parameter}[{i}]": element for i, element in enumerate(value)})
        for place, element in places.items():
            if element is number:
                found = f"{type(number).__name__} {number}"
                raise OperatorError(f"{name}(): argument '{place}' must be a tensor, not {found}") from error


def is_identity(output: Any, args: tuple[Any, ...]) -> bool:
    """Return whether a composite that recorded nothing returned its inputs unchanged.

    Such are a cast to the same dtype, and dropout in eval mode.
    """
    inputs = {id(a) for a in tree_iter(args)}
    return all(id(o) in inputs or not isinstance(o, TensorProxy | Proxy) for o in tree_iter(output))


def require_grad(output: Any) -> None:
    """Let floating-point and complex outputs require grad, unless the meta function declares otherwise."""
    for o in (output,) if isinstance(output, TensorProxy) else tree_iter(output):
        if isinstance(o, TensorProxy) and o.dtype.is_inexact and not o.declared_without_grad:
            o.requires_grad = True


def require_no_grad(output: Any, args: tuple[Any, ...]) -> None:
    """Let outputs that are not arguments require no grad.

    An operator without gradient may decompose into operators that have one.
    """
    leaves = (output,) if isinstance(output, TensorProxy) else tree_iter(output)
    requiring = [o for o in leaves if isinstance(o, TensorProxy) and o.requires_grad]
    if not requiring:
        return
    inputs = {id(a) for a in tree_iter(args)}
    for o in requiring:
        if id(o) not in inputs:
            o.requires_grad = False
