"""What a compiled program raises while it runs keeps its type, and tells the user's line and whose it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder import TensorProxy
from thunder.core.transforms import get_grad, put_grad
from thunder.extend import FusionExecutor, OperatorExecutor


def failing(*tensors: torch.Tensor) -> torch.Tensor:
    raise KeyError("inside the kernel")


def like(x: Any, *more: Any) -> Any:
    return TensorProxy(like=x)


def note_of(call: Callable[[], object], error: type[Exception] = KeyError) -> list[str]:
    """The lines of the note on what a call raises."""
    with pytest.raises(error) as caught:
        call()
    (note,) = caught.value.__notes__
    return [line.strip() for line in note.splitlines()]


@pytest.fixture
def ex() -> OperatorExecutor:
    """An executor whose kernels fail."""
    ex = OperatorExecutor("failing_ex")
    fails = ex.register_operator("fails", meta=like, fn=failing, replace=True)
    ex.register_operator("works", meta=like, fn=lambda x: x * 2, replace=True)
    ex.register_implementation("torch.sin", fails)
    return ex


def test_a_kernel_that_raises_is_told_with_the_users_line_and_its_module(ex: OperatorExecutor) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        hidden = x + 1
        return torch.sin(hidden)

    compiled = thunder.jit(program, executors=[ex])
    for _ in range(2):  # the call that compiles, and one from the cache
        statement, line, callee = note_of(lambda: compiled(torch.ones(3)))
        assert statement == "while the compiled program ran  t0 = fails(hidden)"
        assert line.startswith(f"at  {__file__}:")
        assert line.endswith("   return torch.sin(hidden)")
        assert callee == f"fails:  from module {__name__}"


def test_a_kernel_of_the_backward_that_raises_is_told_with_the_line_of_the_forward(
    ex: OperatorExecutor,
) -> None:
    works, fails = ex.opmap["works"], ex.opmap["fails"]

    def rule(a: Any) -> Any:
        result = works(a)
        put_grad(a, fails(get_grad(result), a))
        return result

    ex.register_implementation("torch.cos", works, grad_transform=rule)
    result = thunder.jit(lambda x: torch.cos(x).sum(), executors=[ex])(torch.ones(3, requires_grad=True))
    statement, *line, callee = note_of(result.backward)
    assert statement.startswith("while the compiled program ran")
    assert "= fails(" in statement
    assert callee == f"fails:  from module {__name__}"
    assert all("torch.cos(x).sum()" in text for text in line)


def test_what_torch_raises_is_told_with_the_users_line() -> None:
    compiled = thunder.jit(lambda i, w: torch.nn.functional.embedding(i, w))
    statement, line = note_of(lambda: compiled(torch.tensor([7]), torch.ones(3, 2)), IndexError)
    assert "= torch.nn.functional.embedding(i, w" in statement
    assert line.endswith("compiled = thunder.jit(lambda i, w: torch.nn.functional.embedding(i, w))")


def test_an_error_of_the_program_while_it_is_traced_has_no_such_note() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        thunder.jit(program)(torch.ones(3))
    assert not any("compiled program" in note for note in getattr(caught.value, "__notes__", ()))


def test_what_a_checker_computes_is_no_part_of_the_program(ex: OperatorExecutor) -> None:
    works = ex.opmap["works"]

    def checker(a: Any) -> bool:
        return (a.reshape(-1) * 3).shape[0] == 3

    ex.register_implementation("torch.sin", works, checker=checker)
    compiled = thunder.jit(lambda x: torch.sin(x) + 1, executors=[ex])
    compiled(torch.ones(3))
    names = [b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols]
    assert names == ["works", "python_del", "add", "python_del", "python_return"]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_what_an_executor_computes_that_answers_for_itself_is_no_part_of_it(requires_grad: bool) -> None:
    class Computes(OperatorExecutor):
        def can_execute(self, bsym: Any) -> Any:
            return (bsym.flat_proxy_args[0] * 3).ndim == 1 and super().can_execute(bsym)

    ex = Computes("computing_ex")
    works = ex.register_operator("works", meta=like, fn=torch.sin, replace=True)

    def rule(a: Any) -> Any:
        result = works(a)
        put_grad(a, get_grad(result))
        return result

    ex.register_implementation("torch.sin", works, grad_transform=rule)
    compiled = thunder.jit(lambda x: torch.sin(x), executors=[ex])
    compiled(torch.ones(3, requires_grad=requires_grad))
    assert "mul" not in str(thunder.last_traces(compiled)[-1])
    assert thunder.last_traces(compiled)[-1].bound_symbols[0].sym.name == "works"


def test_what_the_checker_of_a_fusion_executor_computes_is_no_part_of_it_either() -> None:
    class Lazy(FusionExecutor):
        def fusion_pass(self, trace: Any) -> Any:
            return trace

    lazy = Lazy("lazy")
    lazy.register_supported("torch.sin", lambda a: (a * 3).shape[0] == 3)
    compiled = thunder.jit(lambda x: torch.sin(x), executors=[lazy])
    compiled(torch.ones(3))
    assert "mul" not in str(thunder.last_traces(compiled)[-1])
