"""Operators of ``torch.nn.functional`` in the forms in which models call them; torch's own samples are in
test_opinfo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from ops.trace_evaluator import evaluated, traced
from thunder.base.errors import OperatorError, UnsupportedOperator
from thunder.base.pytree import tree_iter
from thunder.ops import prims

Case = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def r(*shape: int) -> torch.Tensor:
    """Random numbers, the same in every run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def classes(*shape: int) -> torch.Tensor:
    """Classes 0 to 4."""
    return torch.randint(0, 5, shape, generator=torch.Generator().manual_seed(1))


CASES: dict[str, Case] = {
    "linear without bias": (F.linear, (r(2, 3, 8), r(5, 8))),
    "linear of a vector": (F.linear, (r(8), r(5, 8), r(5))),
    "linear with a vector as weight": (F.linear, (r(3, 8), r(8))),
    "linear with a bias that is a row": (F.linear, (r(2, 3, 8), r(5, 8), r(1, 5))),
    "embedding with padding": (lambda i, w: F.embedding(i, w, padding_idx=-1), (classes(2, 3), r(5, 4))),
    "embedding_bag of rows": (lambda i, w: F.embedding_bag(i, w, mode="sum"), (classes(2, 3), r(5, 4))),
    "embedding_bag by offsets": (F.embedding_bag, (classes(6), r(5, 4), torch.tensor([0, 2, 2]))),
    "conv1d of one sample": (F.conv1d, (r(3, 9), r(4, 3, 3))),
    "conv1d same, even kernel": (lambda x, w: F.conv1d(x, w, padding="same"), (r(2, 3, 9), r(4, 3, 4))),
    "conv2d in groups": (
        lambda x, w, b: F.conv2d(x, w, b, 2, (1, 0), 2, 2),
        (r(1, 4, 9, 9), r(6, 2, 3, 3), r(6)),
    ),
    "conv3d": (F.conv3d, (r(1, 2, 4, 4, 4), r(3, 2, 2, 2, 2))),
    "conv_transpose2d": (
        lambda x, w: F.conv_transpose2d(x, w, None, (2, 1), 1, (1, 0), 2, 1),
        (r(1, 4, 5, 5), r(4, 3, 3, 3)),
    ),
    "max_pool2d with indices": (lambda x: F.max_pool2d(x, 2, return_indices=True), (r(1, 2, 6, 6),)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (None, 2)), (r(1, 2, 6, 6),)),
    "interpolate by a factor": (
        lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest"),
        (r(1, 2, 3, 3),),
    ),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (3, 8), w, b), (r(2, 3, 8), r(3, 8), r(3, 8))),
    "layer_norm in bfloat16": (lambda x: F.layer_norm(x.bfloat16(), [8]), (r(2, 3, 8),)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (8,), w, 1e-6), (r(2, 3, 8), r(8))),
    "rms_norm with its own eps": (lambda x: F.rms_norm(x, [8]), (r(2, 3, 8),)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), (r(2, 4, 5), r(4), r(4))),
    "batch_norm in evaluation": (F.batch_norm, (r(2, 4, 5), r(4), r(4).abs(), r(4), r(4))),
    "batch_norm with parameters that are matrices": (
        F.batch_norm,
        (r(2, 4, 5), r(4), r(4).abs(), r(1, 4), r(4, 1)),
    ),
    "batch_norm of the batch, with parameters that are matrices": (
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
        (r(2, 4, 5), r(1, 4), r(4, 1)),
    ),
    "softmax in another dtype": (lambda x: F.softmax(x, dim=-1, dtype=torch.float64), (r(3, 4),)),
    "softmax of a method": (lambda x: x.softmax(-1), (r(3, 4),)),
    "log_softmax in bfloat16": (lambda x: torch.log_softmax(x.bfloat16(), 0), (r(3, 4),)),
    "attention": (F.scaled_dot_product_attention, (r(2, 3, 5, 4), r(2, 3, 6, 4), r(2, 3, 6, 4))),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        (r(2, 3, 5, 4), r(2, 3, 5, 4), r(2, 3, 5, 4)),
    ),
    "attention with a mask": (
        F.scaled_dot_product_attention,
        (r(2, 3, 5, 4), r(2, 3, 6, 4), r(2, 3, 6, 4), torch.ones(5, 6).tril().bool()),
    ),
    "attention of groups": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        (r(2, 6, 5, 4), r(2, 3, 5, 4), r(2, 3, 5, 4)),
    ),
    "cross_entropy": (F.cross_entropy, (r(4, 5), classes(4))),
    "cross_entropy that ignores, in two dimensions": (
        lambda x, t: F.cross_entropy(x, t, ignore_index=2, reduction="sum"),
        (r(4, 5, 3), classes(4, 3)),
    ),
    "cross_entropy with weights and smoothing": (
        lambda x, t, w: F.cross_entropy(x, t, w, label_smoothing=0.1),
        (r(4, 5), classes(4), r(5).abs()),
    ),
    "cross_entropy against probabilities": (
        lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction="none"),
        (r(4, 5, 2), r(4, 5, 2).abs()),
    ),
    "mse_loss": (lambda x, y: F.mse_loss(x, y, reduction="sum"), (r(3, 4), r(3, 4))),
    "the older words for a reduction": (lambda x, y: F.l1_loss(x, y, reduce=False), (r(3, 4), r(3, 4))),
    "prelu by channel": (F.prelu, (r(2, 3, 4), r(3))),
    "glu": (lambda x: F.glu(x, 1), (r(2, 6),)),
    "multi_head_attention": (
        lambda q, w, b, ow, ob: F.multi_head_attention_forward(
            q, q, q, 8, 2, w, b, None, None, False, 0.0, ow, ob
        ),
        (r(5, 2, 8), r(24, 8), r(24), r(8, 8), r(8)),
    ),
}


