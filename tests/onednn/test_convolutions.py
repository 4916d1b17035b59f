"""Convolutions in channels-last: eager's values, strides and shared memory, for images in any layout."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import thunder
from comparison.memory import assert_same_memory
from comparison.results import assert_same
from sweeping import one_in
from thunder_transforms.frozen.freezing import Freezing


def compiled_with(model: nn.Module, **options: Any) -> Any:
    return thunder.jit(model.eval(), executors=["onednn"], transforms=[Freezing()], **options)


def calls(compiled: Any) -> list[str]:
    return [b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols]


def images(*shape: int, layout: str = "contiguous") -> Tensor:
    x = torch.randn(shape)
    match layout:
        case "channels last":
            return x.contiguous(memory_format=torch.channels_last)
        case "permuted":
            return torch.randn(shape[3], shape[1], shape[0], shape[2]).permute(2, 1, 3, 0)
        case "cut":
            return torch.randn(shape[0], shape[1], shape[2] + 2, shape[3] + 2)[:, :, 1:-1, 1:-1]
    return x


LAYOUTS = ("contiguous", "channels last", "permuted", "cut")


def assert_as_eager(compiled: Any, model: Callable[..., Any], *args: Tensor) -> None:
    """Compare results, types, strides, and which of them share memory."""
    result, expected = compiled(*args), model(*args)
    assert_same(result, expected, tolerance=1e-4)


CONVOLUTIONS = {
    "3x3": nn.Conv2d(4, 6, 3),
    "1x1": nn.Conv2d(4, 6, 1, bias=False),
    "padding": nn.Conv2d(4, 6, 3, padding=(2, 1)),
    "stride": nn.Conv2d(4, 6, 3, stride=2, padding=1),
    "strides": nn.Conv2d(4, 6, (3, 2), stride=(1, 3)),
    "dilation": nn.Conv2d(4, 6, 3, dilation=(2, 1)),
    "groups": nn.Conv2d(4, 6, 3, groups=2),
    "depthwise": nn.Conv2d(4, 4, 3, groups=4),
    "one channel": nn.Conv2d(4, 1, 3),
    "same": nn.Conv2d(4, 6, 3, padding="same"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_has_eagers_strides(name, layout):
    model = CONVOLUTIONS[name]
    compiled = compiled_with(model)
    for each in (layout, *LAYOUTS):  # of one program: strides of inputs are not guarded
        assert_as_eager(compiled, model, images(2, 4, 7, 8, layout=each))
    assert ("onednn_convolution" in calls(compiled)) == (name != "same")


@pytest.mark.parametrize("shape", [(1, 4, 3, 3), (2, 4, 3, 8), (1, 4, 3, 9)])
def test_results_with_few_rows(shape):
    model = nn.Conv2d(4, 6, 3)
    compiled = compiled_with(model)
    for layout in LAYOUTS:
        assert_as_eager(compiled, model, images(*shape, layout=layout))


def test_grey_images():
    model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 1, 3), nn.Conv2d(1, 2, 1))
    compiled = compiled_with(model)
    for layout in LAYOUTS:
        assert_as_eager(compiled, model, images(2, 1, 7, 8, layout=layout))


class Block(nn.Module):
    """A residual block."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in "ab")
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels) for _ in "ab"])
        for norm in self.norms:
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + x)


def test_a_residual_block_is_convolutions_alone():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), Block(4), Block(4))
    compiled = compiled_with(model)
    assert_as_eager(compiled, model, images(2, 3, 8, 8))
    left = [c for c in calls(compiled) if not c.startswith("python")]
    names = [
        "kept0",
        "contiguous",
        *["onednn_convolution", *["onednn_convolution", "onednn_convolution_add"] * 2],
    ]
    assert left == [*names, "eager_layout0"]
    model[2].norms[0].running_var.add_(1)
    model[3].second.weight.data = torch.randn(4, 4, 3, 3)
    assert_as_eager(compiled, model, images(2, 3, 8, 8))


