"""Regions inside the program and around it: grad mode, inference mode, default dtype and device."""

from __future__ import annotations

import contextlib

import torch

import thunder
from soundness.harness import Cases, ambient, check_case, ramp, under, world

cases = Cases()


@cases(no_grad=under(torch.no_grad))
def no_grad_region():
    def program(x):
        with torch.no_grad():
            y = x * 2
        return y + 1, torch.is_grad_enabled()

    return world(program, ramp(3))


@cases(no_grad=under(torch.no_grad))
def nested_grad_regions():
    def program(x):
        states = [torch.is_grad_enabled()]
        with torch.no_grad():
            states.append(torch.is_grad_enabled())
            with torch.enable_grad():
                states.append(torch.is_grad_enabled())
            with torch.set_grad_enabled(True):
                states.append(torch.is_grad_enabled())
            states.append(torch.is_grad_enabled())
        return x * 2, states

    return world(program, ramp(3))


@cases(no_grad=under(torch.no_grad))
def grad_mode_as_a_decorator():
    @torch.no_grad()
    def inner(x):
        return x * 2, torch.is_grad_enabled()

    return world(lambda x: (inner(x), torch.is_grad_enabled()), ramp(3))


@cases()
def grad_mode_set_by_a_call():
    def program(x):
        torch.set_grad_enabled(False)
        y = x * 2
        off = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        return y, off

    return world(program, ramp(3))


@cases()
def grad_mode_left_changed():
    def program(x):
        torch.set_grad_enabled(False)
        return x * 2

    w = world(program, ramp(3))
    w.within = torch.enable_grad
    return w


@cases()
def inference_mode_region():
    def program(x):
        with torch.inference_mode():
            y, inside = x * 2, torch.is_inference_mode_enabled()
        return y, inside, torch.is_inference_mode_enabled()

    return world(program, ramp(3))


@cases(inference=under(torch.inference_mode))
def inference_mode_left_inside_of_inference_mode():
    def program(x):
        with torch.inference_mode(False):
            y, inside = x * 2, torch.is_inference_mode_enabled()
        return y, inside, torch.is_inference_mode_enabled()

    return world(program, ramp(3))


@cases(inference=under(torch.inference_mode))
def inference_mode_entered_by_the_functions_of_compiled_graphs():
    def program(x, mode):
        region = torch.autograd.grad_mode._enter_inference_mode(mode)
        y, inside = x * 2, torch.is_inference_mode_enabled()
        torch.autograd.grad_mode._exit_inference_mode(region)
        return y, inside, torch.is_inference_mode_enabled()

    return world(lambda x: (program(x, True), program(x, False)), ramp(3))


@cases()
def no_grad_region_left_by_an_exception():
    def program(x):
        try:
            with torch.no_grad():
                raise KeyError("inside")
        except KeyError:
            return x * 2, torch.is_grad_enabled()

    return world(program, ramp(3))


@cases()
def requires_grad_of_results_of_a_region():
    def program(x):
        with torch.no_grad():
            y = x * 2
        return y

    return world(program, ramp(3).requires_grad_())


@cases()
def device_context():
    def program(x):
        with torch.device("meta"):
            m = torch.zeros(3)
        with torch.device("cpu"):
            c = torch.ones(3)
        return m, c, torch.arange(2), x

    return world(program, ramp(3))


@cases(meta=under(lambda: torch.device("meta")))
def device_context_around_the_call():
    return world(
        lambda n: (torch.zeros(n), torch.full((n,), 1.0, device="cpu"), torch.get_default_device().type), 3
    )


@cases(may_refuse="UnsupportedProgram")
def default_dtype_set_and_restored():
    def program(x):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(3)
        torch.set_default_dtype(torch.float32)
        return y, torch.ones(3), x

    return world(program, ramp(3))


@cases(hits=False)  # the program changes the length of a list that it holds
def contextlib_managers():
    @contextlib.contextmanager
    def scaled(k):
        try:
            yield k * 2
        finally:
            log.append(k)

    log: list[float] = []

    def program(x):
        with scaled(1.0) as a, contextlib.nullcontext(3.0) as b, contextlib.suppress(KeyError):
            x = x * a * b
            raise KeyError("suppressed")
        with contextlib.ExitStack() as stack:
            x = x + stack.enter_context(scaled(2.0))
        return x

    return world(program, ramp(3))


@cases()
def autocast_region():
    def program(a, b):
        with torch.autocast("cpu", torch.bfloat16):
            c = a @ b
            with torch.autocast("cpu", enabled=False):
                d = a @ b
        return c, d, a @ b, c + 1

    return world(program, ramp(2, 3), ramp(3, 2))


@cases.parametrize()
def test_result_equals_eager(case, change):
    check_case(case, change, thunder)


def test_ambient_state_after_a_call_is_that_before():
    def program(x):
        with torch.no_grad(), torch.device("cpu"), torch.autocast("cpu", torch.bfloat16):
            return x * 2

    compiled, before = thunder.jit(program), ambient()
    for _ in range(3):
        compiled(ramp(3))
        assert ambient() == before


def test_a_change_of_grad_mode_is_a_miss_and_back_is_a_hit():
    compiled = thunder.jit(lambda x: x * 2)
    compiled(ramp(3))
    with torch.no_grad():
        compiled(ramp(3))
    compiled(ramp(3))
    with torch.no_grad():
        compiled(ramp(3))
    assert thunder.cache_hits(compiled) >= 2
