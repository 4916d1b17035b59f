"""CUDA graphs without a GPU: plans for a device profile, and captures on a device of the test."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thunder
from comparison.inputs import leaf
from thunder.core.devices import Device
from thunder.core.errors import UnsupportedProgram
from thunder.extend import Refusal
from thunder_transforms.capture_plan import plan_captures
from thunder_transforms.cuda_graphs import MOST_CAPTURES, CUDAGraphTransform
from thunder_transforms.graph_devices import WARM_UP_RUNS, restored


class Recorded:
    """Captures functions on the CPU: a replay overwrites the memory of the results, as a graph's does."""

    type = "cpu"

    def __init__(self) -> None:
        self.captures = 0

    def capture(self, fn, inputs, written=()):
        self.captures += 1
        for _ in range(WARM_UP_RUNS + 1):
            with restored(written):
                outputs = fn(*inputs)
        outputs = [torch.empty_like(o).fill_(3) for o in outputs]

        def replay():
            for output, value in zip(outputs, fn(*inputs), strict=True):
                output.copy_(value)

        return replay, outputs


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 2))


def planned(fn, *args, transform=None, **options):
    """Return the plan of the forward of a program on an H200, which need not be here."""
    transform = transform or CUDAGraphTransform()
    plan = thunder.plan(fn, *args, device="h200", transforms=[transform], **options)
    return transform.plans[0], plan.traces[-1].python(print_depth=1)


# -- the plan ----------------------------------------------------------------------------------------------


def test_a_program_on_one_device_is_one_graph():
    plan, text = planned(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), torch.ones(3, 4))
    assert [[b.sym.name for b in region.bsyms] for region in plan.regions] == [["linear", "gelu", "linear"]]
    assert plan.refused == ()
    assert "] = CUDAGraph0(input, t_0_weight, t_0_bias, t_2_weight, t_2_bias)" in text


def test_forward_and_backward_have_graphs_with_their_own_numbers():
    transform = CUDAGraphTransform()
    plan = thunder.plan(network(), torch.ones(3, 4), device="h200", transforms=[transform])
    forward, backward = transform.plans
    assert (forward.branch, backward.branch) == ("forward", "backward")
    assert forward.names[0] == "CUDAGraph0"
    assert backward.names[0] == f"CUDAGraph{len(forward.regions)}"
    assert f"{backward.names[0]}(" in plan.backward_traces[-1].python()
    assert "CUDAGraph0: " in transform.explain()


def test_a_graph_has_the_calls_of_one_device():
    def program(x, y):
        return x.sin().cos(), y.exp().tan()

    trace = thunder.plan(program, torch.ones(3), torch.ones(3), device="h200").traces[-1]
    second = [b for b in trace.bound_symbols if b.sym.name in ("exp", "tan")]
    values = {p for b in second for p in (*b.flat_variableified_proxy_args, *b.flat_variableified_proxy_outs)}
    moved = {value: value.proxy.replace(device=Device("cuda:1")) for value in values}
    trace.bound_symbols = [bsym.from_bsym_swap_proxies(moved) for bsym in trace.bound_symbols]
    names = [[b.sym.name for b in region.bsyms] for region in plan_captures(trace).regions]
    assert names == [["sin", "cos"], ["exp", "tan"]]


def noisy(x):
    y = torch.sin(x) * 2
    z = y + torch.rand(3, device=x.device)
    return torch.cos(z).exp()


def scalar(x):
    y = torch.sin(x) * 2
    return y, (y.sum() * 2).item()


def writes(x):
    y = torch.sin(x) * 2
    x.add_(1)
    return y * 3


def moved(x):
    return (torch.sin(x) * 2).cpu() + 1


@pytest.mark.parametrize(
    ("program", "operator", "reason"),
    [
        (noisy, "rand", "it draws random numbers"),
        (scalar, "item", "it waits for the device"),
        (moved, "add", "it has a tensor on cpu"),
    ],
)
def test_what_is_not_captured_has_a_reason_and_the_line(program, operator, reason):
    plan, _ = planned(program, torch.ones(3))
    refused = {r.operator: r for r in plan.refused}
    found = next((r for name, r in refused.items() if operator in name and r.reason == reason), None)
    assert found is not None, plan
    assert found.place.startswith(f"{__file__}:")
    assert plan.regions


def test_a_write_to_a_tensor_of_the_caller_is_in_the_graph():
    plan, _ = planned(writes, torch.ones(3))
    assert plan.refused == (), plan
    (region,) = plan.regions
    assert "add_in_place" in [b.sym.name for b in region.bsyms] or "copy_" in [
        b.sym.name for b in region.bsyms
    ]


