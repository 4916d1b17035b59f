"""When memory is freed: as early as torch frees it."""

from __future__ import annotations

import gc
import weakref
from contextlib import contextmanager

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import thunder
from comparison.inputs import leaf


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


@pytest.mark.parametrize("retain", [False, True])
def test_what_is_saved_is_freed_after_the_backward_unless_retained(retain):
    compiled, x = thunder.jit(chain, rematerialization="none"), leaf(5)
    with collector_off():
        result = compiled(x)
        loss = result.sum()
        assert len(result.grad_fn.saved_tensors) == 4
        loss.backward(retain_graph=retain)
        if retain:
            assert len(result.grad_fn.saved_tensors) == 4
        else:
            with pytest.raises(RuntimeError, match="after they have already been freed"):
                _ = result.grad_fn.saved_tensors


def most_alive(fn, operators):
    """How many results of these operators exist at once while ``fn`` runs."""
    made: list[weakref.ref] = []
    counts = [0]

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if func.overloadpacket in operators:
                made.append(weakref.ref(out))
                counts.append(sum(m() is not None for m in made))
            return out

    with Count(), collector_off():
        fn()
    return max(counts)


def test_each_saved_tensor_is_freed_after_its_last_use_in_the_backward():
    n = 1 << 12

    def long_chain(x):
        for _ in range(8):
            x = torch.sin(x)  # saves its input
        return x

    compiled, x = thunder.jit(long_chain, rematerialization="none"), torch.rand(n, requires_grad=True)
    with collector_off():
        result = compiled(x)
        saved = result.grad_fn.saved_tensors
        held = [StorageWeakRef(t.untyped_storage()) for t in saved if t.data_ptr() != x.data_ptr()]
        alive: list[int] = []
        still_held: list[int] = []
        del saved
        assert len(held) == 7

        class Count(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                if func is torch.ops.aten.cos.default:
                    alive.append(args[0].data_ptr())
                    still_held.append(sum(not h.expired() for h in held))
                return func(*args, **(kwargs or {}))

        loss = result.sum()
        del result
        with Count():
            loss.backward()
    assert len(alive) == 8
    assert still_held == [7, 6, 5, 4, 3, 2, 1, 0]


def test_intermediates_of_the_backward_live_as_long_as_eagers():
    def long_chain(x):
        for _ in range(8):
            x = torch.sin(x)
        return x

    def peak(run):
        loss = run(torch.rand(5, requires_grad=True)).sum()
        return most_alive(loss.backward, {torch.ops.aten.cos, torch.ops.aten.mul})

    compiled = thunder.jit(long_chain, rematerialization="none")
    compiled(torch.rand(5, requires_grad=True)).sum().backward()
    assert 0 < peak(compiled) <= peak(long_chain)


def test_the_backward_lets_go_of_the_cotangents_that_it_was_given():
    def program(x):
        return torch.sin(x) * 2, torch.cos(x)

    compiled, x = thunder.jit(program), leaf(5)
    compiled(x)
    lines = str(thunder.last_backward_traces(compiled)[-1]).splitlines()
    cleared = next(i for i, line in enumerate(lines) if "clear_mutable_collection(cotangents)" in line)
    unpacked = next(line for line in lines if line.endswith("= cotangents")).split(",")
    for name in (part.strip() for part in unpacked[:2]):
        deleted = next(i for i, line in enumerate(lines) if line.strip().startswith("del") and name in line)
        last = max(i for i, line in enumerate(lines) if f"({name}," in line or f", {name})" in line)
        assert cleared < last < deleted or last < cleared
