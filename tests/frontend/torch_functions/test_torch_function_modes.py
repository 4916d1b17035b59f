"""Torch function modes: entered by the program, active around the call, and what is guarded of them."""

from __future__ import annotations

import contextlib
import functools
import operator

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode, resolve_name

import thunder


class Log(TorchFunctionMode):
    """Appends a line for each call; multiplies the results of ``torch.sin``."""

    def __init__(self, lines, factor=1.0):
        super().__init__()
        self.lines, self.factor = lines, factor

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.lines.append((resolve_name(func) or str(func), types, len(args), sorted(kwargs or {})))
        result = func(*args, **(kwargs or {}))
        return result * self.factor if func is torch.sin else result


class Swap(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (torch.cos if func is torch.sin else func)(*args, **(kwargs or {}))


class Half(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.add:
            args = (args[0] / 2, *args[1:])
        return func(*args, **(kwargs or {}))


MODEL = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.LayerNorm(3), torch.nn.Dropout(0.0))
ATTENTION = torch.nn.MultiheadAttention(4, 2, batch_first=True)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * 2 * ctx.saved_tensors[0]


def logged(body):
    """Return a program that runs ``body`` under a log."""

    def program(x, lines):
        with Log(lines):
            return body(x)

    return program


def operators(x):
    y = 1 - (x * 2 + 1) ** 2
    y += -x / 2
    y = y @ x.T
    y[0] = 1
    return y, y[0], x == 1, len(x), 2**x, functools.reduce(operator.mul, [x, x]), sum([x, x])


def functions(x):
    with torch.no_grad():
        z = torch.cat([x, x]).relu()
    pooled = F.max_pool2d(x[None, None], 2)
    return F.softmax(x, 0), F.linear(x, x), torch.ops.aten.add(x, x), torch.zeros(2), pooled, z, x.split(1)


def metadata(x):
    return x.shape, x.dtype, x.requires_grad, x.T, x.size(), x.ndim, x.numel(), torch.is_tensor(x)


def rows(x):
    first, second = x
    for row in x:
        first = first + row * 2
    return first - second


def questions(x):
    y = x * 2 if bool(x.sum() > 0) else x
    return y * int(x.sum()) * float(x.sum()) if x.sum() > 1 else y


def devices(x):
    with torch.device("meta"):
        return torch.zeros(3), torch.zeros(3, device="cpu")


def disabled(x):
    with torch._C.DisableTorchFunction():
        y = torch.sin(x)
    with torch._C.DisableTorchFunctionSubclass():
        return y + torch.sin(x)


def nested(x):
    with Swap(), Half(), BaseTorchFunctionMode():
        return torch.sin(x) + x


BODIES = (
    operators,
    functions,
    metadata,
    rows,
    questions,
    devices,
    disabled,
    nested,
    MODEL,
    lambda x: ATTENTION(*[torch.cat([x, x[:, :1]], 1)[None]] * 3)[0],
    Square.apply,
)


def run(fn, *args):
    """Return results, the gradient of the input, and the lines that the mode has written."""
    x, lines = torch.arange(6.0).reshape(2, 3).div(3).requires_grad_(), []
    with torch.random.fork_rng():
        result = fn(x, lines, *args)
    leaves = result if isinstance(result, tuple) else (result,)
    tensors = [t for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad]
    grad = torch.autograd.grad(sum(t.sum() for t in tensors), x)[0] if tensors else None
    return leaves, grad, lines


@pytest.mark.parametrize("body", BODIES, ids=lambda body: getattr(body, "__name__", type(body).__name__))
@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_a_mode_of_the_program_receives_what_eager_passes_to_it(body):
    program = logged(body)
    compiled = thunder.jit(program)
    (result, grad, lines), (expected, expected_grad, expected_lines) = run(compiled), run(program)
    assert lines == expected_lines
    for value, eager in zip((*result, grad), (*expected, expected_grad), strict=True):
        if isinstance(eager, torch.Tensor | tuple) and not isinstance(eager, torch.Size):
            torch.testing.assert_close(value, eager)
        else:
            assert value == eager
    assert run(compiled)[2] == expected_lines
    assert thunder.cache_misses(compiled) == 1


def test_a_mode_around_the_call_is_interpreted_and_its_state_is_guarded():
    def program(x):
        return torch.sin(x) + x

    compiled = thunder.jit(program)

    def under(fn, *factors):
        def call(x, lines):
            modes = [Log(lines, factor) for factor in factors]
            for mode in modes:
                mode.__enter__()
            try:
                return fn(x)
            finally:
                for mode in reversed(modes):
                    mode.__exit__(None, None, None)

        return run(call)

    for count, factors in enumerate([(), (2.0,), (3.0,), (2.0, 5.0), (2.0,), ()]):
        (result, grad, lines), expected = under(compiled, *factors), under(program, *factors)
        torch.testing.assert_close((result, grad), expected[:2])
        assert lines == expected[2]
        assert thunder.cache_misses(compiled) == min(count + 1, 4)


def test_another_torch_function_of_the_modes_class_is_compiled_again(monkeypatch):
    compiled, program = thunder.jit(logged(torch.sin)), logged(torch.sin)
    assert run(compiled)[2] == run(program)[2]

    def other(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {})) * 7

    monkeypatch.setattr(Log, "__torch_function__", other)
    torch.testing.assert_close(run(compiled)[:2], run(program)[:2])
    assert thunder.cache_misses(compiled) == 2


