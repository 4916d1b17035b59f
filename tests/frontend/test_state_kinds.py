"""The table of the kinds of state: each row matters, and no class with something to write lacks one."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import inspect
import io
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import thunder
from frontend.test_writes import EFFECTS, World
from thunder.frontend import acquire
from thunder.frontend.arrays.traced_arrays import Arrays
from thunder.frontend.custom_gradients.backward_state import BackwardState
from thunder.frontend.custom_gradients.leaf_hooks import LeafHooks
from thunder.frontend.custom_gradients.module_backward_hooks import HookedModules
from thunder.frontend.custom_gradients.retained_gradients import RetainedGradients
from thunder.frontend.custom_gradients.tensor_hooks import TensorHooks
from thunder.frontend.lookasides.context_values import ContextVariables
from thunder.frontend.lookasides.grad_requests import GradRequests
from thunder.frontend.lookasides.locks import Locks
from thunder.frontend.lookasides.rebound_tensors import ReboundTensors
from thunder.frontend.lookasides.weakrefs import Callbacks, Finalizers
from thunder.frontend.natives.cached_functions import CachedCalls
from thunder.frontend.natives.decimal_context import DecimalContext
from thunder.frontend.opaque_calls.opaque_iterators import OpaqueIterators
from thunder.frontend.output.progress_bars import Bars
from thunder.frontend.session import SessionState
from thunder.frontend.session_rules import session_rules
from thunder.frontend.torch_functions.made_parameters import MadeParameters
from thunder.frontend.types.written_attributes import WrittenAttributes
from thunder.plugins import get_manager

Program = Callable[[Tensor], Tensor]
RULES = session_rules(get_manager())


def writing(name: str) -> Callable[[World], Program]:
    return lambda w: lambda x: (EFFECTS[name](w), x * 2)[1]


def open_bar(w: World) -> Program:
    tqdm = pytest.importorskip("tqdm")

    def program(x: Tensor) -> Tensor:
        bar = tqdm.tqdm(total=2, bar_format="{n_fmt}")
        bar.update(1)
        return x * 2

    return program


def held_lock(w: World) -> Program:
    lock = threading.Lock()

    def program(x: Tensor) -> Tensor:
        lock.acquire()
        return x * 2

    return program


class Thing:
    pass


def held_thing(w: World) -> Program:
    def program(x: Tensor) -> Any:
        thing = Thing()
        w.owner.reference = weakref.ref(thing, lambda reference: w.log.append(1))
        w.owner.thing = thing
        return x * 2

    return program


def finalizer(w: World) -> Program:
    def program(x: Tensor) -> Tensor:
        weakref.finalize(x, w.log.append, 1)
        return x * 2

    return program


def hook_of_a_leaf(w: World) -> Program:
    def program(x: Tensor) -> Tensor:
        w.leaf.register_hook(lambda g: g * 3)
        return x * 2

    return program


def hook_of_a_view(w: World) -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        view = y[:1]
        view.register_hook(lambda g: g * 3)
        y.mul_(3)
        return view + y

    return program


def write_to_a_hooked_result(w: World) -> Program:
    module = torch.nn.Identity()
    module.register_full_backward_hook(lambda module, into, out: None)
    return lambda x: module(x * 1).mul_(2)


def data_of_a_parameter(w: World) -> Program:
    def program(x: Tensor) -> Tensor:
        data = x.detach() * 2
        parameter = torch.nn.Parameter(data)
        data.add_(1)
        return parameter.detach() + x

    return program


def write_to_what_a_backward_reads(w: World) -> Program:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
            ctx.scale = scale
            return x * scale

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return g * ctx.scale, None

    def program(x: Tensor) -> Tensor:
        scale = torch.full((3,), 2.0)
        y = Scaled.apply(x, scale)
        scale.add_(1)
        return y  # type: ignore[no-any-return]

    return program


def write_to_a_yielded_list(w: World) -> Program:
    batches = iter({1: [2.0], 2: [3.0], 3: [4.0]}.values())

    def program(x: Tensor) -> Tensor:
        next(batches).append(1.0)
        return x * 2

    return program


def attribute_of_a_result(w: World) -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        y.note = 3  # type: ignore[attr-defined]
        return y

    return program


def retained(w: World) -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        y.retain_grad()
        return y

    return program


#: for each kind a program of which nothing else sees the state
PROGRAMS: dict[type[SessionState], Callable[[World], Program]] = {
    Bars: open_bar,
    ReboundTensors: writing("rebound_shape"),
    Locks: held_lock,
    Callbacks: held_thing,
    Finalizers: finalizer,
    LeafHooks: hook_of_a_leaf,
    TensorHooks: hook_of_a_view,
    HookedModules: write_to_a_hooked_result,
    MadeParameters: data_of_a_parameter,
    BackwardState: write_to_what_a_backward_reads,
    ContextVariables: writing("context variable"),
    DecimalContext: writing("decimals"),
    CachedCalls: writing("cleared_cache"),
    Arrays: writing("array"),
    OpaqueIterators: write_to_a_yielded_list,
    WrittenAttributes: attribute_of_a_result,
    GradRequests: lambda w: lambda x: (x.detach() * 2).requires_grad_(),
    RetainedGradients: retained,
}


#: the kinds whose programs have no trace
REFUSED = {Locks, Callbacks, TensorHooks, MadeParameters, BackwardState, OpaqueIterators}


def outcome(make: Callable[[World], Program], compiles: bool) -> list[Any]:
    """Return what is seen of two calls, and the error that ends them."""
    w, seen, printed = World(), list[Any](), io.StringIO()
    w.cached(2)
    program = thunder.jit(make(w)) if compiles else make(w)
    with contextlib.redirect_stderr(printed):
        try:
            for _ in range(2):
                x = torch.linspace(0, 1, 3).requires_grad_()
                y = program(x)
                seen += [y.tolist(), y.requires_grad, vars(y)]
                if y.requires_grad:
                    (y + w.leaf.sum()).sum().backward()
                    seen += [g if g is None else g.tolist() for g in (x.grad, w.leaf.grad)]
                    seen += [y.grad.tolist()] if y.is_leaf or y.retains_grad else []
                seen.append(w.state())
        except (thunder.UnsupportedProgram, RuntimeError) as error:
            seen.append("refused" if isinstance(error, thunder.UnsupportedProgram) else str(error)[:60])
    return [*seen, printed.getvalue()]


@pytest.mark.parametrize("kind", RULES.kinds, ids=lambda kind: kind.__name__)
def test_a_program_is_as_eager_or_refused_because_of_the_row(
    kind: type[SessionState], monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(compiles: bool) -> list[Any]:
        return contextvars.copy_context().run(outcome, PROGRAMS[kind], compiles)

    found = seen(True)
    assert "refused" in found if kind in REFUSED else found == seen(False)
    without = dataclasses.replace(RULES, kinds=tuple(k for k in RULES.kinds if k is not kind))
    monkeypatch.setattr(acquire, "session_rules", lambda manager: without)
    assert seen(True) != found


def subclasses(cls: type) -> list[type]:
    found = [s for direct in cls.__subclasses__() for s in (direct, *subclasses(direct))]
    return [s for s in found if s.__module__.startswith("thunder.")]


def test_each_class_with_something_to_do_at_the_end_is_in_the_table() -> None:
    hooks = ("writes", "finish", "check", "needs_epilogue", "emit_before", "emit_after")
    found = {cls for cls in subclasses(SessionState) if not hooks_of(cls).isdisjoint(hooks)}
    assert found == set(RULES.kinds)
    assert set(RULES.kinds) == set(PROGRAMS)
    for cls in RULES.kinds:  # no method of the class has another meaning
        assert [*inspect.signature(cls.check).parameters] == ["self", "ending"], cls


def hooks_of(cls: type) -> set[str]:
    return {name for base in cls.__mro__ if base is not SessionState for name in vars(base)}
