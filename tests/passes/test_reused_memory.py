"""Memory of values that end: who gets it, that results are eager's, and the peak of a training step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder.base.sole_owner import is_held_once
from thunder.ops.operator import all_rows
from thunder.ops.reused_memory import reusing
from thunder.passes.placed_writes import own_memory
from thunder_benchmarks.models.stacks import gated_mlp
from thunder_benchmarks.step_memory import peak_bytes

#: operator → its kernel, of those that have one with ``out=``
KERNELS = {row.id: row.eager for row in all_rows() if row.with_out is not None}
WITHOUT_FUSION = [ex for ex in thunder.get_default_executors() if ex.name != "inductor"]


@pytest.fixture
def every_size(monkeypatch):
    """Small values give their memory too."""
    monkeypatch.setattr(own_memory, "SMALLEST", 0)


def compiled(fn: Callable[..., Any], **options: Any) -> Any:
    return thunder.jit(fn, executors=WITHOUT_FUSION, **options)


def names(trace: Any) -> list[str]:
    """Return the names of the calls that reuse memory."""
    return [b.sym.name for b in trace.bound_symbols if "_reuses_" in b.sym.name or "_takes_" in b.sym.name]


# -- kernels -----------------------------------------------------------------------------------------------


def operands(count: int, dtype: torch.dtype) -> Iterator[list[torch.Tensor]]:
    """Yield arguments: of one shape, with one broadcast, and with one that is not contiguous."""
    generator = torch.Generator().manual_seed(count)
    for shapes in (
        ((5, 67),) * count,
        ((5, 67), *((67,),) * (count - 1)),
        (*((5, 1),) * (count - 1), (5, 67)),
    ):
        tensors = [torch.rand(shape, generator=generator, dtype=torch.float64) * 3 + 0.2 for shape in shapes]
        yield [t.gt(1) if dtype is torch.bool else t.to(dtype) for t in tensors]
    yield [torch.rand(67, 5, generator=generator).to(dtype).t() for _ in range(count)]
    element = (torch.rand((), generator=generator) + 0.5).to(dtype).expand(5, 67)
    yield [*[element] * (count - 1), torch.rand(5, 67, generator=generator).to(dtype)]


@pytest.mark.parametrize("operator", sorted(KERNELS))
def test_a_kernel_computes_the_same_in_the_memory_of_an_argument(operator):
    plain, tried = KERNELS[operator], 0
    dtypes = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
    for dtype, count in itertools.product(dtypes, (1, 2, 3)):
        for args in operands(count, dtype):
            if operator == "torch.where":
                args[0] = args[0] > 1
            try:
                expected = plain(*args)
            except (RuntimeError, TypeError, NotImplementedError):
                continue
            for position, base in enumerate(args if isinstance(expected, torch.Tensor) else ()):
                if base.shape != expected.shape or base.dtype != expected.dtype:
                    continue
                given = [a.clone() if any(a.stride()) else a for a in args]
                result = reusing(operator, position, is_saved=False).python_impl(*given)
                torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
                assert result.stride() == expected.stride()
                assert (result is given[position]) is (
                    base.is_contiguous() and all(a.is_contiguous() or not any(a.stride()) for a in args)
                )
                tried += 1
    assert tried


@pytest.mark.parametrize("operator", sorted(KERNELS.keys() - {"torch.where"}))
def test_a_kernel_takes_numbers_and_options_as_the_function_does(operator):
    """torch.where is left with numbers: its ``out=`` goes with tensors alone."""
    plain = KERNELS[operator]
    x = torch.rand(4, 5) * 3 + 0.2
    options = [{}, {"alpha": 2}, {"value": 2}, {"rounding_mode": "floor"}, {"decimals": 1}, {"max": 1.5}]
    options.append({"approximate": "tanh"})
    arguments = [[x], [x, x], [x, 2], [x, 0.5, 1.5], [x, x + 1, 0.3], [x, x, x], [x, False]]
    tried = 0
    for args, kwargs in itertools.product(arguments, options):
        try:
            expected = plain(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args], **kwargs)
        except (RuntimeError, TypeError, NotImplementedError):
            continue
        if expected.dtype == x.dtype:
            given = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
            result = reusing(operator, 0, is_saved=False).python_impl(*given, **kwargs)
            torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
        tried += 1
    assert tried or operator.startswith("torch.bitwise")  # of integers


# -- programs ----------------------------------------------------------------------------------------------


def chain(x):
    return ((x @ x).sin() * 2 + x).tanh()


def second_operand(x):
    return x * (x @ x)


def both(x):
    y = x @ x
    return y * y


def with_view_before(x):
    y = x @ x
    z = y.t().exp()
    return y.sin() + z


def where_with_number(x):
    y = x @ x
    return torch.where(y > 0.6, y, 0.1)


def _given(x):
    return x.sin().sum()


def _returned(x):
    y = x @ x
    return y, y.sin()


def _view_returned(x):
    y = x @ x
    return y[1:], y.sin()


def _read_later(x):
    y = x @ x
    return y.sin() @ y


def _other_dtype(x):
    return (x @ x).to(torch.float64).sin().to(torch.float32) + (x @ x > 1)


def _view_of_it(x):
    y = x @ x
    return y.t() + y


@pytest.mark.parametrize(
    ("program", "count"),
    [
        *((chain, 4), (second_operand, 1), (both, 1), (with_view_before, 2), (where_with_number, 0)),
        *((_given, 0), (_returned, 0), (_view_returned, 0), (_read_later, 0), (_view_of_it, 0)),
    ],
)
def test_what_gives_its_memory(program, count, every_size):
    x = torch.rand(6, 6)
    before, cfn = x.clone(), compiled(program)
    torch.testing.assert_close(cfn(x), program(x), rtol=0, atol=0)
    assert torch.equal(x, before)
    assert len(names(thunder.last_traces(cfn)[-1])) == count


def test_a_result_of_another_dtype_has_memory_of_its_own(every_size):
    x = torch.rand(6, 6)
    torch.testing.assert_close(compiled(_other_dtype)(x), _other_dtype(x), rtol=0, atol=0)


def test_small_values_are_left():
    cfn = compiled(chain)
    cfn(torch.rand(6, 6))
    assert names(thunder.last_traces(cfn)[-1]) == []


def test_sizes_that_are_symbols_are_equal_by_name(every_size):
    cfn = compiled(chain, cache="symbolic values")
    for n in (4, 7):
        x = torch.rand(n, n)
        torch.testing.assert_close(cfn(x), chain(x), rtol=0, atol=0)
    assert thunder.cache_misses(cfn) == 1
    assert len(names(thunder.last_traces(cfn)[-1])) >= 3


@pytest.mark.parametrize("asked", ["x", "both"])
def test_a_value_that_requires_grad_in_a_program_without_a_backward_stays(asked, every_size):
    def program(x, y):
        a, b = x * y, x.exp()
        unused = (x + 1) * 2  # torch's autograd records it
        with torch.no_grad():
            return a.square(), b * unused, b.sum()

    x, y = (torch.rand(4, 4, requires_grad=asked == "both" or is_first) for is_first in (True, False))
    theirs, ours = program(x, y), compiled(program)(x, y)
    torch.testing.assert_close(ours, theirs)
    assert [(t.requires_grad, t.grad_fn) for t in ours] == [(False, None)] * 3


def test_what_other_code_may_keep_stays(every_size):
    kept: list[torch.Tensor] = []

    @torch.library.custom_op("reused_memory::keep", mutates_args=())
    def keep(x: torch.Tensor) -> torch.Tensor:
        kept.append(x)
        return x.sum()

    @keep.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return x.new_empty(())

    def program(x):
        y = x @ x
        total = keep(y)
        return y.sin() + total

    x = torch.rand(4, 4)
    torch.testing.assert_close(compiled(program)(x), (x @ x).sin() + (x @ x).sum())
    torch.testing.assert_close(kept[0], x @ x)


def test_what_is_copied_to_an_input_after_a_forward_stays(every_size):
    def program(x, w, buffer):
        t = x.detach() * 2
        buffer.copy_(t)
        y = torch.index_put(t, (torch.tensor([1]),), torch.zeros(4))
        return (y + w).sum() + t.sin().sum()

    buffers = [torch.zeros(4, 4) for _ in range(2)]
    for fn, buffer in zip((program, compiled(program)), buffers, strict=True):
        fn(torch.ones(4, 4), torch.ones(4, 4, requires_grad=True), buffer).backward()
    assert torch.equal(*buffers)


def test_a_read_stays_before_the_write_that_goes_in_place(every_size):
    def program(cache, x, rows):
        old = cache * 2
        cache[1:3] = rows
        a, b = x.sin(), x.cos()
        total = (a @ b).sum() + cache.sum()
        return old.exp() + total

    ours, theirs = torch.ones(8, 8), torch.ones(8, 8)
    cfn, x, rows = compiled(program), torch.rand(8, 8), torch.zeros(2, 8)
    torch.testing.assert_close(cfn(ours, x, rows), program(theirs, x, rows))
    assert torch.equal(ours, theirs)
    assert "copy_(" not in thunder.last_traces(cfn)[-1].python(print_depth=1)


# -- training ----------------------------------------------------------------------------------------------


def mlp() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return gated_mlp(64, 172), torch.randn(256, 64)


def eager_gradients(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    model(x).square().sum().backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return found


def test_a_training_step_takes_no_more_than_four_hidden_values():
    """The gate, the other factor, and two values of their size; the result and a gradient of a weight."""
    model, x = mlp()
    cfn = compiled(model)
    seed = torch.randn(256, 64)

    def step():
        torch.autograd.backward([cfn(x)], [seed])
        model.zero_grad()

    step()
    hidden, result, weight = 256 * 172 * 4, 256 * 64 * 4, 64 * 172 * 4
    assert peak_bytes(step) == 4 * hidden + result + weight
    assert any("_takes_" in name for name in names(thunder.last_backward_traces(cfn)[-1]))


def test_gradients_are_eagers_however_often_the_backward_runs():
    model, x = mlp()
    cfn = compiled(model)
    expected = eager_gradients(model, x)
    loss = cfn(x).square().sum()
    for again in (True, True, False):
        model.zero_grad()
        loss.backward(retain_graph=again)
        torch.testing.assert_close([p.grad for p in model.parameters()], expected)


def test_a_saved_tensor_that_others_have_is_not_written():
    model, x = mlp()
    cfn = compiled(model)
    expected = eager_gradients(model, x)
    packed: list[torch.Tensor] = []

    def pack(t: torch.Tensor) -> int:
        packed.append(t.detach())
        return len(packed) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda i: packed[i]):
        loss = cfn(x).square().sum()
    copies = [t.clone() for t in packed]
    loss.backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], expected)
    assert all(map(torch.equal, packed, copies))


def test_a_saved_tensor_that_the_caller_took_from_the_node_is_not_written():
    model, x = mlp()
    cfn = compiled(model)
    out = cfn(x)
    held = list(out.grad_fn.saved_tensors)
    copies = [t.clone() for t in held]
    out.sum().backward()
    assert all(map(torch.equal, held, copies))


def test_only_a_tensor_without_other_references_is_held_once():
    def asks(*args):
        return is_held_once(args, 0)

    t = torch.ones(3)
    assert asks(t)
    assert asks(t)
    others: list[Callable[[torch.Tensor], Any]] = [
        lambda t: [t],
        lambda t: t.detach(),
        lambda t: t[1:],
        lambda t: t.numpy(),
        lambda t: t.untyped_storage(),
        lambda t: (t * torch.ones(3, requires_grad=True)).grad_fn,
    ]
    for other in others:
        t = torch.ones(3)
        held = other(t)
        assert not asks(t), held
    assert not asks(torch.ones(3)[:])
