"""Saved intermediates are copied to the CPU after their last use, and back before their first."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import thunder
from thunder.core.vjp_utils import get_saved_for_backward_tensors
from thunder_transforms.cpu_offloading import CPUOffloading


def deep(layers=3):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.LayerNorm(6)) for _ in range(layers)))


def gradients(model, x):
    out = model(x)
    return out, torch.autograd.grad(out.sin().sum(), [p for p in model.parameters()])


def test_results_and_gradients_are_those_of_eager():
    model, x = deep(), torch.randn(4, 6)
    compiled = thunder.jit(
        model,
        transforms=CPUOffloading(devices="cpu"),
        debug_options=thunder.core.options.DebugOptions(check_traces=True),
    )
    torch.testing.assert_close(gradients(compiled, x), gradients(model, x))
    out = compiled(x)
    first = torch.autograd.grad(out.sum(), model[0][0].weight, retain_graph=True)
    assert torch.equal(first[0], torch.autograd.grad(out.sum(), model[0][0].weight)[0])
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    assert "offload" not in str(thunder.last_traces(compiled)[-1])


def test_results_are_differentiated_one_after_the_other_with_retain_graph():
    first, second, x = nn.Linear(3, 3), nn.Linear(3, 3), torch.randn(2, 3)

    def program(x):
        return torch.tanh(first(x)).sin() * 1, torch.tanh(second(x)).sin() * 1

    expected = program(x)
    results = thunder.jit(program, transforms=CPUOffloading(devices="cpu"))(x)
    for result, out, weight in zip(results, expected, (first.weight, second.weight), strict=True):
        (grad,) = torch.autograd.grad(result.sum(), weight, retain_graph=True)
        torch.testing.assert_close(grad, torch.autograd.grad(out.sum(), weight)[0])


def planned(transform, layers=3):
    plan = thunder.plan(deep(layers), torch.randn(4, 6), device="h200", transforms=[transform])
    return plan.traces[-1], plan.backward_traces[-1]


def test_each_copy_is_after_the_last_use_and_started_one_tensor_ahead():
    forward, backward = map(str, planned(CPUOffloading()))
    names = re.findall(r'^  offloaded_(\w+) = offload_to_cpu\(\1\)  # .*"cpu f32', forward, re.MULTILINE)
    assert len(names) >= 9
    code = re.sub(r"#.*|del .*", "", forward)
    assert not any(re.search(rf"\b{n}\b", code.split(f"offload_to_cpu({n})")[1]) for n in names)
    events = re.findall(r"^  (?:loading_)?(\w+) = (start|finish)_loading\(", backward, re.MULTILINE)
    finished = [name for name, kind in events if kind == "finish"]
    assert sorted(finished) == sorted(names)
    assert [name for name, kind in events if kind == "start"] == finished
    for position, name in enumerate(finished[1:], 1):
        assert events.index((name, "start")) < events.index((finished[position - 1], "finish"))
        before = re.sub(r"#.*|del .*", "", backward).split(f"  {name} = finish_loading(")[0]
        assert not re.search(rf"\b{name}\b", before.replace(f"_{name}", "_"))


@settings(deadline=None, max_examples=12)
@given(keep=st.integers(0, 1200))
def test_what_stays_on_the_device_is_within_the_budget(keep):
    def kept(budget):
        forward, _ = planned(CPUOffloading(keep_bytes=budget), layers=2)
        inputs = {p.name for p in forward.args}
        tensors = get_saved_for_backward_tensors(forward)
        own = [t for t in tensors if t.name not in inputs and t.device.type == "cuda"]
        return sum(t.numel() * 4 for t in own), sum(t.device.type == "cpu" for t in tensors)

    stayed, offloaded = kept(keep)
    assert stayed <= keep
    assert offloaded == 0 or stayed + 4 * 6 * 4 > keep  # the next one would have been too much


def test_a_policy_chooses_the_tensors():
    seen = []

    def largest(tensors, trace):
        seen.append((tensors, trace))
        return [max(tensors, key=lambda t: t.numel())]

    forward, backward = planned(CPUOffloading(largest))
    assert str(forward).count(" = offload_to_cpu(") == str(backward).count(" = finish_loading(") == 1
    assert len(seen[0][0]) > 1
    assert "return" in str(seen[0][1])


def test_weights_inputs_and_results_stay():
    def program(x, w):
        y = torch.tanh(x @ w)
        return y, torch.exp(y)

    x, w = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    compiled = thunder.jit(program, transforms=CPUOffloading(devices="cpu"))
    out = compiled(x, w)
    torch.autograd.grad(sum(o.sum() for o in out), w)
    assert "offload_to_cpu" not in str(thunder.last_traces(compiled)[-1])


MISUSES = {
    "a policy that is not a function": (lambda: CPUOffloading(3), "save_tensor_policy=3"),
    "bytes in a float": (lambda: CPUOffloading(keep_bytes=1.5), "keep_bytes=1.5"),
    "the type of no device": (lambda: CPUOffloading(devices=["cuda:0"]), "devices= has 'cuda:0'"),
    "no choice": (lambda: planned(CPUOffloading(lambda tensors, trace: None)), "returned NoneType"),
    "another tensor": (
        lambda: planned(CPUOffloading(lambda tensors, trace: trace.args[:1])),
        "did not receive",
    ),
}


@pytest.mark.parametrize("misuse", MISUSES)
def test_misuse_is_refused(misuse):
    call, words = MISUSES[misuse]
    with pytest.raises(thunder.InvalidArgument, match=words):
        call()


@pytest.mark.gpu
def test_memory_is_lower_on_a_device():
    model, x = deep(24).cuda(), torch.randn(1 << 16, 6, device="cuda")
    peaks = {}
    for name, transforms in (("without", []), ("with", [CPUOffloading()])):
        compiled = thunder.jit(model, transforms=transforms)
        gradients(compiled, x)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        results = gradients(compiled, x)
        peaks[name] = torch.cuda.max_memory_allocated()
        torch.testing.assert_close(results, gradients(model, x))
    assert peaks["with"] < 0.6 * peaks["without"]
