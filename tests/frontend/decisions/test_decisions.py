"""Decisions on data: a program is compiled for the answers of a call, which later calls check."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import thunder
from comparison.call_sequences import assert_as_eager
from thunder.compiler.failed_calls import check_writes_are_last
from thunder.ir.proxies import TensorProxy
from thunder.ir.trace import TraceCtx, tracectx
from thunder.ops import prims

UP, DOWN, MIXED = (
    torch.tensor([1.0, 2.0, 3.0]),
    torch.tensor([-3.0, -2.0, -1.0]),
    torch.tensor([-1.0, 4.0, 0.5]),
)


def leaf(x: Tensor) -> Tensor:
    return x.clone().requires_grad_()


def branch(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x.sin()


def nested(x: Tensor) -> Tensor:
    if (x > 0).all():
        return x.log()
    if x.sum() > 0:
        return x.abs()
    return x.exp()


def loop(x: Tensor) -> tuple[Tensor, int]:
    count = 0
    while x.norm() > 0.5:
        x, count = x / 2, count + 1
    return x, count


def asserted(x: Tensor) -> Tensor:
    if not x.max() > 0:  # pytest rewrites an assert
        raise AssertionError("all are negative")
    return x.sqrt()


def raising(x: Tensor) -> Tensor:
    if not (x > 0).all():
        raise ValueError(f"not positive: {x}")
    return x.log()


def caught(x: Tensor) -> Tensor:
    try:
        if not (x > 0).all():
            raise ValueError("not positive")
        return x.log()
    except ValueError:
        return x.abs()


def written_before(x: Tensor) -> Tensor:
    x.add_(1)
    if x.sum() > 2:
        x.mul_(2)
        return x * 3
    x[0] = 7
    return x - 1


def written_through_a_view(x: Tensor) -> Tensor:
    x[1:].neg_()
    return x + 1 if x.sum() > 0 else x - 1


def drawn(x: Tensor) -> Tensor:
    y = torch.nn.functional.dropout(x, 0.5)
    if y.sum() > 0:
        y = y + torch.rand(3)
    return y * torch.randn(3)


def printed(x: Tensor) -> Tensor:
    print("before")
    if x.sum() > 0:
        print("positive")
    else:
        print("negative", x.shape)
    return x * 2


def appended(x: Tensor, log: list[Any]) -> Tensor:
    log.append("begin")
    if x.sum() > 0:
        log.append(x * 2)
        return x
    return -x


def membership(x: Tensor) -> Tensor:
    return x + 1 if 4.0 in x else x - 1


def equality(x: Tensor) -> Tensor:
    return x if torch.equal(x, x.abs()) else x * 2


def closeness(x: Tensor) -> Tensor:
    return x if torch.allclose(x, x.abs(), atol=1.5) else x * 2


def in_checkpoint(x: Tensor) -> Tensor:
    def region(x: Tensor) -> Tensor:
        y = x.sin()
        return y * x if y.sum() > 0 else y.exp()

    return checkpoint(region, x * 1, use_reentrant=False) * 2


class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2 if x.sum() > 0 else x * 3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * 2 if x.max() > 2 else g * 5


def custom_gradient(x: Tensor) -> Tensor:
    return Clipped.apply(x * 1.5) + 1


def without_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        scale = x.abs().max()
        if scale > 2:
            scale = scale / 2
    return x / scale


def sorted_values(x: Tensor) -> list[Tensor]:
    return sorted([x[0] + 0, x[1] + 0, x[2] + 0])


def as_numbers(x: Tensor) -> Any:
    return (
        x * int(x.max()),
        x * float(x[0] * 0 + 2),
        [x] * int(x.max().long().clamp(min=1)),
        x[: (x > 0).sum()],
    )


def as_lists(x: Tensor) -> list[Tensor]:
    sizes = torch.stack([(x > 0).sum(), (x <= 0).sum()])
    return [s * 2 for s in x.split(sizes.tolist())]


def scaled(x: Tensor) -> tuple[Tensor, float]:
    scale = x.detach().abs().max().item()
    count = (x > 0).sum().item()
    return x / scale * (2 * count + 1) + (1 - scale) ** 2, scale + count


def bounded(x: Tensor) -> Tensor:
    norm = x.detach().norm().item()
    return x * (2.0 / norm) if norm > 2 else x * max(norm, 0.5)


def compared(x: Tensor) -> Any:
    mean = x.detach().mean().item()
    return x < mean, mean > x, x * (x == mean), torch.full((2,), mean), x.clamp(max=mean), [x, -x][mean > 0]


def sized(x: Tensor) -> Any:
    n = (x > 0).sum().item()
    parts = [x[:n], x[n - 1], x.narrow(0, 0, n), torch.zeros(n + 1), x.repeat(n), {0: x, 3: -x}.get(n, x * 2)]
    return parts, [x * i for i in range(n)], x.view(-1).split(n or 1)


def mean_of_chosen(x: Tensor) -> Any:
    return x.sum() / (x > 0).sum().item(), x.sum().item() / (x > 0).sum().item()


PROGRAMS: list[Callable[[Tensor], Any]] = [
    branch, nested, loop, asserted, raising, caught, drawn, printed, membership, equality, closeness,
    in_checkpoint, custom_gradient, without_grad, sorted_values, as_numbers, as_lists, scaled, bounded,
    compared, sized, mean_of_chosen,
]  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS)
def test_calls_with_other_answers_are_as_in_eager(fn: Callable[[Tensor], Any]) -> None:
    assert_as_eager(fn, [(leaf(x),) for x in (UP, DOWN, MIXED, UP)])


@pytest.mark.parametrize("fn", [nested, raising, drawn, printed, sized])
def test_calls_without_gradients_are_as_in_eager(fn: Callable[[Tensor], Any]) -> None:
    assert_as_eager(fn, [(x,) for x in (UP, DOWN, UP, MIXED)])


@pytest.mark.parametrize("fn", [written_before, written_through_a_view])
def test_inputs_are_written_as_in_eager(fn: Callable[[Tensor], Any]) -> None:
    compiled = assert_as_eager(fn, [(x,) for x in (UP, DOWN, MIXED, UP, DOWN)])
    assert thunder.compile_stats(compiled).runs_by_python == 0


def test_lists_are_written_as_in_eager() -> None:
    def fn(x: Tensor) -> Any:
        log: list[Any] = LOG
        return appended(x, log), len(log)

    for x in (UP, DOWN, UP, DOWN):
        results = []
        for program in (fn, COMPILED.setdefault("fn", thunder.jit(fn))):
            LOG.clear()
            results.append((program(x), LOG[1:], LOG[0] == "begin"))
        torch.testing.assert_close(results[1], results[0])


LOG: list[Any] = []
COMPILED: dict[str, Any] = {}


def test_a_number_out_of_a_tensor_flows_through_without_another_compile() -> None:
    compiled = assert_as_eager(scaled, [(x,) for x in (UP, MIXED, DOWN)])
    assert thunder.cache_misses(compiled) == 1
    assert thunder.compile_stats(compiled).runs_by_python == 0
    assert "compute_number('mul', 2, " in str(thunder.last_traces(compiled)[-1])


def test_a_value_scaled_by_a_number_is_written_through_a_view() -> None:
    def fn(x: Tensor) -> Tensor:
        y = x / (x.max().item() + 5)
        y[1:].mul_(2)
        return y

    assert_as_eager(fn, [(UP,), (DOWN,)])


def test_a_decision_after_a_custom_forward_with_a_decision() -> None:
    def fn(x: Tensor) -> Tensor:
        y = Clipped.apply(x * 1)
        y[1:].neg_()
        return y + 1 if y.sum() > 0 else y - 1

    assert_as_eager(fn, [(leaf(x),) for x in (UP, DOWN)])


def test_each_answer_is_compiled_once() -> None:
    compiled = assert_as_eager(nested, [(x,) for x in (UP, DOWN, MIXED, UP, UP, DOWN, MIXED)])
    assert thunder.cache_misses(compiled) == 3
    assert thunder.cache_hits(compiled) == 4


def test_the_entry_of_the_last_answers_is_tried_first() -> None:
    compiled = thunder.jit(branch)
    for x in (UP, DOWN, UP):
        compiled(x)
    assert thunder.compile_stats(compiled).last_entry.answers == (True,)
    first, _ = thunder.last_traces(compiled)[0], compiled(UP)
    assert "answer=True" in str(first)


def test_the_reason_of_a_compile_names_the_decision_and_its_line() -> None:
    compiled = thunder.jit(branch)
    compiled(UP)
    compiled(DOWN)
    (reason,) = thunder.last_recompile_reasons(compiled)
    line = branch.__code__.co_firstlineno + 1
    assert f"test_decisions.py:{line}: bool(cpu b8[]): expected True, found False" in str(reason)


def test_the_trace_shows_the_check() -> None:
    compiled = thunder.jit(branch)
    compiled(UP)
    assert "check_decision(t1, question='bool', answer=True, index=0)" in str(
        thunder.last_traces(compiled)[0]
    )


def test_a_program_that_raises_for_an_answer_is_not_traced_for_it_again() -> None:
    compiled = thunder.jit(asserted)
    compiled(UP)
    for _ in range(3):
        with pytest.raises(AssertionError, match="all are negative"):
            compiled(DOWN)
    assert thunder.cache_misses(compiled) == 2
    compiled(UP)
    assert thunder.cache_misses(compiled) == 2


def test_more_answers_than_the_limit_run_by_python_with_one_warning() -> None:
    compiled = thunder.jit(lambda x: x * int(x[0]), recompile_limit=3)
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        for n in (*range(8), 1, 6):
            x = torch.full((2,), float(n))
            assert torch.equal(compiled(x), x * n)
    stats = thunder.compile_stats(compiled)
    assert stats.cache_misses == 4
    assert stats.runs_by_python == 5
    assert [w.category for w in caught_warnings] == [thunder.RecompileWarning]
    assert "decision at" in str(caught_warnings[0].message)


def test_a_new_recompile_is_an_error_where_the_option_says_so() -> None:
    compiled = thunder.jit(branch, fail_on_recompile=True)
    compiled(UP)
    with pytest.raises(thunder.RecompileError, match="decision at"):
        compiled(DOWN)


def test_the_option_refuses_questions() -> None:
    with pytest.raises(thunder.DataDependentControlFlow, match=r"bool\(tensor\) asks for the value"):
        thunder.jit(branch, data_dependent="refuse")(UP)


def test_a_plan_has_no_data_and_refuses_questions() -> None:
    with pytest.raises(thunder.DataDependentControlFlow, match=r"bool\(tensor\) asks for the value"):
        thunder.plan(branch, torch.empty(3, device="meta"))
    with pytest.raises(thunder.DataDependentControlFlow, match="its inputs have no data"):
        thunder.jit(branch)(torch.empty(3, device="meta"))


def test_a_seed_from_the_operating_system_is_not_drawn_early() -> None:
    def fn(x: Tensor) -> Tensor:
        torch.seed()
        return x if torch.rand(()) > 0.5 else -x

    with pytest.raises(thunder.DataDependentControlFlow, match="drawn from the operating system"):
        thunder.jit(fn)(UP)


def test_a_text_of_values_after_a_decision() -> None:
    def fn(x: Tensor) -> tuple[Tensor, str]:
        return (x, "positive") if x.sum() > 0 else (x, f"negative: {x}")

    compiled = thunder.jit(fn)
    compiled(UP)
    assert compiled(DOWN)[1] == f"negative: {DOWN}"
    assert compiled(UP)[1] == "positive"


@pytest.mark.parametrize("cache", ["same input", "no caching"])
def test_decisions_are_checked_in_every_cache_mode(cache: str) -> None:
    assert_as_eager(nested, [(x,) for x in (UP, DOWN, MIXED, UP)], cache=cache)


def test_a_module_with_a_decision_and_a_buffer() -> None:
    class Counted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.ones(3))
            self.register_buffer("seen", torch.zeros((), dtype=torch.long))

        def forward(self, x: Tensor) -> Tensor:
            if self.seen == 0:
                self.weight.copy_(x)
            self.seen += 1
            return self.weight * x

    modules = [Counted(), Counted()]
    compiled = thunder.jit(modules[0])
    for x in (UP, DOWN, MIXED):
        results = [compiled(x), modules[1](x)]
        torch.testing.assert_close(results[0], results[1])
        torch.testing.assert_close(modules[0].state_dict(), modules[1].state_dict())


def test_a_compiled_program_inside_of_another() -> None:
    inner = thunder.jit(branch)
    assert_as_eager(lambda x: inner(x) + 1 if x.max() < 3.5 else inner(-x), [(x,) for x in (UP, DOWN, MIXED)])


def test_an_operator_before_a_question_runs_early() -> None:
    ran = []

    @torch.library.custom_op("thunder_tests::seen_early", mutates_args=())
    def seen_early(x: Tensor) -> Tensor:
        ran.append(x.sum().item())
        return x + 1

    def fn(x: Tensor) -> Tensor:
        y = seen_early(x)
        return y if y.sum() > 6 else x

    seen_early.register_fake(torch.empty_like)
    compiled = thunder.jit(fn)
    compiled(UP)
    assert len(ran) == 2, "early, and in the program"
    compiled(UP)
    assert len(ran) == 3


def test_a_check_after_a_write_is_refused() -> None:
    """Functional programs have none: their writes are last."""
    trace = TraceCtx()
    with tracectx(trace):
        x, y = (TensorProxy(n, shape=(), device="cpu", dtype=torch.float32) for n in "xy")
        trace.args = [x, y]
        prims.check_decision(x, question="bool", answer=True, index=0)
        prims.copy_(x, y, grad_enabled=False)
        prims.check_decision(y, question="bool", answer=True, index=1)
    with pytest.raises(thunder.DataDependentControlFlow, match="after it has written to its arguments"):
        check_writes_are_last([trace])
    del trace.bound_symbols[-1]
    check_writes_are_last([trace])
