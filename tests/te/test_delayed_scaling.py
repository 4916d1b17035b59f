"""The state of delayed scaling: equal to a plain computation, saved and loaded, unchanged by evaluation."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import thunder
from thunder.executors.transformer_engineex import (
    DelayedScaling,
    Float8CurrentScaling,
    TransformerEngineTransform,
    autocast,
    fp8_reference_ex,
)
from thunder_transforms.materialization import MaterializationTransform

STEPS = 4


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 16))


def compiled(module: nn.Module) -> thunder.ThunderModule:
    transform = TransformerEngineTransform(amax_history_len=STEPS)
    return thunder.jit(module, executors=[fp8_reference_ex], transforms=[transform])


class PlainState:
    """The state of one tensor, written down from the recipe's description."""

    def __init__(self, largest: float, algorithm: str, margin: int) -> None:
        self.largest, self.algorithm, self.margin = largest, algorithm, margin
        self.seen: list[float] = []
        self.scale = 1.0

    def rounded(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        scaled = (x.float() * self.scale).clamp(-self.largest, self.largest)
        return scaled.to(dtype).float() / self.scale

    def step(self, x: torch.Tensor) -> None:
        self.seen = [*self.seen, x.abs().max().item()][-STEPS:]
        amax = max(self.seen) if self.algorithm == "max" else self.seen[-1]
        if amax > 0:
            self.scale = float(torch.tensor(self.largest) / torch.tensor(amax) / 2**self.margin)


@pytest.mark.parametrize(("algorithm", "margin"), [("max", 0), ("most_recent", 1)])
def test_the_state_after_some_steps_is_that_of_a_plain_computation(algorithm, margin):
    net = network()[0]
    module = compiled(net)
    recipe = DelayedScaling(amax_history_len=STEPS, amax_compute_algo=algorithm, margin=margin)
    plain = [PlainState(largest, algorithm, margin) for largest in (448.0, 448.0, 57344.0)]
    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
    with autocast(recipe=recipe):
        for step in range(6):
            x, g = torch.randn(16, 32) / (step + 1), torch.randn(16, 64) * 2**step
            y = module(x)
            qx, qw = plain[0].rounded(x, e4m3), plain[1].rounded(net.weight.detach(), e4m3)
            torch.testing.assert_close(y.detach(), qx @ qw.t() + net.bias.detach())
            qg = plain[2].rounded(g, e5m2)
            y.backward(g)
            torch.testing.assert_close(net.weight.grad, qg.t() @ qx)
            for state, tensor in zip(plain, (x, net.weight.detach(), g), strict=True):
                state.step(tensor)
            with torch.no_grad():
                net.weight += net.weight.grad / 1000
            net.zero_grad()
            saved = module.state_dict()
            torch.testing.assert_close(saved["weight.fp8_scale"], torch.tensor([s.scale for s in plain]))
    history = saved["weight.fp8_amax_history"]
    assert torch.equal(history[0], torch.zeros(3))
    assert torch.equal(history[1:], torch.tensor([s.seen[1:] for s in plain]).t())


def test_a_second_backward_gives_the_gradients_of_the_first():
    module = compiled(network())
    with autocast(recipe=DelayedScaling(amax_history_len=STEPS)):
        for _ in range(2):
            y = module(torch.randn(16, 32))
            g = torch.randn_like(y)
            first = torch.autograd.grad(y, module.parameters(), g, retain_graph=True)
            second = torch.autograd.grad(y, module.parameters(), g)
            assert all(map(torch.equal, first, second))


def test_evaluation_reads_the_scales_and_changes_nothing():
    module = compiled(network())
    x = torch.randn(16, 32)
    with autocast(recipe=DelayedScaling(amax_history_len=STEPS)):
        module(x).sum().backward()
        before = copy.deepcopy(module.state_dict())
        with torch.no_grad():
            first = module(x)
            assert torch.equal(first, module(x))
        assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
        module(x * 100).sum().backward()
        with torch.no_grad():
            assert not torch.equal(first, module(x))
        assert thunder.cache_misses(module) == 2


def test_the_state_is_saved_and_loaded():
    first, second = compiled(network()), compiled(network())
    x = torch.randn(16, 32)
    with autocast(recipe=DelayedScaling(amax_history_len=STEPS)):
        for _ in range(3):
            first(x).sum().backward()
        second(x).sum().backward()
        second.load_state_dict(first.state_dict())
        assert torch.equal(first(x), second(x))
    assert sorted(first.original_state_dict()) == sorted(network().state_dict())


def test_a_module_on_the_meta_device_is_materialised_with_the_state_before_the_first_step():
    with torch.device("meta"):
        meta = network()
    transforms = [
        TransformerEngineTransform(amax_history_len=STEPS),
        MaterializationTransform("cpu", init=network().state_dict()),
    ]
    first, second = (
        thunder.jit(meta, executors=[fp8_reference_ex], transforms=transforms),
        compiled(network()),
    )
    x = torch.randn(16, 32)
    with autocast(recipe=DelayedScaling(amax_history_len=STEPS)):
        for _ in range(2):
            results = [module(x) for module in (first, second)]
            for result in results:
                result.sum().backward()
            assert torch.equal(*results)
        second.load_original_state_dict(network().state_dict())
        assert torch.equal(second.state_dict()["0.weight.fp8_scale"], torch.ones(3))


def test_the_largest_of_several_calls_of_a_layer_counts():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16, bias=False)
            self.tied = self.layer

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.layer(x) + self.tied(y)

    small, large = torch.randn(16, 16), 3 * torch.randn(16, 16)
    for inputs in ((small, large), (large, small)):
        module = compiled(Twice())
        with autocast(recipe=DelayedScaling(amax_history_len=STEPS)):
            module(*inputs).sum().backward()
        history = module.state_dict()["layer.weight.fp8_amax_history"]
        assert history[-1, 0] == large.abs().max()


