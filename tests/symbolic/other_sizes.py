"""Samples of operators with other sizes than torch wrote them with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from thunder.base.pytree import tree_iter, tree_map

#: the most elements of a sample
MOST_ELEMENTS = 1 << 20
#: the sizes of a tensor in another sample, from the tensor and its position among those of the sample
Sizes = Callable[[torch.Tensor, int], list[int]]


def _every(step: Callable[[int], int]) -> Sizes:
    return lambda x, _: [step(n) if n > 1 else n for n in x.shape]


def _one_dimension(d: int, step: Callable[[int], int]) -> Sizes:
    def sizes(x: torch.Tensor, _: int) -> list[int]:
        shape = list(x.shape)
        if -len(shape) <= d < len(shape) and shape[d] > 1:
            shape[d] = step(shape[d])
        return shape

    return sizes


def _of_first(sizes: Sizes) -> Sizes:
    return lambda x, position: sizes(x, position) if position == 0 else list(x.shape)


def _next(n: int) -> int:
    return n + 1


def _double(n: int) -> int:
    return 2 * n


def _triple(n: int) -> int:
    return 3 * n


def _odd(n: int) -> int:
    return 2 * n + 3


#: other sizes of a sample's tensors; equal sizes stay equal, and sizes of 0 and 1 are kept
OTHER_SIZES: tuple[Sizes, ...] = (
    *(_every(step) for step in (_next, _double, _odd, _triple)),
    *(_one_dimension(d, step) for step in (_next, _double) for d in (0, -1, -2)),
    *(_of_first(_one_dimension(d, step)) for step in (_next, _double) for d in (0, 1, -1, -2)),
    _of_first(_every(_double)),
)


def other_samples(tree: Any) -> Iterator[Any]:
    """Yield a sample with other sizes, each time with other ones."""
    known = [shapes(tree)]
    for sizes in OTHER_SIZES:
        wanted = _wanted(tree, sizes)
        if sum(map(math.prod, wanted)) > MOST_ELEMENTS:
            continue
        other = _resized(tree, sizes)
        if shapes(other) not in known:
            known.append(shapes(other))
            yield other


def _wanted(tree: Any, sizes: Sizes) -> list[list[int]]:
    return [sizes(x, i) for i, x in enumerate(x for x in tree_iter(tree) if isinstance(x, torch.Tensor))]


def _resized(tree: Any, sizes: Sizes) -> Any:
    """Return a sample in which tensors have other sizes, and values from among their own."""
    position = iter(range(1000))
    seen: dict[int, torch.Tensor] = {}

    def resize(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
            return x
        if id(x) not in seen:
            seen[id(x)] = _with_shape(x.detach(), sizes(x, next(position)))
        return seen[id(x)]

    return tree_map(resize, tree)


def shapes(tree: Any) -> list[torch.Size]:
    """Return the shapes of the tensors of a sample, in their order."""
    return [x.shape for x in tree_iter(tree) if isinstance(x, torch.Tensor)]


def _with_shape(x: torch.Tensor, shape: list[int]) -> torch.Tensor:
    if list(x.shape) == shape:
        return x.clone(memory_format=torch.preserve_format)
    order = sorted(range(x.dim()), key=lambda d: -x.stride(d))
    is_sorted = x.dim() == 1 and bool((x.diff() >= 0).all()) if not x.is_complex() else False
    for d, n in enumerate(shape):
        x = x.index_select(d, torch.arange(n) % x.shape[d])
    if x.dtype.is_floating_point or x.dtype.is_complex:  # no matrix has equal rows
        order_of_values = torch.randperm(x.numel(), generator=torch.Generator().manual_seed(x.numel()))
        x = x.flatten()[order_of_values].reshape(shape)
    else:
        x = x.sort()[0] if is_sorted else x  # offsets
    return _in_order(x, order)


def _in_order(x: torch.Tensor, order: list[int]) -> torch.Tensor:
    """Return a copy whose dimensions lie in memory in an order, from the outermost to the innermost."""
    back = [order.index(d) for d in range(len(order))]
    copy = torch.empty([x.shape[d] for d in order], dtype=x.dtype).permute(back)
    return copy.copy_(x)
