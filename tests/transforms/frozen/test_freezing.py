"""Frozen weights: eager's values after every change of a weight, and less to compute in each call."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thunder
from comparison.results import assert_same
from thunder.compiler import idle_extensions
from thunder.core.errors import InvalidArgument
from thunder_transforms.constant_calls import ConstantFolding
from thunder_transforms.frozen.freezing import Freezing


class Net(nn.Module):
    """A convolution and a linear layer with batch norms, a scale, and values of a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.linear = nn.Linear(32, 4)
        self.last = nn.BatchNorm1d(4)
        self.register_buffer("steps", torch.arange(4.0))
        for module in (self.norm, self.last):
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = F.relu(self.norm(self.conv(x)))
        return self.last(self.linear(y.flatten(1)) * 0.5) + self.steps.sin() * 2


@pytest.fixture(autouse=True)
def _no_grad():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def images(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 4, 4)


def frozen(model: nn.Module, **options) -> thunder.ThunderModule:
    return thunder.jit(model.eval(), transforms=[Freezing()], **options)


def calls(compiled) -> list[str]:
    return [b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols]


def assert_as_eager(compiled, model: nn.Module, *args: Tensor) -> None:
    torch.testing.assert_close(compiled(*args), model(*args))


CHANGES: dict[str, Callable[[Net], object]] = {
    "a write": lambda m: m.norm.weight.mul_(2),
    "a write to a buffer": lambda m: m.norm.running_var.add_(1),
    "a write to a view": lambda m: m.conv.weight[0].zero_(),
    "another parameter": lambda m: setattr(m.linear, "bias", nn.Parameter(torch.randn(4))),
    "other memory": lambda m: setattr(m.conv.weight, "data", torch.randn(8, 3, 3, 3)),
    "a state dict": lambda m: m.load_state_dict(Net().state_dict()),
    "a state dict that is assigned": lambda m: m.load_state_dict(Net().state_dict(), assign=True),
    "an optimizer": lambda m: (
        [p.__setattr__("grad", torch.ones_like(p)) for p in m.parameters()]
        and torch.optim.SGD(m.parameters(), lr=0.1).step()
    ),
    "training": lambda m: (m.train(), m(images(4)), m.eval()),
    "a dtype and back": lambda m: m.double().float(),
    "nothing": lambda m: None,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_weight_is_seen_by_the_next_call(change):
    model = Net().eval()
    compiled = frozen(model)
    for _ in range(3):
        assert_as_eager(compiled, model, images())
        CHANGES[change](model)
    assert_as_eager(compiled, model, images())


def test_memory_that_is_used_again_is_not_that_of_before():
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)).eval()
    compiled, x = frozen(model), torch.randn(2, 64)
    for _ in range(20):  # the allocator gives the memory of the last but one again
        model[0].weight.data = torch.randn(64, 64)
        assert_as_eager(compiled, model, x)


def test_a_value_is_computed_when_a_weight_has_changed(monkeypatch):
    model, runs = Net(), []
    compiled = frozen(model)
    compiled(images())
    (transform,) = thunder.list_transforms(compiled)
    (kept,) = transform._kept.values()
    compute = kept._compute
    monkeypatch.setattr(kept, "_compute", lambda *weights: runs.append(len(weights)) or compute(*weights))
    for _ in range(3):
        compiled(images())
    assert runs == []
    model.last.bias.add_(1)
    compiled(images())
    compiled(images())
    assert len(runs) == 1


def test_what_weights_determine_leaves_the_program():
    model = Net()
    compiled = thunder.jit(model.eval(), transforms=[Freezing()], executors=[])
    assert_as_eager(compiled, model, images())
    left = [name for name in calls(compiled) if not name.startswith("python")]
    assert left == ["kept0", "conv2d", "relu", "flatten", "linear", "mul", "add"]
    (transform,) = thunder.list_transforms(compiled)
    assert "rsqrt" in transform.explain()
    assert "kept0" not in transform.explain()


