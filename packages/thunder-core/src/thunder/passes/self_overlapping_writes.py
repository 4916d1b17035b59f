"""In-place calls that read the memory that they write.

    x[1:].add_(x[:-1])          torch refuses it: some elements of the input and the written tensor are one
    x[:, 1:].add_(x[:, :-1])    torch cannot tell, and what it computes depends on the order of its kernel

A functional program reads everything before it writes, so both would get another result than eager's.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import EllipsisType, NoneType
from typing import Any

import torch

from thunder.base.dtypes import bool8
from thunder.base.errors import UnsupportedProgram
from thunder.base.memory_layout import byte_span
from thunder.base.pytree import tree_iter
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ops.layouts import Layouts
from thunder.passes.mutations import writing_operators
from thunder.passes.storage_versions import Memories

#: calls that only move elements, after they have expanded the source to the shape of the target
_MOVES = "torch.Tensor.__setitem__"
#: calls that read a tensor without dimensions before they write
_READ_FIRST = frozenset(
    {"torch.Tensor.fill_", "torch.Tensor.masked_fill_", "torch.Tensor.index_fill_", "torch.full"}
)
#: calls whose operands may not lie in the written memory at all, beside products of matrices: torch refuses
#: most of them, and reads what it has written in the others
_APART = frozenset(
    {
        *(f"torch.Tensor.scatter{name}_" for name in ("", "_add", "_reduce")),
        *(f"torch.Tensor.index_{name}_" for name in ("add", "copy", "reduce")),
        *("torch.Tensor.index_put_", "torch.Tensor.put_", "torch.Tensor.masked_scatter_"),
        *("torch.cross", "torch.linalg.cross", "torch.linalg.matrix_power", "torch.linalg.solve_triangular"),
        *("torch.gather", "torch.index_select", "torch.take", "torch.cat"),
    }
)
#: products of matrices that are added to their first operand, element by element
_ADD_A_PRODUCT = frozenset(f"torch.{name}" for name in ("addmm", "addmv", "addbmm", "baddbmm"))


class Overlaps:
    """Refuses the writes of a program, met in order, of which the order of reads and writes shows."""

    def __init__(self, program: Iterable[BoundSymbol], memories: Memories, layouts: Layouts) -> None:
        self.memories, self.layouts = memories, layouts
        #: (value, target) of each write that is a part of an operator → the call of that operator
        self.operator_of = writing_operators(program)
        #: the tensors that the call of each number has written
        self.written_by: dict[int, list[TensorProxy]] = {}

    def check(self, source: TensorProxy, target: TensorProxy, call: int) -> None:
        """Raise UnsupportedProgram for the write of ``source`` to ``target`` in the call of that number."""
        self._check_targets(target, self.written_by.setdefault(call, []))
        operator = self.operator_of.get((source.name, target.name))
        if operator is None:  # it was given ``target`` as its ``out``
            maker = self.layouts.maker(source)
            if maker is not None:
                self._check_operands(maker, maker.args, target)
        elif OpTags.IN_PLACE in operator.tags:  # batch norm, for one, writes to several of its arguments
            self._check_operands(operator, operator.args[1:], target)

    def _check_targets(self, target: TensorProxy, written: list[TensorProxy]) -> None:
        """A call that writes two tensors does so in an order of its own."""
        memory = self.memories.of(target).memory
        for other in written:
            if self.memories.of(other).memory is memory and self.layouts.overlap(target, other):
                raise UnsupportedProgram(
                    "one operator writes two tensors that overlap in memory",
                    found=_described(other, target),
                    hint="Give it tensors with memory of their own, as two buffers or as clones.",
                )
        written.append(target)

    def _check_operands(self, call: BoundSymbol, operands: Any, target: TensorProxy) -> None:
        """A call must not write what it has yet to read."""
        memory = self.memories.of(target).memory
        for operand in tree_iter(operands):
            if not isinstance(operand, TensorProxy) or self.memories.of(operand).memory is not memory:
                continue
            if _is_read_first(call, operand, target):
                continue
            with torch._C.DisableTorchFunction():
                layouts = self.layouts.of(target), self.layouts.of(operand)
                hazard = _is_hazard(call, *layouts, _must_be_apart(call, operand))
            if hazard:
                raise UnsupportedProgram(
                    "some elements of the input tensor and the written-to tensor refer to a single memory "
                    "location",
                    found=_described(target, operand),
                    hint="Clone the input before the call, or use the out-of-place operator.",
                )


def _described(*proxies: TensorProxy) -> dict[str, str]:
    return {p.name: f'"{p.type_string()}"' for p in proxies}


def _is_read_first(call: BoundSymbol, operand: TensorProxy, target: TensorProxy) -> bool:
    """Whether the call reads the operand, a tensor without dimensions, before it writes."""
    if operand.ndim != 0:
        return False
    if call.sym.id != _MOVES:
        return call.sym.id in _READ_FIRST
    key = call.args[1]
    is_mask = isinstance(key, TensorProxy) and key.dtype is bool8 and target.ndim > 0
    return is_mask or _is_basic(key)


def _must_be_apart(call: BoundSymbol, operand: TensorProxy) -> bool:
    """Whether the operand may not lie in the written memory at all."""
    if OpTags.MATMUL_OP in call.tags:
        return not (call.sym.id in _ADD_A_PRODUCT and operand is call.args[0])
    return call.sym.id in _APART


def _is_hazard(call: BoundSymbol, written: torch.Tensor, read: torch.Tensor, apart: bool) -> bool:
    """Whether torch refuses the two, or what is computed depends on the order of reads and writes."""
    if written.untyped_storage()._cdata != read.untyped_storage()._cdata:
        return False
    moves = call.sym.id == _MOVES
    if moves and _is_basic(call.args[1]):
        written = written[call.args[1]]
        read = read.expand(written.shape) if _expands(read, written) else read
    elif moves:
        apart = True  # it is an ``index_put_``
    (start, end), (other_start, other_end) = byte_span(written), byte_span(read)
    if max(start, other_start) >= min(end, other_end):
        return False
    if written.element_size() != read.element_size():
        return True
    if apart or not _expands(read, written):
        return bool(torch.isin(_places(read), _places(written)).any())
    if _is_dense(written) and _is_dense(read):
        return (start, end, written.stride()) != (other_start, other_end, read.stride())
    return _reads_what_was_written(written, read, moves)


def _reads_what_was_written(written: torch.Tensor, read: torch.Tensor, moves: bool) -> bool:
    """Whether some element is read for another place than its own, and its own place is written."""
    targets, sources = _places(written), _places(read.expand(written.shape))
    elsewhere = sources != targets
    changed = targets[elsewhere] if moves else targets
    return bool(torch.isin(sources[elsewhere], changed).any())


def _is_basic(key: Any) -> bool:
    """Whether a key picks a view, and no elements one by one."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(
        isinstance(p, int | slice | NoneType | EllipsisType) and not isinstance(p, bool) for p in parts
    )


def _expands(read: torch.Tensor, written: torch.Tensor) -> bool:
    """Whether a tensor can be broadcast to the shape of the written one."""
    if read.ndim > written.ndim:
        return False
    sizes = zip(reversed(read.shape), reversed(written.shape), strict=False)
    return all(n in (1, wanted) for n, wanted in sizes)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor has each element of a stretch of its storage once, in some order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _places(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of its storage that a tensor is made of, in its own order: int64, ``(numel,)``."""
    places = torch.tensor(int(tensor.storage_offset()))
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = places.unsqueeze(-1) + torch.arange(int(size)) * int(stride)
    return places.reshape(-1)
