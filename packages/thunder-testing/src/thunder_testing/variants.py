"""Variants of sample calls: other dtypes, layouts, values, sizes and numbers.

They are what an operator meets in programs and what authors forget. A variant that the operator's reference
or meta function refuses is left out.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from thunder.core.symbol import Symbol
from thunder.core.tags import OpTags
from thunder_testing.reproduction import elements
from thunder_testing.samples import Sample, cast, short
from thunder_testing.tensor_layouts import at_an_offset, expanded, scattered
from thunder_testing.tolerances import LOW_PRECISION

__all__ = ["SIZES", "inner_variants", "resized", "variants"]

#: how many samples get variants in other dtypes and layouts; the first of them gets all others
MAX_VARIED = 3

#: how many numbers of a call are changed
MAX_NUMBERS = 4

#: how many tensors of a call get special values
MAX_SPECIAL = 3


def variants(samples: list[Sample], dtypes: tuple[torch.dtype, ...], symbol: Symbol) -> Iterator[Sample]:
    """Yield the variants of an operator's samples, apart from those of other sizes."""
    inexact = _inexact(samples)
    for sample in inexact[:MAX_VARIED]:
        yield from _other_dtypes(sample, dtypes)
        yield from _other_layouts(sample)
    for sample in inexact[:1]:
        yield from _one_layout_each(sample)
        if OpTags.RANDOM_OP in symbol.tags:
            continue  # NaN as the parameter of a distribution: torch.binomial does not return
        yield from _special_values(sample)
        if torch.bfloat16 in dtypes:
            yield from _special_values(cast(sample, torch.bfloat16, "in bfloat16"))
    for sample in samples[:2]:
        yield from _other_numbers(sample, symbol)


def inner_variants(samples: list[Sample], dtypes: tuple[torch.dtype, ...]) -> Iterator[Sample]:
    """Yield the variants for an operator that only the implementations of other operators call.

    Their checkers decide about dtypes and sizes, and its arguments may depend on each other.
    """
    for sample in _inexact(samples)[:MAX_VARIED]:
        yield from _other_dtypes(sample, tuple(dtype for dtype in dtypes if dtype not in LOW_PRECISION))
        yield from _other_layouts(sample)


def _inexact(samples: list[Sample]) -> list[Sample]:
    return [s for s in samples if any(x.is_floating_point() for x in s.tensors)]


def _other_layouts(sample: Sample) -> Iterator[Sample]:
    if any(x.numel() > 1 for x in sample.tensors):
        yield sample.mapped(scattered, "not contiguous")
        yield sample.mapped(at_an_offset, "at an offset in their memory")
        yield sample.mapped(expanded, "with rows repeated by stride 0")


def _one_layout_each(sample: Sample) -> Iterator[Sample]:
    """Yield the sample with one of several tensors not contiguous."""
    tensors = [x for x in sample.tensors if x.numel() > 1]
    for i, x in enumerate(tensors[:MAX_SPECIAL] if len(tensors) > 1 else ()):
        yield sample.mapped(lambda t, x=x: scattered(t) if t is x else t, f"with tensor {i} not contiguous")  # type: ignore[misc]


def _other_dtypes(sample: Sample, dtypes: tuple[torch.dtype, ...]) -> Iterator[Sample]:
    own = next(x.dtype for x in sample.tensors if x.is_floating_point())
    for dtype in dtypes:
        if dtype is not own:
            yield cast(sample, dtype, f"in {short(dtype)}")


# -- values --------------------------------------------------------------------------------------------------

#: what is written into a tensor, at equal distances
SPECIAL: dict[str, tuple[float, ...]] = {
    "NaN": (math.nan,),
    "infinities": (math.inf, -math.inf),
    "signed zeros": (-0.0, 0.0, -0.0),
}


