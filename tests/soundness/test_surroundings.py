"""Grad mode, default dtype and device, environment; other sources out of reach."""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
import warnings

import pytest
import torch

import thunder
from soundness.harness import Cases, check_case, ramp, under, without_grad, world

cases = Cases()


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def flag(get, set, value):
    before = get()
    set(value)
    try:
        yield
    finally:
        set(before)


@contextlib.contextmanager
def environment(name, value):
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.__setitem__(name, before)


deterministic = functools.partial(
    flag, torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms
)
precision = functools.partial(flag, torch.get_float32_matmul_precision, torch.set_float32_matmul_precision)


def enable_cudnn(value: bool) -> None:
    """Sets the flag, also where something imported torch's own tests, which forbid plain assignment."""
    with torch.backends.__allow_nonbracketed_mutation():
        torch.backends.cudnn.enabled = value


cudnn = functools.partial(flag, lambda: torch.backends.cudnn.enabled, enable_cudnn)


@cases(no_grad=under(torch.no_grad), inference=under(torch.inference_mode))
def grad_mode_read():
    return world(lambda x: x * 2 if torch.is_grad_enabled() else x + 1, ramp(3))


@cases(no_grad=under(torch.no_grad))
def grad_mode_of_an_input_that_requires_grad():
    w = without_grad(world(lambda x: x.detach() * 2, ramp(3).requires_grad_()))
    w.within = torch.enable_grad
    return w


@cases(inference=under(torch.inference_mode))
def inference_mode_read():
    return world(lambda x: x * 2 if torch.is_inference_mode_enabled() else x + 1, ramp(3))


@cases(autocast=under(lambda: torch.autocast("cpu", torch.bfloat16)))
def autocast_around_the_call():
    return world(lambda a, b: (a @ b) + 1, ramp(2, 3), ramp(3, 2))


@cases(off=under(contextlib.nullcontext), other=under(lambda: torch.autocast("cpu", torch.float16)))
def autocast_then_off():
    w = world(lambda a, b: a @ b, ramp(2, 3), ramp(3, 2))
    w.within = lambda: torch.autocast("cpu", torch.bfloat16)
    return w


@cases(
    double=under(lambda: default_dtype(torch.float64)),
    half=under(lambda: default_dtype(torch.bfloat16)),
)
def default_dtype_of_factories():
    return world(lambda x: torch.zeros(3) + torch.tensor(1.5) + torch.full((3,), 2.0), ramp(3))


@cases(double=under(lambda: default_dtype(torch.float64)))
def default_dtype_of_true_division():
    return world(lambda x: (x / 2, x.float() * 2), torch.arange(3))


@cases(meta=under(lambda: torch.device("meta")))
def default_device_of_factories():
    return world(lambda n: torch.ones(n) * 2, 3)


@cases(on=under(lambda: deterministic(True)))
def deterministic_mode_read():
    return world(lambda x: x * 2 if torch.are_deterministic_algorithms_enabled() else x + 1, ramp(3))


@cases(medium=under(lambda: precision("medium")))
def matmul_precision_read():
    return world(lambda x: x * 2 if torch.get_float32_matmul_precision() == "highest" else x + 1, ramp(3))


@cases(off=under(lambda: cudnn(False)))
def backend_flag_read():
    return world(lambda x: x * 2 if torch.backends.cudnn.enabled else x + 1, ramp(3))


@cases(
    set=under(lambda: environment("WORLD_FACT", "on")),
    other=under(lambda: environment("WORLD_OTHER", "on")),
)
def environment_variable_by_get():
    return world(lambda x: x * 2 if os.environ.get("WORLD_FACT") == "on" else x + 1, ramp(3))


@cases(other=under(lambda: environment("WORLD_FACT", "5")), removed=under(contextlib.nullcontext))
def environment_variable_by_getenv_and_item():
    w = world(lambda x: x * int(os.getenv("WORLD_FACT", "7")) + ("WORLD_FACT" in os.environ), ramp(3))
    w.within = lambda: environment("WORLD_FACT", "3")
    return w


@cases(other=under(lambda: environment("WORLD_FACT", "5")))
def environment_variable_by_subscript():
    w = world(lambda x: x * int(os.environ["WORLD_FACT"]), ramp(3))
    w.within = lambda: environment("WORLD_FACT", "3")
    return w


@cases(refused="SharpEdge")
def user_identifier():
    return world(lambda x: x * os.getuid(), ramp(3))


@cases()
def unique_identifier():
    return world(lambda x: (x * uuid.uuid4().version, uuid.uuid4() == uuid.uuid4()), ramp(3))


@cases()
def operating_system_randomness():
    return world(lambda x: x * len(os.urandom(3)) * (os.urandom(1)[0] // 256), ramp(3))


@cases(refused="SharpEdge")
def file_read():
    def program(x):
        with open(__file__) as f:
            return x * len(f.read())

    return world(program, ramp(3))


@cases(refused="SharpEdge")
def identity_number():
    return world(lambda x, o: x * (id(o) % 5), ramp(3), [1])


def test_the_refusal_names_the_users_line():
    def program(x):
        return x * os.getuid()

    with pytest.raises(thunder.SharpEdge) as caught:
        thunder.jit(program)(ramp(3))
    assert "x * os.getuid()" in str(caught.value)
    assert "test_surroundings.py" in str(caught.value)


def test_a_warned_sharp_edge_is_baked_in_and_listed():
    def program(x):
        return x * os.getuid()

    compiled = thunder.jit(program, sharp_edges="warn")
    with pytest.warns(thunder.SharpEdgeWarning, match="getuid"):
        first = compiled(ramp(3))
    assert torch.equal(compiled(ramp(3)), first)
    assert "getuid" in str(thunder.explain(compiled))


def test_an_allowed_sharp_edge_is_baked_in_silently():
    def program(x):
        return x * os.getuid()

    compiled = thunder.jit(program, sharp_edges="allow")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = compiled(ramp(3))
    assert torch.equal(compiled(ramp(3)), first)


@cases.parametrize()
def test_result_equals_eager(case, change):
    check_case(case, change, thunder)
