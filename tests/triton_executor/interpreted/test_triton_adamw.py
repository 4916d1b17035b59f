"""AdamW of a group of parameters in one kernel, in Triton's interpreter, against torch's in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import thunder
from thunder.executors.tritonex import FOREACH_ADAMW
from thunder_triton.kernel_executor import ex
from thunder_triton.kernels.adamw import CHUNK
from triton_executor.interpreted.generated_inputs import claimed, tensors

#: dtype of the parameters → largest error, relative to the largest value: one rounding
BOUNDS = {torch.float32: 1e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7}

Lists = list[list[torch.Tensor]]


@st.composite
def groups(draw: st.DrawFn) -> tuple[Lists, dict[str, Any]]:
    """Draw parameters, gradients, means, squares, squares' maxima and steps, and the settings of a step."""
    dtype = draw(st.sampled_from(list(BOUNDS)))
    shapes = draw(
        st.lists(
            st.sampled_from(((), (0,), (5,), (3, 4), (2, CHUNK // 2 + 3), (CHUNK,))), min_size=1, max_size=3
        )
    )
    parameters, gradients, means = (
        [draw(tensors(shape, dtype)).clone() for shape in shapes] for _ in range(3)
    )
    squares = [draw(tensors(shape, torch.float32)).square().to(dtype) for shape in shapes]
    steps = [torch.tensor(float(draw(st.sampled_from((1, 2, 1000))))) for _ in shapes]
    options = {
        "lr": draw(st.sampled_from((0.01, torch.tensor(0.003), torch.tensor(0.003, dtype=torch.float64)))),
        "beta1": draw(st.sampled_from((0.9, 0.0))),
        "beta2": draw(st.sampled_from((0.999, 0.95))),
        "weight_decay": draw(st.sampled_from((0.0, 0.1))),
        "eps": draw(st.sampled_from((1e-8, 1e-3))),
        "maximize": draw(st.booleans()),
        "amsgrad": False,
    }
    return [parameters, gradients, means, squares, [], steps], options


def check(group: tuple[Lists, dict[str, Any]]) -> None:
    lists, options = group
    bound = BOUNDS[lists[0][0].dtype]
    wide = [[x.double().contiguous() for x in xs] for xs in lists]
    torch._fused_adamw_(*wide[:5], [x.float() for x in lists[5]], **options)
    unchanged = [x.clone() for x in (*lists[1], *lists[5])]
    compiled = thunder.jit(lambda *lists: torch._fused_adamw_(*lists, **options), executors=[ex])
    compiled(*lists)
    assert claimed(compiled) == ["adamw"]
    for found, right in zip((lists[0], lists[2], lists[3]), (wide[0], wide[2], wide[3]), strict=True):
        for x, y in zip(found, right, strict=True):
            if y.numel():
                assert (x.double() - y).abs().max() <= bound * y.abs().max().clamp(min=1)
    assert all(torch.equal(x, y) for x, y in zip((*lists[1], *lists[5]), unchanged, strict=True))


@given(groups())
@settings(max_examples=6, deadline=None, derandomize=True, phases=[Phase.generate])
def test_a_step_is_that_of_float64(group: tuple[Lists, dict[str, Any]]):
    check(group)


@pytest.mark.sweep
@given(groups())
@settings(max_examples=150, deadline=None)
def test_a_step_of_many_shapes_layouts_and_dtypes(group: tuple[Lists, dict[str, Any]]):
    check(group)


def parameters() -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape)) for shape in ((3, 4), (5,))]


def with_gradients(params: list[torch.nn.Parameter]) -> None:
    for i, p in enumerate(params):
        p.grad = torch.full_like(p, 0.25) + i


def test_steps_of_an_optimizer_are_torchs():
    params, expected = parameters(), parameters()
    rates = [torch.tensor(0.1), torch.tensor(0.1)]
    optimizers = [
        torch.optim.AdamW(ps, lr=lr, fused=True) for ps, lr in zip((params, expected), rates, strict=True)
    ]
    step = thunder.jit(lambda: optimizers[0].step(), executors=[ex])
    for _ in range(4):
        with_gradients(params)
        with_gradients(expected)
        step()
        optimizers[1].step()
        for rate in rates:
            rate.mul_(0.5)
    assert claimed(step) == ["adamw"]
    assert thunder.cache_misses(step) == 2  # the first step creates the state
    for p, q in zip(params, expected, strict=True):
        torch.testing.assert_close(p, q)
        for name in ("exp_avg", "exp_avg_sq", "step"):
            torch.testing.assert_close(optimizers[0].state[p][name], optimizers[1].state[q][name])


