"""Torch functions without a row: torch runs them as they are, and says so, or they are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import MissingGradient, OperatorError, UnsupportedOperator
from thunder.base.tags import OpTags
from thunder.ops.operator import all_rows
from thunder.torch.fallback.fallback_rows import checked

X = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def leaf(x: torch.Tensor = X) -> torch.Tensor:
    return x.clone().requires_grad_()


def scale_of_lu(x: torch.Tensor) -> torch.Tensor:
    lu, pivots = torch.linalg.lu_factor(x @ x.T + torch.eye(4, dtype=x.dtype))
    return (torch.linalg.lu_solve(lu, pivots, x) * x.sin()).sum()


def spectrum(x: torch.Tensor) -> torch.Tensor:
    window = torch.ones(4, dtype=x.dtype)
    return torch.stft(x.reshape(-1), 4, window=window, return_complex=True).abs().square().sum()


PROGRAMS = [scale_of_lu, spectrum, lambda x: torch.special.airy_ai(x), lambda x: torch.gradient(x, dim=0)]


def refusal(fn: Callable[..., Any], *args: Any, **options: Any) -> UnsupportedOperator:
    with pytest.raises(UnsupportedOperator) as error:
        thunder.jit(fn, **options)(*args)
    return error.value


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_function_without_a_row_gives_what_eager_gives(program: Callable[..., Any]) -> None:
    torch.testing.assert_close(thunder.jit(program)(X), program(X), rtol=0, atol=0)


@pytest.mark.parametrize("program", [scale_of_lu, spectrum])
def test_it_is_differentiated_to_third_order_by_torchs_autograd(program: Callable[..., Any]) -> None:
    ours, theirs = leaf(), leaf()
    mine, other = thunder.jit(program)(ours), program(theirs)
    for order in range(3):
        (mine,) = torch.autograd.grad(mine, ours, create_graph=True)
        (other,) = torch.autograd.grad(other, theirs, create_graph=True)
        torch.testing.assert_close(mine, other, msg=lambda text, order=order: f"order {order + 1}: {text}")
        mine, other = mine.cos().sum(), other.cos().sum()


def test_one_tensor_at_two_places_gets_both_gradients_once() -> None:
    pivots = torch.arange(1, 5, dtype=torch.int32)

    def program(x):
        return torch.linalg.lu_solve(x, pivots, x).square().sum()

    ours, theirs = leaf(X + 3 * torch.eye(4)), leaf(X + 3 * torch.eye(4))
    thunder.jit(program)(ours).backward()
    program(theirs).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_result_that_nobody_reads_has_no_cotangent() -> None:
    """Zeros for it would give nan: singular vectors of equal singular values have no derivative."""

    def program(x):
        return torch.svd(x)[1].sum()

    ours = torch.eye(3, dtype=torch.float64).requires_grad_()
    thunder.jit(program)(ours).backward()
    assert ours.grad is not None
    assert bool(ours.grad.isfinite().all())


def test_a_result_without_gradient_does_not_require_grad() -> None:
    lu, pivots = thunder.jit(lambda x: torch.linalg.lu_factor(x))(leaf())
    assert (lu.requires_grad, pivots.requires_grad) == (True, False)
    assert not thunder.jit(lambda x: torch.special.airy_ai(x.detach()))(leaf()).requires_grad


class Recurrent(torch.nn.Module):
    """torch's own recurrent kernel, whose arguments are sequences of tensors."""

    def __init__(self) -> None:
        super().__init__()
        cell = torch.nn.LSTMCell(3, 5)
        self.weights = torch.nn.ParameterList([cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        start = (x.new_zeros(1, 2, 5), x.new_zeros(1, 2, 5))
        return torch.lstm(x, start, list(self.weights), True, 1, 0.0, self.training, False, True)


def test_a_module_trains_with_it() -> None:
    torch.manual_seed(0)
    model, x = Recurrent(), torch.randn(2, 7, 3)
    compiled = thunder.jit(model)
    ours, theirs = compiled(x), model(x)
    torch.testing.assert_close(ours, theirs)
    weights = list(model.parameters())
    torch.testing.assert_close(
        torch.autograd.grad(ours[0].sum() + ours[2].square().sum(), weights),
        torch.autograd.grad(theirs[0].sum() + theirs[2].square().sum(), weights),
    )


# -- eyes open -----------------------------------------------------------------------------------------------


def test_the_ledger_says_fallback() -> None:
    compiled = thunder.jit(lambda x: torch.special.airy_ai(x) + 1)
    compiled(X)
    rows = thunder.explain(compiled).rows
    assert [(r.symbol, r.claimed_by, r.via) for r in rows] == [
        ("torch.special.airy_ai", "torch", "fallback"),
        ("torch.add", "torch", "operator"),
    ]


def test_its_row_is_marked() -> None:
    thunder.jit(lambda x: torch.special.airy_ai(x))(X)
    (row,) = (row for row in all_rows() if row.id == "torch.special.airy_ai")
    assert OpTags.FALLBACK in row.tags


def test_the_option_refuses_it_by_name() -> None:
    error = refusal(lambda x: torch.special.airy_ai(x), X, operator_fallback="error")
    assert str(error).startswith("torch.special.airy_ai is not an operator thunder knows\n")
    assert '"cpu f64[4, 4]"' in str(error)
    assert "thunder.examine" in str(error)
    assert "test_fallback.py" in str(error)


def test_the_option_holds_though_another_program_has_met_the_function() -> None:
    thunder.jit(lambda x: torch.special.airy_ai(x))(X)
    refusal(lambda x: torch.special.airy_ai(x), X, operator_fallback="error")


def test_what_torch_refuses_has_torchs_text() -> None:
    with pytest.raises(OperatorError, match=r"^stft requires the return_complex parameter"):
        thunder.jit(lambda x: torch._VF.stft(x, 2, window=x[:2]))(X[0])


# -- refused -------------------------------------------------------------------------------------------------

REFUSED = {
    "writes to its arguments": lambda x: x.clone().sparse_resize_((3, 4), 2, 0),
    "returns memory of its arguments": lambda x: torch.ops.aten._reshape_alias(x, [x.numel()], [1]),
    "out=": lambda x: torch.ops.aten.sin.out(x, out=x),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_call_that_could_be_wrong_is_refused_with_the_reason(why: str) -> None:
    error = refusal(REFUSED[why], X)
    assert why in str(error).splitlines()[0]
    assert "test_fallback.py" in str(error)


def test_running_statistics_are_not_written_behind_the_programs_back() -> None:
    """The schema of the function does not say that it writes."""
    mean, var = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    error = refusal(lambda x: torch.native_batch_norm(x, None, None, mean, var, True, 0.1, 1e-5), X)
    assert "writes to its arguments" in str(error)
    assert not mean.any()


def test_a_function_that_writes_without_saying_so_is_caught_when_it_runs() -> None:
    def writes(x: torch.Tensor) -> torch.Tensor:
        x.data.add_(1)
        return x + 1

    with pytest.raises(UnsupportedOperator, match="writes wrote to an argument"):
        checked("writes", writes)(X.clone())
    with pytest.raises(UnsupportedOperator, match="part returned memory of an argument"):
        checked("part", lambda x: x[0])(X.clone())


def test_a_shape_that_depends_on_data_is_a_decision_and_is_refused_with_the_line_by_an_option() -> None:
    for fn in (lambda x: torch.ops.aten.nonzero(x), lambda x: torch.ops.aten.bincount(x.long().abs())):
        compiled = thunder.jit(fn)
        assert all(torch.equal(compiled(x), fn(x)) for x in (X.flatten(), X.flatten() * 0))
        with pytest.raises(UnsupportedOperator, match=r"(?s)depends on data.*test_fallback\.py"):
            thunder.jit(fn, data_dependent="refuse")(X.flatten())


def test_under_autocast_torch_runs_the_function_under_it() -> None:
    def program(x):
        return torch.special.airy_ai(x), torch.linalg.cond(x.bfloat16())

    x = torch.randn(4, 4)
    with torch.autocast("cpu"):
        expected, found = program(x), thunder.jit(program)(x)
        error = refusal(lambda x: torch.linalg.cond(x, out=torch.empty(())), x)
    assert all(torch.equal(a, b) and a.dtype is b.dtype for a, b in zip(found, expected, strict=True))
    assert "out= under autocast" in str(error)


# -- random --------------------------------------------------------------------------------------------------


def test_a_random_function_draws_eagers_numbers_in_eagers_order() -> None:
    def program(x):
        a = torch.rand(3)
        u, s, v = torch.svd_lowrank(x, 2)
        return a, u @ s.diag() @ v.mT, s, torch.rand(3)

    compiled = thunder.jit(program)
    for _ in range(2):
        torch.manual_seed(7)
        ours = compiled(X)
        torch.manual_seed(7)
        torch.testing.assert_close(ours, program(X))


def test_a_random_function_is_neither_dropped_nor_merged() -> None:
    def program(x):
        torch.ops.aten.uniform(x, 0.0, 1.0)
        return torch.ops.aten.uniform(x, 0.0, 1.0) - torch.ops.aten.uniform(x, 0.0, 1.0)

    torch.manual_seed(7)
    ours = thunder.jit(program)(X)
    torch.manual_seed(7)
    torch.testing.assert_close(ours, program(X))
    assert bool(ours.any())


def test_a_random_function_has_no_gradient_and_says_so() -> None:
    with pytest.raises(MissingGradient, match="uniform has no gradient rule"):
        thunder.jit(lambda x: torch.ops.aten.uniform(x, 0.0, 1.0))(leaf())