def test_the_ledger_names_who_computes_what_is_kept():
    compiled = frozen(Net())
    compiled(images())
    claimed = {row.symbol: row.claimed_by for row in thunder.explain(compiled).rows}
    assert claimed["torch.rsqrt"] == claimed["torch.sin"] == "torch"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_batch_norms_after_convolutions_are_folded(dtype, dimensions, bias, affine):
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1](4, 6, 2, groups=2, bias=bias)
    norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[dimensions - 1](6, affine=affine)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    model = nn.Sequential(conv, norm).eval().to(dtype)
    compiled = thunder.jit(model, transforms=[Freezing()], executors=[])
    x = torch.randn(2, 4, *[5] * dimensions, dtype=dtype)
    result, exact = compiled(x), copy.deepcopy(model).double()(x.double())
    assert not any("norm" in name for name in calls(compiled))
    error, eagers = ((y.double() - exact).abs().max() for y in (result, model(x)))
    assert error <= max(2 * eagers, 8 * torch.finfo(dtype).eps)  # no worse than eager's, up to a factor


class Shapes(nn.Module):
    """Batch norms of another dimension, and products that are read again, which are not folded."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 5), nn.BatchNorm1d(4)
        self.conv, self.after = nn.Conv1d(3, 4, 1), nn.BatchNorm1d(4)
        for norm in (self.norm, self.after):
            norm.running_mean.normal_()

    def forward(self, x):
        y = self.conv(x.transpose(1, 2))
        return self.norm(self.linear(x)), self.after(y) + y, self.conv(x[0].T)


def test_what_is_no_batch_norm_of_channels_stays():
    model = Shapes().eval()
    compiled, x = frozen(model), torch.randn(2, 4, 3)
    assert_as_eager(compiled, model, x)


class Returned(nn.Module):
    """Results that are weights, views of them, or determined by them: the caller may write to each."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, x):
        twice = self.weight * 2
        return x @ twice, twice, twice.t(), twice[0], self.weight.t(), (twice.exp() + 1)[1:], twice.sum()


def test_results_are_the_callers_own():
    model = Returned()
    compiled, other = frozen(model), copy.deepcopy(model)
    for _ in range(3):
        x = torch.randn(3, 3)
        results, expected = compiled(x), other(x)
        assert_same(results, expected, tolerance=1e-6)
        for each in (results, expected):
            for tensor in each:
                tensor.add_(1)
        assert torch.equal(model.weight, other.weight)


class Constants(nn.Module):
    """A program that returns a constant, with a weight or without."""

    def __init__(self, has_weight: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3) if has_weight else nn.Identity()

    def forward(self, x):
        return self.linear(x), torch.arange(3.0)


@pytest.mark.parametrize("has_weight", [False, True])
@pytest.mark.parametrize("has_gradients", [False, True])
@pytest.mark.filterwarnings("ignore:Freezing has no effect")
def test_a_constant_that_the_caller_gets_is_new_in_each_call(has_weight, has_gradients):
    compiled = frozen(Constants(has_weight))
    for _ in range(3):
        with torch.set_grad_enabled(has_gradients):
            _, constant = compiled(torch.ones(1, 3))
        assert torch.equal(constant, torch.arange(3.0))
        constant.add_(7)