def test_an_operation_between_two_graphs_does_not_stop_independent_ones():
    """The plan follows data, not positions: what does not depend on the random numbers is one graph."""
    plan, _ = planned(noisy, torch.ones(3))
    assert [[b.sym.name for b in r.bsyms] for r in plan.regions] == [["sin", "mul", "add", "cos", "exp"]]


def test_few_calls_are_not_worth_a_graph():
    plan, text = planned(torch.sin, torch.ones(3))
    assert [r.reason for r in plan.refused] == ["there are too few calls for a graph"]
    assert "CUDAGraph" not in text
    plan, _ = planned(torch.sin, torch.ones(3), transform=CUDAGraphTransform(min_operations=1))
    assert len(plan.regions) == 1


def test_tensors_on_the_host_have_no_graph():
    transform = CUDAGraphTransform()
    x = torch.ones(3)
    assert torch.equal(thunder.jit(lambda x: x.sin().cos(), transforms=[transform])(x), x.sin().cos())
    assert {r.reason for r in transform.plans[0].refused} == {"it has a tensor on cpu"}


class WithoutProducts(CUDAGraphTransform):
    def can_fuse(self, bsym):
        return Refusal("products", "products stay eager") if bsym.sym.name == "linear" else True


def test_a_subclass_leaves_calls_out():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Tanh(), nn.Linear(8, 2))
    plan, _ = planned(model, torch.ones(3, 4), transform=WithoutProducts())
    assert [[b.sym.name for b in r.bsyms] for r in plan.regions] == [["gelu", "tanh"]]
    assert [(r.operator, r.reason) for r in plan.refused] == [("linear", "products stay eager")] * 2


# -- captures ----------------------------------------------------------------------------------------------


def test_training_with_graphs_is_eagers():
    device, model, eager = Recorded(), network(), network()
    compiled = thunder.jit(model, transforms=[CUDAGraphTransform(device=device)])
    optimisers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, eager)]
    for step in range(3):
        x = torch.linspace(-1, 1 + step, 20).view(5, 4)
        for m, optimiser in zip((compiled, eager), optimisers, strict=True):
            first, second = m(x), m(x * 2)  # two forwards before the backward
            (first.square().sum() + second.sum()).backward()
            optimiser.step()
            optimiser.zero_grad()
    assert thunder.cache_misses(compiled) == 1
    assert device.captures == sum(len(p.regions) for p in _plans(compiled)) > 1
    for name, tensor in eager.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], tensor)


def _plans(compiled):
    (transform,) = thunder.list_transforms(compiled)
    return transform.plans


def test_a_result_stays_as_it_is_when_the_graph_runs_again():
    compiled = thunder.jit(lambda x: x.sin().cos(), transforms=[CUDAGraphTransform(device=Recorded())])
    first = compiled(torch.zeros(3))
    before = first.clone()
    second = compiled(torch.ones(3))
    assert torch.equal(first, before)
    assert not torch.equal(first, second)


def test_results_share_memory_as_eagers_do():
    def views(x):
        y = (x + 1).sin()
        return y, y.t(), x.t()

    compiled = thunder.jit(views, transforms=[CUDAGraphTransform(device=Recorded())])
    x = torch.ones(2, 3)
    for _ in range(2):
        y, transposed, of_input = compiled(x)
        y.zero_()
        x[0, 1] = 7
        assert not transposed.any()
        assert of_input[1, 0] == 7


def test_a_parameter_that_moves_is_captured_again_and_at_last_copied():
    device, model = Recorded(), nn.Sequential(nn.Linear(4, 4), nn.Tanh()).requires_grad_(False)
    compiled, x = thunder.jit(model, transforms=[CUDAGraphTransform(device=device)]), torch.ones(2, 4)
    for step in range(MOST_CAPTURES + 3):
        model[0].weight.data = torch.full((4, 4), float(step))
        torch.testing.assert_close(compiled(x), model(x))
        model[0].weight.data.mul_(0.5)
        torch.testing.assert_close(compiled(x), model(x))
    assert thunder.cache_misses(compiled) == 1
    assert device.captures == MOST_CAPTURES + 1


def decoded(cache, keys, position, x):
    """A step with a static cache, which writes a row of one tensor and a column of another."""
    cache[2:3] = x * 2
    keys[:, 1] += 1
    scores = torch.softmax(cache @ x[0], 0)
    position += 1
    return (scores @ cache + keys.sum(1)).tanh()


def decoded_by_index(cache, position, x):
    cache.index_copy_(0, position, x * 2)
    scores = torch.softmax(cache @ x[0], 0)
    position += 1
    return (scores @ cache).tanh()


