"""The division of the arguments of a step into those of microbatches."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from thunder.core.errors import InvalidArgument

__all__ = ["divided"]

Call = tuple[tuple[Any, ...], dict[str, Any]]


def divided(
    signature: inspect.Signature,
    count: int,
    whole: Collection[str],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> tuple[list[Call], list[int]]:
    """Return the arguments of each of `count` microbatches, and the sizes of their first dimensions.

    Tensors are divided along their first dimension, also those in dictionaries, lists and tuples; the first
    parts may be larger by one. Those without dimensions, and those named in `whole`, are in all of them.

    Args:
        signature: of the function of the loss, whose first parameter is the module.

    Raises InvalidArgument for tensors of different sizes, none, or too few elements.
    """
    bound = signature.bind(None, *args, **kwargs)
    bound.apply_defaults()
    named = dict([*bound.arguments.items()][1:])
    lengths = {
        key: tensor.shape[0]
        for name, value in named.items()
        if name not in whole
        for key, tensor in _tensors(name, value)
        if tensor.ndim
    }
    unknown = set(whole).difference(signature.parameters)
    if unknown:
        raise InvalidArgument(
            f"whole= names {min(unknown)!r}, which the function of the loss does not take",
            found={"parameters": ", ".join(signature.parameters)},
        )
    if not lengths:
        raise InvalidArgument("no argument of the step is a tensor that can be divided into microbatches")
    if len(set(lengths.values())) > 1:
        raise InvalidArgument(
            "the arguments of a step have first dimensions of different sizes",
            found=lengths,
            hint="Name those that are not parts of the batch in whole=.",
        )
    length = next(iter(lengths.values()))
    if length < count:
        raise InvalidArgument(f"a batch of {length} cannot be divided into {count} microbatches")
    sizes = [length // count + (m < length % count) for m in range(count)]
    calls: list[Call] = []
    for m in range(count):
        first = sum(sizes[:m])
        own = signature.bind(None, *args, **kwargs)
        own.apply_defaults()
        for name, value in named.items():
            if name not in whole:
                own.arguments[name] = _part(value, first, first + sizes[m])
        calls.append((own.args[1:], own.kwargs))
    return calls, sizes


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _tensors(f"{name}[{key!r}]", item)
    elif isinstance(value, tuple | list):
        for i, item in enumerate(value):
            yield from _tensors(f"{name}[{i}]", item)


def _part(value: Any, begin: int, end: int) -> Any:
    if isinstance(value, torch.Tensor):
        return value[begin:end] if value.ndim else value
    if type(value) is dict:
        return {key: _part(item, begin, end) for key, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_part(item, begin, end) for item in value)
    return value
