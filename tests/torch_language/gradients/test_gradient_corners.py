"""Gradients where functions have corners, poles and ties: what eager gives there, finite or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder.torch  # noqa: F401  (fills the language)
from torch_language.gradients.differentiated_samples import (
    check_gradients,
    eager_derivatives,
    is_differentiated_by_torch,
    joint_of,
    recorded,
    sample_of,
    thunders_derivatives,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about shapes without a batch

NAN, INF = math.nan, math.inf
WILD = [NAN, 0.0, 1.0, 2.0, -1.0, INF, -INF]
PARTNER = [0.0, 0.0, NAN, 2.0, 1.0, 0.0, -INF]

UNARY: dict[str, tuple[Callable[..., Any], list[float]]] = {
    "abs": (torch.abs, WILD),
    "clamp": (lambda x: torch.clamp(x, 0, 1), WILD),
    "clamp to a lower bound": (lambda x: torch.clamp(x, min=0), WILD),
    "clamp_min": (lambda x: torch.clamp_min(x, 0), WILD),
    "clamp_max": (lambda x: torch.clamp_max(x, 1), WILD),
    "sqrt": (torch.sqrt, WILD),
    "rsqrt": (torch.rsqrt, WILD),
    "reciprocal": (torch.reciprocal, WILD),
    "log": (torch.log, WILD),
    "exp": (torch.exp, WILD),
    "frac": (torch.frac, WILD),
    "nan_to_num": (torch.nan_to_num, WILD),
    "square by pow": (lambda x: torch.pow(x, 2), WILD),
    "pow 0": (lambda x: torch.pow(x, 0), WILD),
    "pow 1": (lambda x: torch.pow(x, 1), WILD),
    "pow 1/2": (lambda x: torch.pow(x, 0.5), WILD),
    "power of 0": (lambda x: torch.pow(0, x), WILD),
    "power of a negative number": (lambda x: torch.pow(-2, x), WILD),
    "logit": (torch.logit, [*WILD, 0.5]),
    "logit between bounds": (lambda x: torch.logit(x, 0.1), [*WILD, 0.1, 0.9, 0.5]),
    "sinc": (torch.sinc, WILD),
    "entr": (torch.special.entr, WILD),
    "i1": (torch.special.i1, [0.0, 1e-20, 1.0, -1.0]),
    "i1e": (torch.special.i1e, [0.0, 1e-20, 1.0, -1.0]),
    "sgn": (torch.sgn, WILD),
    "asin at its ends": (torch.asin, [-1.0, 1.0, 0.0]),
    "acosh at its end": (torch.acosh, [1.0, 2.0]),
    "atanh at its ends": (torch.atanh, [-1.0, 1.0, 0.0]),
    "relu": (F.relu, WILD),
    "relu6": (F.relu6, [*WILD, 6.0]),
    "leaky_relu": (F.leaky_relu, WILD),
    "threshold": (lambda x: F.threshold(x, 0.0, 20.0), WILD),
    "hardtanh": (F.hardtanh, WILD),
    "hardsigmoid": (F.hardsigmoid, [*WILD, -3.0, 3.0]),
    "hardswish": (F.hardswish, [*WILD, -3.0, 3.0]),
    "hardshrink": (F.hardshrink, [*WILD, -0.5, 0.5]),
    "softshrink": (F.softshrink, [*WILD, -0.5, 0.5]),
    "elu": (F.elu, WILD),
    "celu": (F.celu, WILD),
    "selu": (F.selu, WILD),
    "softplus": (F.softplus, [*WILD[:5], 20.0, 30.0, -800.0]),
    "logsigmoid": (F.logsigmoid, [0.0, 800.0, -800.0]),
    "softsign": (F.softsign, WILD[:5]),
}

BINARY: dict[str, tuple[Callable[..., Any], list[float], list[float]]] = {
    "maximum": (torch.maximum, WILD, PARTNER),
    "minimum": (torch.minimum, WILD, PARTNER),
    "fmax": (torch.fmax, WILD, PARTNER),
    "fmin": (torch.fmin, WILD, PARTNER),
    "clamp to a tensor below": (lambda x, y: torch.clamp(x, min=y), WILD, PARTNER),
    "clamp to a tensor above": (lambda x, y: torch.clamp(x, max=y), WILD, PARTNER),
    "clamp_min to a tensor": (torch.clamp_min, WILD, PARTNER),
    "atan2": (torch.atan2, [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]),
    "hypot": (torch.hypot, [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]),
    "copysign": (torch.copysign, [0.0, NAN, 2.0, -2.0], [1.0, 1.0, -0.0, NAN]),
    "pow": (torch.pow, [0.0, 0.0, 0.0, 0.0, -1.0, NAN], [0.0, 1.0, -1.0, 0.5, 2.0, 0.0]),
    "xlogy": (torch.xlogy, [0.0, 0.0, 1.0, 0.0, 2.0], [0.0, -1.0, 0.0, NAN, 3.0]),
    "xlog1py": (torch.special.xlog1py, [0.0, 0.0, 1.0, 0.0, 2.0], [-1.0, -2.0, -1.0, NAN, 3.0]),
    "logaddexp": (torch.logaddexp, [INF, -INF, -INF, INF], [INF, -INF, INF, 0.0]),
    "nextafter": (torch.nextafter, [1.0, 2.0, NAN, 0.0], [2.0, 2.0, 1.0, 0.0]),
    "where": (lambda x, y: torch.where(x > y, x, y), WILD, PARTNER),
    "prelu": (F.prelu, WILD, [0.25]),
}


@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_tensor(name: str) -> None:
    fn, values = UNARY[name]
    assert check_gradients(sample_of(fn, torch.tensor(values, dtype=torch.float64, requires_grad=True)))


@pytest.mark.parametrize("name", BINARY)
def test_a_function_of_two_tensors(name: str) -> None:
    if name == "nextafter" and not is_differentiated_by_torch(name):
        pytest.skip("this torch has no gradient of it")
    fn, *values = BINARY[name]
    a, b = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values)
    assert check_gradients(sample_of(fn, a, b))


POSITIVE, UNIT = [0.5, 1.5, 3.0], [[0.1, -0.2, 0.3], [1.0, 0.0, -1.0]]

#: calls of which torch's database has no sample that is differentiated
OTHERS: dict[str, tuple[Callable[..., Any], *tuple[Any, ...]]] = {
    "torch.relu": (torch.relu, WILD),
    "positive": (lambda x: +x * 2, UNIT),
    "softmax": (lambda x: F.softmax(x, -1), UNIT),
    "log_softmax": (lambda x: F.log_softmax(x, 0), UNIT),
    "zeta": (lambda s, q: torch.special.zeta(s.detach() + 2, q), POSITIVE, POSITIVE),
    "igamma": (lambda a, x: torch.igamma(a.detach(), x), POSITIVE, POSITIVE),
    "igammac": (lambda a, x: torch.igammac(a.detach(), x), POSITIVE, POSITIVE),
    "type_as": (lambda x, y: x.type_as(y.float()) * 2, POSITIVE, POSITIVE),
    "to and back": (lambda x: (x.to(torch.float32) * x).to(torch.complex128), POSITIVE),
    "complex to real": (lambda x: (x * (1 + 2j)).to(torch.float64), POSITIVE),
    "fill by a tensor": (lambda x, y: torch.fill(x, y[0]) * x, POSITIVE, POSITIVE),
    "power of a tensor's number": (lambda x, y: x ** y.detach()[1].item(), POSITIVE, POSITIVE),
    "add with alpha": (lambda x, y: torch.add(x, y, alpha=-2), POSITIVE, POSITIVE),
    "rsub with alpha": (lambda x, y: torch.rsub(x, y, alpha=-2), POSITIVE, POSITIVE),
    "a number on the left": (lambda x: 2 / x - (3 - x) * 2**x, POSITIVE),
    "native_dropout": (lambda x: torch.native_dropout(x, 0.5, True)[0], POSITIVE),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_call_that_torchs_database_lacks(name: str) -> None:
    fn, *values = OTHERS[name]
    tensors = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values]
    assert check_gradients(sample_of(fn, *tensors), second=True)


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float64), (torch.float64, torch.complex128)])
def test_each_operand_gets_a_gradient_of_its_own_dtype_and_shape(dtypes: tuple[Any, Any]) -> None:
    a = torch.randn(3, 1, dtype=dtypes[0], requires_grad=True)
    b = torch.randn(1, 2, dtype=dtypes[1], requires_grad=True)
    for fn in (torch.add, torch.sub, torch.mul, torch.div, torch.pow, torch.float_power):
        assert check_gradients(sample_of(fn, a, b), second=True)


DROPOUT = {
    "dropout": (50, 7),
    "dropout1d": (3, 4, 5),
    "dropout2d": (3, 4, 5, 6),
    "dropout3d": (3, 4, 2, 3, 4),
    "alpha_dropout": (50, 7),
    "feature_alpha_dropout": (3, 4, 5, 6),
    "rrelu": (50, 7),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", DROPOUT)
def test_a_random_operator_draws_what_eager_draws(name: str, dtype: torch.dtype) -> None:
    """Equal seeds, equal results to the last bit, with a batch and without."""
    fn = getattr(F, name)
    for shape in (DROPOUT[name], DROPOUT[name][1:]):
        for options in ({},) if name == "rrelu" else ({"p": 0.1}, {"p": 0.5}, {"p": 1.0}):
            x = torch.randn(shape).to(dtype).requires_grad_()
            sample = sample_of(fn, x, **options, training=True)
            try:
                expected = eager_derivatives(sample, second=False)
            except RuntimeError:  # of a shape that it does not take
                continue
            found = thunders_derivatives(sample, second=False)
            assert torch.equal(found.results[0], expected.results[0])
            torch.testing.assert_close(found.first[0], expected.first[0])


@pytest.mark.parametrize("hard", [False, True])
def test_gumbel_softmax_draws_and_differentiates_as_eager(hard: bool) -> None:
    """With ``hard`` the result is one-hot, and the gradient that of the soft one."""
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    assert check_gradients(sample_of(F.gumbel_softmax, x, tau=0.5, hard=hard), second=True)


@pytest.mark.parametrize("fn", [torch.floor, torch.isnan, torch.argmax, torch.detach, torch.bernoulli])
def test_what_requires_grad_is_what_eager_says(fn: Callable[..., Any]) -> None:
    x = torch.tensor([0.5, 0.25], requires_grad=True)
    assert bool(recorded(sample_of(fn, x))[0].output) == fn(x).requires_grad


def test_a_gradient_goes_to_the_device_of_its_value() -> None:
    """A tensor without dimensions may lie on the cpu while the others do not."""
    x, scale = torch.empty(3, device="meta", requires_grad=True), torch.tensor(2.0, requires_grad=True)
    trace = recorded(sample_of(torch.mul, x, scale))[0]
    gradients = joint_of(trace).output[1]
    assert [g.device.type for g in gradients] == ["meta", "cpu"]
    assert [g.shape for g in gradients] == [(3,), ()]
