"""Ambient state of torch that a program reads, changed between calls by its bare setters."""

from __future__ import annotations

import contextlib
import functools

import pytest
import torch

import thunder
from soundness.calls_in_contexts import check_calls_in
from soundness.harness import ramp


@contextlib.contextmanager
def setting(get, put, value):
    before = get()
    put(value)
    try:
        yield
    finally:
        put(before)


@contextlib.contextmanager
def flag(owner, name):
    """Within the context a boolean of ``torch.backends`` has its other value."""
    before = getattr(owner, name)
    with torch.backends.__allow_nonbracketed_mutation():
        setattr(owner, name, not before)
    try:
        yield
    finally:
        with torch.backends.__allow_nonbracketed_mutation():
            setattr(owner, name, before)


def when(question):
    return lambda x: x * 2 if question() else x


def autocast(device, get, put, value):
    return lambda: setting(functools.partial(get, device), lambda new: put(device, new), value)


def on(device):
    return autocast(device, torch.is_autocast_enabled, torch.set_autocast_enabled, True)


def cast_to(device, dtype):
    return autocast(device, torch.get_autocast_dtype, torch.set_autocast_dtype, dtype)


B = torch.backends
ROWS = {
    "autocast of the cpu": (when(lambda: torch.is_autocast_enabled("cpu")), on("cpu")),
    "autocast of another device": (when(lambda: torch.is_autocast_enabled("xpu")), on("xpu")),
    "autocast dtype": (lambda x: x.to(torch.get_autocast_dtype("cpu")), cast_to("cpu", torch.float16)),
    "autocast dtype of another device": (
        lambda x: x.to(torch.get_autocast_dtype("xpu")),
        cast_to("xpu", torch.float64),
    ),
    "autocast cache": (
        when(torch.is_autocast_cache_enabled),
        lambda: setting(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False),
    ),
    "default dtype": (
        lambda x: x.to(torch.get_default_dtype()),
        lambda: setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    ),
    "default device": (when(lambda: torch.get_default_device().type == "cpu"), lambda: torch.device("meta")),
    "grad mode": (when(torch.is_grad_enabled), torch.no_grad),
    "inference mode": (when(torch.is_inference_mode_enabled), torch.inference_mode),
    "torch functions": (when(torch._C._is_torch_function_enabled), torch._C.DisableTorchFunctionSubclass),
    "deterministic algorithms": (
        when(torch.are_deterministic_algorithms_enabled),
        lambda: setting(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
    ),
    "deterministic debug mode": (
        lambda x: x * torch.get_deterministic_debug_mode(),
        lambda: setting(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 1),
    ),
    "matmul precision": (
        lambda x: x * len(torch.get_float32_matmul_precision()),
        lambda: setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high"),
    ),
    "threads": (
        lambda x: x * torch.get_num_threads(),
        lambda: setting(torch.get_num_threads, torch.set_num_threads, torch.get_num_threads() + 1),
    ),
    "warn always": (
        when(torch.is_warn_always_enabled),
        lambda: setting(torch.is_warn_always_enabled, torch.set_warn_always, True),
    ),
    "multithreading": (
        when(torch._C._is_multithreading_enabled),
        lambda: torch.autograd.set_multithreading_enabled(False),
    ),
    "attention fast path": (
        when(B.mha.get_fastpath_enabled),
        lambda: setting(B.mha.get_fastpath_enabled, B.mha.set_fastpath_enabled, False),
    ),
    "flash attention": (
        when(B.cuda.flash_sdp_enabled),
        lambda: setting(B.cuda.flash_sdp_enabled, B.cuda.enable_flash_sdp, False),
    ),
    "checkpoint debug": (
        when(lambda: torch.utils.checkpoint._checkpoint_debug_enabled),
        lambda: torch.utils.checkpoint.set_checkpoint_debug_enabled(True),
    ),
}
FLAGS = (
    ("cudnn.enabled", lambda x: x * 2 if B.cudnn.enabled else x, B.cudnn, "enabled"),
    ("cudnn.benchmark", lambda x: x * 2 if B.cudnn.benchmark else x, B.cudnn, "benchmark"),
    ("cudnn.allow_tf32", lambda x: x * 2 if B.cudnn.allow_tf32 else x, B.cudnn, "allow_tf32"),
    ("mkldnn.enabled", lambda x: x * 2 if B.mkldnn.enabled else x, B.mkldnn, "enabled"),
    ("matmul.allow_tf32", lambda x: x * 2 if B.cuda.matmul.allow_tf32 else x, B.cuda.matmul, "allow_tf32"),
    ("opt_einsum.enabled", lambda x: x * 2 if B.opt_einsum.enabled else x, B.opt_einsum, "enabled"),
)
ROWS |= {name: (program, functools.partial(flag, owner, key)) for name, program, owner, key in FLAGS}


@pytest.mark.parametrize("order", [(0, 0, 1, 0, 1), (1, 1, 0, 1)], ids=["later", "first"])
@pytest.mark.parametrize("name", ROWS)
def test_state_that_a_program_reads_is_guarded(name, order):
    program, changed = ROWS[name]
    check_calls_in(program, [ramp(3)], (contextlib.nullcontext, changed), order)


def test_state_that_a_region_of_the_program_sets_is_its_own():
    def program(x):
        with torch.autocast("cpu", torch.bfloat16):
            inside = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
        return x * 2, inside, torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    compiled = check_calls_in(
        program, [ramp(3)], (contextlib.nullcontext, cast_to("cpu", torch.float16)), (0, 0, 1, 0, 1)
    )
    assert thunder.cache_misses(compiled) == 2


def test_a_question_asked_twice_is_one_guard():
    def program(x):
        return x * 2 if torch.get_num_threads() > 100 or torch.get_num_threads() > 200 else x

    compiled = thunder.jit(program)
    compiled(ramp(3))
    facts = thunder.compile_stats(compiled).interpreter_cache[-1].guards
    assert len([f for f in facts if f.sym.name == "check_state" and "get_num_threads" in f.path.source]) == 1


def test_a_compiled_program_says_that_it_is_compiled():
    program = when(torch.compiler.is_compiling)
    assert torch.equal(program(ramp(3)), ramp(3))
    assert torch.equal(thunder.jit(program)(ramp(3)), ramp(3) * 2)
