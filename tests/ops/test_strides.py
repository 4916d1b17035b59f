"""The strides that a program may ask for are those of eager: of views, copies, and memory formats."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from recorded_refusals import refusals_as_recorded
from sweeping import one_in
from thunder.base.pytree import tree_iter, tree_map
from thunder.ir.proxies import TensorProxy
from thunder.ops.layouts import strides_of
from torch_language.database import op_db
from torch_language.entries_without_rows import INTERPRETED, REFUSED
from torch_language.sample_traces import record
from torch_language.samples import SKIPPED, copied, name_of, samples

ENTRIES = {
    name_of(op): op
    for op in op_db
    if not op.name.startswith(SKIPPED) and name_of(op) not in REFUSED.keys() | INTERPRETED
}
#: entries for which torch's kernels without data lay their result out otherwise than those with data, where
#: the arguments are not contiguous
OTHERWISE = frozenset(
    {
        "nn.functional.batch_norm",
        "nn.functional.channel_shuffle",
        "nn.functional.max_pool1d",
        "nn.functional.max_unpool2d",
        "nn.functional.max_unpool2d.grad",
    }
)
#: entries whose kernels read data
OF_DATA = frozenset(
    {
        *("nn.functional.ctc_loss", "nn.functional.gaussian_nll_loss"),
        *("linalg.lstsq", "linalg.lstsq.grad_oriented"),
    }
)

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated functions


def laid_out_otherwise(tree: Any) -> Any:
    """The same values with other strides: channels last where there are four dimensions, else transposed
    twice.
    """

    def other(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.ndim < 2:
            return x
        if x.ndim == 4:
            return x.contiguous(memory_format=torch.channels_last)
        return x.mT.contiguous().mT

    return tree_map(other, tree)


@pytest.mark.parametrize("name", one_in(4, sorted(ENTRIES.keys() - OF_DATA), start=1))
def test_strides_are_eagers(name: str) -> None:
    op, ran = ENTRIES[name], 0
    with refusals_as_recorded("strides", name) as refusals:
        for sample in samples(op, torch.float32, 1):
            layouts = {"as it is": sample, "in another layout": laid_out_otherwise(sample)}
            for layout in list(layouts)[: 1 if name in OTHERWISE else 2]:
                args, kwargs = layouts[layout]
                try:
                    expected = op.op(*copied(args), **copied(kwargs))
                except RuntimeError:
                    continue  # eager wants another layout
                with refusals.of(layout):
                    assert_strides(op.op, args, kwargs, expected)
                    ran += 1
    if not ran:
        pytest.skip("no sample of float32 runs in eager on the cpu")


def assert_strides(fn: Any, args: Any, kwargs: Any, expected: Any) -> None:
    """Assert that the results of a call, when it is recorded, have the strides of eager's results."""
    trace, _, output = record(fn, copied(args), copied(kwargs), decides=True)
    proxies = [p for p in tree_iter(output) if isinstance(p, TensorProxy)]
    tensors = [t for t in tree_iter(expected) if isinstance(t, torch.Tensor)]
    for proxy, tensor in zip(proxies, tensors, strict=True):
        if tensor.numel():  # of nothing, strides mean nothing
            assert strides_of(proxy, trace) == tensor.stride()


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.permute(0, 2, 3, 1),
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x.contiguous(memory_format=torch.channels_last).contiguous(),
        lambda x: x.to(memory_format=torch.channels_last).relu() + 1,
        lambda x: torch.nn.functional.conv2d(x.to(memory_format=torch.channels_last), x[:1, :, :2, :2]),
        lambda x: torch.empty_like(x.to(memory_format=torch.channels_last)),
        lambda x: x.clone(memory_format=torch.channels_last)[:, 1:],
        lambda x: x.expand(2, *x.shape)[..., ::2],
        lambda x: x.flatten(1).t().reshape(4, -1),
    ],
)
def test_results_have_eagers_strides_and_the_program_is_told_so(program: Any) -> None:
    x = torch.randn(2, 3, 4, 4)
    expected = program(x)
    compiled = thunder.jit(lambda x: (program(x), program(x).stride(), program(x).is_contiguous()))
    result, strides, contiguous = compiled(x)
    assert (result.stride(), strides) == (expected.stride(), expected.stride())
    assert contiguous == expected.is_contiguous()


@pytest.mark.parametrize("of_input", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("of_cotangent", [torch.contiguous_format, torch.channels_last])
def test_group_norm_lies_as_eagers_forward_and_backward(
    of_input: torch.memory_format, of_cotangent: torch.memory_format
) -> None:
    norm, results = torch.nn.GroupNorm(4, 8), []
    given = torch.linspace(-3, 3, 400).reshape(2, 8, 5, 5).contiguous(memory_format=of_input)
    cotangent = torch.linspace(-9, 9, 400).sin().reshape(2, 8, 5, 5).contiguous(memory_format=of_cotangent)
    for call in (norm, thunder.jit(norm)):
        x = given.clone().requires_grad_()
        y = call(x)
        results.append((y, *torch.autograd.grad(y, (x, *norm.parameters()), cotangent)))
    for expected, found in zip(*results, strict=True):
        assert found.stride() == expected.stride()
        assert torch.equal(found, expected)


@pytest.mark.parametrize("fn", [torch.cov, torch.corrcoef])
@pytest.mark.filterwarnings("ignore")  # too few observations
def test_strides_of_no_variables_are_eagers(fn: Any) -> None:
    """A dimension of length 0 counts as one of length 1 in the strides."""
    x = torch.empty(0, 3)
    trace, _, output = record(fn, (x,), {})
    assert strides_of(output, trace) == fn(x).stride() == (1, 1)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: torch.logical_or(y, x),
        lambda x, y: torch.logical_and(y, x),
        lambda x, y: torch.copysign(x, y),
        lambda x, y: torch.copysign(x, 2.0),
        lambda x, y: x // y,
        lambda x, y: torch.div(x, y, rounding_mode="floor"),
        lambda x, y: torch.heaviside(y, x),
        lambda x, y: torch.logaddexp(y, x),
        lambda x, y: torch.xlogy(2.0, x),
        lambda x, y: 2.0**x,
        lambda x, y: torch.float_power(2, x),
        lambda x, y: torch.ldexp(y, x),
        lambda x, y: torch.nn.functional.logsigmoid(x),
        lambda x, y: torch.nn.functional.batch_norm(x, y, y),
        lambda x, y: x.reshape(2, 2, 1, 3).to(memory_format=torch.channels_last).roll(1, 0),
    ],
)
def test_strides_are_those_of_kernels_where_torch_has_others_without_data(program: Any) -> None:
    x, y = torch.ones(4, 3).t(), torch.ones(4)
    result, strides = thunder.jit(lambda x, y: (r := program(x, y) * 1, r.stride()))(x, y)
    assert result.stride() == strides == (program(x, y) * 1).stride()
