"""Operators whose results have sizes that depend on data: a size is a decision that the operator checks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import thunder

A = torch.tensor([[1.0, -2.0], [3.0, 0.0]])
B = torch.tensor([[1.0, 2.0], [-3.0, 4.0]])


def writes_values(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    mask = y > 0
    y[mask] = y[mask].cumsum(0)
    y[y[:, 0] > 0, 1] += 1
    return y


def routes(x: torch.Tensor) -> torch.Tensor:
    """Experts, each for the rows that are chosen for it."""
    result = torch.zeros_like(x)
    chosen = F.one_hot((x[:, 0] > 0).long(), 2)
    for expert in range(2):
        (rows,) = torch.where(chosen[:, expert] > 0)
        result = result.index_add(0, rows, x[rows] * (expert + 1))
    return result


def region(x: torch.Tensor) -> Any:
    return checkpoint(lambda y: y.sin()[y > 0].exp(), x * 2, use_reentrant=False)


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "positions": lambda x: (x.nonzero(), x.nonzero(as_tuple=True), torch.argwhere(x), torch.where(x > 0)),
    "masks": lambda x: (x[x > 0], x[x[:, 0] > 0, 1], x[:, x[0] > 0], x[None, x > 0], x[x.sum() > 2]),
    "masked_select": lambda x: (x.masked_select(x > 0), torch.masked_select(x, x[0] > 0)),
    "unique": lambda x: torch.unique(x.detach().sign(), return_inverse=True, return_counts=True),
    "unique slices": lambda x: (x.detach().sign().unique(dim=0), x.detach().unique_consecutive()),
    "bincount": lambda x: x.detach().flatten().long().abs().bincount(weights=x.detach().flatten()),
    "repeat_interleave": lambda x: x.repeat_interleave(x[0].detach().abs().long(), dim=1),
    "one_hot": lambda x: F.one_hot(x.detach().long().abs()),
    "tensor_split": lambda x: x.flatten().tensor_split(x[0].detach().abs().long()),
    "without a row": lambda x: torch.ops.aten.masked_select(x, x > 0),
    "writes": writes_values,
    "routing": routes,
    "checkpoint": region,
    "a size alone": lambda x: x * x.nonzero().shape[0],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_values_and_gradients_are_eagers_for_each_call(name: str) -> None:
    program = PROGRAMS[name]
    compiled = thunder.jit(program)
    for data in (A, B, A):
        x, y = data.clone().requires_grad_(), data.clone().requires_grad_()
        ours, theirs = compiled(x), program(y)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, check_stride=True)
        results = [
            [t for t in torch.utils._pytree.tree_leaves(tree) if t.requires_grad] for tree in (ours, theirs)
        ]
        assert len(results[0]) == len(results[1])
        if results[1]:
            sum(t.sum() for t in results[0]).backward()
            sum(t.sum() for t in results[1]).backward()
            torch.testing.assert_close(x.grad, y.grad)


def test_the_statement_has_the_sizes_and_a_call_with_other_sizes_takes_its_own_entry() -> None:
    compiled = thunder.jit(lambda x: x[x > 0].sum(), cache="constant values")
    for data in (A, B, A, B):
        assert compiled(data) == data[data > 0].sum()
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (2, 2)
    assert "ltorch.nonzero(t0, results=((3, 2), (1, 3), torch.int64), decision=0)" in str(
        thunder.last_traces(compiled)[0]
    )
    (reason,) = thunder.last_recompile_reasons(compiled)
    assert "sizes(nonzero(" in reason.fact
    assert (reason.expected[0], reason.found[0]) == ((2, 2), (3, 2))


def test_a_call_with_other_sizes_leaves_before_a_write() -> None:
    def program(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        state += 1
        return x[x > 0] * state[0]

    compiled, ours, theirs = thunder.jit(program), torch.zeros(1), torch.zeros(1)
    for data in (A, B, A):
        assert torch.equal(compiled(data, ours), program(data, theirs))
        assert torch.equal(ours, theirs)


def test_after_the_limit_python_runs_calls_with_other_sizes_with_one_warning() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x[x > 0] * 2

    compiled = thunder.jit(program, cache="constant values", recompile_limit=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for count in range(6):
            x = torch.arange(6.0) - 5 + count
            assert torch.equal(compiled(x), program(x))
    assert thunder.cache_misses(compiled) == 3
    assert [w.category for w in caught] == [thunder.RecompileWarning]
    assert "sizes(nonzero(" in str(caught[0].message)


def test_an_error_of_the_operator_is_the_programs() -> None:
    compiled = thunder.jit(lambda x: torch.bincount(x.long()))
    assert torch.equal(compiled(torch.ones(2)), torch.tensor([0, 2]))
    for x in (torch.tensor([-1.0, 1.0]), torch.tensor([-1.0, 1.0])):
        with pytest.raises(RuntimeError, match="non-negative"):
            compiled(x)


def test_tensors_without_data_are_refused_with_the_line() -> None:
    with pytest.raises(thunder.DataDependentControlFlow, match=r"(?s)no data.*test_sizes_of_data\.py"):
        thunder.jit(lambda x: x[x > 0])(torch.empty(3, device="meta"))


def test_a_tensor_as_a_bound_or_a_start_is_decided() -> None:
    def program(n: torch.Tensor, x: torch.Tensor) -> Any:
        return torch.arange(n), torch.arange(n.max() - 1, 4), x.narrow(0, n - 1, 1)

    compiled = thunder.jit(program)
    x = torch.arange(3.0)
    for n in (2, 3, 2, 1):
        torch.testing.assert_close(compiled(torch.tensor(n), x), program(torch.tensor(n), x))
    assert thunder.cache_misses(compiled) == 2


def test_a_tensor_as_a_size_of_an_image_or_a_window_is_decided() -> None:
    def program(n: torch.Tensor, x: torch.Tensor) -> Any:
        small = F.interpolate(x, size=(n, n + 1), mode="bilinear")
        wide = F.pad(x[0], (n, n - 1), "replicate")
        return small, F.adaptive_avg_pool2d(x, (n, n)), F.max_pool2d(x, n, stride=n), wide

    compiled = thunder.jit(program)
    x = torch.randn(1, 2, 4, 4)
    for n in (2, 3, 2):
        torch.testing.assert_close(compiled(torch.tensor(n), x), program(torch.tensor(n), x))
    assert thunder.cache_misses(compiled) == 2


def test_an_integer_that_torch_divides_is_a_size() -> None:
    def program(x: torch.Tensor) -> Any:
        n = torch.div(x.shape[0], 2, rounding_mode="trunc")
        y = x.view(n, 2)
        return y.stride(), y.as_strided((n, 2), y.stride()) + 1, x[: 2 * n].expand(n, -1)

    for x in (torch.randn(4), torch.randn(6)):
        torch.testing.assert_close(thunder.jit(program)(x), program(x))


def test_strides_of_a_sum_with_a_factor_in_a_tensor() -> None:
    def program(x: torch.Tensor, n: torch.Tensor) -> Any:
        y = torch.add(x, x, alpha=n)
        y.view(-1)[x.flatten() > 0] = 0
        return y, y.stride()

    x = torch.randn(2, 3)
    torch.testing.assert_close(thunder.jit(program)(x, torch.tensor(2)), program(x, torch.tensor(2)))