def test_a_part_that_is_computed_again_counts_once():
    class Recomputed(nn.Module):
        def __init__(self, again: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second, self.again = nn.Linear(16, 16), nn.Linear(16, 16), again

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = checkpoint(self.inner, x, use_reentrant=False) if self.again else self.inner(x)
            return self.second(hidden)

        def inner(self, x: torch.Tensor) -> torch.Tensor:
            return self.first(x.sin()).tanh()

    once, again = compiled(Recomputed(False)), compiled(Recomputed(True))
    with autocast(recipe=DelayedScaling(amax_history_len=STEPS)):
        for step in range(3):
            x = (torch.randn(16, 16) + step).requires_grad_()
            gradients = [
                torch.autograd.grad(module(x).square().sum(), (x, *module.parameters()))
                for module in (once, again)
            ]
            assert all(map(torch.equal, *gradients))  # with the scales of the forward
    computed_again = [
        b
        for b in thunder.last_backward_traces(again)[-1].bound_symbols
        if b.sym.name == "fp8_quantize_by_scale"
    ]
    assert len(computed_again) == 4, "the input and the weight of the first layer, and two cotangents"
    for name, tensor in once.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_layers_that_need_no_gradient_have_their_state_updated():
    net = network()
    net[0].requires_grad_(False)
    module = compiled(net)
    x = torch.randn(16, 32)
    with autocast(recipe=DelayedScaling(amax_history_len=STEPS)):
        module(x).sum().backward()
    assert module.state_dict()["0.weight.fp8_amax_history"][-1, 0] == x.abs().max()


def test_the_weight_of_a_layer_under_autocast_is_recognised():
    module = compiled(network())
    with autocast(recipe=DelayedScaling(amax_history_len=STEPS)), torch.autocast("cpu", torch.bfloat16):
        assert module(torch.randn(16, 32)).dtype is torch.bfloat16
    assert "fp8_reference" in {row.claimed_by for row in thunder.explain(module).rows}


def test_other_recipes_leave_the_state_alone():
    module = compiled(network())
    before = copy.deepcopy(module.state_dict())
    with autocast(recipe=Float8CurrentScaling()):
        module(torch.randn(16, 32)).sum().backward()
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_a_recipe_with_another_history_is_an_error():
    module = compiled(network())
    with (
        autocast(recipe=DelayedScaling(amax_history_len=7)),
        pytest.raises(thunder.UserError, match=r"amax_history_len=7\)"),
    ):
        module(torch.randn(16, 32))


def test_amaxes_are_reduced_over_a_process_group(monkeypatch: pytest.MonkeyPatch):
    groups = []

    def all_reduce(amax: torch.Tensor, op: object, group: object) -> None:
        groups.append(group)
        amax.mul_(2)

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    module = compiled(nn.Linear(16, 16))
    x = torch.randn(16, 16)
    with autocast(recipe=DelayedScaling(amax_history_len=STEPS), amax_reduction_group="all ranks"):
        module(x).sum().backward()
    assert groups == ["all ranks"] * 2
    history = module.state_dict()["weight.fp8_amax_history"]
    assert history[-1].tolist() == [2 * x.abs().max().item(), 2 * module.weight.abs().max().item(), 2.0]