class Counting(nn.Module):
    """A program that writes a buffer, and reads it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        before = self.count * 2
        self.count.add_(1)
        return x * before + self.count.exp() + self.weight.sin()


def test_tensors_that_the_program_writes_are_not_frozen():
    model, other = Counting(), Counting()
    compiled = frozen(model)
    for _ in range(4):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), other(x))
    assert model.count == 4


def test_random_numbers_are_drawn_in_each_call():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(64))

        def forward(self, x):
            return x + torch.rand_like(self.weight) + F.dropout(self.weight.sin(), 0.5, training=True)

    model = Noisy()
    compiled, x = frozen(model), torch.zeros(64)
    assert not torch.equal(compiled(x), compiled(x))
    torch.manual_seed(3)
    first = compiled(x)
    torch.manual_seed(3)
    torch.testing.assert_close(first, model(x))


def test_programs_that_compute_gradients_stay_as_they_are():
    idle_extensions._warn_once.cache_clear()  # it warns once in a process
    model = Net()
    compiled = frozen(model)
    with torch.enable_grad():
        with pytest.warns(UserWarning, match="Freezing has no effect: the program computes gradients"):
            compiled(images()).sum().backward()
        assert model.conv.weight.grad is not None
    assert not any(name.startswith("kept") for name in calls(compiled))
    assert_as_eager(compiled, model, images())
    assert any(name.startswith("kept") for name in calls(compiled))


def test_weights_of_inference_mode_are_read_in_each_call():
    with torch.inference_mode():
        model = Net().eval()
        compiled, x = frozen(model), images()
        for _ in range(3):
            assert_as_eager(compiled, model, x)
            model.norm.weight.mul_(2)


def test_values_kept_in_inference_mode_are_used_outside():
    model = Net().eval()
    compiled = frozen(model)
    with torch.inference_mode():
        assert_as_eager(compiled, model, images())
    assert_as_eager(compiled, model, images())


def test_programs_of_other_shapes_keep_one_set_of_values():
    model = Net()
    compiled = frozen(model, cache="constant values")
    for count in (1, 2, 3):
        assert_as_eager(compiled, model, images(count))
    (transform,) = thunder.list_transforms(compiled)
    assert thunder.cache_misses(compiled) == 3
    assert len(transform._kept) == 1


def test_one_program_serves_all_sizes():
    model = Net()
    compiled = frozen(model, cache="symbolic values")
    for count in (2, 5, 3, 7):
        assert_as_eager(compiled, model, images(count))
    assert thunder.cache_misses(compiled) == 1


def test_autocast_casts_a_weight_once():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    compiled, x = frozen(model, executors=[]), torch.randn(2, 8)
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x), rtol=0.02, atol=0.02)
    assert calls(compiled).count("torch_to_impl") == 1  # of the input


class Inverse(nn.Module):
    """A program that computes an inverse, which may not exist, for one answer of a question."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(3))

    def forward(self, x):
        if (x > 0).all():
            return x @ torch.linalg.inv(self.weight)
        return x @ self.weight.exp()


def test_what_may_raise_is_computed_where_the_program_asks():
    model = Inverse()
    compiled = frozen(model)
    for x in (torch.ones(2, 3), -torch.ones(2, 3)):
        assert_as_eager(compiled, model, x)
    model.weight.zero_()  # has no inverse
    assert_as_eager(compiled, model, -torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="singular"):
        compiled(torch.ones(2, 3))


def test_a_copy_of_a_compiled_model_has_values_of_its_own():
    model = Net().eval()
    compiled = frozen(model)
    assert_as_eager(compiled, model, images())
    other = copy.deepcopy(compiled)
    model.norm.weight.mul_(2)
    assert_as_eager(compiled, model, images())
    x = images()
    assert not torch.allclose(other(x), compiled(x))


def test_it_is_used_with_constant_folding():
    model = Net()
    compiled = thunder.jit(model.eval(), transforms=[Freezing(), ConstantFolding()])
    assert_as_eager(compiled, model, images())


def test_a_large_value_of_a_small_weight_is_not_kept():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(5000))

        def forward(self, x):
            return (self.weight[:, None] * self.weight + x).sum()  # 100 MB

    compiled = thunder.jit(Wide(), transforms=[Freezing()], executors=[])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has no effect
        compiled(torch.ones(()))
    assert "mul" not in thunder.list_transforms(compiled)[0].explain()


def test_threads_see_values_of_the_weights_in_use():
    from concurrent.futures import ThreadPoolExecutor

    model = Net().eval()
    compiled, x = frozen(model), images()
    for _ in range(3):
        expected = model(x)

        def run(expected: Tensor = expected) -> Tensor:
            with torch.no_grad():
                return compiled(x) - expected

        with ThreadPoolExecutor(4) as pool:
            assert all(f.result().abs().max() < 1e-5 for f in [pool.submit(run) for _ in range(16)])
        model.norm.weight.mul_(1.5)


def test_a_function_is_refused():
    with pytest.raises(InvalidArgument, match="is not a module"):
        thunder.jit(lambda x: x, transforms=[Freezing()])


def test_the_recipe_of_inference():
    model = Net()
    with pytest.raises(InvalidArgument, match="in training mode"):
        thunder.compile(model, "inference")
    compiled = thunder.compile(model.eval(), "inference")
    assert_as_eager(compiled, model, images())
    assert "kept0" in calls(compiled)
    with pytest.raises(InvalidArgument, match="the model is not one"):
        thunder.compile(torch.sin, "inference")