def test_a_mode_that_raises_or_declines_does_what_it_does_in_eager():
    class Fails(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise KeyError(func.__name__)

    class Declines(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return NotImplemented

    def program(x, lines):
        for mode, error in ((Fails(), KeyError), (Declines(), TypeError)):
            try:
                with mode:
                    torch.sin(x)
            except error:
                lines.append(error.__name__)
        return x * len(lines)

    assert run(thunder.jit(program))[2] == run(program)[2] == ["KeyError", "TypeError"]
    x = torch.ones(2)
    with pytest.raises(KeyError, match="sin"), Fails():
        thunder.jit(torch.sin)(x)


def test_python_runs_a_program_that_raises_under_the_modes_of_the_call():
    def program(x, lines):
        try:
            torch.linalg.cholesky(-torch.ones(2, 2) + x.sum() * 0)
        except RuntimeError:
            lines.append("handled")
        return x

    def under(fn):
        def call(x, lines):
            with Log(lines):
                return fn(x, lines)

        return run(call)

    assert under(thunder.jit(program))[2] == under(program)[2]
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize("entered", ["with", "around"])
def test_an_opaque_callable_under_a_mode_is_refused(entered):
    opaque = thunder.opaque(lambda x: x + 1)
    program = logged(opaque) if entered == "with" else lambda x, lines: opaque(x)
    around = Log([]) if entered == "around" else contextlib.nullcontext()
    with pytest.raises(thunder.UnsupportedProgram, match="under a torch function mode"), around:
        thunder.jit(program)(torch.ones(2), [])


def test_a_mode_that_the_program_does_not_leave_is_refused():
    def program(x):
        Swap().__enter__()
        return x

    with pytest.raises(thunder.UnsupportedProgram, match="does not leave it"):
        thunder.jit(program)(torch.ones(2))
    assert torch._C._len_torch_function_stack() == 0


def test_a_function_that_torch_vmap_maps_is_under_the_modes_around_it():
    class Index(TorchFunctionMode):
        """Reads ``x[i]`` of a scalar tensor without its number, as masks of transformers do."""

        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.Tensor.__getitem__:
                return torch.ops.aten.index(args[0], [*args[1]])
            return func(*args, **(kwargs or {}))

    def program(mask, rows, columns):
        allowed = torch.vmap(lambda r, c: mask[r, c] & (c <= r), in_dims=(None, 0))
        with Index():
            return torch.vmap(allowed, in_dims=(0, None))(rows, columns)

    mask, rows, columns = (
        torch.tensor([[True, False], [True, True]]),
        torch.arange(2),
        torch.tensor([1, 0, 1]),
    )
    assert torch.equal(thunder.jit(program)(mask, rows, columns), program(mask, rows, columns))


@pytest.mark.parametrize("shapes", [((), ()), ((), (3,)), ((), None, (3,)), ((2, 2), None, (2,)), (None, ())])
def test_aten_index_has_eagers_shape_with_scalars_and_with_gaps(shapes):
    x = torch.arange(24.0).reshape(2, 3, 4)
    tensors = [None if shape is None else torch.ones(shape, dtype=torch.int64) for shape in shapes]

    def program(x, *tensors):
        return torch.ops.aten.index(x, [*tensors])

    result, expected = thunder.jit(program)(x, *tensors), program(x, *tensors)
    assert torch.equal(result, expected)
