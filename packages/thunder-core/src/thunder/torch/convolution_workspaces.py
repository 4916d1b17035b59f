"""The memory that torch's convolutions on the CPU allocate for themselves.

oneDNN copies arguments and results between the layout of torch's tensors and one in which channels are in
blocks as long as a vector register (https://uxlfoundation.github.io/oneDNN/dev_guide_understanding_memory_formats.html):

    y = conv2d(x, w)     x', w' = copies in blocks; y' = the result in blocks; x' and w' are freed; y = a copy
                         of y'. Beside y there are at most x' + w', or y'.

Tensors whose channels are innermost are read as they are, and the weight alone is copied in blocks; beside it
the kernels have scratch memory, whose size does not depend on the batch. In two cases it holds numbers: a
strided convolution's gradient of the input reads a padded copy of one example's, and a forward of one channel
has the channel's places in another order, each as often as a kernel reads it.

A kernel of torch unfolds the argument instead: each element of the result has a column of what it reads.
Sizes were compared with what the allocator hands out, for float32 with AVX-512 and one thread; with AVX2
one channel that a strided kernel of 7 x 7 reads is not reordered, and its scratch memory an upper bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from thunder.base.dtypes import to_torch_dtype
from thunder.ir.proxies import TensorProxy
from thunder.ops.stand_ins import stand_in_tensor

__all__ = ["of_backward", "of_convolution", "of_transposed"]

#: the kernels of oneDNN; torch prints the one for transposed convolutions as "???"
_OF_ONEDNN = ("Mkldnn", "MkldnnTranspose", "???")
#: an argument of so few channels is read as it is
_FEW_CHANNELS = 4
#: the bytes of scratch memory where channels are innermost: of a forward, of one that reads one channel, of a
#: gradient of the input, and of one whose convolution is strided; the numbers in it fill whole parts
_SCRATCH, _SCRATCH_OF_CHANNEL, _SCRATCH_OF_INPUT, _SCRATCH_OF_STRIDES = 8216, 28696, 8344, 20504
_PART = 4096


@dataclass(frozen=True)
class _Convolution:
    """The tensors and settings of a convolution: y = input * weight."""

    input: TensorProxy
    weight: TensorProxy
    output: TensorProxy
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    is_transposed: bool

    @property
    def is_strided(self) -> bool:
        """Whether an output has not as many places as the input."""
        return any(step > 1 for step in self.stride)

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel of the output is computed from one of the input."""
        return self.groups == self.input.shape[1] == self.output.shape[1]

    @property
    def is_plain(self) -> bool:
        """Whether the channels of groups fill no blocks, so that arguments are read as they are."""
        channels = (self.input.shape[1], self.output.shape[1])
        return self.groups > 1 and not self.is_depthwise and any(c // self.groups % 8 for c in channels)

    @property
    def is_channels_last(self) -> bool:
        """Whether an argument is known to have its channels innermost, in which layout oneDNN computes."""
        return _has_channels_last(self.input) or _has_channels_last(self.weight)

    def backend(self) -> str:
        """Return the name of the kernel that torch chooses."""
        x, w = (
            stand_in_tensor(p, "cpu", strides=(0,) * len(p.shape))  # one place in memory
            for p in (self.input, self.weight)
        )
        chosen = torch._C._select_conv_backend(
            *(x, w, None, list(self.stride), list(self.padding), list(self.dilation), self.is_transposed),
            *([0] * len(self.stride), self.groups),
        )
        return str(chosen).rpartition(".")[2]

    def forward(self) -> int:
        """Return the bytes of the kernel of the forward."""
        backend = self.backend()
        if backend not in _OF_ONEDNN:
            return self._columns() if backend.startswith("Slow") else 0
        if self.is_channels_last:
            return self._channels_last_forward()
        if self.is_transposed:
            return self._spread(self.input, self.output)
        return self._gathered(self.input, self.output)

    def backward(self, of_input: bool, of_weight: bool) -> int:
        """Return the bytes of the kernel of the backward, for the gradients that are computed."""
        backend = self.backend()
        if backend not in _OF_ONEDNN:
            return self._columns() if backend.startswith("Slow") and of_weight else 0
        if self.is_channels_last:
            return self._channels_last_backward(of_input, of_weight)
        weight, beside = _bytes(self.weight) if of_weight else 0, 0
        if of_input:
            beside = (self._gathered if self.is_transposed else self._spread)(
                self.output, self.input
            ) - weight
        if of_weight and not self.is_plain:
            read, other = (self.output, self.input) if self.is_transposed else (self.input, self.output)
            copies = self._blocked(read, _FEW_CHANNELS) + self._blocked(other) + self._weight()
            beside = max(beside, copies - weight)
        return max(0, beside)

    def _gathered(self, source: TensorProxy, result: TensorProxy) -> int:
        """Return the bytes beside a result of which each place is computed from several of the source."""
        copies = self._blocked(source, _FEW_CHANNELS) + self._weight(_FEW_CHANNELS)
        if self.is_plain:
            copies = 0
        in_blocks = self._blocked(result)
        return max(copies + in_blocks - _bytes(result), in_blocks)

    def _spread(self, source: TensorProxy, result: TensorProxy) -> int:
        """Return the bytes beside a result to which each place of the source adds at several."""
        copies, in_blocks = self._blocked(source) + self._weight(), self._blocked(result)
        if self.is_plain:
            copies = 0
        beside = max(copies + in_blocks - _bytes(result), in_blocks)
        return max(beside, 2 * in_blocks) if self.is_strided else beside

    def _blocked(self, p: TensorProxy, few: int = 0) -> int:
        """Return the bytes of a copy whose channels are in blocks; 0 for so few that there is none."""
        channels, block = int(p.shape[1]), _block() if self.groups == 1 or self.is_depthwise else 1
        return 0 if channels <= few else _bytes(p) * -(-channels // block) * block // channels

    def _channels_last_forward(self) -> int:
        if self.groups > 1 or self.is_transposed:
            return self._copies_of_weight(1)
        rows, columns = self.weight.shape[:2]
        one_channel = columns == 1 and prod(self.weight.shape[2:]) > 1
        scratch = _SCRATCH_OF_CHANNEL + self._in_parts(self._reordered()) if one_channel else _SCRATCH
        return self._numbers(_whole_blocks(rows), columns) + scratch

    def _channels_last_backward(self, of_input: bool, of_weight: bool) -> int:
        """Return the bytes beside both gradients; that of the input is computed first."""
        if self.groups > 1 or self.is_transposed:
            return self._copies_of_weight(2)
        rows, columns = self.weight.shape[:2]
        first = second = 0
        if of_input:
            first = self._numbers(rows, _whole_blocks(columns)) + _SCRATCH_OF_INPUT
            if self.is_strided:
                read = prod(map(self._places_read, range(len(self.stride))))
                first += _SCRATCH_OF_STRIDES - _SCRATCH_OF_INPUT + self._in_parts(rows * read)
        if of_weight:
            padded = columns if columns <= _block() else _whole_blocks(columns)
            second = _bytes(self.weight) + self._numbers(_whole_blocks(rows), padded)
            first -= _bytes(self.weight)
        return max(first, second) + (0 if _has_channels_last(self.weight) else _bytes(self.weight))

    def _reordered(self) -> int:
        """Return the numbers that a forward of one channel reads, in the order in which it reads them."""
        places = (int(self.input.shape[-1]) + 2 * self.padding[-1]) * self.stride[-1]
        for i, kernel in enumerate(map(int, self.weight.shape[2:-1])):
            padding, size = self.padding[i], int(self.input.shape[2 + i])
            read = (int(self.output.shape[2 + i]) - 1) * self.stride[i] + kernel
            places *= kernel**2 * (kernel + padding + max(0, read - size - padding))
        return places

    def _places_read(self, dimension: int) -> int:
        """Return the length of the output, padded, that the gradient of the input reads in a dimension."""
        kernel = (int(self.weight.shape[2 + dimension]) - 1) * self.dilation[dimension]
        padding, stride = self.padding[dimension], self.stride[dimension]
        first = -((kernel - padding) // stride)
        last = (int(self.input.shape[2 + dimension]) - 1 + padding) // stride
        return last - first + 1

    def _in_parts(self, numbers: int) -> int:
        """Return the bytes of so many numbers, which fill whole parts."""
        return -(-int(numbers) // _PART) * _PART * to_torch_dtype(self.weight.dtype).itemsize

    def _numbers(self, rows: int, columns: int) -> int:
        """Return the bytes of a weight with so many channels."""
        itemsize = to_torch_dtype(self.weight.dtype).itemsize
        return int(rows) * int(columns) * prod(map(int, self.weight.shape[2:])) * itemsize

    def _copies_of_weight(self, count: int) -> int:
        return _bytes(self.weight) * (count if _has_channels_last(self.weight) else count + 1)

    def _weight(self, few: int = 0) -> int:
        rows, columns = self.weight.shape[:2]
        if self.groups > 1 or rows <= few or columns <= few:
            return _bytes(self.weight)
        block = _block()
        return _bytes(self.weight) * -(-rows // block) * -(-columns // block) * block**2 // (rows * columns)

    def _columns(self) -> int:
        kernel = tuple(self.weight.shape[2:])
        if prod(kernel) == 1 and not self.is_strided and not any(self.padding):
            return 0
        source, target = (self.output, self.input) if self.is_transposed else (self.input, self.output)
        places = source.shape[0] * prod(target.shape[2:])
        return source.shape[1] * prod(kernel) * places * to_torch_dtype(source.dtype).itemsize


def _block() -> int:
    """Return the length of a block of channels."""
    return 16 if "AVX512" in torch.backends.cpu.get_cpu_capability() else 8


def _whole_blocks(channels: int) -> int:
    """Return the least number of channels in whole blocks."""
    return -(-int(channels) // _block()) * _block()


def _bytes(p: TensorProxy) -> int:
    return int(p.numel) * to_torch_dtype(p.dtype).itemsize


def _has_channels_last(p: TensorProxy) -> bool:
    strides = p.strides
    return strides is not None and prod(p.shape[2:]) > 1 and strides[1] == 1


def of_convolution(
    output: TensorProxy,
    input: TensorProxy,
    weight: TensorProxy,
    bias: TensorProxy | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> int:
    """Return the bytes that a convolution allocates beside its result: 0 on other devices than the CPU."""
    if not _is_counted(input, weight):
        return 0
    n = len(weight.shape) - 2
    dilations = _each(dilation, n)
    if isinstance(padding, str):
        same = [d * (k - 1) // 2 for d, k in zip(dilations, weight.shape[2:], strict=True)]
        padding = same if padding == "same" else 0
    steps, pads = _each(stride, n), _each(padding, n)
    return _Convolution(input, weight, output, steps, pads, dilations, groups, False).forward()


def of_transposed(
    output: TensorProxy,
    input: TensorProxy,
    weight: TensorProxy,
    bias: TensorProxy | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> int:
    """Return the bytes that a transposed convolution allocates beside its result."""
    if not _is_counted(input, weight):
        return 0
    steps, pads, dilations = (_each(x, len(weight.shape) - 2) for x in (stride, padding, dilation))
    return _Convolution(input, weight, output, steps, pads, dilations, groups, True).forward()


def of_backward(
    output: Any,
    grad_output: TensorProxy,
    input: TensorProxy,
    weight: TensorProxy,
    bias_sizes: Sequence[int] | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    output_mask: Sequence[bool],
) -> int:
    """Return the bytes that a convolution's backward allocates beside its results."""
    if not _is_counted(input, weight):
        return 0
    steps, pads, dilations = (_each(x, len(weight.shape) - 2) for x in (stride, padding, dilation))
    convolution = _Convolution(input, weight, grad_output, steps, pads, dilations, groups, transposed)
    return convolution.backward(output_mask[0], output_mask[1])


def _is_counted(input: TensorProxy, weight: TensorProxy) -> bool:
    """Return whether a call runs on the CPU, and has a batch."""
    return input.device.type == "cpu" and len(input.shape) == len(weight.shape)


def _each(value: Any, count: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    return tuple(int(v) for v in values) * (count if len(values) == 1 else 1)
