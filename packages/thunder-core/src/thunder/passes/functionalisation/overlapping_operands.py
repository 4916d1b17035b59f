"""In-place operators that read the memory that they write.

    x[1:].add_(x[:-1])          torch refuses it: some elements of the input and the written tensor are one
    x[:, 1:].add_(x[:, :-1])    torch cannot tell, and what it computes depends on the order of its kernel

A functional program reads everything before it writes, so both would compute another result than eager.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from thunder.ir.symbolic_sizes import are_same
from thunder.ops.layouts import Layouts
from thunder.passes.functionalisation.storages import StorageMap

#: the operator that only copies elements, after it has expanded the source to the shape of the target
_SETITEM = "torch.Tensor.__setitem__"
_GETITEM = "torch.Tensor.__getitem__"
#: tags of operators whose operands must not overlap the written tensor at all: torch refuses most such calls,
#: and reads elements that it has already written in the others
_NO_OVERLAP = frozenset({OpTags.MATMUL_OP, OpTags.NO_OVERLAP, OpTags.NO_OVERLAP_BUT_FIRST})


class OverlapChecker:
    """Refuses writes that depend on the order in which a kernel reads and writes elements.

    ``operator_of`` maps (value, target) of each write that is a part of an operator to the call of that
    operator.
    """

    def __init__(
        self, operator_of: Mapping[tuple[str, str], BoundSymbol], storages: StorageMap, layouts: Layouts
    ) -> None:
        self.operator_of, self.storages, self.layouts = operator_of, storages, layouts
        #: number of a call → the tensors that it has written
        self.written_by: dict[int, list[TensorProxy]] = {}
        #: name of the first result of an operator → the tensors of ``out=`` that its results were written to
        self.out_of: dict[str, list[TensorProxy]] = {}

    def check(self, source: TensorProxy, target: TensorProxy, call: int) -> None:
        """Raise UnsupportedProgram if the write of ``source`` to ``target`` is such a write."""
        self._check_targets(target, self.written_by.setdefault(call, []))
        operator = self.operator_of.get((source.name, target.name))
        if operator is None:  # ``target`` is the ``out`` of an operator
            producer = self.layouts.producer_of(source)
            if producer is not None:
                first = producer.flat_proxy_outs[0].name
                self._check_targets(target, self.out_of.setdefault(first, []))
                self._check_operands(producer, 0, target)
        elif OpTags.IN_PLACE in operator.tags:  # batch norm, for one, writes to several of its arguments
            self._check_operands(operator, 1, target)

    def _check_targets(self, target: TensorProxy, written: list[TensorProxy]) -> None:
        """Refuse a call that writes two overlapping tensors: the order is not defined."""
        storage = self.storages.of(target).storage
        for other in written:
            if self.storages.of(other).storage is storage and self.layouts.overlap(target, other):
                raise UnsupportedProgram(
                    "one operator writes two tensors that overlap in memory",
                    found=_described(other, target),
                    hint="Pass tensors that do not overlap, such as two buffers or clones.",
                )
        written.append(target)

    def _check_operands(self, call: BoundSymbol, first: int, target: TensorProxy) -> None:
        """Refuse a call that writes elements which it reads later, in arguments from the ``first`` on."""
        storage = self.storages.of(target).storage
        operands = ((i, x) for i in range(first, len(call.args)) for x in tree_iter(call.args[i]))
        for position, operand in operands:
            if not isinstance(operand, TensorProxy) or self.storages.of(operand).storage is not storage:
                continue
            if _is_read_first(call, operand, target) or self._is_written_place(call, operand, target):
                continue
            with torch._C.DisableTorchFunction():
                layouts = self.layouts.both(target, operand)
                hazard = _is_hazard(call, *layouts, _must_not_overlap(call, position))
            if hazard:
                raise UnsupportedProgram(
                    "some elements of the input tensor and the written-to tensor refer to a single memory "
                    "location",
                    found=_described(target, operand),
                    hint="Clone the input before the call, or use the out-of-place operator.",
                )

    def _is_written_place(self, call: BoundSymbol, operand: TensorProxy, target: TensorProxy) -> bool:
        """Return whether elements go to their own places, as in the last step of ``x[1:n] += y``."""
        view = self.layouts.producer_of(operand)
        return (
            call.sym.id == _SETITEM
            and view is not None
            and view.sym.id == _GETITEM
            and view.args[0] is target
            and _are_same_views(view.args[1], call.args[1])
        )


def _described(*proxies: TensorProxy) -> dict[str, str]:
    return {p.name: f'"{p.type_string()}"' for p in proxies}


def _is_read_first(call: BoundSymbol, operand: TensorProxy, target: TensorProxy) -> bool:
    """Return whether the call reads the operand, if 0-dimensional, before it writes."""
    if operand.ndim != 0:
        return False
    if call.sym.id != _SETITEM:
        return OpTags.READS_NUMBER_FIRST in call.tags
    key = call.args[1]
    is_mask = isinstance(key, TensorProxy) and key.dtype is bool8 and target.ndim > 0
    return is_mask or _is_basic(key)


def _must_not_overlap(call: BoundSymbol, position: int) -> bool:
    """Return whether the argument must not share any element with the written tensor."""
    if position == 0 and OpTags.NO_OVERLAP_BUT_FIRST in call.tags:
        return False
    return not _NO_OVERLAP.isdisjoint(call.tags)


def _is_hazard(call: BoundSymbol, written: torch.Tensor, read: torch.Tensor, no_overlap: bool) -> bool:
    """Return whether torch refuses the two, or the order of reads and writes matters."""
    if written.untyped_storage()._cdata != read.untyped_storage()._cdata:
        return False
    moves = call.sym.id == _SETITEM
    if moves and _is_basic(call.args[1]):
        written = written[call.args[1]]
        read = read.expand(written.shape) if _expands(read, written) else read
    elif moves:
        no_overlap = True  # it is an ``index_put_``
    (start, end), (other_start, other_end) = byte_span(written), byte_span(read)
    if max(start, other_start) >= min(end, other_end):
        return False
    if written.element_size() != read.element_size():
        return True
    if no_overlap or not _expands(read, written):
        return bool(torch.isin(_places(read), _places(written)).any())
    if _is_dense(written) and _is_dense(read):
        return (start, end, written.stride()) != (other_start, other_end, read.stride())
    return _reads_what_was_written(written, read, moves)


def _reads_what_was_written(written: torch.Tensor, read: torch.Tensor, moves: bool) -> bool:
    """Return whether an element is read for another place, and its own place is written."""
    targets, sources = _places(written), _places(read.expand(written.shape))
    elsewhere = sources != targets
    changed = targets[elsewhere] if moves else targets
    return bool(torch.isin(sources[elsewhere], changed).any())


def _is_basic(key: Any) -> bool:
    """Return whether indexing by a key is a view, not a gather of elements."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(
        isinstance(p, int | slice | NoneType | EllipsisType) and not isinstance(p, bool) for p in parts
    )


