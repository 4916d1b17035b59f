"""Writes to views, and reads after them: refused where torch refuses them, else with their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from comparison.derivatives import assert_same
from comparison.inputs import leaf

Tensor = torch.Tensor
MULTIPLE = "function that returns multiple views"
NO_GRAD = "no_grad mode and {} modified inplace with grad mode enabled"
INFERENCE = "inference mode and {} modified inplace in normal mode"


def a_part_of_a_part(x: Tensor) -> Any:
    x.unbind(0)[0][1:].mul_(2)
    return x


def one_chunk(x: Tensor) -> Any:
    x.chunk(1)[0].mul_(2)
    return x


def a_part_in_other_strides(x: Tensor) -> Any:
    v = x.split(1)[0].contiguous()
    v.add_(v.sin())
    return x


def a_view_of_no_grad(x: Tensor) -> Any:
    with torch.no_grad():
        v = x.t()
    v.sigmoid_()
    return x


def a_view_of_a_view_of_no_grad(x: Tensor) -> Any:
    with torch.no_grad():
        v = x.squeeze()
    v[1] += 0.5
    return x


def a_view_of_inference_mode(x: Tensor) -> Any:
    with torch.inference_mode():
        v = x.reshape(4, 3)
    v.flatten().mul_(2)
    return x


REFUSED_WRITES: dict[Callable[..., Any], str] = {
    a_part_of_a_part: MULTIPLE,
    one_chunk: MULTIPLE,
    a_part_in_other_strides: MULTIPLE,
    a_view_of_no_grad: NO_GRAD.format("is being"),
    a_view_of_a_view_of_no_grad: NO_GRAD.format("is being"),
    a_view_of_inference_mode: INFERENCE.format("is being"),
}


def a_stale_part(x: Tensor) -> Any:
    v = x.unbind(0)[0]
    x.mul_(2)
    return v * 2


def a_stale_view_of_no_grad(x: Tensor) -> Any:
    with torch.no_grad():
        v = x.view(-1)
    x.exp_()
    return v.squeeze()


def a_stale_view_after_a_write_without_grad(x: Tensor) -> Any:
    with torch.no_grad():
        v = x.t()
        x.mul_(0.5)
    return v * 2


REFUSED_READS: dict[Callable[..., Any], str] = {
    a_stale_part: MULTIPLE,
    a_stale_view_of_no_grad: NO_GRAD.format("its base or another view of its base has been"),
    a_stale_view_after_a_write_without_grad: NO_GRAD.format("its base or another view of its base has been"),
}


def intermediate() -> list[Tensor]:
    return [leaf(3, 4) * 1]


@pytest.mark.parametrize(("program", "text"), [*REFUSED_WRITES.items(), *REFUSED_READS.items()])
def test_a_view_that_torch_cannot_follow_is_refused_as_torch_refuses_it(program: Any, text: str) -> None:
    for run in (program, thunder.jit(program)):
        with pytest.raises(RuntimeError, match=text):
            run(*intermediate())


def parts_that_may_be_written(x: Tensor) -> Any:
    x.tensor_split(2, 1)[0].mul_(3)
    x.unbind(0)[1].detach().mul_(2)
    with torch.no_grad():
        x.unbind(0)[0].mul_(2)
    return x * x


def written_in_inference_mode(x: Tensor) -> Any:
    y = torch.ones_like(x)
    with torch.inference_mode():
        x.mul_(2)
        y.add_(1)
    return x * y, y


def a_whole_in_other_strides(x: Tensor) -> Any:
    v = x.t() * 3
    v[...] = 0.5
    w = x.t() * 2
    w[:, :] = x[0, 0]
    return v, w


def a_view_of_a_rewritten_row(x: Tensor) -> Any:
    y = x.sin()
    row = y[0]
    y.square_()
    with torch.no_grad():
        flat = row.ravel()
    return flat


@pytest.mark.parametrize(
    "program",
    [
        parts_that_may_be_written,
        written_in_inference_mode,
        a_whole_in_other_strides,
        a_view_of_a_rewritten_row,
    ],
)
def test_what_torch_permits_is_compiled(program: Any) -> None:
    def facts(results: Any) -> list[Any]:
        results = results if isinstance(results, tuple) else (results,)
        return [(r.stride(), r.is_inference(), r.grad_fn is None) for r in results]

    if program is not a_view_of_a_rewritten_row:  # torch says of such a view that it requires grad
        assert_same(program, intermediate, order=1)
    assert facts(program(*intermediate())) == facts(thunder.jit(program)(*intermediate()))


def test_no_gradient_flows_through_a_returned_view_that_was_created_without_gradients() -> None:
    def program(x: Tensor) -> Any:
        with torch.no_grad():
            x.mul_(2)
            flat = x.view(-1)
        return flat.unsqueeze(0), flat, x

    for run in (program, thunder.jit(program)):
        x = leaf(3)
        y = x * 1
        row, flat, _ = run(y)
        assert row.data_ptr() == flat.data_ptr() == y.data_ptr()
        (gradient,) = torch.autograd.grad(row.sum() + flat.sum() + y.sum(), x)
        assert gradient.tolist() == [1.0, 1.0, 1.0]


def test_returned_views_of_a_region_without_gradients_are_in_no_graph() -> None:
    def program(y: Tensor, z: Tensor) -> Any:
        with torch.no_grad():
            v = y.transpose(0, 1).reshape(y.shape)
        z.fill_(0.5)
        return v.view(v.shape[1], -1), v

    for run in (program, thunder.jit(program)):
        assert run((leaf(3, 4) * 1).t(), leaf(3) * 1)[1].grad_fn is None


def test_under_no_grad_of_the_caller_views_may_be_written_and_read() -> None:
    compiled = thunder.jit(a_stale_part)
    with torch.no_grad():
        assert torch.equal(compiled(*intermediate()), a_stale_part(*intermediate()))


def test_copies_of_copies_in_inference_mode_share_memory() -> None:
    def program(x: Tensor) -> Any:
        with torch.inference_mode():
            y = torch.empty_like(x.t()).copy_(x.t())
            flat = y.flatten()
        return flat[None], flat, y

    x = leaf(3, 4)
    for run in (program, thunder.jit(program)):
        row, flat, y = run(x)
        assert row.data_ptr() == flat.data_ptr() not in (y.data_ptr(), x.data_ptr())


def test_a_tensor_of_inference_mode_is_not_written_outside() -> None:
    def program(x: Tensor) -> Any:
        with torch.inference_mode():
            y = x.sin()
        y[0] = 2.0
        return x * 2

    for run in (program, thunder.jit(program)):
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
            run(*intermediate())


def test_a_window_onto_written_memory_is_refused() -> None:
    """The value after the write is in other memory, where the gaps of ``x`` are not."""

    def program(x: Tensor) -> Any:
        v = x.as_strided((3,), (1,))
        x.mul_(2)
        return v * 2

    with pytest.raises(thunder.UnsupportedProgram, match="read through as_strided"):
        thunder.jit(program)((leaf(8) * 1)[::2])


def test_a_window_onto_an_input_with_gaps_has_its_gradient_although_the_input_is_written_later() -> None:
    def program(x: Tensor) -> Any:
        y = x.as_strided((2, 2), (2, 1)) * 2
        x[3].add_(0.5)
        return y

    assert_same(program, lambda: [(leaf(8) * 1)[::2]], order=1)


@pytest.mark.parametrize("stop", ["a value that is overwritten", "an operator without slope"])
def test_a_gradient_that_ends_within_the_program_reaches_results_on_its_way(stop: str) -> None:
    """``b`` needs what it read of ``a`` for the gradient of ``a``, though none goes on to the input."""

    def program(x: Tensor) -> Any:
        a = x.sin().fill_(2.0) if stop == "a value that is overwritten" else (x * 4).floor()
        b = a * a
        return a, b

    for f in (program, thunder.jit(program)):
        x = leaf(3)
        a, b = f(x)
        of_a, of_x = (torch.autograd.grad(b.sum(), t, retain_graph=True)[0] for t in (a, x))
        torch.testing.assert_close((of_a, of_x), (2 * a, torch.zeros_like(x)))


def test_the_gradient_after_a_write_through_data_is_that_of_what_was_computed() -> None:
    def program(x: Tensor) -> Tensor:
        y = x.exp()
        y.data.mul_(2)
        return y

    x = leaf(3)
    (ours,) = torch.autograd.grad(thunder.jit(program)(x).sum(), x)
    torch.testing.assert_close(ours, x.detach().exp())
    (mixed,) = torch.autograd.grad(program(x).sum(), x)
    torch.testing.assert_close(mixed, 2 * x.detach().exp())


def test_a_returned_view_that_torch_cannot_follow_has_a_gradient() -> None:
    def program(x: Tensor) -> Tensor:
        row = x.unbind(0)[0]
        x.mul_(2)
        return row

    with pytest.raises(RuntimeError, match="is a view and its base or another view of its base has been"):
        program(*intermediate()) * 2
    x = leaf(3, 4)
    (ours,) = torch.autograd.grad(thunder.jit(program)(x * 1).sum(), x)
    assert ours.tolist() == [[2.0] * 4, [0.0] * 4, [0.0] * 4]


def written_once(base: Tensor, y: Tensor, x: Tensor) -> Any:
    y.copy_(x * 2)
    return base * base + x


def written_through_data(base: Tensor, y: Tensor, x: Tensor) -> Any:
    y.copy_(x * 2)
    y.data.add_(5)
    return base + y * y


def written_through_another_detach(base: Tensor, y: Tensor, x: Tensor) -> Any:
    y.copy_(x * 2)
    y.detach().copy_(x * 7)
    return base + y * y


def a_part_written_without_gradient(base: Tensor, y: Tensor, x: Tensor) -> Any:
    y[0] = x[1]
    y[1:].data.mul_(3)
    with torch.no_grad():
        y[2].copy_(x[0])
    return base + y * y


DETACHED = [
    written_once,
    written_through_data,
    written_through_another_detach,
    a_part_written_without_gradient,
]


@pytest.mark.parametrize("program", DETACHED, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_detached_tensor_and_its_base_have_their_own_gradients(
    program: Callable[..., Any], requires_grad: bool
) -> None:
    def run(x: Tensor) -> Any:
        base = x * 3 if requires_grad else torch.zeros(3)
        return program(base, base.detach(), x)

    outcomes = []
    for fn in (run, thunder.jit(run)):
        x = torch.arange(1.0, 4.0).requires_grad_()
        result = fn(x)
        result.sum().backward()
        outcomes.append((result, x.grad))
    torch.testing.assert_close(outcomes[1], outcomes[0])


def bits_are_cleared(x: Tensor, dtype: torch.dtype) -> Any:
    x.view(dtype).zero_()
    return x * 2


def bits_are_set(x: Tensor, dtype: torch.dtype) -> Any:
    v = x.view(dtype)
    v[0] = 1
    return x.exp(), v


def the_base_is_written(x: Tensor, dtype: torch.dtype) -> Any:
    v = x.view(dtype)
    x.mul_(2)
    return x * 1, v * 1


def there_and_back(x: Tensor, dtype: torch.dtype) -> Any:
    v = x.view(dtype).view(x.dtype)
    v.mul_(2)
    return x * x, v


def a_part(x: Tensor, dtype: torch.dtype) -> Any:
    y = x * 3
    y[1:].view(dtype).zero_()
    y.add_(1)
    return y * x


@pytest.mark.parametrize(
    "program", [bits_are_cleared, bits_are_set, the_base_is_written, there_and_back, a_part]
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.float16, torch.uint8, torch.float32])
def test_no_gradient_passes_a_view_of_the_bits(program: Any, dtype: torch.dtype) -> None:
    def run(fn: Any) -> Any:
        start = torch.arange(1.0, 5.0, requires_grad=True)
        x = start * 1
        results = fn(x, dtype)
        results = (*results, x) if isinstance(results, tuple) else (results, x)
        sum(r.sum() * 2 for r in results if r.requires_grad).backward()
        return [r.requires_grad for r in results], [r.detach() for r in results], start.grad

    torch.testing.assert_close(run(thunder.jit(program, executors=["torch"])), run(program))
