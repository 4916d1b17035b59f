"""Sample calls: where they come from, and the variants that are made of each.

The samples of an operator are, in this order: those that the author passes, those of its row, and those that
torch's own operator database has for the torch functions that the row stands for.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder.base.errors import InvalidArgument
from thunder.base.pytree import tree_map
from thunder.ops.operator import Operator
from thunder.testing.conformance_failure import tensors_in
from thunder.testing.torch_samples import database_samples

__all__ = ["Given", "Sample", "samples_of"]

#: what stands for the samples of one operator: sample calls, or a function that makes them
Given = Iterable[Any] | Callable[..., Iterable[Any]]

#: what is kept of each source and dtype, and of how many samples variants are made
MOST, MOST_OF_OTHER_DTYPES, MOST_VARIED = 10, 2, 3

#: dtypes for which samples are asked; floating-point variants are made of the first
ASKED = (torch.float32, torch.int64, torch.bool, torch.complex64)

#: how many samples of the database are looked at, of which some are chosen
LOOKED_AT = 48


@dataclass(frozen=True, eq=False)
class Sample:
    """The arguments of one call of an operator, and a name for messages."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def copy(self) -> Sample:
        """The same call on fresh tensors; strides are kept, and one tensor stays one."""
        return self.mapped(lambda x: x.detach().clone(memory_format=torch.preserve_format))

    def mapped(self, fn: Callable[[torch.Tensor], torch.Tensor], suffix: str = "") -> Sample:
        """The call with each tensor replaced, each distinct one once."""
        made: dict[int, torch.Tensor] = {}

        def replaced(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            if id(x) not in made:
                made[id(x)] = fn(x)
            return made[id(x)]

        args, kwargs = tree_map(replaced, (tuple(self.args), dict(self.kwargs)))
        return Sample(args, kwargs, self.name + suffix)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The distinct tensors among the arguments."""
        return list({id(x): x for x in tensors_in((self.args, dict(self.kwargs)))}.values())


def samples_of(
    row: Operator | None, given: Given | None, device: torch.device, dtypes: tuple[torch.dtype, ...]
) -> list[Sample]:
    """The samples of an operator on a device, each with its variants in `dtypes` and other layouts."""
    plain = list(_plain(row, given, device))
    varied = [s for s in plain if any(x.is_floating_point() for x in s.tensors)][:MOST_VARIED]
    return [*plain, *(variant for s in varied for variant in variants(s, dtypes))]


def _plain(row: Operator | None, given: Given | None, device: torch.device) -> Iterator[Sample]:
    if given is not None:
        yield from _listed(given, device, "yours")
    elif row is not None and row.samples is not None:
        yield from _listed(row.samples, device, "the row's")
    elif row is not None:
        with torch.random.fork_rng(devices=()), warnings.catch_warnings():
            torch.manual_seed(0)
            warnings.simplefilter("ignore")  # what torch thinks of its own samples
            for dtype in ASKED:
                most = MOST if dtype is ASKED[0] else MOST_OF_OTHER_DTYPES
                found = list(database_samples(row, device, dtype, LOOKED_AT))
                for number, args, kwargs in _spread(found, most):
                    yield Sample(args, kwargs, f"torch's {_short(dtype)} #{number}")


def _spread(found: list[tuple[Any, Any]], most: int) -> Iterator[tuple[int, Any, Any]]:
    """At most so many of the samples: the first ones, and then some from all over the rest."""
    head = min(len(found), (most + 1) // 2)
    rest = range(head, len(found))
    step = max(1, -(-len(rest) // max(1, most - head)))
    for number in itertools.chain(range(head), rest[::step]):
        yield (number, *found[number])


def _listed(given: Given, device: torch.device, whose: str) -> Iterator[Sample]:
    if not callable(given):
        for number, item in enumerate(given):
            yield _sample(item, f"{whose} #{number}").mapped(lambda x: x.to(device))
        return
    for number, item in enumerate(itertools.islice(given(device, ASKED[0], False), LOOKED_AT)):
        yield _sample(item, f"{whose} #{number}")


def _sample(item: Any, name: str) -> Sample:
    if isinstance(item, Sample):
        return Sample(item.args, item.kwargs, item.name or name)
    match item:
        case (tuple(args), dict(kwargs)):
            return Sample(args, kwargs, name)
        case tuple() if not any(isinstance(x, dict) for x in item):
            return Sample(item, {}, name)
    raise InvalidArgument(
        f"a sample is the arguments of a call, and {item!r} is not",
        hint="Write ((x, weight), {'eps': 1e-5}), or (x, weight, 1e-5) where there are no keywords.",
    )


# -- variants ------------------------------------------------------------------------------------------------


def variants(sample: Sample, dtypes: tuple[torch.dtype, ...]) -> Iterator[Sample]:
    """The sample in other floating-point dtypes, and in memory that is not contiguous."""
    own = next(x.dtype for x in sample.tensors if x.is_floating_point())
    for dtype in dtypes:
        if dtype is not own:
            yield cast(sample, dtype, f", in {_short(dtype)}")
    if any(x.numel() > 1 for x in sample.tensors):
        yield sample.mapped(scattered, ", not contiguous")


def cast(sample: Sample, dtype: torch.dtype, suffix: str = "") -> Sample:
    """The sample with its floating-point tensors in another dtype, and complex ones in that of its width."""
    wide = torch.complex128 if dtype is torch.float64 else torch.complex64

    def to(x: torch.Tensor) -> torch.Tensor:
        if x.is_complex():
            return x.to(wide)
        return x.to(dtype) if x.is_floating_point() else x

    return sample.mapped(to, suffix)


def scattered(x: torch.Tensor) -> torch.Tensor:
    """The same values at every second place of a larger memory, with the last two dimensions exchanged."""
    if x.ndim == 0 or x.is_sparse:
        return x
    room = torch.empty((*x.mT.shape, 2) if x.ndim > 1 else (*x.shape, 2), dtype=x.dtype, device=x.device)
    place = room[..., 0].mT if x.ndim > 1 else room[..., 0]
    return place.copy_(x)


def other_values(sample: Sample) -> Sample:
    """The sample with other floating-point values, of the same order of magnitude."""
    return sample.mapped(lambda x: (x * 0.5 + x.flip(0) * 0.25) if _changes(x) else x, ", other values")


def _changes(x: torch.Tensor) -> bool:
    return x.ndim > 0 and (x.is_floating_point() or x.is_complex())


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
