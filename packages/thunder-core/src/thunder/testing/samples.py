"""Sample calls and their variants.

The samples of an operator are those that the author passes, else those of its row, else those of torch's own
operator database for the torch functions of the row.
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

__all__ = ["Sample", "SampleSource", "samples_of"]

#: the samples of one operator: sample calls, or a function that returns them
SampleSource = Iterable[Any] | Callable[..., Iterable[Any]]

#: how many samples of a source are used: of the first dtype, of each other dtype; how many get variants
MAX_SAMPLES, MAX_OF_OTHER_DTYPES, MAX_VARIED = 10, 2, 3

#: dtypes of samples; floating-point variants are made of the first
SAMPLE_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)

#: how many samples of the database are inspected, of which some are used
MAX_INSPECTED = 48


@dataclass(frozen=True, eq=False)
class Sample:
    """The arguments of one call of an operator, and a name for messages."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def copy(self) -> Sample:
        """Return the call on copies of its tensors, with their strides; a repeated tensor is copied once."""
        return self.mapped(lambda x: x.detach().clone(memory_format=torch.preserve_format))

    def mapped(self, fn: Callable[[torch.Tensor], torch.Tensor], suffix: str = "") -> Sample:
        """Return the call with `fn` applied to each tensor, once to a repeated one."""
        images: dict[int, torch.Tensor] = {}

        def image(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            if id(x) not in images:
                images[id(x)] = fn(x)
            return images[id(x)]

        args, kwargs = tree_map(image, (tuple(self.args), dict(self.kwargs)))
        return Sample(args, kwargs, self.name + suffix)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The distinct tensors among the arguments."""
        return list({id(x): x for x in tensors_in((self.args, dict(self.kwargs)))}.values())


def samples_of(
    row: Operator | None, given: SampleSource | None, device: torch.device, dtypes: tuple[torch.dtype, ...]
) -> list[Sample]:
    """Return the samples of an operator on a device, with variants in `dtypes` and in another layout."""
    plain = list(_plain(row, given, device))
    varied = [s for s in plain if any(x.is_floating_point() for x in s.tensors)][:MAX_VARIED]
    return [*plain, *(variant for s in varied for variant in variants(s, dtypes))]


def _plain(row: Operator | None, given: SampleSource | None, device: torch.device) -> Iterator[Sample]:
    if given is not None:
        yield from _listed(given, device, "yours")
    elif row is not None and row.samples is not None:
        yield from _listed(row.samples, device, "the row's")
    elif row is not None:
        with torch.random.fork_rng(devices=()), warnings.catch_warnings():
            torch.manual_seed(0)
            warnings.simplefilter("ignore")  # torch warns about some of its own samples
            for dtype in SAMPLE_DTYPES:
                most = MAX_SAMPLES if dtype is SAMPLE_DTYPES[0] else MAX_OF_OTHER_DTYPES
                found = list(database_samples(row, device, dtype, MAX_INSPECTED))
                for number, args, kwargs in _spread(found, most):
                    yield Sample(args, kwargs, f"torch's {_short(dtype)} #{number}")


def _spread(found: list[tuple[Any, Any]], most: int) -> Iterator[tuple[int, Any, Any]]:
    """Yield at most `most` samples: the first ones, and evenly spaced ones of the rest."""
    head = min(len(found), (most + 1) // 2)
    rest = range(head, len(found))
    step = max(1, -(-len(rest) // max(1, most - head)))
    for number in itertools.chain(range(head), rest[::step]):
        yield (number, *found[number])


def _listed(given: SampleSource, device: torch.device, whose: str) -> Iterator[Sample]:
    if not callable(given):
        for number, item in enumerate(given):
            yield _sample(item, f"{whose} #{number}").mapped(lambda x: x.to(device))
        return
    for number, item in enumerate(itertools.islice(given(device, SAMPLE_DTYPES[0], False), MAX_INSPECTED)):
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
    """Yield the sample in other floating-point dtypes, and with tensors that are not contiguous."""
    own = next(x.dtype for x in sample.tensors if x.is_floating_point())
    for dtype in dtypes:
        if dtype is not own:
            yield cast(sample, dtype, f", in {_short(dtype)}")
    if any(x.numel() > 1 for x in sample.tensors):
        yield sample.mapped(scattered, ", not contiguous")


def cast(sample: Sample, dtype: torch.dtype, suffix: str = "") -> Sample:
    """Return the sample with floating-point tensors in `dtype`, and complex ones of that precision."""
    wide = torch.complex128 if dtype is torch.float64 else torch.complex64

    def to(x: torch.Tensor) -> torch.Tensor:
        if x.is_complex():
            return x.to(wide)
        return x.to(dtype) if x.is_floating_point() else x

    return sample.mapped(to, suffix)


def scattered(x: torch.Tensor) -> torch.Tensor:
    """Return a copy with stride 2 or more in each dimension, and the last two dimensions exchanged."""
    if x.ndim == 0 or x.is_sparse:
        return x
    room = torch.empty((*x.mT.shape, 2) if x.ndim > 1 else (*x.shape, 2), dtype=x.dtype, device=x.device)
    place = room[..., 0].mT if x.ndim > 1 else room[..., 0]
    return place.copy_(x)


def other_values(sample: Sample) -> Sample:
    """Return the sample with other floating-point values of the same order of magnitude."""
    return sample.mapped(lambda x: (x * 0.5 + x.flip(0) * 0.25) if _changes(x) else x, ", other values")


def _changes(x: torch.Tensor) -> bool:
    return x.ndim > 0 and (x.is_floating_point() or x.is_complex())


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
