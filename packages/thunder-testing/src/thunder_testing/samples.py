"""Sample calls of operators.

The samples of an operator are those that the author passes, else those of its row, else those of torch's own
operator database for the torch functions of the row, else those of `row_samples`.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from thunder.core.errors import InvalidArgument
from thunder.core.pytree import tree_map
from thunder.extend import Operator
from thunder_testing.conformance_failure import tensors_in
from thunder_testing.row_samples import row_samples
from thunder_testing.tensor_layouts import Storages, cast_storage, copied, rebuilt
from thunder_testing.torch_samples import database_samples

__all__ = [
    "Sample",
    "SampleSource",
    "cast",
    "other_values",
    "own_samples_of",
    "perturbed",
    "samples_of",
    "short",
]

#: the samples of one operator: sample calls, or a function that returns them
SampleSource = Iterable[Any] | Callable[..., Iterable[Any]]

#: how many samples of a source are used: of the first dtype, of each other dtype
MAX_SAMPLES, MAX_OF_OTHER_DTYPES = 10, 2

#: dtypes of samples; floating-point variants are made of the first
SAMPLE_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)

#: how many samples of the database are inspected, of which some are used
MAX_INSPECTED = 48

#: a sample with more elements than this is large: it is run once
LARGE = 1 << 14


@dataclass(frozen=True, eq=False)
class Sample:
    """The arguments of one call of an operator, and a name for messages.

    `variant` says how the kit changed a sample of `source`; `literals` are expressions of tensors that are
    too large to be written as lists, by their position among the tensors.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    variant: str = ""
    source: Literal["author", "row", "torch"] = "author"
    literals: Mapping[int, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name, and how the sample was changed."""
        return (self.name or "a sample") + (f", {self.variant}" if self.variant else "")

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The distinct tensors among the arguments."""
        return list({id(x): x for x in tensors_in((self.args, dict(self.kwargs)))}.values())

    @property
    def is_given(self) -> bool:
        """Whether the call is one that the author wrote, not changed."""
        return self.source != "torch" and not self.variant

    @property
    def is_large(self) -> bool:
        """Whether the tensors are too large to run the call many times."""
        return sum(x.numel() for x in self.tensors) > LARGE

    def copy(self) -> Sample:
        """Return the call on copies of its tensors, with their offsets, strides and shared memory."""
        return self.rebuilt(copied)

    def rebuilt(self, change: Callable[[torch.Tensor], torch.Tensor], variant: str = "") -> Sample:
        """Return the call with each storage changed by a function of a tensor of one dimension."""
        storages: Storages = {}
        return self.mapped(lambda x: rebuilt(x, change, storages), variant)

    def with_tensors(self, images: Mapping[int, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with images in place of tensors; `images` has them by the tensor's `id`."""
        args, kwargs = tree_map(lambda x: images.get(id(x), x), (tuple(self.args), dict(self.kwargs)))
        return args, kwargs

    def mapped(self, fn: Callable[[torch.Tensor], torch.Tensor], variant: str = "") -> Sample:
        """Return the call with `fn` applied to each tensor, once to a repeated one."""
        images: dict[int, torch.Tensor] = {}

        def image(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return x
            if id(x) not in images:
                images[id(x)] = fn(x)
            return images[id(x)]

        args, kwargs = tree_map(image, (tuple(self.args), dict(self.kwargs)))
        return replace(self, args=args, kwargs=kwargs, variant=_joined(self.variant, variant))


def _joined(*variants: str) -> str:
    return ", ".join(filter(None, variants))


def cast(sample: Sample, dtype: torch.dtype, variant: str = "") -> Sample:
    """Return the sample with floating-point tensors in `dtype`, and complex ones of that precision."""
    return sample.rebuilt(cast_storage(dtype), variant)


def other_values(sample: Sample) -> Sample:
    """Return the sample with other floating-point values of the same magnitude, in its layout."""

    def other(x: torch.Tensor) -> torch.Tensor:
        is_inexact = x.is_floating_point() or x.is_complex()
        return x * 0.5 + x.flip(0).nan_to_num(0.0, 0.0, 0.0) * 0.25 if is_inexact else copied(x)

    return replace(sample.rebuilt(other, "other values"), literals={})


def perturbed(sample: Sample, seed: int) -> Sample:
    """Return the sample in at least float32, with each floating-point number changed in its last bits."""
    generator = torch.Generator().manual_seed(seed)

    def change(x: torch.Tensor) -> torch.Tensor:
        if not (x.is_floating_point() or x.is_complex()):
            return copied(x)
        wide = x.to(torch.float64) if not x.is_complex() else x.to(torch.complex128)
        signs = torch.randint(2, x.shape, generator=generator).to(x.device) * 2 - 1
        unit = torch.finfo(x.dtype).eps if x.dtype is torch.float64 else torch.finfo(torch.float32).eps
        return wide * (1 + unit / 2 * signs)

    return sample.rebuilt(change)


def short(dtype: torch.dtype) -> str:
    """Return the name of a dtype without `torch.`."""
    return str(dtype).removeprefix("torch.")


# -- sources -------------------------------------------------------------------------------------------------


def samples_of(row: Operator | None, given: SampleSource | None, device: torch.device) -> Iterator[Sample]:
    """Yield the samples of an operator on a device."""
    if given is not None:
        yield from _listed(given, device, "your sample", "author")
    elif row is not None and row.samples is not None:
        yield from _listed(row.samples, device, f"sample of the row {row.id}", "row")
    elif row is not None:
        with _drawing():
            yield from _of_torch(row, device)


@contextmanager
def _drawing() -> Iterator[None]:
    """Within the context, samples are drawn from the same random numbers each time, without warnings."""
    with torch.random.fork_rng(devices=()), warnings.catch_warnings():
        torch.manual_seed(0)
        warnings.simplefilter("ignore")  # torch warns about some of its own samples
        yield


def _of_torch(row: Operator, device: torch.device) -> Iterator[Sample]:
    for dtype in SAMPLE_DTYPES:
        most = MAX_SAMPLES if dtype is SAMPLE_DTYPES[0] else MAX_OF_OTHER_DTYPES
        found = list(database_samples(row, device, dtype, MAX_INSPECTED))
        for number, args, kwargs in _spread(found, most):
            yield Sample(args, kwargs, f"sample {number} of torch's tests in {short(dtype)}", source="torch")


def own_samples_of(row: Operator, device: torch.device) -> Iterator[Sample]:
    """Yield the samples that the tests have for an operator, where torch's have none that it takes."""
    with _drawing():
        for number, (args, kwargs) in enumerate(itertools.islice(row_samples(row, device), MAX_SAMPLES)):
            yield Sample(args, kwargs, f"sample {number} of thunder.testing", source="torch")


def _spread(found: list[tuple[Any, Any]], most: int) -> Iterator[tuple[int, Any, Any]]:
    """Yield at most `most` samples: the first ones, and evenly spaced ones of the rest."""
    head = min(len(found), (most + 1) // 2)
    rest = range(head, len(found))
    step = max(1, -(-len(rest) // max(1, most - head)))
    for number in itertools.chain(range(head), rest[::step]):
        yield (number, *found[number])


def _listed(
    given: SampleSource, device: torch.device, whose: str, source: Literal["author", "row"]
) -> Iterator[Sample]:
    if not callable(given):
        for number, item in enumerate(given):
            sample = _sample(item, f"{whose} {number}", source)
            yield sample if all(x.device == device for x in sample.tensors) else _moved(sample, device)
        return
    for number, item in enumerate(itertools.islice(given(device, SAMPLE_DTYPES[0], False), MAX_INSPECTED)):
        yield _sample(item, f"{whose} {number}", source)


def _moved(sample: Sample, device: torch.device) -> Sample:
    return sample.rebuilt(lambda x: x.to(device))


def _sample(item: Any, name: str, source: Literal["author", "row"]) -> Sample:
    if isinstance(item, Sample):
        return replace(item, name=item.name or name, source=source)
    match item:
        case (tuple(args), dict(kwargs)):
            return Sample(args, kwargs, name, source=source)
        case tuple() if not any(isinstance(x, dict) for x in item):
            return Sample(item, {}, name, source=source)
    raise InvalidArgument(
        f"a sample is the arguments of a call, and {item!r} is not",
        hint="Write ((x, weight), {'eps': 1e-5}), or (x, weight, 1e-5) where there are no keywords.",
    )
