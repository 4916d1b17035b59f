"""Gradients of parts of parameters: their norms are those of the gradients of whole parameters.

Note [Gradients of parts]
Torch clips by the norm of the gradients that it is given, and a `GradScaler` skips a step whose gradients are
not finite. Of a parameter in parts a process has a part of the gradient: each would clip and skip by itself.
`param.grad` of a part is therefore a `PartGradient`, from the first backward on: a norm of it, and the check
of a `GradScaler`, are computed over the processes that have the other parts. It is a plain tensor in each
other way: everything else computes with the part, and returns plain tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.utils import _foreach_utils
from torch.utils.weak import WeakTensorKeyDictionary

from thunder.core.errors import UnsupportedProgram

from .lost_processes import finished, naming_missing
from .process_groups import group_named

__all__ = ["Part", "PartGradient", "mark_gradient", "note_part", "note_stage", "part_of", "whole_norms"]


class PartGradient(torch.Tensor):
    """The gradient of the part that this process has of a parameter (Note [Gradients of parts])."""

    #: the names of the groups whose processes have the other parts
    groups: tuple[str, ...]
    #: whether this process has all of it, and the others have other gradients in its place
    is_whole: bool
    #: the group whose processes have the gradients of other stages of a pipeline
    stages: str | None

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        over_processes = _OVER_PROCESSES.get(func)
        with torch._C.DisableTorchFunctionSubclass():
            if over_processes is None:
                return func(*args, **(kwargs or {}))
            return over_processes(func, *args, **(kwargs or {}))

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        copied = memo[id(self)] = _as_part(self.detach().clone(), self.groups, self.is_whole, self.stages)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.detach().__reduce_ex__(protocol)


@dataclass(frozen=True)
class Part:
    """What a parameter in use is of the whole one.

    Args:
        layouts: those that divide it, in the order of the transforms.
        is_whole: whether it is in one process, and the others have other parameters in its place.
        stages: the group whose processes have other stages of a pipeline, with other parameters.
    """

    layouts: tuple[Any, ...]
    is_whole: bool
    stages: str | None = None


#: parameter in parts → what it is of the whole one
_parts: Final = WeakTensorKeyDictionary()
#: those whose gradients are marked when they arrive
_hooked: Final = WeakTensorKeyDictionary()


def note_part(parameter: torch.Tensor, part: Part) -> None:
    """Note what a parameter in use is of the whole one; its gradients are those of a part from now on."""
    known = part_of(parameter)
    if known is not None and part.stages is None:
        part = replace(part, stages=known.stages)
    _parts[parameter] = part
    if parameter.requires_grad and parameter not in _hooked:
        parameter.register_post_accumulate_grad_hook(mark_gradient)
        _hooked[parameter] = True
    mark_gradient(parameter)


def note_stage(parameter: torch.Tensor, group: str) -> None:
    """Note that the processes of a group have other stages of a pipeline than that of a parameter."""
    note_part(parameter, replace(part_of(parameter) or Part((), False), stages=group))


def part_of(parameter: torch.Tensor) -> Part | None:
    """Return what a parameter is of the whole one; None for one that is not in parts."""
    part: Part | None = _parts.get(parameter)
    return part


def mark_gradient(parameter: torch.Tensor) -> None:
    """Make the gradient of a parameter in parts one of a part."""
    gradient, part = parameter.grad, part_of(parameter)
    if part is not None and gradient is not None and not isinstance(gradient, PartGradient):
        groups = tuple(layout.members.group for layout in part.layouts)
        parameter.grad = _as_part(gradient, groups, part.is_whole, part.stages)


def _as_part(
    gradient: torch.Tensor, groups: tuple[str, ...], is_whole: bool, stages: str | None
) -> PartGradient:
    """Return a gradient as that of a part, in the same memory."""
    part: PartGradient = gradient.as_subclass(PartGradient)
    part.groups, part.is_whole, part.stages = groups, is_whole, stages
    return part


def whole_norms(
    gradients: Sequence[torch.Tensor], order: float, *, joins_stages: bool = True
) -> list[torch.Tensor]:
    """Return the norm of the whole gradient for each part of one; others are whole. All processes call it.

    Of gradients that are each in another process, the first one has the norm of all, and the others zero. So
    it is with those of the stages of a pipeline if `joins_stages`.
    Raises UnsupportedProgram for a negative order, which the padding of parts does not leave as it is.
    """
    plain = [gradient.as_subclass(torch.Tensor) for gradient in gradients]
    norms = [torch.linalg.vector_norm(t, order, dtype=_accumulated(t)) for t in plain]
    by_groups: dict[tuple[tuple[str, ...], bool], list[int]] = {}
    for index, gradient in enumerate(gradients):
        if isinstance(gradient, PartGradient):
            by_groups.setdefault((gradient.groups, gradient.is_whole), []).append(index)
    if by_groups and order < 0:
        raise UnsupportedProgram(
            f"the norm of order {order:g} of gradients in parts is not computed",
            hint="Use a positive order, or infinity.",
        )
    is_largest = math.isinf(order)
    for (groups, are_whole), indices in by_groups.items():
        terms = torch.stack([norms[index].to(norms[indices[0]]) for index in indices])
        terms = terms if is_largest or order == 0 else terms**order
        if are_whole:  # as many in each process, perhaps, but not the same ones
            joined = torch.zeros_like(terms)
            joined[0] = terms.max() if is_largest else terms.sum()
            terms = joined[:1]
        _reduce(terms, dist.ReduceOp.MAX if is_largest else dist.ReduceOp.SUM, groups)
        if are_whole:
            terms = joined
        whole = terms if is_largest or order == 0 else terms ** (1 / order)
        for index, norm in zip(indices, whole.unbind(), strict=True):
            norms[index] = norm.to(norms[index])
    if joins_stages:
        _join_stages(gradients, norms, order)
    return [norm.to(t.dtype) for norm, t in zip(norms, plain, strict=True)]


def _join_stages(gradients: Sequence[torch.Tensor], norms: list[torch.Tensor], order: float) -> None:
    """Give the first gradient of a stage the norm of all stages' gradients, and the others zero."""
    by_stages: dict[str, list[int]] = {}
    for index, gradient in enumerate(gradients):
        if isinstance(gradient, PartGradient) and gradient.stages is not None:
            by_stages.setdefault(gradient.stages, []).append(index)
    is_largest = math.isinf(order)
    for group, indices in sorted(by_stages.items()):
        terms = torch.stack([norms[index].to(norms[indices[0]]) for index in indices])
        powers = terms if is_largest or order == 0 else terms**order
        joined = (powers.max() if is_largest else powers.sum()).reshape(1)
        _reduce(joined, dist.ReduceOp.MAX if is_largest else dist.ReduceOp.SUM, (group,))
        whole = joined[0] if is_largest or order == 0 else joined[0] ** (1 / order)
        for index in indices:
            norms[index] = torch.zeros_like(norms[index])
        norms[indices[0]] = whole.to(norms[indices[0]])


