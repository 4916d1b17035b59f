"""Arrays of NumPy: of the user, made by the program, and of tensors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import thunder

X = torch.tensor([[1.0, 2.0, 3.0]])


def values(result: Any) -> Any:
    """Return a result as numbers that can be compared, with types and dtypes."""
    if isinstance(result, torch.Tensor | np.ndarray):
        return type(result), result.dtype, result.tolist()
    return [values(r) for r in result] if isinstance(result, tuple | list) else result


def check(program: Any, *calls: Any, misses: int = 1) -> None:
    """Compare a program with eager for several calls; each has arguments made by a function."""
    compiled = thunder.jit(program)
    for make in calls:
        expected, found = make(), make()
        assert values(compiled(*found)) == values(program(*expected))
        assert values(list(found)) == values(list(expected))
    assert thunder.cache_misses(compiled) == misses


def window(x: torch.Tensor) -> torch.Tensor:
    return x * torch.from_numpy(np.hanning(x.shape[-1] + 2)[1:-1]).float()


def anchors(x: torch.Tensor) -> torch.Tensor:
    ys, xs = np.meshgrid(np.arange(2), np.linspace(0.0, 1.0, 3), indexing="ij")
    grid = np.stack([ys, xs, ys * xs], axis=-1).reshape(-1, 3).astype(np.float32)
    return x @ torch.as_tensor(grid).T + torch.tensor(np.log2(np.prod(grid.shape)))


def constants(x: torch.Tensor) -> Any:
    kernel = torch.tensor(np.eye(20), dtype=torch.float32)[:3, :3]
    rows = torch.tensor([np.ones(3, np.float32), np.arange(3, dtype=np.float32)])
    return x @ kernel, x[:, np.array([2, 0])], torch.FloatTensor(np.full(3, 2.0)), x.new_tensor(rows.numpy())


def results(x: torch.Tensor) -> Any:
    return np.arange(3), np.float32(2), (x * 2).numpy(), np.asarray(x.detach())[0].tolist()


@pytest.mark.parametrize("program", [window, anchors, constants, results])
def test_numpy_computes_with_what_is_known(program: Any) -> None:
    check(program, lambda: (X.clone(),), lambda: (X.clone(),))


def test_a_tensor_of_an_array_is_an_input() -> None:
    def program(x: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
        return x + torch.from_numpy(a) * torch.tensor(b["rows"][0])

    def call(n: float) -> Any:
        return lambda: (X.clone(), np.array([n, 2.0, 3.0]), {"rows": [np.array(n)]})

    check(program, call(1.0), call(5.0))


def test_the_elements_that_are_read_are_a_fact() -> None:
    holder = SimpleNamespace(mean=np.array([2.0, 3.0]))

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * float(holder.mean[0]) + holder.mean.shape[0]

    compiled = thunder.jit(program)
    changes = (
        lambda: None,
        lambda: holder.mean.__setitem__(1, 7.0),
        lambda: setattr(holder, "mean", np.array([2.0, 3.0, 4.0])),
        lambda: setattr(holder, "mean", np.array([2, 3])),
        lambda: holder.mean.__setitem__(slice(None), -0.0),
    )
    for change in changes:
        change()
        assert torch.equal(compiled(X), program(X))
    assert thunder.cache_misses(compiled) == len(changes)
    program = thunder.jit(lambda x: x * holder.mean.shape[0])
    program(X)
    holder.mean[0] = 9
    program(X)
    assert thunder.cache_misses(program) == 1


def test_the_elements_of_a_large_array_are_a_fact() -> None:
    table = np.zeros(1 << 18)
    compiled = thunder.jit(lambda x: x * table[-1])
    for value in (0.0, 3.0):
        table[-1] = value
        assert torch.equal(compiled(X), X * value)


def test_writes_reach_the_array() -> None:
    def through_tensor(x: torch.Tensor, a: Any) -> torch.Tensor:
        t = torch.from_numpy(a[1:])
        t.mul_(2)
        return x + t.sum()

    def by_numpy(x: torch.Tensor, a: Any) -> torch.Tensor:
        a[1:] += a[0]
        return x + torch.tensor(a.copy())

    for program in (through_tensor, by_numpy):
        check(program, *2 * (lambda: (X.clone(), np.array([1.0, 2.0, 3.0])),))


def test_an_array_that_the_program_stores_is_a_new_one_in_each_call() -> None:
    holder = SimpleNamespace(first=None, second=None)

    def program(x: torch.Tensor) -> torch.Tensor:
        holder.first = holder.second = np.arange(3)
        return x

    compiled = thunder.jit(program)
    for _ in range(2):
        compiled(X)
        assert holder.first is holder.second
        assert holder.first.tolist() == [0, 1, 2]
        holder.first[0] = 9


def write_then_read_tensor(x: Any, a: Any, t: Any) -> Any:
    t.add_(1)
    return x * float(a[0])


def write_then_read(x: Any, a: Any, t: Any) -> Any:
    value = float(a[0])
    t.add_(1)
    return x * value


def tensor_then_array(x: Any, a: Any, t: Any) -> Any:
    tensor = torch.from_numpy(a)
    a[0] = 4
    return x + tensor.sum()


def made_then_written(x: Any, a: Any, t: Any) -> Any:
    array = np.zeros(3)
    tensor = torch.from_numpy(array)
    tensor += 1
    return x + array[0]


def part_of_the_users(x: Any, a: Any, t: Any) -> Any:
    return x, a[1:]


def makes_read_only(x: Any, a: Any, t: Any) -> Any:
    a.flags.writeable = False
    return x


@pytest.mark.parametrize(
    "program",
    [
        makes_read_only,
        write_then_read,
        write_then_read_tensor,
        tensor_then_array,
        made_then_written,
        part_of_the_users,
    ],
)
def test_shared_memory_that_a_trace_cannot_follow_is_refused(program: Any) -> None:
    array = np.array([1.0, 2.0])
    with pytest.raises(thunder.UnsupportedProgram, match=r"NumPy|memory"):
        thunder.jit(program)(X, array, torch.from_numpy(array))


def test_separate_memory_is_a_fact() -> None:
    compiled = thunder.jit(write_then_read)
    array = np.array([1.0, 2.0])
    for _ in range(2):
        assert torch.equal(compiled(X, array, torch.zeros(2)), X)
    assert thunder.cache_misses(compiled) == 1
    with pytest.raises(thunder.UnsupportedProgram, match="shares memory"):
        compiled(X, array, torch.from_numpy(array))


def test_elements_of_an_array_of_a_tensor_are_a_decision() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.detach().cpu().numpy().max() > 3 else x - 1

    compiled = thunder.jit(program)
    for scale in (1, 2, 1, 2):
        assert torch.equal(compiled(X * scale), program(X * scale))
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (2, 2)


def test_the_layout_of_an_array_is_eagers() -> None:
    def program(x: torch.Tensor, a: Any) -> Any:
        views = x.T.numpy(), (x * 2).T.numpy(), x[:, ::2].numpy()
        return (
            [v.strides for v in views],
            a.flags.writeable,
            views,
            (x + 1 if a.flags.writeable else x - a[0]),
        )

    compiled, array = thunder.jit(program), np.ones(2)
    for is_writeable in (True, False):
        array.flags.writeable = is_writeable
        found, expected = compiled(X, array), program(X, array)
        assert found[:2] == expected[:2]
        assert [v.strides for v in found[2]] == [v.strides for v in expected[2]]
        assert torch.equal(found[3], expected[3])


def test_an_array_of_a_tensor_that_requires_grad_raises_as_in_eager() -> None:
    with pytest.raises(RuntimeError, match="that requires grad"):
        thunder.jit(lambda x: x.numpy())(X.clone().requires_grad_())


def test_gradients_flow_past_arrays() -> None:
    a, x = np.array([2.0, 3.0, 4.0], np.float32), X.clone().requires_grad_()
    thunder.jit(lambda x, a: (x * torch.from_numpy(a)).sum())(x, a).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2.0, 3.0, 4.0]]