def _special_values(sample: Sample) -> Iterator[Sample]:
    """Yield the sample with special values in one tensor at a time, and with all values large or small."""
    places = [i for i, x in enumerate(sample.tensors) if x.is_floating_point() and x.numel()]
    for name, values in SPECIAL.items():
        for place in places[:MAX_SPECIAL]:
            yield _with_values(sample, place, values, f"with {name} in tensor {place}")
    if sample.variant or not places:
        return
    for factor, text in ((1e3, "all values 1000 times as large"), (1e-4, "all values 10000 times as small")):
        yield sample.rebuilt(lambda x, f=factor: x * f if x.is_floating_point() else x.clone(), text)  # type: ignore[misc]


def _with_values(sample: Sample, place: int, values: tuple[float, ...], text: str) -> Sample:
    """Return the sample with `values` in one of its tensors: the first element, and some of the rest."""
    new = sample.copy()
    target = new.tensors[place]
    if any(s == 0 and n > 1 for n, s in zip(target.shape, target.stride(), strict=True)):
        return replace(new, variant=_joined(sample, text))  # one element in several places
    flat = torch.arange(target.numel()).view(target.shape)
    step = max(1, (target.numel() - 1) // len(values))
    for i, value in enumerate(values):
        target.masked_fill_((flat == i * step).to(target.device), value)
    return replace(new, variant=_joined(sample, text))


def _joined(sample: Sample, text: str) -> str:
    return f"{sample.variant}, {text}" if sample.variant else text


# -- numbers -------------------------------------------------------------------------------------------------


def _other_numbers(sample: Sample, symbol: Symbol) -> Iterator[Sample]:
    """Yield the sample with one number changed: an argument, or a parameter that has its default."""
    args, count = tuple(sample.args), 0
    for i, value in enumerate(args):
        if _is_number(value) and count < MAX_NUMBERS:
            count += 1
            for other in _others(value):
                new = (*args[:i], other, *args[i + 1 :])
                yield replace(sample, args=new, variant=_joined(sample, f"with {other!r} as argument {i}"))
    for name, value in {**_defaults(sample, symbol), **sample.kwargs}.items():
        if _is_number(value) and count < MAX_NUMBERS:
            count += 1
            for other in _others(value):
                kwargs = {**sample.kwargs, name: other}
                yield replace(sample, kwargs=kwargs, variant=_joined(sample, f"with {name}={other!r}"))


def _defaults(sample: Sample, symbol: Symbol) -> dict[str, Any]:
    """Return the parameters with defaults that the call leaves out."""
    try:
        parameters = list(inspect.signature(symbol.meta).parameters.values()) if symbol.meta else []
    except (TypeError, ValueError):
        return {}
    positional = {p.name for p in parameters[: len(sample.args)] if p.kind is not p.KEYWORD_ONLY}
    return {
        p.name: p.default
        for p in parameters
        if p.default is not p.empty and p.name not in positional and p.kind is not p.POSITIONAL_ONLY
    }


def _is_number(value: Any) -> bool:
    return type(value) in (bool, int, float)


def _others(value: Any) -> tuple[Any, ...]:
    """Return other numbers of the same type; for a small one, such as an epsilon, one that is not small."""
    if type(value) is bool:
        return (not value,)
    if type(value) is int:
        return (value + 1, -value - 1)
    return (value * 1.3 + 0.17, -value, 0.0) if value else (0.7, -0.7)


# -- sizes ---------------------------------------------------------------------------------------------------

#: sizes of a dimension: none, one, more than a block of threads has, and more than a grid of blocks has
SIZES = (0, 1, 1031, 65551)

#: how many elements the tensors of a variant have at most
MAX_ELEMENTS = 1 << 20


def resized(
    sample: Sample, sizes: tuple[int, ...], accepts: Callable[[Sample, int], bool]
) -> Iterator[Sample]:
    """Yield the sample with each dimension of its largest tensor in other sizes.

    `accepts` decides whether the operator takes a call with a dimension of this size.
    """
    tensors = sample.tensors
    lead = max(tensors, key=lambda x: (x.ndim, x.numel()), default=None)
    if lead is None or not all(x.layout is torch.strided for x in tensors):
        return
    for axis in range(-1, -lead.ndim - 1, -1):
        for size in sizes:
            if lead.shape[axis] in (0, size):
                continue
            for candidate in _resizings(sample, lead, axis, size):
                total = sum(math.prod(s) for s in candidate.shapes.values())
                if total > MAX_ELEMENTS:
                    continue
                new = candidate.sample(f"dimension {axis} of size {size}")
                if accepts(new, size):
                    yield new
                    break
            else:
                if size > 1:
                    break  # larger sizes cost more


class _Resizing:
    """New shapes of the tensors of a call, and numbers that are replaced among its other arguments."""

    def __init__(self, sample: Sample, shapes: dict[int, tuple[int, ...]], numbers: dict[int, int]) -> None:
        self.original, self.shapes, self.numbers = sample, shapes, numbers

    def sample(self, text: str) -> Sample:
        """Return the call with tensors of these shapes, whose elements are drawn from the old ones."""
        new: dict[int, torch.Tensor] = {}
        literals: dict[int, str] = {}
        for i, x in enumerate(self.original.tensors):
            if self.shapes[i] == tuple(x.shape):
                new[id(x)] = x
                continue
            new[id(x)] = drawn(x, self.shapes[i], seed=i)
            if x.numel() <= 64 and new[id(x)].numel() > 64:
                literals[i] = _drawing(x, self.shapes[i], seed=i)
        images = self.original.mapped(lambda x: new[id(x)], text)
        numbers = self.numbers
        return replace(
            images,
            args=tuple(_renumbered(a, numbers) for a in images.args),
            kwargs={k: _renumbered(v, numbers) for k, v in images.kwargs.items()},
            literals=literals,
        )


def drawn(x: torch.Tensor, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """Return a tensor of a shape, with elements drawn from those of `x`."""
    if 0 in shape:
        return x.new_empty(shape)
    picks = torch.randint(x.numel(), shape, generator=torch.Generator().manual_seed(seed))
    return x.detach().flatten()[picks.to(x.device)]


def _drawing(x: torch.Tensor, shape: tuple[int, ...], seed: int) -> str:
    """Return the expression of `drawn`, with `{dtype}` in place of the dtype."""
    drawn_from = f"torch.tensor({elements(x.detach().flatten())}, dtype={{dtype}})"
    return (
        f"{drawn_from}[torch.randint({x.numel()}, {shape}, generator=torch.Generator().manual_seed({seed}))]"
    )


def _renumbered(value: Any, numbers: dict[int, int]) -> Any:
    if isinstance(value, tuple | list) and all(type(v) is int for v in value):
        return type(value)(numbers.get(v, v) for v in value)
    return value


def _resizings(sample: Sample, lead: torch.Tensor, axis: int, size: int) -> Iterator[_Resizing]:
    """Yield ways to give a dimension another size, the likeliest first.

    Dimensions that are broadcast together; all of the same size, also in tuples such as a normalised shape;
    that of one tensor.
    """
    old = lead.shape[axis]
    tensors = sample.tensors

    def shapes(change: Callable[[torch.Tensor], tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        return {i: change(x) for i, x in enumerate(tensors)}

    def same_place(x: torch.Tensor) -> tuple[int, ...]:
        if x.ndim < -axis or x.shape[axis] != old:
            return tuple(x.shape)
        return tuple(size if i == x.ndim + axis else n for i, n in enumerate(x.shape))

    def everywhere(x: torch.Tensor) -> tuple[int, ...]:
        return tuple(size if n == old else n for n in x.shape)

    yield _Resizing(sample, shapes(same_place), {})
    if old > 1:
        yield _Resizing(sample, shapes(same_place), {old: size})
        yield _Resizing(sample, shapes(everywhere), {old: size})
    yield _Resizing(sample, shapes(lambda x: same_place(x) if x is lead else tuple(x.shape)), {})
