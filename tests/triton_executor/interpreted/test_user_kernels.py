"""Programs that launch kernels of their own: values, writes, gradients, recompiles, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import thunder
import thunder_triton
from comparison.derivatives import assert_as_eager
from comparison.inputs import leaf
from thunder.core.errors import UnsupportedOperator
from thunder.plugins import get_manager
from triton_executor.interpreted import user_kernels
from triton_executor.interpreted.user_kernels import Scale, added, scaled, tuned, with_heuristic

FACTOR = 3.0
OPS = "thunder_triton_tests"


@pytest.fixture(autouse=True)
def plugin() -> Any:
    with get_manager().temporary(thunder_triton, name="triton-under-test"):
        yield


def _new_memory(x: torch.Tensor) -> Any:
    return added(x.sin(), x) * 2


def _itself(x: torch.Tensor) -> Any:
    user_kernels.add[(4,)](x, x, x, x.numel(), BLOCK=16)
    return x + 1


def _by_keyword(x: torch.Tensor) -> Any:
    out = torch.zeros_like(x)
    user_kernels.rows[(x.shape[0], 1)](
        X=x,
        sx=x.stride(0),
        OUT=out,
        so=out.stride(0),
        n=x.shape[1],
        scale=2,
        EVEN=False,
        BLOCK=16,
        num_warps=4,
    )
    return out


def _part_of_a_tensor(x: torch.Tensor) -> Any:
    memory = x * 1
    user_kernels.rows[(2,)](x, x.stride(0), memory[1:3], memory.stride(0), 3, 5.0, False, BLOCK=16)
    return memory


def _of_columns(x: torch.Tensor) -> Any:
    y = x.exp()[:, ::2].contiguous()[1:]
    return scaled(user_kernels.rows, y, EVEN=False, BLOCK=16)


def _tuned(x: torch.Tensor) -> Any:
    return (
        scaled(tuned, x),
        scaled(with_heuristic, x, BLOCK=8),
        scaled(with_heuristic, x, BLOCK=16),
    )


def _gathered(x: torch.Tensor) -> Any:
    index = torch.tensor([3, 1, 1, 0])
    out, total = torch.empty(4, dtype=x.dtype), torch.zeros(4, dtype=x.dtype)
    user_kernels.gather[(1,)](x[0], index, out, 4, BLOCK=4)
    user_kernels.scatter_add[(1,)](out, index, total, 4, BLOCK=4)
    return out, total


def _several_written(x: torch.Tensor) -> Any:
    out, other = torch.empty_like(x[0]), torch.empty_like(x[0])
    user_kernels.through_functions[(1,)](x[0], out, other, 5, BLOCK=8)
    return out + other, other


def _in_a_loop(x: torch.Tensor) -> Any:
    for _ in range(3):
        user_kernels.add[(1,)](x, x, x, x.numel(), BLOCK=32)
    return x


def _wrapped(x: torch.Tensor) -> Any:
    return added(x, x, torch.library.wrap_triton(user_kernels.add))


PROGRAMS = (
    *(_new_memory, _itself, _by_keyword, _part_of_a_tensor, _of_columns, _tuned, _gathered, _several_written),
    *(_in_a_loop, _wrapped),
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_results_and_writes_are_eagers(program: Callable[..., Any]):
    assert_as_eager(program, leaf(4, 5, grad=False), order=0)


@torch.library.triton_op(f"{OPS}::add", mutates_args={})
def add_op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel = torch.library.wrap_triton(user_kernels.add)
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel(), BLOCK=16)
    return out


@torch.library.triton_op(f"{OPS}::double_", mutates_args={"x"})
def double_(x: torch.Tensor) -> None:
    torch.library.wrap_triton(user_kernels.add)[(1,)](x, x, x, x.numel(), BLOCK=32)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


def _backward(ctx: Any, g: torch.Tensor) -> Any:
    (x,) = ctx.saved_tensors
    return g + x * 0, g * 1


add_op.register_autograd(_backward, setup_context=_setup)


def _function(x: torch.Tensor) -> Any:
    return Scale.apply(x.sin(), 3.0) * x


def _operator(x: torch.Tensor) -> Any:
    return add_op(x.sin(), x) * x


def _writing_operator(x: torch.Tensor) -> Any:
    y = x.detach() * 2
    double_(y)
    return y * x


@pytest.mark.parametrize("program", [_function, _operator, _writing_operator], ids=lambda p: p.__name__)
def test_gradients_are_eagers(program: Callable[..., Any]):
    assert_as_eager(program, leaf(4, 5), order=1)


def test_launches_are_operators_with_the_users_lines():
    compiled = thunder.jit(_function)
    compiled(torch.randn(4, 5, requires_grad=True))
    first = thunder.last_traces(compiled)[-1].bound_symbols
    (launch,) = [b for b in first if b.sym.name == "rows"]
    assert launch.args[2] is None  # memory of its own
    assert launch.args[-1] == 4  # the grid
    assert launch.source.file == user_kernels.__file__  # of the function's forward
    (result,) = [compiled(x) for x in [torch.randn(4, 5, requires_grad=True)]]
    result.sum().backward()
    assert "rows" in [b.sym.name for b in thunder.last_backward_traces(compiled)[-1].bound_symbols]
    compiled = thunder.jit(lambda x: double_(x))
    compiled(torch.randn(3))
    assert "add(x, x, x, 3, 1)" in str(thunder.last_traces(compiled)[-1])


# -- what may change between calls ---------------------------------------------------------------------------


def test_constants_grids_and_globals_that_a_program_read_are_guarded():
    x = torch.randn(4, 5)
    compiled = thunder.jit(
        lambda x, even, block: scaled(user_kernels.rows, x, FACTOR, EVEN=even, BLOCK=block)
    )
    for case in ((x, False, 8), (x[:2], False, 8), (x, False, 16), (torch.randn(3, 8), True, 8)):
        torch.testing.assert_close(compiled(*case), case[0] * FACTOR)
    assert thunder.cache_misses(compiled) == 4
    compiled(x, False, 8)
    assert thunder.cache_misses(compiled) == 4


def test_a_changed_global_of_the_program_is_read(monkeypatch: pytest.MonkeyPatch):
    x = torch.randn(4, 5)
    compiled = thunder.jit(lambda x: scaled(user_kernels.rows, x, FACTOR, EVEN=False, BLOCK=8))
    torch.testing.assert_close(compiled(x), x * 3)
    monkeypatch.setitem(globals(), "FACTOR", 7.0)
    torch.testing.assert_close(compiled(x), x * 7)


def test_a_changed_global_of_the_kernel_is_read(monkeypatch: pytest.MonkeyPatch):
    x = torch.randn(4, 5)
    compiled = thunder.jit(_several_written)
    for step in (2, 5):
        monkeypatch.setattr(user_kernels, "STEP", tl.constexpr(step))
        torch.testing.assert_close(compiled(x), _several_written(x))


@triton.jit
def edited(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(x_ptr + places, tl.load(y_ptr + places, mask=places < n) + 1, mask=places < n)


@triton.jit
def edited_later(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(y_ptr + places, tl.load(x_ptr + places, mask=places < n) + 2, mask=places < n)


def test_an_edited_kernel_is_not_served_stale(monkeypatch: pytest.MonkeyPatch):
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        a, b = x * 1, y * 1
        edited[(1,)](a, b, 4, BLOCK=4)
        return a, b

    compiled = thunder.jit(program)
    x, y = torch.randn(4), torch.randn(4)
    torch.testing.assert_close(compiled(x, y), (y + 1, y))
    monkeypatch.setattr(edited, "fn", edited_later.fn)
    monkeypatch.setattr(edited, "rewriter", edited_later.rewriter)
    torch.testing.assert_close(compiled(x, y), (x, x + 2))


# -- configurations ------------------------------------------------------------------------------------------


def _benchmark(launch: Callable[[], None], quantiles: Any) -> list[float]:
    _benchmark.calls += 1  # type: ignore[attr-defined]
    launch()
    return [-float(_benchmark.calls)] * 3  # type: ignore[attr-defined]


def test_the_users_autotuner_chooses_among_its_configurations():
    _benchmark.calls = 0  # type: ignore[attr-defined]
    configs = [triton.Config({"BLOCK": block}) for block in (8, 32, 16)]
    tuned = triton.autotune(configs, key=["n"], do_bench=_benchmark)(with_heuristic)
    x = torch.randn(4, 16)
    compiled = thunder.jit(lambda x: scaled(tuned, x))
    for _ in range(2):
        torch.testing.assert_close(compiled(x), x * 2)
    assert _benchmark.calls == 3  # type: ignore[attr-defined]
    assert [config.kwargs for config in tuned.cache.values()] == [{"BLOCK": 16}]
    torch.testing.assert_close(scaled(tuned, x), x * 2)  # with the choice of the compiled program
    assert _benchmark.calls == 3  # type: ignore[attr-defined]


def test_hooks_of_a_configuration_write_to_tensors():
    def zero(arguments: dict[str, Any]) -> None:
        arguments["X"].zero_()

    tuned = triton.autotune([triton.Config({"BLOCK": 16}, pre_hook=zero)], key=["n"])(with_heuristic)

    def program(x: torch.Tensor) -> Any:
        y = x + 1
        return scaled(tuned, y), y

    x = torch.randn(4, 5)
    torch.testing.assert_close(thunder.jit(program)(x), program(x))


# -- refusals ------------------------------------------------------------------------------------------------


def _from_numbers(x: torch.Tensor) -> Any:
    user_kernels.from_numbers[(1,)](torch.zeros(1, dtype=torch.int64), x, 4, BLOCK=4)
    return x


def _warmed_up(x: torch.Tensor) -> Any:
    user_kernels.add.run(x, x, x, 4, BLOCK=4, grid=(1,), warmup=True)
    return x


def _tuple(x: torch.Tensor) -> Any:
    user_kernels.add[(1,)]((x, x), x, x, 4, BLOCK=4)
    return x


def _with_gradient(x: torch.Tensor) -> Any:
    y = x * 1
    user_kernels.add[(1,)](x, x, y, 4, BLOCK=4)
    return y


REFUSED = {
    _from_numbers: "memory that is no argument",
    _warmed_up: "compiled by warmup",
    _tuple: "no tensor and no number",
    _with_gradient: "requires grad",
}


@pytest.mark.parametrize("program", REFUSED, ids=lambda p: p.__name__)
def test_what_is_no_operator_is_refused(program: Callable[..., Any]):
    with pytest.raises(UnsupportedOperator, match=REFUSED[program]):
        thunder.jit(program)(torch.randn(4, requires_grad=True))
