"""Gradients at singular points are eager's: at zeros, ties, infinities, NaN, matrices without full rank.

A sample of an operator at some points runs here; ``hatch run sweep gradients-at-singular-points`` runs all.
"""

from __future__ import annotations

import math

import pytest
import torch

import thunder
from recorded_refusals import refusals_as_recorded
from sweeping import one_in
from torch_language.database import op_db
from torch_language.gradients.differentiated_samples import check_gradients, gradient_samples, is_judged
from torch_language.gradients.singular import FATAL, OTHERWISE, singular_samples
from torch_language.samples import name_of

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated functions

ENTRIES = {name_of(op): op for op in op_db if is_judged(op) and name_of(op) not in OTHERWISE.keys() | FATAL}
#: points at which each entry is judged here
POINTS = ("zeros", "corners", "wild")


@pytest.mark.parametrize("name", one_in(6, ENTRIES))
def test_gradients_at_singular_points_are_eagers(name: str) -> None:
    with refusals_as_recorded("gradients at singular points", name) as refusals:
        samples = singular_samples(gradient_samples(ENTRIES[name], torch.float64, 1), POINTS)
        for point, sample in zip(POINTS, samples, strict=False):
            with refusals.of(point):
                check_gradients(sample)


def gradient_of(fn, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    fn(x).sum().backward()
    assert x.grad is not None
    return x.grad


def test_log_ndtr_is_exact_far_to_the_left() -> None:
    """There the slope is -x, to which the terms of an asymptotic expansion add less than its spacing."""
    x = torch.tensor([-1e10, -1e12], dtype=torch.float64)
    torch.testing.assert_close(gradient_of(thunder.jit(torch.special.log_ndtr), x), -x, rtol=1e-14, atol=0)
    assert not torch.allclose(gradient_of(torch.special.log_ndtr, x), -x)


def test_a_factor_beside_an_infinite_one_has_a_gradient() -> None:
    x = torch.tensor([2.0, math.inf, 3.0])
    assert gradient_of(thunder.jit(torch.prod), x).tolist() == [math.inf, 6.0, math.inf]
    assert gradient_of(torch.prod, x).isnan().any()