class Shared(nn.Module):
    """Results that share memory, views, and values that the program reads in several layouts."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 1)

    def forward(self, x):
        y = torch.relu(self.conv(x))
        z = self.last(y)
        flat = y.view(y.shape[0], -1) if y.is_contiguous() else y.flatten(1)
        return (
            y,
            flat,
            y.permute(0, 2, 3, 1),
            z[:, 1:],
            z.mean((2, 3), keepdim=True),
            y.sum(1),
            z.contiguous(),
        )


def test_results_that_share_memory():
    model = Shared()
    compiled = compiled_with(model)
    for layout in ("contiguous", "contiguous", "channels last"):
        x = images(2, 3, 5, 6, layout=layout)
        result, expected = compiled(x), model(x)
        assert_same(result, expected, tolerance=1e-4)
        assert_same_memory(list(expected), list(result), "results")


def test_random_numbers_are_those_of_eager():
    class Dropout(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            return F.dropout(self.conv(x), 0.5, training=True)

    model = Dropout()
    compiled, x = compiled_with(model), images(2, 3, 5, 6)
    results = []
    for fn in (compiled, model, compiled):
        torch.manual_seed(1)
        results.append(fn(x))
    assert_same(results[0], results[1], tolerance=1e-5)
    assert_same(results[2], results[1], tolerance=1e-5)


def test_one_program_serves_all_sizes():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 2, 1))
    compiled = compiled_with(model, cache="symbolic values")
    for shape in ((2, 3, 8, 8), (3, 3, 9, 10), (5, 3, 12, 7)):
        for layout in LAYOUTS:
            assert_as_eager(compiled, model, images(*shape, layout=layout))
    assert "onednn_convolution" in calls(compiled)


@pytest.mark.parametrize("dtype", [torch.bfloat16])
def test_other_dtypes(dtype):
    model = (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.Conv2d(4, 4, 3)).eval().to(dtype)
    )
    compiled, x = compiled_with(model), images(2, 3, 8, 8).to(dtype)
    exact = copy.deepcopy(model).double()(x.double())
    errors = [(y.double() - exact).abs().max() for y in (compiled(x), model(x))]
    assert errors[0] <= 2 * errors[1]


# -- random networks -----------------------------------------------------------------------------------------

_STEPS: tuple[Callable[[random.Random, int], tuple[nn.Module, int]], ...] = (
    lambda r, c: (
        nn.Conv2d(c, o := r.choice((2, 3, 4)), r.choice((1, 3)), padding=1, stride=r.choice((1, 2))),
        o,
    ),
    lambda r, c: (nn.Conv2d(c, c, 3, padding=1, groups=c, bias=False), c),
    lambda r, c: (nn.BatchNorm2d(c), c),
    lambda r, c: (r.choice((nn.ReLU, nn.SiLU, nn.GELU, nn.Hardswish, nn.ReLU6, nn.LeakyReLU))(), c),
    lambda r, c: (r.choice((nn.MaxPool2d, nn.AvgPool2d))(3, 1, 1), c),
    lambda r, c: (Applied(r.randrange(6)), c),
)


class Applied(nn.Module):
    """What networks do between layers."""

    def __init__(self, kind: int) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x):
        match self.kind:
            case 0:
                return x * x.mean((2, 3), keepdim=True).sigmoid()
            case 1:
                return x.permute(0, 2, 3, 1).softmax(-1).permute(0, 3, 1, 2)
            case 2:
                return x + x.flip(3)
            case 3:
                return F.interpolate(x, scale_factor=2)
            case 4:
                return torch.cat([x, x], 1)[:, ::2]
        return x.reshape(x.shape[0], -1).reshape(x.shape) + 1


class Network(nn.Module):
    """A random network with residual connections, which returns several of its values."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        chosen = random.Random(seed)
        self.steps, channels = nn.ModuleList(), 3
        for _ in range(chosen.randint(3, 8)):
            step, channels = chosen.choice(_STEPS)(chosen, channels)
            self.steps.append(step)
        self.returned = set(chosen.sample(range(len(self.steps)), 2)) | {len(self.steps) - 1}
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)

    def forward(self, x):
        results = []
        for i, step in enumerate(self.steps):
            y = step(x)
            x = x + y if y.shape == x.shape and i % 2 else y
            if i in self.returned:
                results.append(x)
        return results


@pytest.mark.parametrize("seed", one_in(20, range(320)))
def test_random_networks(seed):
    torch.manual_seed(seed)
    model = Network(seed).eval()
    compiled = compiled_with(model, debug_options=thunder.DebugOptions(check_traces=bool(seed % 2)))
    for layout in LAYOUTS:
        x = images(2, 3, 7, 8, layout=layout)
        result, expected = compiled(x), model(x)
        scale = max(1.0, *(y.abs().max().item() for y in expected))
        assert_same([y / scale for y in result], [y / scale for y in expected], tolerance=1e-5)
        assert [y.stride() for y in result] == [y.stride() for y in expected]
