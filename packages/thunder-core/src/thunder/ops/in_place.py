"""In-place forms: the kernels of operators that write to an argument instead of a copy of it.

    index_copy(a, dim, index, value)   →   a.index_copy_(dim, index, value)

The tables below have the forms of torch's functions. Another kernel has its form as its attribute
``in_place``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder.base import overwritten
from thunder.base.tensor_versions import restored_version
from thunder.ir.symbol import BoundSymbol

__all__ = ["ENDING", "InPlaceForm", "has_own_form", "in_place_form", "writes_by_table"]

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
    """

    run: Kernel
    bases: Callable[[tuple[Any, ...], dict[str, Any]], Sequence[Any]] = _first
    copies: Callable[[Any], Sequence[Any]] = lambda output: (output,)
    results: Callable[[Any], Any] = lambda output: None
    restoring: Callable[..., Restore] | None = None
    is_whole: bool = False
    keeps_layout: bool = False

    def kernel(self, *, keeps_overwritten: bool) -> Kernel:
        """Return the function that a program calls; it may keep what it overwrites until the call ends."""
        run, bases, restoring = self.run, self.bases, self.restoring
        if not keeps_overwritten:

            def write(*args: Any, **kwargs: Any) -> Any:
                if torch.is_grad_enabled():
                    with torch.no_grad():
                        return run(*args, **kwargs)
                return run(*args, **kwargs)

            write.bases = bases  # type: ignore[attr-defined]
            return write
        assert restoring is not None, "the form says what it overwrites"

        def keep_and_write(*args: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled():
                with torch.no_grad():
                    return keep_and_write(*args, **kwargs)
            if overwritten.can_keep():
                (base,) = bases(args, kwargs)
                overwritten.keep(restored_version(base, restoring(*args, **kwargs)))
            return run(*args, **kwargs)

        keep_and_write.bases = bases  # type: ignore[attr-defined]
        return keep_and_write


def has_own_form(bsym: BoundSymbol) -> bool:
    """Return whether the kernel of a call itself says how it writes in place."""
    return isinstance(getattr(bsym.sym.python_impl, "in_place", None), InPlaceForm)


def in_place_form(bsym: BoundSymbol) -> InPlaceForm | None:
    """Return the in-place form of a call that runs, or None.

    The tables are for calls that core's kernels run.
    """
    form = getattr(bsym.sym.python_impl, "in_place", None)
    return form if isinstance(form, InPlaceForm) else _FORMS.get(bsym.sym.id)


def writes_by_table(bsym: BoundSymbol) -> bool:
    """Return whether a call is an in-place form of the tables, which a kernel of torch or of core runs."""
    operator, ending, _ = bsym.sym.id.rpartition(ENDING)
    return bool(ending) and operator in _FORMS


# -- writes to a part of a tensor ----------------------------------------------------------------------------


def _set_item(a: torch.Tensor, key: Any, value: Any) -> None:
    a[tuple(key) if isinstance(key, list) else key] = value


def _restoring_items(a: torch.Tensor, key: Any, value: Any) -> Restore:
    key = tuple(key) if isinstance(key, list) else key
    old = a[key].clone()
    return lambda: a.__setitem__(key, old)


def _put(a: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool = False) -> None:
    torch.ops.aten.index_put_(a, list(indices), values, accumulate)


def _restoring_put(a: torch.Tensor, indices: Sequence[Any], *_: Any) -> Restore:
    indices = list(indices)
    old = torch.ops.aten.index(a, indices)
    return lambda: torch.ops.aten.index_put_(a, indices, old, False)


def _restoring_rows(a: torch.Tensor, dim: int, index: torch.Tensor, *_: Any, **__: Any) -> Restore:
    old = a.index_select(dim, index)
    return lambda: a.index_copy_(dim, index, old)


def _restoring_places(a: torch.Tensor, dim: int, index: torch.Tensor, *_: Any, **__: Any) -> Restore:
    old = a.gather(dim, index)
    return lambda: a.scatter_(dim, index, old)


def _restoring_all(a: torch.Tensor) -> Restore:
    old = a.clone()
    return lambda: a.copy_(old)


def _part(run: Kernel, restoring: Kernel, *, keeps_layout: bool = False) -> InPlaceForm:
    return InPlaceForm(run=run, restoring=restoring, keeps_layout=keeps_layout)


def _by_dim_last(run: Kernel, restoring: Kernel) -> InPlaceForm:
    """Return the form of a primitive ``(a, index, value, dim)``."""
    return _part(
        lambda a, index, value, dim: run(a, dim, index, value),
        lambda a, index, value, dim: restoring(a, dim, index),
    )


Tensor = torch.Tensor
_PARTS: Final = {
    "prims.copy_with_setitem": _part(_set_item, _restoring_items, keeps_layout=True),
    "prims.index_put": _part(_put, _restoring_put, keeps_layout=True),
    "prims.index_copy": _by_dim_last(Tensor.index_copy_, _restoring_rows),
    "prims.index_add": _by_dim_last(Tensor.index_add_, _restoring_rows),
    "prims.scatter": _by_dim_last(Tensor.scatter_, _restoring_places),
    "prims.scatter_add": _by_dim_last(Tensor.scatter_add_, _restoring_places),
    "prims.diagonal_scatter": _part(
        lambda a, value, *which: torch.diagonal(a, *which).copy_(value),
        lambda a, value, *which: _restoring_all(torch.diagonal(a, *which)),
    ),
    "torch.masked_scatter": _part(
        Tensor.masked_scatter_, lambda a, mask, _: _restoring_items(a, mask.expand_as(a), None)
    ),
    "torch.index_put": _part(_put, _restoring_put, keeps_layout=True),
    "torch.index_copy": _part(Tensor.index_copy_, _restoring_rows),
    "torch.index_add": _part(Tensor.index_add_, _restoring_rows),
    "torch.index_fill": _part(Tensor.index_fill_, _restoring_rows),
    "torch.index_reduce": _part(Tensor.index_reduce_, _restoring_rows),
    "torch.scatter": _part(Tensor.scatter_, _restoring_places),
    "torch.scatter_add": _part(Tensor.scatter_add_, _restoring_places),
    "torch.scatter_reduce": _part(Tensor.scatter_reduce_, _restoring_places),
}

# -- writes to all elements --------------------------------------------------------------------------------

#: functions ``f(a, …)`` with a method ``a.f_(…)``
_WITH_METHOD: Final = (
    "abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or "
    "bitwise_xor ceil clamp clamp_max clamp_min copysign cos cosh cumprod cumsum digamma div erf erfc "
    "erfinv exp exp2 expm1 fill floor floor_divide fmod frac hypot lerp lgamma log log10 log1p log2 "
    "masked_fill mul nan_to_num neg nextafter pow reciprocal relu remainder round rsqrt sigmoid sign sin "
    "sinc sinh sqrt square sub tan tanh tril triu trunc xlogy"
)


def _whole(run: Kernel) -> InPlaceForm:
    return InPlaceForm(run=run, restoring=lambda a, *_, **__: _restoring_all(a), is_whole=True)


_WHOLE: Final = {f"torch.{name}": _whole(getattr(Tensor, f"{name}_")) for name in _WITH_METHOD.split()} | {
    "torch.zeros_like": _whole(lambda a, *_, **__: a.zero_()),
    "torch.ones_like": _whole(lambda a, *_, **__: a.fill_(1)),
    "torch.full_like": _whole(lambda a, value, *_, **__: a.fill_(value)),
    "torch.nn.functional.relu": _whole(lambda a, *_, **__: a.relu_()),
    "prims.where": InPlaceForm(
        run=lambda condition, a, b: torch.where(condition, a, b, out=b),
        bases=lambda args, kwargs: (args[2],),
        restoring=lambda condition, a, b: _restoring_all(b),
        is_whole=True,
    ),
}

_FORMS: Final = _PARTS | _WHOLE