def test_tensors_of_any_strides_keep_them():
    p, m, v = (torch.rand(6, 4).t() for _ in range(3))
    g = torch.rand(4, 12)[:, ::2]
    wide = [x.double().contiguous() for x in (p, g, m, v)]
    options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "maximize": False}
    steps = torch.tensor(3.0)
    torch._fused_adamw_(*([x] for x in wide), [], [steps], amsgrad=False, **options)
    compiled = thunder.jit(lambda *xs: torch._fused_adamw_(*xs, amsgrad=False, **options), executors=[ex])
    compiled([p], [g], [m], [v], [], [steps])
    assert p.stride() == (1, 4)
    torch.testing.assert_close(p.double(), wide[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("settings", "calls"), [({"fused": True}, ["adamw"]), ({"foreach": True}, [])])
def test_gradients_of_other_strides_are_read_by_their_places(settings: dict[str, Any], calls: list[str]):
    # the reference is the step of single tensors: torch's fused step on a CPU reads such gradients wrongly
    params, expected = parameters(), parameters()
    optimizer = torch.optim.AdamW(params, lr=0.1, **settings)
    reference = torch.optim.AdamW(expected, lr=0.1, foreach=False)
    step = thunder.jit(lambda: optimizer.step(), executors=[ex])
    for number in range(3):
        for p, q in zip(params, expected, strict=True):
            g = torch.randn(p.shape, generator=torch.Generator().manual_seed(number))
            p.grad, q.grad = (g.t().contiguous().t() if g.dim() == 2 else g), g.clone()
        step()
        reference.step()
    assert claimed(step) == calls
    for p, q in zip(params, expected, strict=True):
        torch.testing.assert_close(p, q)


def stepped(cls: Any, options: dict[str, Any], dtype: torch.dtype = torch.float32, steps: int = 4) -> Any:
    """Do steps of an optimizer, compiled and by torch; return the compiled step and both results."""
    params, expected = ([torch.nn.Parameter(p.detach().to(dtype)) for p in parameters()] for _ in range(2))
    optimizers = [cls(ps, lr=0.1, foreach=True, **options) for ps in (params, expected)]
    step = thunder.jit(lambda: optimizers[0].step(), executors=[ex], lookasides=[FOREACH_ADAMW])
    for number in range(steps):
        with_gradients(params)
        with_gradients(expected)
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + number // 2)
        step()
        optimizers[1].step()
    states = [[o.state[p] for p in ps] for o, ps in zip(optimizers, (params, expected), strict=True)]
    return step, (params, states[0]), (expected, states[1])


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (torch.optim.AdamW, {}),
        (torch.optim.AdamW, {"maximize": True, "weight_decay": 0.2, "betas": (0.8, 0.9), "eps": 1e-3}),
        (torch.optim.Adam, {}),
    ],
    ids=["adamw", "settings", "adam without decay"],
)
def test_a_step_of_several_tensors_is_one_kernel(cls: Any, options: dict[str, Any]):
    step, (params, states), (expected, right) = stepped(cls, options)
    assert claimed(step) == ["adamw"]
    torch.testing.assert_close(params, expected)
    assert [s["step"].item() for s in states] == [4.0, 4.0]
    for state, reference in zip(states, right, strict=True):
        torch.testing.assert_close(state, reference)
    assert "_multi_tensor_adam" in str(thunder.explain(step).replaced[0])


@pytest.mark.parametrize(
    ("cls", "options", "dtype"),
    [
        (torch.optim.AdamW, {"amsgrad": True}, torch.float32),
        (torch.optim.Adam, {"weight_decay": 0.1}, torch.float32),
        (torch.optim.AdamW, {}, torch.bfloat16),
        (torch.optim.AdamW, {}, torch.float64),
        (torch.optim.AdamW, {}, torch.complex64),
    ],
    ids=["amsgrad", "decay as a gradient", "bfloat16", "float64", "complex"],
)
def test_other_steps_of_several_tensors_are_those_of_torch(cls: Any, options: Any, dtype: torch.dtype):
    step, (params, states), (expected, right) = stepped(cls, options, dtype, steps=3)
    assert not claimed(step)
    for found, reference in zip((params, states), (expected, right), strict=True):
        torch.testing.assert_close(found, reference)


@pytest.mark.parametrize("settings", [{"amsgrad": True}, {}], ids=["amsgrad", "float64"])
def test_other_steps_are_computed_by_torch(settings: dict[str, Any]):
    params, expected = parameters(), parameters()
    if not settings:
        params, expected = ([torch.nn.Parameter(p.double()) for p in ps] for ps in (params, expected))
    optimizers = [torch.optim.AdamW(ps, lr=0.1, fused=True, **settings) for ps in (params, expected)]
    step = thunder.jit(lambda: optimizers[0].step(), executors=[ex])
    for _ in range(2):
        with_gradients(params)
        with_gradients(expected)
        step()
        optimizers[1].step()
    assert not claimed(step)
    if not settings:
        assert "at most 32 bits" in str(thunder.explain(step).why_not("triton_kernels"))
    for p, q in zip(params, expected, strict=True):
        torch.testing.assert_close(p, q)
