"""The conformance tests of rewrite rules find wrong ones, and pass right ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any
from unittest import SkipTest

import pytest
import torch
import torch.nn.functional as F

from sweeping import one_in
from testing.example_executors import name, tensor
from thunder import TensorProxy
from thunder.core.patterns import RewriteRule, rewrite
from thunder.extend import OperatorExecutor, Refusal
from thunder.testing import ConformanceFailure, RuleConformanceTests, rule_conformance
from thunder_testing.rule_cases import RULE_PROPERTIES

X, W = tensor(3, 8), tensor(8, seed=1)


def rms_norm(x, weight, eps: float):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def by_torch(x, weight, eps):
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def gate(x, w):
    return x * torch.sigmoid(w)


SAMPLES: dict[str, list[Any]] = {
    "rms_norm": [(X, W, 1e-5)],
    "gate": [(X, tensor(3, 8, seed=2))],
    "product": [(X, tensor(8, 4))],
}


def product(x, w):
    return torch.relu(x @ w)


def wrong_in_bfloat16() -> tuple[RewriteRule, list[Any]]:
    """A rule whose operator is wrong in the dtype to which autocast casts."""
    executor = OperatorExecutor(name())
    operator = executor.register_operator(
        "product",
        meta=lambda x, w: TensorProxy(like=x, shape=(*x.shape[:-1], w.shape[-1])),
        fn=lambda x, w: product(x, w) * (2 if x.dtype is torch.bfloat16 else 1),
    )
    return rewrite(product, operator), [executor]


_texts = itertools.cycle((lambda x, w: x * torch.sigmoid(w), lambda x, w: torch.sigmoid(w) * x))


def numbered(x, w):
    return next(_texts)(x, w)


def one_shape(x: Any, w: Any) -> Any:
    return tuple(x.shape) == tuple(w.shape) or Refusal("shape", "the arguments have one shape")


def of_kernel(kernel: Callable[..., Any], **registration: Any) -> tuple[RewriteRule, list[Any]]:
    """A rule that replaces `gate` by an operator."""
    executor = OperatorExecutor(name())
    operator = executor.register_operator(
        "gate", meta=lambda x, w: TensorProxy(like=x), fn=kernel, **registration
    )
    return rewrite(gate, operator, check=one_shape), [executor]


#: what is wrong → the property that finds it, the rule and its executors
FAULTS: dict[str, tuple[str, Callable[[], tuple[RewriteRule, list[Any]]]]] = {
    "another constant": (
        "values",
        lambda: (rewrite(rms_norm, lambda x, w, e: by_torch(x, w, e * 2 + 1e-3)), []),
    ),
    "a number that is ignored": (
        "values",
        lambda: (rewrite(rms_norm, lambda x, w, e: by_torch(x, w, 1e-5)), []),
    ),
    "an argument that is ignored": (
        "values",
        lambda: (rewrite(rms_norm, lambda x, w, e: by_torch(x, torch.ones_like(w), e)), []),
    ),
    "arguments exchanged": (
        "values",
        lambda: (rewrite(gate, lambda x, w: w * torch.sigmoid(x), check=one_shape), []),
    ),
    "an approximation": ("values", lambda: (rewrite(gate, lambda x, w: x * (0.5 + w / 4)), [])),
    "NaN is lost": (
        "values",
        lambda: (rewrite(gate, lambda x, w: x * torch.sigmoid(torch.nan_to_num(w))), []),
    ),
    "another dtype": ("values", lambda: (rewrite(gate, lambda x, w: (x * torch.sigmoid(w)).double()), [])),
    "another shape": ("values", lambda: (rewrite(gate, lambda x, w: (x * torch.sigmoid(w)).sum(0)), [])),
    "a write": ("values", lambda: (rewrite(gate, lambda x, w: x.mul_(torch.sigmoid(w))), [])),
    "an exception": ("values", lambda: (rewrite(gate, lambda x, w: 1 / 0), [])),
    "a check that raises": (
        "values",
        lambda: (rewrite(gate, lambda x, w: x * torch.sigmoid(w), check=lambda x, w: x.shape[7] > 1), []),
    ),
    "a kernel in low precision": (
        "values",
        lambda: of_kernel(
            lambda x, w: gate(x.bfloat16(), w.bfloat16()).to(x.dtype), vjp={"x": None, "w": None}
        ),
    ),
    "a kernel that overwrites": ("values", lambda: of_kernel(lambda x, w: x.copy_(gate(x, w)).clone())),
    "no check of shapes": (
        "values",
        lambda: (rewrite(gate, lambda x, w: torch.lerp(torch.zeros_like(x), x, torch.sigmoid(w))), []),
    ),
    "a gradient that is cut": (
        "training",
        lambda: (rewrite(gate, lambda x, w: x * torch.sigmoid(w.detach())), []),
    ),
    "an operator without gradient": ("training", lambda: of_kernel(gate)),
    "a wrong gradient": (
        "training",
        lambda: of_kernel(gate, vjp={"x": lambda c: c.g, "w": lambda c: c.g * c.x}),
    ),
    "a kernel that is wrong for the dtype of autocast": ("autocast", wrong_in_bfloat16),
    "another text each time": ("repeats", lambda: (rewrite(gate, numbered), [])),
    "a check that refuses all": (
        "applied",
        lambda: (rewrite(gate, lambda x, w: x * torch.sigmoid(w), check=lambda x, w: False), []),
    ),
    "an executor that the compile lacks": (
        "applied",
        lambda: (rewrite(gate, lambda x, w: x * torch.sigmoid(w), executors="absent"), []),
    ),
}


def failures(rule: RewriteRule, executors: list[Any], samples: Any = None) -> dict[str, str]:
    """Property → what its case says is wrong."""
    found = {}
    for case in rule_conformance(rule, SAMPLES if samples is None else samples, executors=executors):
        try:
            case.run()
        except ConformanceFailure as error:
            found[case.property] = f"{error}"
        except SkipTest:
            pass
    return found


@pytest.mark.parametrize("what", one_in(5, FAULTS))
def test_a_wrong_rule_is_found(what: str) -> None:
    caught_by, make = FAULTS[what]
    assert caught_by in failures(*make())


def test_each_property_finds_a_wrong_rule() -> None:
    assert {caught_by for caught_by, _ in FAULTS.values()} == set(RULE_PROPERTIES)


def test_right_rules_pass() -> None:
    kernel = of_kernel(
        gate,
        vjp={
            "x": lambda c: c.g * torch.sigmoid(c.w),
            "w": lambda c: c.g * c.out * (1 - torch.sigmoid(c.w)),
        },
    )
    for rule, executors in ((rewrite(rms_norm, by_torch), []), kernel):
        assert failures(rule, executors) == {}


def test_a_rule_without_samples_fails_and_says_how_to_give_some() -> None:
    found = failures(rewrite(gate, lambda x, w: x * torch.sigmoid(w)), [], samples={})
    assert "rewrite rule 'gate': it is not tested, since there are no arguments" in found["applied"]
    assert "Pass samples=[(x, weight, 1e-5)]" in found["applied"]


class TestRules(RuleConformanceTests):
    rules = (rewrite(rms_norm, by_torch),)
    samples = SAMPLES
