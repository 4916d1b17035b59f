"""Regions with symbolic sizes: one definition serves many shapes, and gives what eager gives at each."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
from sweeping import in_turn, one_in
from symbolic.static_reasons import failure_of
from thunder_nvfuser import kernels
from thunder_nvfuser.executor import replaying_executor
from thunder_nvfuser.recorder import RecordedDefinition


def _softmax_of_sum(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = torch.softmax(x * 2 + w, -1).sin()
    return (y.reshape(-1) * 3).exp(), y.sum(0)


def _shifted(x: torch.Tensor, w: torch.Tensor) -> Any:
    return ((x[1:] - x[:-1]).cos() * w).tril(), F.pad(x * 2, (1, x.shape[0])).exp()


def _joined(x: torch.Tensor, w: torch.Tensor) -> Any:
    return torch.cat([x * 2, x + w]).tanh() + 1


def _transposed(x: torch.Tensor, w: torch.Tensor) -> Any:
    return (x.t() * 2).exp().sum(1) * w + x.amax(0), (x.t() + w[:, None]).relu()


def _normed(x: torch.Tensor, w: torch.Tensor) -> Any:
    return F.layer_norm(x, x.shape[-1:], w).relu() * x.shape[0], x.std(0, correction=0) * 2


def _created(x: torch.Tensor, w: torch.Tensor) -> Any:
    sizes = x.shape[0] + 1, x.shape[1] * 2 + 3  # numbers that a definition takes in their order
    return torch.arange(x.shape[1]) * w + 1, torch.full(sizes, 0.5) * w.sum() * 3


def _halved(x: torch.Tensor, w: torch.Tensor) -> Any:
    half = x.shape[1] // 2
    return (x[:, :half] * 2).exp() + 1, (x * w)[:, half:].sin()


def _running(x: torch.Tensor, w: torch.Tensor) -> Any:
    values, places = (x * w).cummax(1)
    return values * 2, places + x.shape[0], (x + 1).cumsum(0)


PROGRAMS = {
    f.__name__: f
    for f in (_softmax_of_sum, _shifted, _joined, _transposed, _normed, _created, _halved, _running)
}
SHAPES = ((3, 5), (4, 7), (6, 12), (9, 33), (17, 16))


def fusions(compiled: Any) -> list[Any]:
    return [b for b in thunder.last_traces(compiled)[-1].bound_symbols if b.sym.is_fusion]


def checked(compiled: Any, program: Callable[..., Any], *arguments: torch.Tensor) -> None:
    pairs = ((r if isinstance(r, tuple) else (r,)) for r in (compiled(*arguments), program(*arguments)))
    for found, expected in zip(*pairs, strict=True):
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()


def test_one_definition_serves_many_shapes(monkeypatch: pytest.MonkeyPatch):
    written: list[RecordedDefinition] = []
    record = kernels.recorded

    def recorded(*arguments: Any) -> Any:
        found = record(*arguments)
        written.append(found.definition)
        return found

    monkeypatch.setattr(kernels, "recorded", recorded)
    compiled = thunder.jit(_softmax_of_sum, executors=[replaying_executor()], cache="symbolic values")
    for rows, columns in SHAPES:
        checked(compiled, _softmax_of_sum, torch.randn(rows, columns), torch.randn(columns))
    assert thunder.cache_misses(compiled) == 1
    (definition,) = written
    text = str(definition)
    assert "c4 = fd.ops.size(t0, 0)" in text
    assert "fd.ops.broadcast_in_dim(t1, [c4, c5], [1])" in text
    # the number of elements is computed from sizes, and is an input after those of the region
    assert "c18 = fd.define_scalar(None, dtype=DataType.Int)\n    t19 = fd.ops.reshape(t17, [c18])" in text
    assert not {str(n) for shape in SHAPES for n in shape} & set(
        text.replace("[", " ").replace("]", " ").split()
    )


@pytest.mark.parametrize(("name", "cache"), in_turn(PROGRAMS, ["symbolic values", "automatic"]))
def test_results_and_strides_are_those_of_eager_at_each_size(name: str, cache: str):
    program = PROGRAMS[name]
    compiled = thunder.jit(program, executors=[replaying_executor()], cache=cache, recompile_limit=None)
    for rows, columns in SHAPES:
        checked(compiled, program, torch.randn(rows, columns), torch.randn(columns))
    assert fusions(compiled)
    assert thunder.cache_misses(compiled) < len(SHAPES)
    assert failure_of(compiled) is None


@pytest.mark.parametrize("name", one_in(4, list(PROGRAMS)))
def test_other_layouts_small_sizes_and_gradients(name: str):
    program, rng = PROGRAMS[name], random.Random(name)
    compiled = thunder.jit(
        program, executors=[replaying_executor()], cache="symbolic values", recompile_limit=None
    )
    for turn in range(10):
        rows, columns = rng.choice([1, 2, 3, 5, 9]), rng.choice([1, 2, 4, 7])
        # in float64: the norm of two numbers that are nearly equal magnifies each rounding
        x = torch.randn((columns, rows) if turn % 2 else (rows, columns), dtype=torch.float64)
        x, w = x.t() if turn % 2 else x, torch.randn(columns, dtype=torch.float64)
        leaves = [x.requires_grad_(), w.requires_grad_()]
        checked(compiled, program, x, w)
        ours, theirs = (
            torch.autograd.grad(_sum(f(x, w)), leaves, allow_unused=True) for f in (compiled, program)
        )
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def _sum(results: Any) -> torch.Tensor:
    tensors = results if isinstance(results, tuple) else (results,)
    return sum(t.sin().sum() for t in tensors if t.is_floating_point() and t.requires_grad)  # type: ignore


def test_a_size_on_which_a_definition_depends_is_a_fact():
    compiled = thunder.jit(lambda x: x.exp() + 1, executors=[replaying_executor()], cache="symbolic values")
    for rows in (3, 0, 5):
        x = torch.randn(rows, 4)
        assert torch.equal(compiled(x), x.exp() + 1)
    assert thunder.cache_misses(compiled) == 2  # tensors without elements are left to torch
    entries = thunder.compile_stats(compiled).interpreter_cache
    facts = {str(fact) for entry in entries for fact in entry.guards if fact.sym.name == "check_sizes"}
    assert {"args[0].shape[0] != 0", "args[0].shape[0] == 0"} & facts


def test_sizes_that_depend_on_data_are_read_from_the_inputs():
    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = x[x[:, 0] > 0]
        return (torch.softmax(y * 2 + w, -1).sin() * y.shape[0]).exp(), torch.arange(y.shape[0]) * 2.0 + 1

    compiled = thunder.jit(program, executors=[replaying_executor()], cache="symbolic values")
    for count in (4, 2, 6, 3):
        x = torch.randn(7, 5).abs()
        x[count:, 0] *= -1
        checked(compiled, program, x, torch.randn(5))
    assert fusions(compiled)
    assert thunder.cache_misses(compiled) == 1
    assert failure_of(compiled) is None


def test_numbers_that_vary_are_inputs_beside_sizes():
    def program(x: torch.Tensor, n: int) -> torch.Tensor:
        return (x * n).exp() + x.shape[0]

    compiled = thunder.jit(program, executors=[replaying_executor()], cache="automatic")
    for rows, n in ((3, 2), (4, 3), (5, 4), (6, -1)):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x, n), program(x, n))
    assert thunder.cache_misses(compiled) <= 3
    (fusion,) = fusions(compiled)
    assert {p.name for p in fusion.args if not hasattr(p, "shape")}


def test_a_reproducer_of_a_region_with_sizes_has_the_numbers_of_its_run(tmp_path: Any):
    compiled = thunder.jit(
        _softmax_of_sum,
        executors=[replaying_executor()],
        cache="symbolic values",
        nvfuser_reproducers=str(tmp_path),
    )
    compiled(torch.randn(3, 5), torch.randn(5))
    (path,) = tmp_path.iterdir()
    assert "\n    15,\n]" in path.read_text()