def test_a_step_that_writes_where_a_tensor_says_is_one_graph_on_a_gpu():
    """There an index out of range is an assertion of the device, after which nothing is put back."""
    plan, text = planned(decoded_by_index, torch.zeros(6, 4), torch.tensor([0]), torch.ones(1, 4))
    assert (len(plan.regions), plan.refused) == (1, ()), plan
    assert "index_copy_in_place" in [b.sym.name for b in plan.regions[0].bsyms], text


def test_a_step_with_a_static_cache_is_one_graph_that_writes_the_cache_itself():
    device = Recorded()
    transform = CUDAGraphTransform(device=device)
    compiled = thunder.jit(decoded, transforms=[transform], executors=[])
    ours, theirs = ([torch.zeros(6, 4), torch.zeros(4, 3), torch.tensor([0])] for _ in range(2))
    for step in range(5):
        versions = [t._version for t in ours]
        x = torch.full((1, 4), float(step))
        torch.testing.assert_close(compiled(*ours, x), decoded(*theirs, x))
        torch.testing.assert_close(ours, theirs)
        assert all(t._version > version for t, version in zip(ours, versions, strict=True))
    (plan,) = transform.plans
    assert (len(plan.regions), plan.refused) == (1, ()), plan
    assert device.captures == 1
    for _ in range(MOST_CAPTURES + 2):  # other caches: captured again, and at last copied in and back
        ours, theirs = ([torch.ones(6, 4), torch.ones(4, 3), torch.tensor([2])] for _ in range(2))
        torch.testing.assert_close(compiled(*ours, x), decoded(*theirs, x))
        torch.testing.assert_close(ours, theirs)
    assert device.captures <= MOST_CAPTURES + 1


def test_a_write_between_graphs_is_read_after_it():
    """A value that one graph computes and another one writes has what was written."""

    def program(x):
        y = (x * 2).exp()
        n = y.sum().item()
        y[0] = x[1]
        z = y.sin() + n
        m = z.sum().item()
        return (y * z).cos() + m

    transform = CUDAGraphTransform(device=Recorded(), min_operations=1)
    compiled = thunder.jit(program, transforms=[transform], executors=[])
    for step in range(3):
        x = torch.randn(4, 4) + step
        torch.testing.assert_close(compiled(x), program(x))
    assert any("in_place_own" in b.sym.name for r in transform.plans[0].regions for b in r.bsyms)


def test_a_write_to_memory_of_two_inputs_of_a_graph_is_not_captured():
    def program(x, y):
        z = (x * y).sin()
        x.mul_(2)
        return (z + y).cos()

    both, expected = torch.arange(6.0), torch.arange(6.0)
    transform = CUDAGraphTransform(device=Recorded())
    compiled = thunder.jit(program, transforms=[transform], executors=[])
    for _ in range(3):
        result = compiled(both[:4], both[2:])
        torch.testing.assert_close(result, program(expected[:4], expected[2:]))
        torch.testing.assert_close(both, expected)


def test_what_cannot_be_captured_is_an_error_with_a_way_out():
    class Failing(Recorded):
        def capture(self, fn, inputs, written=()):
            raise RuntimeError("operation not permitted when stream is capturing")

    compiled = thunder.jit(lambda x: x.sin().cos(), transforms=[CUDAGraphTransform(device=Failing())])
    with pytest.raises(UnsupportedProgram, match="CUDAGraph0 cannot be captured: operation not permitted"):
        compiled(leaf(3).detach())


def test_the_recipe_adds_the_transform():
    compiled = thunder.compile(nn.Linear(2, 2), plugins="reduce-overhead")
    assert [type(t).__name__ for t in thunder.list_transforms(compiled)] == ["CUDAGraphTransform"]
    assert compiled(torch.ones(1, 2)).shape == (1, 2)


@pytest.mark.gpu
def test_graphs_on_cuda_compute_what_eager_does():
    model = network().cuda()
    eager = network().cuda()
    compiled = thunder.jit(model, transforms=[CUDAGraphTransform()])
    for step in range(4):
        x = torch.randn(5, 4, device="cuda") + step
        for m in (compiled, eager):
            (m(x).sum() + m(2 * x).square().sum()).backward()
    for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_calls_with_sizes_that_differ_from_call_to_call_are_not_captured():
    def program(x):
        return x.sin().cos().exp()

    transform = CUDAGraphTransform(device=Recorded())
    compiled = thunder.jit(program, cache="symbolic values", executors=[], transforms=[transform])
    for rows in (4, 5, 1):
        x = torch.randn(rows)
        torch.testing.assert_close(compiled(x), program(x))
    assert thunder.cache_misses(compiled) == 1
    assert "sizes that differ from call to call" in transform.explain()
