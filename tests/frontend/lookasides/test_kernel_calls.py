"""Kernels that write to their arguments, launched by `run_kernel`: operators of a program, or refused."""

from __future__ import annotations

import ctypes

import pytest
import torch

import thunder
from comparison.derivatives import assert_as_eager
from comparison.inputs import leaf
from thunder.core.errors import UnsupportedOperator, UnsupportedProgram
from thunder.extend import run_kernel
from thunder.plugins import Lookaside


def _scale(x, out, factor):
    """Write `factor * x` by addresses, as a kernel does: torch sees neither the read nor the write."""
    rows, columns = x.shape
    for i in range(rows):
        for j in range(columns):
            place = i * x.stride(0) + j * x.stride(1)
            value = ctypes.c_double.from_address(x.data_ptr() + 8 * place).value
            target = out.data_ptr() + 8 * (i * out.stride(0) + j * out.stride(1))
            ctypes.c_double.from_address(target).value = factor * value


class _BySteps:
    """A kernel that has the strides of its arguments from the program."""

    def __init__(self, rows, columns, steps):
        self.rows, self.columns, self.steps = rows, columns, steps

    def __call__(self, x, out):
        step = self.steps
        for i in range(self.rows):
            for j in range(self.columns):
                value = ctypes.c_double.from_address(x.data_ptr() + 8 * (i * step[0] + j * step[1])).value
                target = out.data_ptr() + 8 * (i * step[2] + j * step[3])
                ctypes.c_double.from_address(target).value = value + 1


def scale(x, out, factor):
    run_kernel("scale", _scale, (x, out, factor), (1,))


def scaled(x, factor=2.0):
    out = torch.empty_like(x)
    scale(x, out, factor)
    return out


def _new_memory(x):
    return scaled(x.sin()) + 1


def _filled_memory(x):
    memory = torch.zeros(5, 4, dtype=x.dtype)
    scale(x, memory[1:4, :3], 3)
    return memory


def _input(x):
    scale(x, x, 2.0)
    return x + 1


def _view(x):
    y = x * 1
    scale(y[:1], y[1:2].clone(), 2.0)
    scale(x, y.t(), 3.0)
    return y


def _read_before_and_after(x):
    y = x * 1
    before = y + 1
    scale(x, y, 4.0)
    return before, y + before


def _twice(x):
    return scaled(scaled(x), 0.5)


def _transposed(x):
    y = x.t().exp()
    out = torch.empty_like(y)
    run_kernel("step", _BySteps(*y.shape, (*y.stride(), *out.stride())), [y, out], [1])
    return out


def _expanded(x):
    return scaled(x[:1].expand(3, 3))


def _unread(x):
    scaled(x)
    return x + 1


WRITES = (
    *(_new_memory, _filled_memory, _input, _view, _read_before_and_after, _twice, _transposed, _expanded),
    _unread,
)


@pytest.mark.parametrize("program", WRITES, ids=lambda p: p.__name__)
def test_what_a_kernel_writes_is_eagers(program):
    assert_as_eager(program, leaf(3, 3, grad=False), order=0)


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return scaled(x, factor)

    @staticmethod
    def backward(ctx, g):
        gradient = g.clone(memory_format=torch.contiguous_format)
        scale(gradient, gradient, ctx.factor)
        return gradient, None


def _in_a_function(x):
    return _Scaled.apply(x.sin(), 3.0) * x


def _without_gradients(x):
    y = x * 2
    with torch.no_grad():
        z = scaled(y)
    return y * z


@pytest.mark.parametrize("program", [_in_a_function, _without_gradients], ids=lambda p: p.__name__)
def test_gradients_are_eagers(program):
    assert_as_eager(program, leaf(3, 3), order=1)


def test_a_launch_is_an_operator_with_the_users_line_and_copies_no_new_memory():
    compiled = thunder.jit(_new_memory)
    compiled(torch.randn(3, 3, dtype=torch.float64))
    (launch,) = [b for b in thunder.last_traces(compiled)[-1].bound_symbols if b.sym.name == "scale"]
    assert launch.args[1:] == (None, 2.0)  # `torch.empty_like` is allocated by the operator
    assert launch.source.file == __file__
    names = [b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols]
    assert "empty_like" not in names
    assert "copy_" not in names


