"""The code that Triton generates for GPUs of the kernels of a corpus; no GPU is needed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch.nn import functional as F
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import thunder
import thunder_triton
from sweeping import one_in
from thunder.core.errors import ExecutorUnavailable
from thunder.plugins import get_manager
from thunder_triton.compiling import jit_functions
from thunder_triton.executor import ex
from thunder_triton.fusions.program import FusionProgram
from thunder_triton.kernels import cross_entropy
from thunder_triton.region_functions import RegionFunction
from triton_executor.compiled.launches import POINTERS
from triton_executor.compiled.machine_code import stack_bytes


def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.silu(x * w) * torch.tanh(x) + F.gelu(x)


def softmax(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.softmax(x * w, -1)


def norms(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x + 1
    return y, F.rms_norm(y, w.shape, w), F.layer_norm(y, w.shape, w, w)


def columns(x: torch.Tensor, w: torch.Tensor) -> Any:
    return (x * w).sum(0), (x > 0).sum(0)


CORPUS = {f.__name__: f for f in (chain, softmax, norms, columns)}


def programs(
    function: Any, dtype: torch.dtype, shape: tuple[int, int], **options: Any
) -> list[FusionProgram]:
    """Return the programs of the fusions of a plan for a GPU that is not here."""
    with torch.device("meta"):
        x, w = torch.empty(shape, dtype=dtype), torch.empty(shape[-1:], dtype=dtype)
    plan = thunder.plan(function, x, w, device="h100", executors=[ex], **options)
    fusions = [b for trace in plan.traces[-1:] for b in trace.bound_symbols if b.sym.is_fusion]
    assert fusions
    assert all(isinstance(b.sym.python_impl, RegionFunction) for b in fusions)
    return [p for b in fusions for p in b.sym.python_impl._programs.values()]


def compiled(program: FusionProgram, dtypes: dict[str, torch.dtype], capability: int) -> list[Any]:
    """Return Triton's results for the kernels of a program, for a compute capability such as 90."""
    kernels = jit_functions(program.text, [kernel.name for kernel in program.kernels])
    results = []
    for source, function in zip(program.kernels, kernels, strict=True):
        signature = {f"{name}_ptr": POINTERS[dtypes[name]] for name in source.parameters}
        attrs = {(i,): [["tt.divisibility", 16]] for i in range(len(signature))}
        constants = {(function.arg_names.index(k),): v for k, v in source.constants.items()}
        names = signature | dict.fromkeys(source.constants, "constexpr")
        ast = ASTSource(fn=function, signature=names, constexprs=constants, attrs=attrs)
        options = {"num_warps": source.blocks.warps, "enable_fp_fusion": False, "debug": source.checks}
        results.append(triton.compile(ast, target=GPUTarget("cuda", capability, 32), options=options))
    return results


def cases() -> list[Any]:
    return [
        (name, dtype, shape, capability)
        for name in CORPUS
        for dtype in (torch.bfloat16, torch.float32)
        for shape in ((64, 4096), (33, 1000), (16, 20_000))
        for capability in (90, 80, 100)
    ]


@pytest.mark.parametrize(("name", "dtype", "shape", "capability"), one_in(27, cases()))
def test_kernels_compile_without_spills(
    name: str, dtype: torch.dtype, shape: tuple[int, int], capability: int
):
    for program in programs(CORPUS[name], dtype, shape):
        dtypes = dict.fromkeys(program.inputs, dtype) | {a.name: a.dtype for a in program.allocations}
        for source, result in zip(program.kernels, compiled(program, dtypes, capability), strict=True):
            ptx = result.asm["ptx"]
            assert max(stack_bytes(result.asm["cubin"])) == 0
            assert result.metadata.shared <= 48 * 1024
            if shape[1] % 8 == 0 and "x" in source.parameters:
                assert re.search(r"ld\.global\S*\.v[248]", ptx), "no vector loads"


@pytest.mark.parametrize("capability", one_in(3, [90, 80, 100]))
def test_a_dropout_compiles_without_spills(capability: int):
    def dropped(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.silu(x * w), 0.1) + x

    with get_manager().temporary(thunder_triton, name="triton-under-test"):
        (program,) = programs(dropped, torch.bfloat16, (64, 4096), triton_random=True)
    dtypes = dict.fromkeys(("x", "w"), torch.bfloat16) | {a.name: a.dtype for a in program.allocations}
    seeds = {name: torch.int64 for name in program.inputs if name not in dtypes}
    (result,) = compiled(program, dtypes | seeds, capability)
    assert "mul.hi.u32" in result.asm["ptx"]
    assert max(stack_bytes(result.asm["cubin"])) == 0