@pytest.mark.filterwarnings("ignore:size_average and reduce")
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(("fn", "tensors"), CASES.values(), ids=CASES)
def test_an_operator_gives_what_eager_gives(
    fn: Callable[..., Any], tensors: tuple[torch.Tensor, ...]
) -> None:
    trace, expected = traced(fn, *tensors), fn(*tensors)
    torch.testing.assert_close(evaluated(trace, tensors), expected, rtol=0, atol=0)
    torch.testing.assert_close(evaluated(trace, tensors, primitives=True), expected)
    for proxy, tensor in zip(tree_iter(trace.output), tree_iter(expected), strict=True):
        if isinstance(tensor, torch.Tensor):
            assert (tuple(proxy.shape), proxy.dtype) == (tuple(tensor.shape), tensor.dtype)


def test_softshrink_takes_a_truth_value_as_a_number() -> None:
    x = torch.linspace(-2, 2, 9)
    for lambd in (True, False):
        ours = thunder.jit(lambda x, lambd=lambd: torch.nn.functional.softshrink(x, lambd))(x)
        assert torch.equal(ours, torch.nn.functional.softshrink(x, lambd))


def test_gelu_decomposes_as_documented() -> None:
    trace = traced(F.gelu, r(2, 3))
    assert [(b.sym.name, b.args) for b in trace.bound_symbols[0].subsymbols] == [
        ("true_divide", (trace.args[0], 1.4142135623730951)),
        ("erf", (trace.bound_symbols[0].subsymbols[0].output,)),
        ("mul", (0.5, trace.bound_symbols[0].subsymbols[1].output)),
        ("add", (0.5, trace.bound_symbols[0].subsymbols[2].output)),
        ("mul", (trace.args[0], trace.bound_symbols[0].subsymbols[3].output)),
    ]
    assert trace.bound_symbols[0].kwargs == {"approximate": "none"}


RANDOM: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout of everything": lambda x: F.dropout(x, 1.0),
    "dropout2d": lambda x: F.dropout2d(x, 0.3),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.3, True),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.3, True),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, hard=True),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.2),
}


