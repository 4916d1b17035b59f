"""`thunder.bisect`: references, compiled objects, state, draws, programs that raise; the smallest set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import thunder
import thunder.torch as ltorch
from bisecting.faults import eager_of
from thunder.core.errors import InvalidArgument
from thunder.core.rewrite import replace_calls
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, TraceTag
from thunder.extend import OperatorExecutor, symbol_of
from thunder_bisect.smallest_sets import smallest


def wrong_executor(operator: str, kernel: Callable[..., Any]) -> OperatorExecutor:
    ex = OperatorExecutor(f"wrong_{operator.rpartition('.')[2]}")
    symbol = symbol_of(operator)
    ex.register_implementation(operator, ex.register_operator("op", like=symbol, fn=kernel))
    return ex


def chain(x: Tensor) -> Tensor:
    y = torch.tanh(x * 2)
    return torch.tanh(y @ y.T @ x) + 1


X = torch.linspace(-1, 1, 12).reshape(3, 4)


def test_a_tolerance_is_positive() -> None:
    with pytest.raises(InvalidArgument, match="tolerance=0 is not positive"):
        thunder.bisect(chain, (X,), tolerance=0)


def test_a_tolerance_widens_what_is_accepted() -> None:
    ex = wrong_executor("torch.tanh", lambda x: torch.tanh(x) * (1 + 1e-4))
    assert not thunder.bisect(chain, (X,), executors=[ex]).ok
    assert thunder.bisect(chain, (X,), executors=[ex], tolerance=1000).ok


def test_a_kernel_that_is_more_exact_than_eager_is_right() -> None:
    ex = wrong_executor("torch.tanh", lambda x: torch.tanh(x.double()).to(x.dtype))
    for dtype in (torch.float32, torch.bfloat16):
        assert thunder.bisect(chain, (X.to(dtype),), executors=[ex]).ok


@pytest.mark.parametrize("kernel", [lambda x: torch.tanh(x).double(), lambda x: torch.tanh(x)[:-1]])
def test_a_program_that_raises_is_explained(kernel: Callable[..., Any]) -> None:
    report = thunder.bisect(chain, (X,), executors=[wrong_executor("torch.tanh", kernel)])
    assert report.differences["the program"].startswith("raises RuntimeError")
    assert len(report.findings) == 2  # the second one after the first is computed by torch
    assert all(finding.decisive for finding in report.findings)


def test_a_program_that_raises_in_eager_raises() -> None:
    with pytest.raises(RuntimeError, match="must match"):
        thunder.bisect(lambda x: x + x[:2], (X,))


def test_a_compiled_object_is_bisected_with_its_settings() -> None:
    ex = wrong_executor("torch.tanh", lambda x: torch.tanh(x) * 2)
    compiled = thunder.jit(chain, executors=[ex])
    report = thunder.bisect(compiled, (X,))
    assert [finding.executor for finding in report.findings] == ["wrong_tanh", "wrong_tanh"]


def test_other_executors_are_the_reference() -> None:
    wrong = wrong_executor("torch.tanh", lambda x: torch.tanh(x).bfloat16().float())
    assert not thunder.bisect(chain, (X,), executors=[wrong]).ok
    assert thunder.bisect(chain, (X,), executors=[wrong], reference=["torch"]).differences


def test_module_and_arguments_keep_their_values() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    before = {name: x.clone() for name, x in model.state_dict().items()}
    compiled, x = thunder.jit(model), X.clone()
    for fn in (model, compiled):
        assert thunder.bisect(fn, (x,), executors=None if fn is compiled else ["torch"]).ok
        assert all(torch.equal(y, before[name]) for name, y in model.state_dict().items())
        assert all(p.grad is None for p in model.parameters())
    assert torch.equal(x, X)


def test_a_wrong_write_to_a_buffer_is_a_difference() -> None:
    model = torch.nn.BatchNorm1d(4)

    class Skips(thunder.Transform):
        def transform_trace_pre_execution(self, trace: TraceCtx, **kwargs: Any) -> TraceCtx:
            def on_call(bsym: BoundSymbol) -> Any:
                return bsym.args[0] * 1 if bsym.sym.id == "torch.add" else None

            return replace_calls(trace, on_call, provenance="Skips")

    report = thunder.bisect(model, (X,), executors=["torch"], transforms=[Skips()])
    assert any("num_batches_tracked" in name or "running" in name for name in report.differences)


def test_a_pass_that_changes_the_backward_is_named() -> None:
    class InBackward(thunder.Transform):
        def transform_trace_pre_execution(self, trace: TraceCtx, **kwargs: Any) -> TraceCtx:
            def on_call(bsym: BoundSymbol) -> Any:
                return ltorch.add(*bsym.args[:2]) if bsym.sym.id == "torch.mul" else None

            is_backward = TraceTag.BACKWARD in trace.tags
            return replace_calls(trace, on_call, provenance="InBackward") if is_backward else trace

    def f(x: Tensor, y: Tensor) -> Tensor:
        return (x * y).sin().sum()

    args = (X.clone().requires_grad_(), (X + 1).requires_grad_())
    report = thunder.bisect(f, args, executors=["torch"], transforms=[InBackward()])
    first = report.findings[0]
    assert (first.kind, first.stage, first.branch) == ("stage", "InBackward", "backward")
    assert thunder.bisect(f, args, executors=["torch"], transforms=[InBackward()], backward=False).ok


def test_draws_of_an_executor_are_no_fault() -> None:
    generator = torch.Generator().manual_seed(5)

    def own(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return x * (torch.rand(x.shape, generator=generator) > p) / (1 - p)

    ex = wrong_executor("torch.nn.functional.dropout", own)
    report = thunder.bisect(lambda x: F.dropout(x, 0.5).exp(), (X,), executors=[ex])
    assert report.ok
    assert "it draws other numbers than torch" in report.unjudged[0]
    assert thunder.bisect(lambda x: F.dropout(x, 0.5).exp(), (X,), executors=["torch"]).unjudged == ()


def test_what_does_not_reach_the_result_is_not_decisive() -> None:
    def kernel(x: Tensor) -> Any:
        return eager_of(symbol_of("torch.sin"))(x) + (1e-3 if x.ndim == 2 else 0)

    def f(x: Tensor) -> Tensor:
        return torch.sin(x).sum().clamp(10, 11) * 0 + torch.tanh(x.sum())

    report = thunder.bisect(f, (X,), executors=[wrong_executor("torch.sin", kernel)])
    assert report.differences == {}
    assert [finding.decisive for finding in report.findings] == [False]
    assert "the results differ by no more than rounding explains" in str(report)


@pytest.mark.parametrize("needed", [[3], [0, 7], [1, 2, 6], list(range(8)), []])
def test_the_smallest_set_is_found(needed: list[int]) -> None:
    def is_enough(items: Sequence[int]) -> bool:
        return set(needed) <= set(items)

    found = smallest(list(range(8)), is_enough)
    assert found == (needed if needed else found)
    assert found is not None
    assert len(found) <= max(1, len(needed))
    assert smallest([0, 1], lambda items: False) is None
