"""Operators whose results have sizes that depend on data: their statements check the sizes.

Note [Sizes that depend on data]
The sizes in the call that is traced are a decision (Note [Decisions on data]). The statement has them as an
argument, and its own run is the check, so that no call on its results runs before it:

    i = mask.nonzero()    →    t1 = nonzero(mask, results=((3, 1), (1, 1), torch.int64), decision=0)

Results of other sizes raise DecisionChanged. Strides and dtypes are compared with the sizes.

Where the size may differ (Note [Computed sizes]), the statement has it as its last result, and the metadata
with ``"n"`` in its places:

    (t1, u0) = nonzero_with_size(mask, results=(("n", 1), (1, "n"), torch.int64))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder.base.equal_values import same_leaf
from thunder.base.errors import DecisionChanged
from thunder.base.pytree import tree_iter
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy

__all__ = [
    "COMPUTING_TAGS",
    "SIZE",
    "SIZED_TAGS",
    "Described",
    "checked_sizes",
    "computed_size",
    "declared",
    "described",
    "size_in",
    "with_size",
    "without_sizes",
]

#: shape, strides and dtype of a tensor
Described = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]

#: the tags of an operator with a function of :func:`checked_sizes`
SIZED_TAGS = frozenset({OpTags.DONT_DCE, OpTags.CHECKS_DECISION, OpTags.DONT_RECOMPUTE_IN_BACKWARD})

#: the tags of an operator with a function of :func:`computed_size`
COMPUTING_TAGS = SIZED_TAGS | {OpTags.COMPUTES_SIZE}

#: in the metadata of results, in the place of the size that may differ
SIZE = "n"


def described(results: Any) -> Described | tuple[Described, ...]:
    """Return shape, strides and dtype of the tensor that a call returns, or of each of several."""
    if isinstance(results, tuple | list):
        return tuple(map(_described, results))
    return _described(results)


def _described(t: torch.Tensor) -> Described:
    return tuple(t.shape), tuple(t.stride()), t.dtype


def declared(results: Described | tuple[Described, ...], arguments: Any) -> Any:
    """Return proxies with the described metadata, on the device of the first tensor among arguments."""
    device = next(t.device for t in tree_iter(arguments) if isinstance(t, TensorProxy))

    def proxy(shape: Any, strides: Any, dtype: Any) -> TensorProxy:
        return TensorProxy(shape=shape, strides=strides, dtype=dtype, device=device)

    if isinstance(results[-1], torch.dtype):
        return proxy(*results)
    return tuple(proxy(*each) for each in results)


def checked_sizes(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a statement with ``results`` and ``decision`` among its keywords.

    It raises DecisionChanged for results with other metadata.
    """

    def run(*args: Any, results: Any, decision: int, **kwargs: Any) -> Any:
        values = compute(*args, **kwargs)
        found = described(values)
        if not same_leaf(found, results):
            raise DecisionChanged(decision, found)
        return values

    run.__name__ = run.__qualname__ = compute.__name__
    run.__wrapped__ = compute  # type: ignore[attr-defined]
    return run


def size_in(expected: Any, found: Any) -> int | None:
    """Return the size in ``found`` whose place is the first of :data:`SIZE` in ``expected``, or None."""
    if expected == SIZE and isinstance(expected, str):
        return found if isinstance(found, int) else None
    if not (isinstance(expected, tuple) and isinstance(found, tuple)):
        return None
    sizes = (size_in(e, f) for e, f in zip(expected, found, strict=False))
    return next((n for n in sizes if n is not None), None)


def with_size(expected: Any, size: Any) -> Any:
    """Return metadata with a size in the places of :data:`SIZE`."""
    if isinstance(expected, tuple):
        return tuple(with_size(e, size) for e in expected)
    return size if isinstance(expected, str) and expected == SIZE else expected


def computed_size(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of a statement that returns the results of ``compute``, and the size in them.

    It raises DecisionChanged for results whose other metadata are not those in ``results``.
    """

    def run(*args: Any, results: Any, **kwargs: Any) -> Any:
        values = compute(*args, **kwargs)
        found = described(values)
        size = size_in(results, found)
        if not same_leaf(found, with_size(results, size)):
            raise DecisionChanged(None, f"{found} is like {results}")
        return values, size

    run.__name__ = run.__qualname__ = f"{compute.__name__}_with_size"
    run.__wrapped__ = compute  # type: ignore[attr-defined]
    return run


def without_sizes(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with the parameters of :func:`checked_sizes` that does not check."""

    def run(*args: Any, results: Any = None, decision: Any = None, **kwargs: Any) -> Any:
        return compute(*args, **kwargs)

    run.__wrapped__ = compute  # type: ignore[attr-defined]
    return run