@pytest.mark.parametrize("fn", RANDOM.values(), ids=RANDOM)
def test_a_seed_gives_eagers_numbers(fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = r(2, 3, 4, 5)
    trace = traced(fn, x)
    torch.manual_seed(3)
    expected = [fn(x), torch.rand(1)]
    torch.manual_seed(3)
    assert all(map(torch.equal, [evaluated(trace, [x]), torch.rand(1)], expected))


@pytest.mark.parametrize("fn", [F.dropout, F.dropout1d, F.dropout2d, F.alpha_dropout])
def test_dropout_in_evaluation_is_its_input(fn: Callable[..., torch.Tensor]) -> None:
    trace = traced(lambda x: fn(x, 0.5, training=False, inplace=True), r(2, 3, 4))
    assert trace.output is trace.args[0]
    assert len(trace.bound_symbols) == 1


INPLACE = (F.relu, F.relu6, F.leaky_relu, F.elu, F.selu, F.celu, F.silu, F.mish, F.hardtanh, F.hardswish)


@pytest.mark.parametrize("fn", [*INPLACE, F.hardsigmoid, F.dropout2d, F.rrelu], ids=lambda fn: fn.__name__)
def test_inplace_writes_to_the_argument_and_returns_it(fn: Callable[..., torch.Tensor]) -> None:
    ours, theirs = r(2, 3, 4, 5), r(2, 3, 4, 5)
    trace = traced(lambda x: fn(x, inplace=True), ours)
    assert trace.output is trace.args[0]
    torch.manual_seed(0)
    fn(theirs, inplace=True)
    torch.manual_seed(0)
    evaluated(trace, [ours])
    assert torch.equal(ours, theirs)


REFUSED: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...], type[Exception], str]] = {
    "an argument that asks for something": (
        lambda x: torch.ones_like(x, pin_memory=True),
        (r(3),),
        UnsupportedOperator,
        "'pin_memory'",
    ),
    "shapes of linear": (
        F.linear,
        (r(2, 3), r(4, 5)),
        OperatorError,
        "^(mm: )?mat1 and mat2 shapes cannot be multiplied",
    ),
    "shapes of layer_norm": (
        lambda x: F.layer_norm(x, (5,)),
        (r(2, 3),),
        OperatorError,
        r"^Given normalized_shape=\[5\]",
    ),
    "channels of conv2d": (
        F.conv2d,
        (r(1, 3, 8, 8), r(4, 2, 3, 3)),
        OperatorError,
        "^Given groups=1, weight of size",
    ),
    "a probability": (lambda x: F.dropout(x, 1.5), (r(3),), ValueError, "between 0 and 1, but got 1.5"),
    "one value per channel": (
        lambda x, m, v: F.batch_norm(x, m, v, training=True),
        (r(1, 4), r(4), r(4)),
        ValueError,
        "^Expected more than 1 value per channel when training",
    ),
    "classes of nll_loss": (F.nll_loss, (r(4, 5), classes(3)), Exception, "4.*3|3.*4"),
}


@pytest.mark.parametrize(("fn", "tensors", "error", "text"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused(
    fn: Callable[..., Any], tensors: tuple[torch.Tensor, ...], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        traced(fn, *tensors)


@pytest.mark.parametrize(
    "update", [prims.instance_norm_update, prims.batch_norm_update], ids=lambda p: p.name
)
def test_of_a_normalisation_that_updates_statistics_only_the_result_requires_grad(update):
    x, weight, bias = (torch.randn(*s, requires_grad=True) for s in ((2, 3, 4), (3,), (3,)))
    mean, variance = torch.zeros(3), torch.ones(3)
    program = thunder.jit(lambda x, m, v, w, b: update(x, m, v, w, b, 0.1, 1e-5))
    result, *statistics = program(x, mean, variance, weight, bias)
    assert result.requires_grad
    assert [s.requires_grad for s in statistics] == [False] * len(statistics)
    eager = torch.native_batch_norm(x, weight, bias, mean, variance, True, 0.1, 1e-5)
    assert [t.requires_grad for t in eager] == [True, False, False]


def test_label_smoothing_out_of_range_is_treated_as_in_eager():
    def loss(x: torch.Tensor, t: torch.Tensor, smoothing: float) -> torch.Tensor:
        return F.cross_entropy(x, t, label_smoothing=smoothing)

    x, t = torch.randn(3, 4, requires_grad=True), torch.tensor([1, 0, 3])
    compiled = thunder.jit(loss)
    torch.testing.assert_close(compiled(x, t, -0.5), loss(x, t, -0.5))
    with pytest.raises(RuntimeError, match=r"label_smoothing must be between 0.0 and 1.0. Got: 1.5"):
        compiled(x, t, 1.5)