@pytest.mark.parametrize("capability", one_in(3, [80, 90, 100]))
def test_extrema_and_scans_compile_without_spills(capability: int):
    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        largest, place = (x * w).max(-1)
        return largest + 1, place, (x + 1).cumsum(-1) * 2

    (found,) = programs(program, torch.bfloat16, (64, 4096))
    dtypes = dict.fromkeys(found.inputs, torch.bfloat16) | {a.name: a.dtype for a in found.allocations}
    (result,) = compiled(found, dtypes, capability)
    assert "__assertfail" in result.asm["ptx"]
    assert max(stack_bytes(result.asm["cubin"])) <= 64  # the arguments of the failed assertion


@pytest.mark.parametrize("capability", one_in(3, [100, 90, 80]))
def test_scans_of_columns_scatters_and_normal_numbers_compile_without_spills(capability: int):
    def scanned(x: torch.Tensor, w: torch.Tensor) -> Any:
        return (x * w).cumsum(0) * 2

    def scattered(x: torch.Tensor, w: torch.Tensor) -> Any:
        place = (x[:, :1] > 0).long()
        return (x * w).scatter_add(1, place, x[:, :1] * 3)

    def noisy(x: torch.Tensor, w: torch.Tensor) -> Any:
        return torch.randn_like(x * w) * x

    with get_manager().temporary(thunder_triton, name="triton-under-test"):
        for function in (scanned, scattered, noisy):
            for found in programs(function, torch.bfloat16, (64, 4096), triton_random=True):
                dtypes = {"x": torch.bfloat16, "w": torch.bfloat16}
                dtypes |= {a.name: a.dtype for a in found.allocations}
                seeds = {name: torch.int64 for name in found.inputs if name not in dtypes}
                for result in compiled(found, dtypes | seeds, capability):
                    assert max(stack_bytes(result.asm["cubin"])) <= 64  # of a failed assertion


@pytest.mark.parametrize(
    ("name", "dtype", "capability"),
    one_in(
        5, [(n, d, c) for n in ("forward", "backward") for d in ("*bf16", "*fp32") for c in (90, 80, 100)]
    ),
)
def test_cross_entropy_compiles_without_spills(name: str, dtype: str, capability: int):
    function = getattr(cross_entropy, f"{name}_kernel")
    constants = cross_entropy._settings(128_256, torch.float32, 0.1)
    warps = constants.pop("num_warps")
    pointers = {"logits_ptr": dtype, "result_ptr": dtype, "target_ptr": "*i64"}
    signature = {
        argument: "constexpr"
        if argument in constants or argument == "class_stride"
        else pointers.get(argument, "*fp32" if argument.endswith("_ptr") else "i32")
        for argument in function.arg_names
    }
    places = {argument: i for i, argument in enumerate(function.arg_names)}
    constants["class_stride"] = 1
    divisible = [places[a] for a, kind in signature.items() if kind != "constexpr" and a != "ignored"]
    source = ASTSource(
        fn=function,
        signature=signature,
        constexprs={(places[argument],): value for argument, value in constants.items()},
        attrs={(place,): [["tt.divisibility", 16]] for place in divisible},
    )
    result = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})
    ptx = result.asm["ptx"]
    assert max(stack_bytes(result.asm["cubin"])) == 0
    assert re.search(r"ld\.global\S*\.v[248]", ptx), "no vector loads"


def test_without_a_device_the_executor_is_unavailable_and_a_plan_shows_its_kernels():
    with torch.device("meta"):
        x, w = torch.empty(64, 512), torch.empty(512)
    with get_manager().temporary(thunder_triton, name="triton-under-test"):
        with pytest.raises(ExecutorUnavailable, match="there is no CUDA device"):
            thunder.jit(softmax, executors=["triton"])
        plan = thunder.plan(softmax, x, w, device="h100", executors=["triton"])
        with pytest.raises(ExecutorUnavailable, match="there is no CUDA device"):
            thunder.jit(softmax, executors=["triton"])
    assert "@triton.jit" in str(plan.traces[-1])
    assert {row.claimed_by for row in plan.explain().rows} == {"triton"}


def test_on_a_cpu_calls_are_refused_with_the_reason():
    compiled = thunder.jit(softmax, executors=[ex])
    compiled(torch.randn(2, 8), torch.randn(8))
    refusals = [r for row in thunder.explain(compiled).rows for r in row.refusals if r.executor == "triton"]
    assert refusals
    assert all("TRITON_INTERPRET=1" in refusal.message for refusal in refusals)


@triton.jit
def many_values(x_ptr, y_ptr, BLOCK: tl.constexpr):
    """Hold more values than a warp has registers."""
    i = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    total = tl.sum(x * y, 0)
    tl.store(y_ptr + i, x * tl.sum(tl.exp(x - total) * y, 0) + y)


def test_spilled_registers_are_found():
    source = ASTSource(
        fn=many_values,
        signature={"x_ptr": "*fp32", "y_ptr": "*fp32", "BLOCK": "constexpr"},
        constexprs={(2,): 8192},
    )
    result = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})
    assert stack_bytes(result.asm["cubin"])[0] > 0
