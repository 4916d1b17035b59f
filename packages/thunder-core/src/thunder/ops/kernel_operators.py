"""Kernels that write to their arguments, as packages launch them in the place of a library.

Note [Kernel calls]
A program may launch a kernel that torch does not know, one that it wrote itself. A package replaces the
library's function that launches it by `run_kernel`, which is an operator in a traced program:

    kernel[grid](x, out, n)    →    (t1,) = kernel(x, out, 40); prims.copy_(t1, out)

The operator launches the kernel on a copy of each tensor that it writes, and returns the copies, or on the
tensor itself where nothing needs the old elements (Note [Writes in place]). Memory that
holds nothing yet (`torch.empty`) is not copied: the operator allocates it. Each tensor has the strides that
eager gives it, since a kernel computes addresses of them. Symbolic sizes and strides are arguments of the
operator, after those of the kernel:

    kernel[grid](x, out, n)    →    (t1,) = kernel(x, None, n, i0, i1, i1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from thunder.base.errors import UnsupportedOperator
from thunder.base.tags import OpTags
from thunder.ir.gradient_declarations import NONDIFFERENTIABLE
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops.in_place import InPlaceForm

__all__ = ["KernelCall", "KernelTensor", "Size", "SizeArgument", "kernel_symbol", "run_kernel"]


def run_kernel(
    name: str,
    kernel: Callable[..., Any],
    arguments: Sequence[Any],
    written: Sequence[int],
) -> None:
    """Run `kernel(*arguments)`; in a traced program, record it as an operator.

    It returns nothing, and it writes to elements of the tensors at the positions `written`, and to no other
    memory. `arguments` are tensors, numbers and None; other values are part of `kernel`, which must not
    change. A compiled program runs the kernel in each call, even if nothing reads what it writes: it may
    print or raise. The tensors have the strides that eager gives them.

    Args:
        name: of the operator, an identifier.
        kernel: runs outside of the trace, in each call of the program.
        arguments: of one launch.
        written: positions in `arguments`; too many do no harm, too few give wrong results.
    """
    kernel(*arguments)


@dataclass(frozen=True)
class SizeArgument:
    """A symbolic size or stride, which the operator receives after the arguments of the kernel."""

    position: int


#: a size or a stride: a number, or an argument of the operator
Size = int | SizeArgument


@dataclass(frozen=True)
class KernelTensor:
    """A tensor argument of a kernel.

    Attributes:
        position: in the arguments.
        strides: that eager gives it (elements).
        written: whether the kernel writes to it.
        new: its shape, dtype and device, if it is memory that holds nothing: the argument is None then.
        same_as: the position of the first argument that is the same tensor, or its own.
    """

    position: int
    strides: tuple[Size, ...]
    written: bool
    new: tuple[tuple[Size, ...], torch.dtype, torch.device] | None
    same_as: int

    @property
    def is_base(self) -> bool:
        """Whether the kernel writes to it, and it holds something before."""
        return self.written and self.same_as == self.position and self.new is None

    def memory(self, arguments: Sequence[Any], *, in_place: bool = False) -> torch.Tensor:
        """Return the tensor that the kernel receives in the place of this one in a call of the operator.

        It is a copy of one that the kernel writes, or with ``in_place`` that tensor if it has the strides.
        """
        strides = _numbers(self.strides, arguments)
        if self.new is not None:
            shape, dtype, device = self.new
            return torch.empty_strided(_numbers(shape, arguments), strides, dtype=dtype, device=device)
        tensor = arguments[self.position]
        assert tensor is not None, "an argument that is not new has a value"
        is_itself = (in_place or not self.written) and _fits(tensor, strides)
        return tensor if is_itself else _copied(tensor, strides)


def _numbers(sizes: Sequence[Size], arguments: Sequence[Any]) -> tuple[int, ...]:
    """Return sizes as they are in a call of the operator."""
    return tuple(arguments[size.position] if isinstance(size, SizeArgument) else size for size in sizes)


def _fits(tensor: torch.Tensor, strides: Sequence[int]) -> bool:
    pairs = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return tensor.numel() == 0 or all(a == b for size, a, b in pairs if size > 1)


def _copied(tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
    """Return a copy with these strides; elements along a dimension of stride 0 share memory."""
    copy = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    target, source = copy, tensor.detach()
    for d, (size, stride) in enumerate(zip(tensor.shape, strides, strict=True)):
        if stride == 0 and size > 1:
            target, source = target.narrow(d, 0, 1), source.narrow(d, 0, 1)
    target.copy_(source)
    return copy


class KernelCall:
    """One launch of a program: a function from its arguments to the tensors that the kernel has written.

    The first `count` arguments are those of the kernel, the others are symbolic sizes and strides.
    """

    def __init__(
        self, name: str, kernel: Callable[..., Any], count: int, tensors: Sequence[KernelTensor]
    ) -> None:
        self.__name__ = self.__qualname__ = name
        self.kernel, self.count, self.tensors = kernel, count, tuple(tensors)

    def __call__(self, *arguments: Any) -> tuple[torch.Tensor, ...]:
        """Launch the kernel. Raises UnsupportedOperator if it writes to memory of another argument."""
        return tuple(self._launch(arguments, in_place=False).values())

    def _launch(self, arguments: Sequence[Any], *, in_place: bool) -> dict[int, torch.Tensor]:
        """Return what a launch has written, by position."""
        values, results = list(arguments[: self.count]), dict[int, torch.Tensor]()
        self._refuse_shared_memory(arguments)
        with torch.no_grad():
            for tensor in self.tensors:
                if tensor.same_as != tensor.position:
                    values[tensor.position] = values[tensor.same_as]
                    continue
                memory = tensor.memory(arguments, in_place=in_place)
                values[tensor.position] = memory
                if tensor.written:
                    results[tensor.position] = memory
            if not any(_has_no_data(v) for v in values):
                self.kernel(*values)
        return results

    @cached_property
    def in_place(self) -> InPlaceForm:
        """The form that writes to the arguments themselves. What it overwrites is not known."""
        written = [t for t in self.tensors if t.written and t.same_as == t.position]

        def run(*arguments: Any) -> tuple[torch.Tensor | None, ...]:
            results = self._launch(arguments, in_place=True)
            for tensor in written:
                if tensor.is_base and (memory := results[tensor.position]) is not arguments[tensor.position]:
                    arguments[tensor.position].copy_(memory)
            return tuple(None if t.is_base else results[t.position] for t in written)

        return InPlaceForm(
            run=run,
            bases=lambda args, kwargs: [args[t.position] for t in written if t.is_base],
            copies=lambda output: [o for o, t in zip(output, written, strict=True) if t.is_base],
            results=lambda output: tuple(
                None if t.is_base else o for o, t in zip(output, written, strict=True)
            ),
        )

    def _refuse_shared_memory(self, arguments: Sequence[Any]) -> None:
        """Refuse a write to memory of another argument, which the copy of the first would not change."""
        given = [(t, arguments[t.position]) for t in self.tensors if arguments[t.position] is not None]
        for written, tensor in given:
            if not written.written or written.same_as != written.position:
                continue
            for other, x in given:
                if other.same_as != written.position and _overlap(tensor, x):
                    raise UnsupportedOperator(
                        f"the kernel {self.__name__} writes to memory that two of its arguments share",
                        found={"positions": f"{written.position} and {other.position}"},
                        hint="Pass a clone of the other argument.",
                    )


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not a.numel() or not b.numel() or a.device != b.device or _has_no_data(a):
        return False
    first, last = a.data_ptr(), a.data_ptr() + _bytes(a)
    return first < b.data_ptr() + _bytes(b) and b.data_ptr() < last


def _bytes(t: torch.Tensor) -> int:
    elements = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True)) + 1
    return elements * t.element_size()


def _has_no_data(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and (
        x.device.type == "meta" or isinstance(x, torch._subclasses.FakeTensor)
    )


def kernel_symbol(call: KernelCall, unique_id: str, results: Sequence[TensorProxy]) -> Symbol:
    """Return the operator of a launch; its results are like `results`, the tensors that the kernel writes."""
    metadata = [(tuple(p.shape), p.dtype, p.device, p.strides) for p in results]

    def meta(*arguments: Any) -> tuple[TensorProxy, ...]:
        return tuple(
            TensorProxy(shape=shape, dtype=dtype, device=device, strides=strides, requires_grad=False)
            for shape, dtype, device, strides in metadata
        )

    return Symbol(
        call.__name__,
        unique_id,
        meta,
        tags=frozenset({OpTags.DONT_RECOMPUTE_IN_BACKWARD}),
        python_impl=call,
        autocast=None,
        gradient=NONDIFFERENTIABLE,
    )
