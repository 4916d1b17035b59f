"""`thunder.plan`: the program for a device that need not be here, made without touching any."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import thunder
from new_processes import run_python
from thunder.base.errors import InvalidArgument, PluginError, UnknownOption
from thunder.extend import OperatorExecutor, Refusal, device_profile
from thunder.ir.trace import TraceTag
from thunder.passes.transform import Transform
from thunder.plugins import DeviceProfile, get_manager, hookimpl

WIDTH = 8


class Block(torch.nn.Module):
    """Attention and a feed-forward part, as models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.register_buffer("scale", torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        q, k, v = (
            t.view(rows, length, 2, WIDTH // 2).transpose(1, 2)
            for t in self.qkv(self.norm(x)).chunk(3, dim=-1)
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        positions = torch.arange(length, device=x.device)
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape)) * self.scale + positions[:, None]


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Any call that wakes up CUDA, and any fake tensor, fails the test."""

    def touched(*args: Any, **kwargs: Any) -> None:
        pytest.fail("a device was touched, or a fake tensor made")

    for name in ("_lazy_init", "init", "get_device_properties", "current_device", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, touched)
    monkeypatch.setattr(FakeTensorMode, "__init__", touched)
    yield
    assert not torch.cuda.is_initialized()


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("grad", [True, False])
def test_a_model_of_meta_tensors_is_planned_for_a_device_that_is_not_touched(grad: bool) -> None:
    with torch.device("meta"):
        model = Block().requires_grad_(grad)
    plan = thunder.plan(model, torch.empty(2, 5, WIDTH, device="meta"), device="h200")
    assert plan.device is not None
    assert plan.device.name == "h200"
    final = plan.traces[-1]
    tensors = [p for b in final.bound_symbols for p in b.flat_proxy_outs] + list(final.args)
    assert {p.device.device_str() for p in tensors} == {"cuda:0"}
    assert "'cuda:0', torch.float32" in str(plan.prologue_traces[-1])
    assert "meta" not in str(final)
    assert bool(plan.backward_traces) == grad
    assert (TraceTag.AUGMENTED_FORWARD in final.tags) == grad
    assert {row.trace for row in plan.explain().rows} == ({"forward", "backward"} if grad else {"forward"})


def test_a_process_that_has_planned_has_not_initialised_cuda() -> None:
    program = """
import torch, thunder
model = torch.nn.Sequential(torch.nn.Linear(4, 4, device="meta"), torch.nn.GELU())
plan = thunder.plan(model, torch.empty(2, 4, device="meta"), device="b200")
assert plan.backward_traces
print(torch.cuda.is_initialized(), thunder.explain.__name__)
"""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    done = run_python("-c", program, env=environment)
    assert (done.stdout, done.stderr) == ("False explain\n", "")


def test_the_plan_is_the_program_that_would_run_here() -> None:
    torch.manual_seed(0)
    model, x = Block(), torch.randn(2, 5, WIDTH)
    compiled = thunder.jit(model)
    torch.testing.assert_close(compiled(x), model(x))
    plan = thunder.plan(model, x, device="cpu")

    def without_times(traces: list[Any]) -> list[str]:
        return [trace.python(include_timing=False) for trace in traces]

    assert without_times(plan.traces) == without_times(thunder.last_traces(compiled))
    assert without_times(plan.backward_traces) == without_times(thunder.last_backward_traces(compiled))
    assert str(plan.explain()) == str(thunder.explain(compiled))
    assert plan.traces[-1].python_callable() is not None


def test_real_tensors_count_as_on_the_device_and_without_a_device_stay_where_they_are() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda == y.is_cuda
        return x.sin().to(x.device) + y if x.is_cuda else x.cos() + y

    x, y = torch.ones(3), torch.ones(3)
    there = thunder.plan(f, x, y, device="a100")
    here = thunder.plan(f, x, y)
    assert (here.device, here.fits) == (None, None)
    assert [row.symbol for row in there.explain().rows] == ["torch.sin", "torch.add"]
    assert [row.symbol for row in here.explain().rows] == ["torch.cos", "torch.add"]
    assert x.device.type == "cpu"


def test_checkers_see_the_profile_that_was_named() -> None:
    ex = OperatorExecutor("plan_ex")
    fast = ex.register_operator("fast_mm", like=thunder.torch.matmul, fn=torch.matmul, replace=True)

    def checker(a: Any, b: Any) -> bool | Refusal:
        profile = device_profile(a.device)
        if not profile.features.get("float8_matmul"):
            return Refusal("feature", "needs float8 matmuls", device=profile.name)
        return True

    ex.register_implementation("torch.matmul", fast, checker=checker)
    x = torch.empty(4, 4, device="meta")
    claims = {}
    for device in ("cpu", "a100", "h100", "cuda:b200"):
        (row,) = thunder.plan(torch.matmul, x, x, device=device, executors=[ex]).explain().rows
        claims[device] = (row.claimed_by, [(r.executor, r.facts) for r in row.refusals])
    assert claims == {
        "cpu": ("torch", [("plan_ex", {"device": "cpu"})]),
        "a100": ("torch", [("plan_ex", {"device": "a100"})]),
        "h100": ("plan_ex", []),
        "cuda:b200": ("plan_ex", []),
    }


def test_a_plugin_brings_devices_and_a_profile_may_be_given_itself() -> None:
    toy = DeviceProfile(name="toy9000", type="cuda", capability=(13, 0), memory_bytes=2**20)

    class Plugin:
        @hookimpl
        def thunder_devices(self) -> list[DeviceProfile]:
            return [toy]

    x = torch.empty(2**17, device="meta")
    with get_manager().temporary(Plugin(), name="toy devices"):
        named = thunder.plan(torch.exp, x, device="toy9000")
    given = thunder.plan(torch.exp, torch.empty(2**18, device="meta"), device=toy)
    assert named.device is given.device is toy
    assert (named.fits, given.fits) == (True, False)
    assert "1.00 MiB of 1.00 MiB (100.0%)" in str(named)


def test_a_plugin_plans_for_a_mesh_with_the_settings_as_they_are() -> None:
    planned: list[Any] = []

    def planner(fn: Any, *args: Any, **settings: Any) -> str:
        planned.append((fn, args, settings))
        if settings["mesh"] == "wrong":
            raise ZeroDivisionError("the planner's own error")
        return "a plan"

    class Plugin:
        @hookimpl
        def thunder_mesh_planner(self) -> Any:
            return planner

    class Modest:
        @hookimpl
        def thunder_mesh_planner(self) -> Any:
            return None

    x = torch.ones(3)
    with get_manager().temporary(Modest(), name="a modest plugin"):
        with pytest.raises(InvalidArgument, match="no installed plugin plans programs for a mesh"):
            thunder.plan(torch.exp, x, mesh=(2,))
        with get_manager().temporary(Plugin(), name="a planner"):
            assert thunder.plan(torch.exp, x, mesh=(2, 4), device="h100", transforms=abs, own=3) == "a plan"
            assert thunder.plan(torch.exp, x, mesh=()) == "a plan"
            with pytest.raises(ZeroDivisionError, match="own error"):
                thunder.plan(torch.exp, x, mesh="wrong")
    settings = {"mesh": (2, 4), "device": "h100", "transforms": abs, "own": 3}
    assert planned[0] == (torch.exp, (x,), settings)
    assert planned[1][2] == {"mesh": ()}


def test_what_plans_for_a_mesh_has_to_be_callable() -> None:
    class Plugin:
        @hookimpl
        def thunder_mesh_planner(self) -> Any:
            return "a plan"

    with (
        get_manager().temporary(Plugin(), name="no planner"),
        pytest.raises(PluginError, match="'no planner' returned 'a plan', which cannot be called"),
    ):
        thunder.plan(torch.exp, torch.ones(3), mesh=(2,))


def test_a_compiled_object_is_planned_with_its_settings_and_stays_as_it_is() -> None:
    compiled = thunder.jit(Block(), disable_torch_autograd=True)
    x = torch.randn(2, 5, WIDTH)
    compiled(x)
    before = thunder.last_traces(compiled)
    plan = thunder.plan(compiled, torch.empty(2, 7, WIDTH, device="meta"), device="h100")
    assert plan.backward_traces == []
    assert 'cuda:0 f32[2, 7, 8]"' in str(plan.traces[-1])
    assert thunder.last_traces(compiled) == before
    assert (thunder.cache_misses(compiled), thunder.compile_stats(compiled).calls) == (1, 1)
    with pytest.raises(InvalidArgument, match="settings for a compile") as error:
        thunder.plan(compiled, x, device="h100", cse=False)
    assert "cse" in str(error.value)


def test_transforms_and_options_take_part() -> None:
    class Twice(Transform):
        seen = 0

        def transform_trace_pre_execution(self, trace: Any, **kwargs: Any) -> Any:
            type(self).seen += 1
            assert kwargs["options"]["cse"] is False
            return trace

    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() + x.sin()

    plan = thunder.plan(f, torch.ones(2), device="h200", transforms=[Twice()], cse=False)
    assert Twice.seen == 1
    assert [row.symbol for row in plan.explain().rows] == ["torch.sin", "torch.sin", "torch.add"]


def test_a_program_that_writes_through_views_is_planned_without_the_device() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.clone().t()
        y[0].add_(1)
        if not y.is_contiguous():
            y.view(-1, 1, *y.shape)[0].mul_(2)
        return y

    x = torch.rand(4, 3)
    plan = thunder.plan(f, x, device="h200")
    assert not torch.cuda.is_initialized()
    assert plan.traces[-1].args[0].device.type == "cuda"
    symbols = [row.symbol for row in plan.explain().rows]
    assert symbols == [row.symbol for row in thunder.plan(f, x, device="cpu").explain().rows]


@pytest.mark.usefixtures("untouched")
def test_a_program_that_asks_for_its_device_is_told_of_the_one_that_is_planned_for() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        if not torch.cuda.is_available() or torch.cuda.device_count() != 1:
            return x.neg()
        return x.sin() if torch.cuda.get_device_capability(x.device) >= (9, 0) else x.cos()

    x = torch.ones(3)
    symbols = {d: thunder.plan(f, x, device=d).explain().rows[0].symbol for d in ("a100", "b200", "cpu")}
    assert symbols["a100"] == "torch.cos"
    assert symbols["b200"] == "torch.sin"
    assert torch.cuda.is_available() or symbols["cpu"] == "torch.neg"


@pytest.mark.usefixtures("untouched")
def test_autocast_of_cuda_is_planned_where_there_is_none() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return (x @ w).sum()

    plan = thunder.plan(f, torch.ones(4, 4), torch.ones(4, 4, requires_grad=True), device="h100")
    product = next(b for b in plan.traces[-1].bound_symbols if "matmul" in b.sym.id or b.sym.name == "matmul")
    assert product.flat_proxy_outs[0].dtype is thunder.bfloat16
    assert not torch.is_autocast_enabled("cuda")


def test_unknown_device_is_told_with_those_that_are_known() -> None:
    with pytest.raises(InvalidArgument, match="there is no device profile 'h3000'") as error:
        thunder.plan(torch.sin, torch.ones(2), device="h3000")
    assert "known:  cpu, meta, t4, l4, l40s, rtx4090, rtx5090, a100, h100, h200, b200, mi300x" in str(
        error.value
    )
    with pytest.raises(InvalidArgument, match=r"thunder\.plan got device=3"):
        thunder.plan(torch.sin, torch.ones(2), device=3)
    with pytest.raises(UnknownOption, match="'devcie'"):
        thunder.plan(torch.sin, torch.ones(2), devcie="h200")


def test_the_summary_tells_device_claims_and_memory() -> None:
    x = torch.empty(1024, 256, device="meta", requires_grad=True)
    plan = thunder.plan(lambda x: x.exp().sum(), x, device="h200")
    assert str(plan) == repr(plan)
    assert str(plan).splitlines()[0] == "device    h200, compute capability 9.0"
    assert "peak      2.00 MiB of 141.00 GiB (0.0%)" in str(
        plan
    )  # input, result of exp that is then the gradient
    assert plan.fits is True