def test_a_launch_runs_once_in_each_call_though_nothing_reads_what_it_writes():
    runs = []

    def kernel(x, out):
        runs.append(tuple(x.shape))

    def program(x):
        run_kernel("noisy", kernel, [x, torch.empty_like(x)], [1])
        return x + 1

    compiled = thunder.jit(program)
    for calls in range(1, 4):
        compiled(torch.ones(2))
        assert runs == [(2,)] * calls


def _leaf_with_gradient(x):
    scale(x.detach(), x, 2.0)
    return x


def _needed_by_a_backward(x):
    y = torch.ones(3, 3, dtype=x.dtype)
    z = x * y
    scale(x.detach(), y, 2.0)
    return z + y


def _shared(x):
    y = x.detach() * 1
    scale(y.t(), y, 2.0)
    return y


def _overlapping(x):
    y = torch.ones(1, 3, dtype=x.dtype).expand(3, 3)
    scale(x, y, 2.0)
    return y


def _text(x):
    run_kernel("scale", _scale, [x, torch.empty_like(x), "2"], [1])
    return x


def _mapped(x):
    return torch.vmap(lambda row: scaled(row[None].expand(3, 3)))(x)


REFUSED = {
    _leaf_with_gradient: "requires grad, unseen by torch's autograd",
    _needed_by_a_backward: "whose value before the backward of mul may need",
    _shared: "memory that another argument may share",
    _overlapping: "several elements share memory",
    _text: "an argument of type str",
    _mapped: "in a mapped or differentiated function",
}


@pytest.mark.parametrize("program", REFUSED, ids=lambda p: p.__name__)
def test_what_would_not_be_eagers_is_refused(program):
    with pytest.raises(UnsupportedOperator, match=REFUSED[program]):
        thunder.jit(program)(torch.randn(3, 3, dtype=torch.float64, requires_grad=True))


def test_inputs_that_share_memory_are_refused():
    memory = torch.randn(4, 3, dtype=torch.float64)
    compiled = thunder.jit(lambda x, y: (scale(x, y, 2.0), y)[1])
    with pytest.raises(UnsupportedProgram, match="refer to a single memory"):
        compiled(memory[:3], memory[1:])


def test_state_that_the_program_has_written_is_refused():
    kernel = _BySteps(3, 3, (3, 1, 3, 1))

    def program(x):
        kernel.rows = 2
        out = torch.zeros_like(x)
        run_kernel("step", kernel, [x, out], [1])
        return out

    with pytest.raises(UnsupportedOperator, match="may read kernel"):
        thunder.jit(program)(torch.randn(3, 3))


# -- kernels of a library, in a backward ---------------------------------------------------------------------


class _Scaler:
    """An object of a library, whose method launches a kernel."""

    def __init__(self, factor):
        self.factor = factor

    def run(self, x, out):
        _scale(x, out, self.factor)


def _traced_run(scaler, x, out):
    scale(x, out, scaler.factor)


_scaler = _Scaler(3.0)


class _ByLibrary(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        out = torch.empty_like(g)
        _scaler.run(g, out)
        return out


@pytest.mark.parametrize("reads_code", [True, False])
def test_a_backward_is_traced_if_what_the_package_reads_is_code(reads_code, monkeypatch):
    compiled = thunder.jit(
        lambda x: _ByLibrary.apply(x.sin()) * 2,
        lookasides=[Lookaside(_Scaler.run, _traced_run, reads_code=reads_code)],
    )
    for factor in (3.0, 5.0):
        monkeypatch.setattr(_scaler, "factor", factor)
        x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
        compiled(x).sum().backward()
        torch.testing.assert_close(x.grad, 2 * factor * x.cos())
        names = [b.sym.name for b in thunder.last_backward_traces(compiled)[-1].bound_symbols]
        assert ("scale" in names) == reads_code
