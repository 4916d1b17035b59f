"""NumPy's functions on arrays of tensors: they run in each call, or are views, and fix no elements."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import thunder
from sweeping import in_turn, one_in

SIZES = ((3, 4), (40, 50))  # the elements of the second are too many for a decision


def described(result: Any) -> Any:
    """Return a result as what can be compared: types, dtypes, layouts, elements."""
    if isinstance(result, np.ndarray):
        return "array", result.dtype.str, result.strides, result.flags.writeable, result.tolist()
    if isinstance(result, torch.Tensor):
        return "tensor", result.dtype, result.stride(), result.requires_grad, result.tolist()
    if isinstance(result, np.generic):
        return type(result), result.item()
    if isinstance(result, tuple | list):
        return type(result), [described(part) for part in result]
    return type(result), result


def check(program: Callable[..., Any], shape: tuple[int, ...], compiles: int | None = 1) -> Any:
    """Compare a program with eager for calls with other elements."""
    compiled = thunder.jit(program)
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(shape)
        mine, theirs = x.clone(), x.clone()
        with np.errstate(all="ignore"):
            expected, found = program(theirs), compiled(mine)
        assert described(found) == described(expected)
        assert torch.equal(mine, theirs)
    if compiles is not None:
        assert thunder.cache_misses(compiled) == compiles
    return compiled


N = np.ndarray
COMPUTING: dict[str, Callable[[Any], Any]] = {
    "a ufunc": lambda n: np.sin(n),
    "operators": lambda n: (n * 2 - 1) / (np.abs(n) + 1) ** 2 @ n.T,
    "reflected operators": lambda n: 1 - n + 2.5 * -n,
    "comparisons": lambda n: (n > 0) & ~(n < -1),
    "a method": lambda n: n.sum(axis=0),
    "a method unbound": lambda n: N.cumsum(n, 1),
    "keywords": lambda n: np.mean(n, axis=1, keepdims=True, dtype=np.float64),
    "a function in Python": lambda n: np.linalg.norm(n, axis=-1),
    "several results": lambda n: np.linalg.svd(n, full_matrices=False),
    "a named tuple": lambda n: np.linalg.qr(n),
    "lists of arrays": lambda n: np.concatenate([n, n + 1, np.zeros_like(n)]),
    "another array": lambda n: n * np.arange(n.shape[1], dtype=np.float32) + np.ones(1, np.float32),
    "an index of numbers": lambda n: n[[2, 0]],
    "a mask": lambda n: np.where(n > 0, n, 0),
    "order": lambda n: (n.argsort(1), np.sort(n, axis=0)),
    "dtypes": lambda n: (n.astype(np.float64), n.astype("int64"), n.astype(np.complex64), np.float64(2) * n),
    "a reduction of a ufunc": lambda n: np.add.reduce(n, axis=0) + np.maximum.accumulate(n, axis=0)[-1],
    "einsum": lambda n: np.einsum("ij,kj->ik", n, n),
    "copies": lambda n: (n.copy(), np.array(n), n.flatten(), np.repeat(n, 2, 0), np.tile(n, 2)),
    "clip and round": lambda n: np.round(n.clip(-1, 1), 2),
    "a fourier transform": lambda n: np.fft.rfft(n).real.copy(),
    "division of integers": lambda n: np.divmod((n * 10).astype(np.int64), 3),
    "truth": lambda n: np.logical_not(n > 0).any(axis=1),
    "sums of Python": lambda n: sum(n.T.copy()),
    "statistics": lambda n: (n - n.mean(0)) / n.std(0),
    "padding": lambda n: np.pad(n, 1),
}
VIEWING: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda n: n.T,
    "permuted": lambda n: np.transpose(n.reshape(2, -1, n.shape[1] // 2), (2, 0, 1)),
    "reshaped": lambda n: n.reshape(-1),
    "a row": lambda n: n[1],
    "a column": lambda n: n[:, 2],
    "a part": lambda n: n[1:, ::2],
    "with a new dimension": lambda n: n[None, ..., None],
    "squeezed": lambda n: np.squeeze(n[:1]),
    "expanded": lambda n: np.expand_dims(n, 1),
    "ravelled": lambda n: np.ravel(n),
    "as it is": lambda n: np.asarray(n),
    "a diagonal of the columns": lambda n: n[:, :3].T[1:].T,
    "swapped": lambda n: n.swapaxes(0, 1)[1:],
}


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("name", COMPUTING)
def test_a_function_of_numpy_runs_in_each_call(name: str, shape: tuple[int, int]) -> None:
    compute = COMPUTING[name]
    check(lambda x: compute(x.numpy()), shape)
    check(lambda x: compute((x * 2).numpy()), shape)


@pytest.mark.parametrize("name", ["a ufunc", "a method", "operators", "several results", "another array"])
def test_the_result_becomes_a_tensor(name: str) -> None:
    compute = COMPUTING[name]

    def program(x: torch.Tensor) -> Any:
        made = compute(x.numpy())
        made = made if isinstance(made, tuple) else (made,)
        return [torch.from_numpy(m) * 2 + 1 for m in made], [torch.tensor(m) for m in made]

    check(program, (40, 50))


@pytest.mark.parametrize(("name", "shape"), in_turn(VIEWING, SIZES))
def test_a_view_of_an_array_shares_the_memory_of_the_tensor(name: str, shape: tuple[int, int]) -> None:
    view = VIEWING[name]
    check(lambda x: (torch.from_numpy(view(x.numpy())) + 1, view(np.sin(x.numpy())).sum()), shape, None)
    compiled = thunder.jit(lambda x: view(x.numpy()))
    for seed in range(2):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        expected, found = view(x.numpy()), compiled(x)
        assert described(found) == described(expected)
        x.mul_(2)
        assert found.tolist() == expected.tolist()
    assert thunder.cache_misses(compiled) == 1


def test_a_number_is_a_decision() -> None:
    def program(x: torch.Tensor) -> Any:
        n = x.numpy()
        return x * 2 if n.max() > 100 or (n > 1e6).any() else x + len(n)

    check(program, (40, 50), None)
    compiled = thunder.jit(lambda x: x + 1 if bool((x.numpy() > 0).all()) else x - 1)
    for sign in (1, -1, 1, -1):
        assert torch.equal(compiled(torch.full((40, 50), float(sign))), torch.full((40, 50), 2.0 * sign))
    assert thunder.cache_misses(compiled) == 2


def test_results_may_be_written() -> None:
    def tensors(x: torch.Tensor) -> Any:
        y = torch.from_numpy(x.numpy() * 2)
        y.add_(1)
        y[0] = 0
        return y

    def arrays(x: torch.Tensor) -> Any:
        n = x.numpy() * 2
        n[0] = 0
        n += 1
        n[n < 0] = 0.5
        n.sort(axis=0)
        n -= n.mean(0)
        np.clip(n, -1, 1, out=n)
        np.fill_diagonal(n, 5)
        return torch.from_numpy(n), n

    check(tensors, (40, 50))
    check(arrays, (40, 50))


def test_rows_are_views() -> None:
    def program(x: torch.Tensor) -> Any:
        first, second = x.numpy()[:2]
        return (
            first,
            [torch.from_numpy(row * 2) for row in x.numpy()],
            np.stack([second, *x.numpy()]),
        )

    check(program, (40, 50))


@pytest.mark.parametrize("seed", one_in(3, range(60)))
def test_random_programs_do_what_eager_does_or_are_refused(seed: int) -> None:
    """Statements that compute, view and write, on arrays of an input and on others."""
    draw = random.Random(seed)
    arrays, lines = ["a", "b"], []
    for i in range(draw.randint(3, 8)):
        x, y = draw.choice(arrays), draw.choice(arrays)
        computed = (
            f"{x} * 2 - {y}",
            f"np.sin({x})",
            f"np.sort({x}, axis=0)",
            f"{x}.copy()",
            f"{x} @ {y}.T @ {x}",
        )
        viewed = (
            f"{x}[1:, :][:0]",
            f"{x}.T[:, ::-1][:, ::-1].T",
            f"{x}.reshape(4, 4)",
            f"{x}[:]",
            f"np.asarray({x})",
        )
        written = (
            f"{x}[1] = {y}[0]",
            f"{x} += 1",
            f"{x}[:, 0] = 3",
            f"np.add({x}, 1, out={x})",
            f"{x}.sort()",
        )
        kind = draw.choice((computed, computed, viewed, written, written))
        line = draw.choice(kind)
        if kind is not written:
            line = f"c{i} = {line}"
            if not line.endswith("[:0]"):
                arrays.append(f"c{i}")
        lines.append(line)
    shown = ", ".join(draw.sample(arrays, min(3, len(arrays))))
    text = "\n    ".join(
        (
            "a, b = t.numpy(), u.numpy() * 1",
            *lines,
            f"return {shown}, torch.from_numpy({draw.choice(arrays)}) + 1",
        )
    )
    space: dict[str, Any] = {"np": np, "torch": torch}
    exec(f"def program(t, u):\n    {text}", space)  # the interpreter needs no source
    compiled, refusal = thunder.jit(space["program"]), "an array is refused, or none"
    for call in range(3):
        generator = torch.Generator().manual_seed(call)
        mine = [torch.randn(4, 4, generator=generator) for _ in range(2)]
        theirs = [x.clone() for x in mine]
        expected = space["program"](*theirs)
        try:
            found = compiled(*mine)
        except thunder.UnsupportedProgram as error:
            refusal = str(error)
            break
        assert described(found) == described(expected), text
        assert all(map(torch.equal, mine, theirs)), text
    assert "array" in refusal


def test_a_write_to_an_array_of_an_input_is_refused() -> None:
    def fill(x: torch.Tensor) -> Any:
        n = x.numpy()
        n.sort()
        return x

    def part(x: torch.Tensor) -> Any:
        x.numpy().T[0] = 1
        return x

    for program in (fill, part):
        x = torch.tensor([[3.0, 1.0]])
        with pytest.raises(thunder.UnsupportedProgram, match="writes to an array of NumPy whose memory"):
            thunder.jit(program)(x)
        assert x.tolist() == [[3.0, 1.0]]


def test_settings_of_the_program_hold_where_the_function_runs() -> None:
    def program(x: torch.Tensor) -> Any:
        with np.errstate(divide="raise"):
            try:
                return torch.from_numpy(np.float32(1) / x.numpy())
            except FloatingPointError:
                return x

    compiled = thunder.jit(program)
    for zero in (False, True, False):
        x = torch.ones(40, 50)
        if zero:
            x[0] = 0
        assert torch.equal(compiled(x), program(x))


def test_settings_and_warnings_of_the_caller() -> None:
    compiled = thunder.jit(lambda x: torch.from_numpy(np.float32(1) / x.numpy()))
    x = torch.zeros(40, 50)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="divide by zero"):
            compiled(x)
    with np.errstate(divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(x)


def test_an_error_of_numpy_is_raised_as_in_eager() -> None:
    compiled = thunder.jit(lambda x: np.linalg.inv(x.numpy()))
    compiled(torch.eye(40))
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        compiled(torch.zeros(40, 40))
    with pytest.raises(ValueError, match="could not be broadcast"):
        thunder.jit(lambda x: x.numpy() + np.ones(7))(torch.ones(40, 50))


def test_an_array_of_the_user_is_an_input() -> None:
    compiled = thunder.jit(lambda x, a: torch.from_numpy(x.numpy() * a))
    for k in range(3):
        x, a = torch.randn(40, 50), np.full(50, k, dtype=np.float32)
        assert torch.equal(compiled(x, a), torch.from_numpy(x.numpy() * a))
    assert thunder.cache_misses(compiled) == 1


def test_gradients_flow_past_the_arrays() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        scale = torch.from_numpy(np.abs(x.detach().numpy()).max(axis=0))
        return (x / scale).sin()

    compiled = thunder.jit(program)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(40, 50, dtype=torch.float64)
        mine, theirs = (x.clone().requires_grad_() for _ in range(2))
        compiled(mine).sum().backward()
        program(theirs).sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)
    assert thunder.cache_misses(compiled) == 1