def _reduce(values: torch.Tensor, op: Any, groups: Iterable[str]) -> None:
    for group in groups:
        with naming_missing("the norm of all gradients", group):
            finished(dist.all_reduce(values, op=op, group=group_named(group), async_op=True), group)


def _accumulated(t: torch.Tensor) -> torch.dtype:
    """Return the dtype in which squares are added."""
    return torch.promote_types(t.dtype, torch.float32) if t.is_floating_point() else t.dtype


# -- torch's functions ---------------------------------------------------------------------------------------


def _foreach_norm(
    func: Any, tensors: Any, ord: Any = 2, dtype: torch.dtype | None = None
) -> tuple[torch.Tensor, ...]:
    norms = whole_norms(tensors, float(ord))
    return tuple(norm if dtype is None else norm.to(dtype) for norm in norms)


def _vector_norm(
    func: Any,
    x: torch.Tensor,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the norm of all elements; that of a dimension is one of the part.

    It is that of one parameter: stages of a pipeline have other numbers of them.
    """
    if dim is not None or keepdim or out is not None:
        result: torch.Tensor = func(x, ord, dim, keepdim, dtype=dtype, out=out)
        return result
    (norm,) = whole_norms([x], float(ord), joins_stages=False)
    return norm if dtype is None else norm.to(dtype)


def _norm(
    func: Any, input: torch.Tensor, p: Any = "fro", dim: Any = None, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """Return what `torch.norm` and `Tensor.norm` return: that of all elements."""
    if dim is not None or any(args) or any(kwargs.get(name) for name in ("keepdim", "out")):
        result: torch.Tensor = func(input, p, dim, *args, **kwargs)
        return result
    return _vector_norm(func, input, 2 if p in ("fro", None) else p, dtype=kwargs.get("dtype"))


def _norm_of_vector(
    func: Any, A: torch.Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> torch.Tensor:
    """Return what `torch.linalg.norm` returns; with an order, a matrix has one of its own."""
    if dim is not None or keepdim or kwargs.get("out") is not None or (ord is not None and A.ndim != 1):
        result: torch.Tensor = func(A, ord, dim, keepdim, **kwargs)
        return result
    return _vector_norm(func, A, 2 if ord is None else ord, dtype=kwargs.get("dtype"))


def _unscale(func: Any, gradients: Any, found_inf: torch.Tensor, inv_scale: torch.Tensor) -> Any:
    """Unscale as `GradScaler` does; whether a gradient is not finite is that of all processes."""
    result = func(gradients, found_inf, inv_scale)
    groups = {
        group for gradient in gradients if isinstance(gradient, PartGradient) for group in gradient.groups
    }
    groups |= {gradient.stages for gradient in gradients if getattr(gradient, "stages", None) is not None}
    _reduce(found_inf, dist.ReduceOp.MAX, sorted(groups))
    return result


#: functions of torch → what is computed over the processes, with the function as the first argument
_OVER_PROCESSES: Final[dict[Any, Callable[..., Any]]] = {
    torch._foreach_norm: _foreach_norm,
    torch.linalg.vector_norm: _vector_norm,
    torch.linalg.norm: _norm_of_vector,
    torch.norm: _norm,
    torch.Tensor.norm: _norm,
    torch._amp_foreach_non_finite_check_and_unscale_: _unscale,
}

# clipping takes one call for all gradients, and so one collective, of the classes in this list
_foreach_utils._foreach_supported_types.append(PartGradient)
