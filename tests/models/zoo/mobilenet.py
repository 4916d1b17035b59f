"""MobileNet: inverted residuals of depthwise convolutions, squeeze and excitation, hard activations."""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn


def make_divisible(channels: float, divisor: int = 4) -> int:
    """The nearest multiple of the divisor that is at least nine tenths of what was asked for."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


class SqueezeExcitation(nn.Module):
    """Each channel scaled by a gate that sees the mean of all of them."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation = nn.ReLU()
        self.gate = nn.Hardsigmoid()

    def forward(self, x: Tensor) -> Tensor:
        scale = self.avgpool(x)
        scale = self.gate(self.fc2(self.activation(self.fc1(scale))))
        return scale * x


def convolution(
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    act: type[nn.Module] | None = None,
) -> nn.Sequential:
    """A convolution that keeps the size, batch normalisation, an activation."""
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    parts["conv"] = nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    parts["norm"] = nn.BatchNorm2d(outputs, eps=0.001, momentum=0.01)
    if act is not None:
        parts["act"] = act(inplace=True)
    return nn.Sequential(parts)


class InvertedResidual(nn.Module):
    """Widened, convolved channel by channel, narrowed; added to the input where the shapes allow it."""

    def __init__(
        self, inputs: int, wide: int, outputs: int, kernel: int, stride: int, se: bool, hard: bool
    ) -> None:
        super().__init__()
        act = nn.Hardswish if hard else nn.ReLU6
        layers: list[nn.Module] = []
        if wide != inputs:
            layers.append(convolution(inputs, wide, 1, act=act))
        layers.append(convolution(wide, wide, kernel, stride, groups=wide, act=act))
        if se:
            layers.append(SqueezeExcitation(wide, make_divisible(wide / 4)))
        layers.append(convolution(wide, outputs, 1))
        self.block = nn.Sequential(*layers)
        self.use_res_connect = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        result = self.block(x)
        return result + x if self.use_res_connect else result


#: widened, outputs, kernel, stride, squeeze and excitation, hard activation
SETTINGS = (
    (8, 8, 3, 1, False, False),
    (16, 8, 3, 2, False, False),
    (16, 12, 5, 1, True, True),
)


class MobileNet(nn.Module):
    """Scores of classes (n, classes)."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = [convolution(3, 8, 3, stride=2, act=nn.Hardswish)]
        inputs = 8
        for wide, outputs, kernel, stride, se, hard in SETTINGS:
            layers.append(InvertedResidual(inputs, wide, outputs, kernel, stride, se, hard))
            inputs = outputs
        layers.append(convolution(inputs, 4 * inputs, 1, act=nn.Hardswish))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(4 * inputs, 32),
            nn.Hardswish(inplace=True),
            nn.Dropout(p=0.2, inplace=True),
            nn.Linear(32, classes),
        )
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        x = self.avgpool(self.features(x))
        return self.classifier(torch.flatten(x, 1))


def make(seed: int) -> tuple[MobileNet, tuple[Any, ...], dict[str, Any]]:
    """Three images."""
    torch.manual_seed(seed)
    return MobileNet(), (torch.randn(3, 3, 12, 12),), {}