def _are_same_views(key: Any, other: Any) -> bool:
    """Return whether indexing by two keys gives the same view, or views without a common element."""
    parts, others = ((k if isinstance(k, tuple) else (k,)) for k in (key, other))
    return len(parts) == len(others) and all(map(_are_same_parts, parts, others))


def _are_same_parts(a: Any, b: Any) -> bool:
    if isinstance(a, TensorProxy):  # a position, at two moments perhaps
        return a is b and a.ndim == 0 and a.dtype is not bool8
    if not (_is_basic(a) and _is_basic(b)):
        return False
    if isinstance(a, slice) and isinstance(b, slice):
        return are_same((a.start, a.stop, a.step), (b.start, b.stop, b.step))
    return type(a) is type(b) and are_same((a,), (b,))


def _expands(read: torch.Tensor, written: torch.Tensor) -> bool:
    """Return whether a tensor can be broadcast to the shape of the written one."""
    if read.ndim > written.ndim:
        return False
    sizes = zip(reversed(read.shape), reversed(written.shape), strict=False)
    return all(n in (1, target) for n, target in sizes)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has each element of a range of its storage once, in any order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _places(tensor: torch.Tensor) -> torch.Tensor:
    """Return the position in its storage of each element of a tensor: int64, ``(numel,)``."""
    places = torch.tensor(int(tensor.storage_offset()))
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = places.unsqueeze(-1) + torch.arange(int(size)) * int(stride)
    return places.reshape(-1)
