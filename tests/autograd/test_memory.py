"""When memory is freed: as early as torch frees it."""

from __future__ import annotations

import gc
import weakref
from contextlib import contextmanager

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import thunder
from autograd.judge import leaf


@pytest.fixture(autouse=True)
def every_trace_is_verified():
    """Not here: to compare each value with its proxy keeps the values alive."""


def chain(x):
    for _ in range(4):
        x = torch.exp(x)
    return x


@contextmanager
def collector_off():
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def saved_storages(result):
    """Weak references to the memory of what is saved."""
    return [weakref.ref(t.untyped_storage()) for t in result.grad_fn.saved_tensors]


@pytest.mark.parametrize("retain", [False, True])
def test_A4_what_is_saved_is_freed_after_the_backward_unless_retained(retain):
    compiled, x = thunder.jit(chain, rematerialization="none"), leaf(5)
    with collector_off():
        result = compiled(x)
        loss = result.sum()
        pointers = {t.data_ptr() for t in result.grad_fn.saved_tensors}
        assert len(pointers) == 4
        loss.backward(retain_graph=retain)
        if retain:
            assert len(result.grad_fn.saved_tensors) == 4
        else:
            with pytest.raises(RuntimeError, match="after they have already been freed"):
                _ = result.grad_fn.saved_tensors


def bytes_during(fn):
    """The most memory (bytes) of tensors that ``fn`` makes and holds at once, as far as it goes through torch."""
    made: dict[int, tuple[weakref.ref, int]] = {}
    peak = [0]

    class Measure(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            for t in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(t, torch.Tensor):
                    s = t.untyped_storage()
                    made[s.data_ptr()] = (weakref.ref(t), s.nbytes())
            peak[0] = max(peak[0], sum(n for r, n in made.values() if r() is not None))
            return out

    with Measure():
        fn()
    return peak[0]


def test_A4_each_saved_tensor_is_freed_after_its_last_use_in_the_backward():
    n = 1 << 12

    def long_chain(x):
        for _ in range(8):
            x = torch.sin(x)  # saves its input
        return x

    compiled, x = thunder.jit(long_chain, rematerialization="none"), torch.rand(n, requires_grad=True)
    with collector_off():
        result = compiled(x)
        saved = result.grad_fn.saved_tensors
        held = [weakref.ref(t) for t in saved if t.data_ptr() != x.data_ptr()]
        alive: list[int] = []
        storages = [t.untyped_storage().data_ptr() for t in saved if t.data_ptr() != x.data_ptr()]
        del saved
        assert len(storages) == 7

        class Count(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                if func is torch.ops.aten.cos.default:
                    alive.append(args[0].data_ptr())
                return func(*args, **(kwargs or {}))

        loss = result.sum()
        del result
        with Count():
            loss.backward()
    assert len(alive) == 8
    assert [h() for h in held] == [None] * 7


def test_A4_the_backward_of_a_chain_needs_no_more_than_eagers():
    n = 1 << 12

    def long_chain(x):
        for _ in range(8):
            x = torch.sin(x)
        return x

    def peak(run):
        x = torch.rand(n, requires_grad=True)
        loss = run(x).sum()
        with collector_off():
            return bytes_during(loss.backward)

    compiled = thunder.jit(long_chain, rematerialization="none")
    compiled(torch.rand(n, requires_grad=True)).sum().backward()
    assert peak(compiled) <= peak(long_chain)


def test_A4_a_cotangent_is_let_go_when_it_was_used():
    def program(x):
        return torch.sin(torch.sin(torch.sin(x)))

    compiled, x = thunder.jit(program), leaf(5)
    result = compiled(x)
    seen: list[bool] = []
    cotangent = torch.ones(5, dtype=torch.float64)
    probe = weakref.ref(cotangent)

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            seen.append(probe() is not None)
            return out

    backward = thunder.last_backward_traces(compiled)[-1]
    names = [str(b) for b in backward.bound_symbols]
    assert any("clear_mutable_collection(cotangents)" in n for n in names)
    with Count():
        torch.autograd.grad(result, x, cotangent)
    assert seen
