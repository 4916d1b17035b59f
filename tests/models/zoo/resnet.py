"""A residual convnet of the ResNet-18 kind: batch normalisation, in-place ReLU, strided shortcuts."""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """3 by 3 convolution that keeps the size at stride 1."""
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    """Two convolutions and a shortcut."""

    expansion = 1

    def __init__(
        self, inputs: int, outputs: int, stride: int = 1, downsample: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """Logits (n, classes) of images (n, 3, h, w)."""

    def __init__(self, layers: tuple[int, ...] = (1, 1, 2), width: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.inplanes = width
        self.conv1 = nn.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        stages: OrderedDict[str, nn.Module] = OrderedDict()
        for i, blocks in enumerate(layers):
            stages[f"stage{i}"] = self._stage(width * 2**i, blocks, stride=1 if i == 0 else 2)
        self.stages = nn.Sequential(stages)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(width * 2 ** (len(layers) - 1), classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def _stage(self, planes: int, blocks: int, stride: int) -> nn.Sequential:
        downsample = None
        if stride != 1 or self.inplanes != planes * BasicBlock.expansion:
            downsample = nn.Sequential(
                nn.Conv2d(self.inplanes, planes, kernel_size=1, stride=stride, bias=False),
                nn.BatchNorm2d(planes),
            )
        first = BasicBlock(self.inplanes, planes, stride, downsample)
        self.inplanes = planes * BasicBlock.expansion
        return nn.Sequential(first, *(BasicBlock(self.inplanes, planes) for _ in range(1, blocks)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.stages(x))
        return self.fc(torch.flatten(x, 1))


def make(seed: int) -> tuple[ResNet, tuple[Any, ...], dict[str, Any]]:
    """A batch of four images of 32 by 32 pixels."""
    torch.manual_seed(seed)
    return ResNet(), (torch.randn(4, 3, 32, 32),), {}
