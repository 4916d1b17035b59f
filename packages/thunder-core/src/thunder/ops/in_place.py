"""In-place forms: the kernels of operators that write to an argument instead of a copy of it.

    index_copy(a, dim, index, value)   →   a.index_copy_(dim, index, value)

The rows of operators have the forms of torch's functions (``Operator.in_place``). Another kernel has its form
as its attribute ``in_place``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from thunder.base import overwritten
from thunder.base.tensor_versions import restored_version

# fmt: off
__all__ = [
    "ENDING", "InPlaceForm", "by_dim_last", "elementwise_kernel", "part", "put", "restoring_all",
    "restoring_items", "restoring_places", "restoring_put", "restoring_rows", "set_item", "whole",
]
# fmt: on

#: what the id of an in-place form adds to that of its operator
ENDING: Final = "_in_place"

Kernel = Callable[..., Any]
Restore = Callable[[], object]


def _first(args: Sequence[Any], kwargs: Any) -> tuple[Any, ...]:
    return (args[0],)


@dataclass(frozen=True, kw_only=True)
class InPlaceForm:
    """A kernel that computes the results of an operator into arguments of the call.

    Attributes:
        run: takes the operator's arguments, writes, and returns the results that are not written arguments.
        bases: the arguments that ``run`` writes, from the operator's arguments.
        copies: the results that these arguments hold afterwards, from the operator's output.
        results: the operator's output with None in their places.
        restoring: takes the operator's arguments before ``run``, and returns a function that puts back the
            elements that it will overwrite. None if these are not known.
        is_whole: ``run`` overwrites all elements, and an argument may be the base itself.
        keeps_layout: the operator's own result has the strides of the base too.
        region_form: the `RegionForm` of a region's function; those of the kernels say that they write.
    """

    run: Kernel
    bases: Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any]] = _first
    copies: Callable[[Any], Sequence[Any]] = lambda output: (output,)
    results: Callable[[Any], Any] = lambda output: None
    restoring: Callable[..., Restore] | None = None
    is_whole: bool = False
    keeps_layout: bool = False
    region_form: Any = None

    def kernel(self, *, keeps_overwritten: bool) -> Kernel:
        """Return the function that a program calls; it may keep what it overwrites until the call ends."""
        run, bases, restoring = self.run, self.bases, self.restoring
        if not keeps_overwritten:

            def write(*args: Any, **kwargs: Any) -> Any:
                if torch.is_grad_enabled():
                    with torch.no_grad():
                        return run(*args, **kwargs)
                return run(*args, **kwargs)

            return self._described(write, keeps_overwritten=False)
        assert restoring is not None, "the form says what it overwrites"

        def keep_and_write(*args: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled():
                with torch.no_grad():
                    return keep_and_write(*args, **kwargs)
            if overwritten.can_keep():
                (base,) = bases(args, kwargs)
                overwritten.keep(restored_version(base, restoring(*args, **kwargs)))
            return run(*args, **kwargs)

        return self._described(keep_and_write, keeps_overwritten=True)

    def _described(self, kernel: Any, *, keeps_overwritten: bool) -> Kernel:
        """Return a kernel with what passes, and a package that keeps programs, ask of it."""
        kernel.bases = self.bases
        if self.region_form is not None:
            form = {"is_in_place": True, "keeps_overwritten": keeps_overwritten}
            kernel.form = replace(self.region_form, **form)
        return kernel  # type: ignore[no-any-return]


# -- writes to a part of a tensor ----------------------------------------------------------------------------


def set_item(a: torch.Tensor, key: Any, value: Any) -> None:
    """Write a value at a key."""
    a[tuple(key) if isinstance(key, list) else key] = value


def restoring_items(a: torch.Tensor, key: Any, value: Any) -> Restore:
    """Return a function that puts back what :func:`set_item` overwrites."""
    key = tuple(key) if isinstance(key, list) else key
    old = a[key].clone()
    return lambda: a.__setitem__(key, old)


def put(a: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool = False) -> None:
    """Write values at indices, of which some may be None."""
    torch.ops.aten.index_put_(a, list(indices), values, accumulate)


def restoring_put(a: torch.Tensor, indices: Sequence[Any], *_: Any, **__: Any) -> Restore:
    """Return a function that puts back what :func:`put` overwrites."""
    indices = list(indices)
    old = torch.ops.aten.index(a, indices)
    return lambda: torch.ops.aten.index_put_(a, indices, old, False)


def restoring_rows(a: torch.Tensor, dim: int, index: torch.Tensor, *_: Any, **__: Any) -> Restore:
    """Return a function that puts back the slices of a dimension at an index."""
    old = a.index_select(dim, index)
    return lambda: a.index_copy_(dim, index, old)


def restoring_places(a: torch.Tensor, dim: int, index: torch.Tensor, *_: Any, **__: Any) -> Restore:
    """Return a function that puts back what a scatter overwrites."""
    old = a.gather(dim, index)
    return lambda: a.scatter_(dim, index, old)


def restoring_all(a: torch.Tensor) -> Restore:
    """Return a function that puts back all elements."""
    old = a.clone()
    return lambda: a.copy_(old)


def part(run: Kernel, restoring: Kernel, *, keeps_layout: bool = False) -> InPlaceForm:
    """Return the form of a kernel that writes some elements of its first argument."""
    return InPlaceForm(run=run, restoring=restoring, keeps_layout=keeps_layout)


def by_dim_last(run: Kernel, restoring: Kernel) -> InPlaceForm:
    """Return the form of a primitive ``(a, index, value, dim)``."""
    return part(
        lambda a, index, value, dim: run(a, dim, index, value),
        lambda a, index, value, dim: restoring(a, dim, index),
    )


# -- writes to all elements --------------------------------------------------------------------------------


def whole(run: Kernel) -> InPlaceForm:
    """Return the form of a kernel that writes all elements of its first argument."""
    return InPlaceForm(run=run, restoring=lambda a, *_, **__: restoring_all(a), is_whole=True)


def elementwise_kernel(name: str) -> dict[str, Any]:
    """Return the facts of torch's elementwise function with this name, a method ``name_`` and ``out=``."""
    return {"in_place": whole(getattr(torch.Tensor, f"{name}_")), "with_out": getattr(torch, name)}
