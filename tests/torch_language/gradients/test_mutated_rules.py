"""Whether the judge of gradients would notice a wrong rule: each of these operators gets one in turn."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from thunder.ir.gradient_declarations import Formulas, JointRule, Vjp, declare_gradient
from thunder.ir.trace import get_tracectx
from thunder.ops.gradient_rules import vjp_function
from thunder.ops.operator import Operator, row_of, symbol_of
from thunder.ops.prims.gradient import put_grad
from thunder.torch.namespace import ltorch
from torch_language.gradients.differentiated_samples import check_gradients, gradient_samples
from torch_language.gradients.test_gradients import ENTRIES

Fault = Callable[[Any], Any]


def negated(g: Any) -> Any:
    """The wrong sign."""
    return ltorch.neg(g)


def doubled(g: Any) -> Any:
    """A factor too many."""
    return ltorch.mul(g, 2)


def transposed(g: Any) -> Any:
    """Rows for columns. Where the shape does not let it pass, it is noticed at once."""
    return ltorch.transpose(g, -2, -1) if g.ndim > 1 else ltorch.neg(g)


def reversed_(g: Any) -> Any:
    """The elements in the wrong order."""
    return ltorch.flip(g, (-1,)) if g.ndim else ltorch.neg(g)


def forgotten(g: Any) -> Any:
    """No gradient at all."""
    return ltorch.zeros_like(g)


_F = "torch.nn.functional."

#: entry of torch's database, row, argument, what is wrong
MUTATIONS: list[tuple[str, str, str, Fault]] = [
    ("sin", "torch.sin", "input", negated),
    ("exp", "torch.exp", "input", doubled),
    ("tanh", "torch.tanh", "input", negated),
    ("mul", "torch.mul", "other", negated),
    ("sub", "torch.sub", "other", negated),
    ("div.no_rounding_mode", "torch.div", "other", negated),
    ("pow", "torch.pow", "exponent", forgotten),
    ("atan2", "torch.atan2", "other", negated),
    ("where", "torch.where", "other", doubled),
    ("clamp", "torch.clamp", "input", forgotten),
    ("lerp", "torch.lerp", "end", negated),
    ("mm", "torch.mm", "mat2", transposed),
    ("bmm", "torch.bmm", "input", transposed),
    ("matmul", "torch.matmul", "other", transposed),
    ("addmm", "torch.addmm", "mat1", doubled),
    ("nn.functional.linear", f"{_F}linear", "weight", transposed),
    ("sum", "torch.sum", "input", doubled),
    ("mean", "torch.mean", "input", doubled),
    ("var", "torch.var", "input", negated),
    ("cumsum", "torch.cumsum", "input", reversed_),
    ("transpose", "torch.transpose", "input", reversed_),
    ("gather", "torch.gather", "input", reversed_),
    ("index_select", "torch.index_select", "input", reversed_),
    ("cat", "torch.cat", "tensors", lambda parts: [negated(g) for g in parts]),
    ("softmax", "torch.softmax", "input", negated),
    ("nn.functional.gelu", f"{_F}gelu", "input", negated),
    ("nn.functional.relu", f"{_F}relu", "input", doubled),
    ("nn.functional.layer_norm", f"{_F}layer_norm", "weight", negated),
    ("nn.functional.conv2d", f"{_F}conv2d", "weight", transposed),
    ("nn.functional.embedding", f"{_F}embedding", "weight", doubled),
    ("nn.functional.scaled_dot_product_attention", "ltorch.flash_attention_for_cpu", "key", negated),
    ("nn.functional.cross_entropy", f"{_F}nll_loss", "input", negated),
    ("linalg.inv", "torch.linalg.inv", "A", transposed),
    ("linalg.solve", "torch.linalg.solve", "B", transposed),
    ("fft.fft", "torch.fft.fft", "input", doubled),
]


@contextmanager
def mutated(row: Operator, argument: str, fault: Fault) -> Iterator[None]:
    """Within the context the gradient of an argument is wrong."""
    right = row.gradient
    wrong = (
        JointRule(_faulty_rule(right, row, argument, fault))
        if isinstance(right, JointRule)
        else Vjp(_faulty(row, argument, fault))
    )
    declare_gradient(row.id, wrong)
    try:
        yield
    finally:
        declare_gradient(row.id, right)


def _faulty(row: Operator, argument: str, fault: Fault) -> Callable[..., Any]:
    gradient = row.gradient
    assert isinstance(gradient, Formulas | Vjp), f"{row.id} has formulas"
    gradients = vjp_function(gradient)

    def faulty(call: Any) -> dict[str, Any]:
        found = dict(gradients(call))
        if found.get(argument) is not None:
            found[argument] = fault(found[argument])
        return found

    return faulty


def _faulty_rule(right: JointRule, row: Operator, argument: str, fault: Fault) -> Callable[..., Any]:
    meta = symbol_of(row.id).meta
    assert meta is not None
    signature = inspect.signature(meta)

    def faulty(*args: Any, **kwargs: Any) -> Any:
        trace = get_tracectx()
        assert trace is not None
        scope = trace.scopes[-1]
        start = len(scope)
        out = right.fn(*args, **kwargs)
        value = signature.bind(*args, **kwargs).arguments.get(argument)
        for at in range(start, len(scope)):
            if scope[at].sym is put_grad and scope[at].args[0] is value:
                (_, grad), behind = scope[at].args, scope[at + 1 :]
                del scope[at:]
                put_grad(value, fault(grad))
                scope += behind
                break
        return out

    return faulty


def is_noticed(name: str) -> bool:
    """Whether a gradient of a sample is not eager's, or cannot be had."""
    for sample in gradient_samples(ENTRIES[name], torch.float64):
        try:
            check_gradients(sample)
        except Exception:
            return True
    return False


@pytest.mark.parametrize(
    ("name", "row", "argument", "fault"), MUTATIONS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_wrong_rule_is_noticed(name: str, row: str, argument: str, fault: Fault) -> None:
    found = row_of(row)
    assert found is not None
    right = found.gradient
    with mutated(found, argument, fault):
        assert is_noticed(name)
    assert found.gradient is right


@pytest.mark.parametrize("name", sorted({name for name, *_ in MUTATIONS}))
def test_the_right_rule_is_not(name: str) -> None:
    assert not is_noticed(name)
