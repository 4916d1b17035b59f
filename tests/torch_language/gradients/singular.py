"""Torch's gradient samples at singular points: zeros, ties, infinities, NaN, matrices without full rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from thunder.base.pytree import tree_map
from torch_language.gradients.differentiated_samples import Sample

#: finite corners, and what is not finite, which are taken in turn
CORNERS = (0.0, 1.0, -1.0, 2.0, 0.5, -0.5, 3.0, -0.0)
WILD = (0.0, math.inf, 1.0, math.nan, -1.0, -math.inf, 1e-30, 2.0)


def _cycled(values: tuple[float, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
    def fill(x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.numel()) % len(values)
        return torch.tensor(values, dtype=torch.float64)[places].reshape(x.shape)

    return fill


def _rank_one(x: torch.Tensor) -> torch.Tensor:
    """Equal rows, of ones and zeros."""
    if x.ndim == 0:
        return torch.ones((), dtype=torch.float64)
    return (torch.arange(x.shape[-1]) % 2).double().expand(x.shape)


def _identity(x: torch.Tensor) -> torch.Tensor:
    """Unit matrices, of repeated eigenvalues; ones where there are no matrices."""
    if x.ndim < 2:
        return torch.ones(x.shape, dtype=torch.float64)
    return torch.eye(*x.shape[-2:], dtype=torch.float64).expand(x.shape)


#: name → the values of a tensor of the shape of ``x``, as float64
POINTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "zeros": lambda x: torch.zeros(x.shape, dtype=torch.float64),
    "ones": lambda x: torch.ones(x.shape, dtype=torch.float64),
    "corners": _cycled(CORNERS),
    "wild": _cycled(WILD),
    "rank one": _rank_one,
    "identity": _identity,
    "infinite": lambda x: torch.full(x.shape, math.inf, dtype=torch.float64),
}

#: entries whose gradient is another at some of these points, and why
OTHERWISE: dict[str, str] = {
    "special.log_ndtr": "torch takes exp of a difference of large numbers, where the quotient is exact",
    **dict.fromkeys(
        ("prod", "linalg.det"), "torch divides the product by infinity; the others' product is exact"
    ),
    **dict.fromkeys(("linalg.vander",), "a power is the product of the others, as in prod"),
    "linalg.qr": "a matrix without full rank has no gradient; which elements are NaN depends on the order",
    **dict.fromkeys(
        ("linalg.multi_dot", "nn.functional.bilinear", "nn.functional.scaled_dot_product_attention"),
        "which sums have inf - inf in them depends on the order of products",
    ),
}
#: entries that torch itself does not survive at NaN: it reads outside of the image
FATAL = frozenset({"nn.functional.grid_sample", "grid_sampler_2d", "grid_sampler_3d"})


def at(sample: Sample, point: str) -> Sample:
    """The sample with every tensor that requires grad at a singular point; one object stays one object."""
    seen: dict[int, torch.Tensor] = {}

    def moved(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.requires_grad:
            return x
        if id(x) not in seen:
            seen[id(x)] = POINTS[point](x).to(x.dtype).contiguous().requires_grad_()
        return seen[id(x)]

    args, kwargs = tree_map(moved, (sample.args, sample.kwargs))
    return replace(sample, args=args, kwargs=kwargs)


def singular_samples(samples: Iterable[Sample], points: Iterable[str] = POINTS) -> Iterator[Sample]:
    """Each sample at each point."""
    return (at(sample, point) for sample in samples for point in points)
