"""The arrays of a program: those of the user, and those that share the memory of tensors.

Note [Arrays]
A program sees an array of the user as a copy, on which NumPy computes natively. The copy has its content from
the first read on, which is a fact; what differs at the end is written to the user's array by the epilogue.
An array of which the program only makes a tensor is not read: it is an input.

    def f(x, a):                        prologue:     t0 = from_numpy(a), with its metadata
        return x + torch.from_numpy(a)  computation:  t1 = x + t0

    def f(x, a):                        prologue:     the elements of a are [2.0, 3.0]
        return x * float(a[0])          computation:  t0 = x * 2.0

``t.numpy()`` is an array of the tensor's shape. If the program only passes it on, the epilogue makes it again
of the tensor; what NumPy computes from it is computed in each call (Note [Arrays of tensors]); if the program
reads it otherwise, its elements are a decision. Other arrays that the program computes are NumPy's own: they
depend on facts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import Path
from thunder.base.tags import OpTags
from thunder.frontend.arrays.array_memory import (
    ArrayContent,
    ArrayLayout,
    are_apart,
    copied,
    fill,
    is_array,
    is_plain_array,
    new_like,
    overlap,
)
from thunder.frontend.natives.libraries import numpy
from thunder.frontend.objects.writes import Write
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ir.refused_methods import MOST_DECIDED, decided_values
from thunder.ir.symbol import has_tags
from thunder.ops import prims

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

__all__ = ["Arrays", "TracedArray", "adopt", "arrays_in", "made_by"]


@dataclass(eq=False, slots=True)
class TracedArray:
    """An array whose content is not the program's own, or whose memory a tensor shares.

    Attributes:
        array: what the program sees.
        original, path: the array of the user, or None.
        tensor: the tensor that shares its memory, or None.
        start: the number of statements recorded when the tensor and the array began to share memory.
        content: the elements at the first read, or None before.
        is_private: whether nothing else than the array is in the memory of the tensor, which a call has made.
    """

    array: Any
    original: Any = None
    path: Path | None = None
    tensor: TensorProxy | None = None
    start: int = 0
    content: bytes | None = None
    is_private: bool = False

    @property
    def is_unread(self) -> bool:
        """Return whether it is an array of a tensor whose elements the program does not know."""
        return self.path is None and self.content is None

    @property
    def is_written(self) -> bool:
        """Return whether the program has written to the array since the first read."""
        return self.content is not None and self.array.tobytes() != self.content

    def write(self, path: Path) -> Write:
        """Return the elements that the program has given an array of the user's."""
        return Write(
            name=path.source,
            emit=partial(self._emit, path),
            owner=self.original,
            state=self.array.tobytes(),
        )

    def _emit(self, path: Path, builder: EpilogueBuilder) -> None:
        """Write the elements to the user's array."""
        target = builder.fetched(path, self.original)
        builder.emit(f"{target}[...] = {builder.constant('array', copied(self.array))}")


class Arrays(SessionState):
    """The arrays of one acquisition, see Note [Arrays]."""

    def __init__(self, session: TracingSession) -> None:
        session.uses_arrays = True
        self._traced: dict[int, TracedArray] = {}  # by id of what the program sees

    def end(self) -> None:
        self._traced.clear()

    def writes(self) -> Iterator[Write]:
        return (t.write(t.path) for t in self._traced.values() if t.is_written and t.path is not None)

    # -- where arrays come from ------------------------------------------------------------------------------

    def adopt(self, raw: Any, path: Path) -> Any:
        """Return the copy of an array of the user that the program sees, not filled yet."""
        objects = self._session.objects
        if path.parent is not None:
            objects.note(prims.check_type, path, type(raw))
        if not is_plain_array(raw):
            raise UnsupportedProgram(
                f"{path.source} is an array of NumPy whose elements are objects or records",
                found={path.source: f"{raw.dtype}{list(raw.shape)}"},
                hint="Use an array of numbers.",
            )
        traced = self._add(TracedArray(new_like(raw), original=raw, path=path))
        traced.array.flags.writeable = raw.flags.writeable
        entry = objects.track(raw, path, traced.array)
        objects.unread[id(traced.array)] = entry
        entry.reader = lambda: self.read(traced)
        return traced.array

    def of_tensor(
        self, tensor: TensorProxy, strides: tuple[int, ...] | None = None, *, is_private: bool = False
    ) -> Any:
        """Return the array that shares the memory of a tensor, not filled yet; ``strides`` are elements."""
        sample = torch.empty((0,), dtype=tensor.dtype.torch_dtype).numpy()  # torch raises for some dtypes
        module: Any = numpy()
        array = module.empty(tensor.shape, sample.dtype)
        if strides is not None:
            layout = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype.torch_dtype)
            array = new_like(layout.numpy())
        array.fill(1)  # numbers with which functions may be tried
        traced = self._add(TracedArray(array, tensor=tensor, is_private=is_private))
        traced.start = len(self._session.trace.bound_symbols)
        objects = self._session.objects
        entry = objects.track(
            traced.array, objects.object_root(traced.array, "an array of a tensor"), traced.array
        )
        objects.unread[id(traced.array)] = entry
        entry.reader = lambda: self.read(traced)
        return traced.array

    def share(self, array: Any, tensor: TensorProxy) -> None:
        """Note that a tensor shares the memory of an array that the program has computed."""
        traced = self._add(TracedArray(array, tensor=tensor, content=array.tobytes()))
        traced.start = len(self._session.trace.bound_symbols)

    def _add(self, traced: TracedArray) -> TracedArray:
        self._traced[id(traced.array)] = traced
        return traced

    # -- reads -----------------------------------------------------------------------------------------------

    def of(self, array: Any) -> TracedArray | None:
        """Return the entry of an array, or None if the program has computed it and no tensor shares it."""
        return self._traced.get(id(array))

    def owner_of(self, array: Any) -> TracedArray | None:
        """Return the entry of the array whose memory an array is in, or None."""
        entries = self._traced.values()
        return self.of(array) or next((t for t in entries if overlap(t.array, array)), None)

    def note_layout(self, traced: TracedArray) -> None:
        """Note that the program depends on the metadata of an array."""
        if traced.path is not None:
            self._session.note(prims.check_array, traced.path, ArrayLayout.of(traced.original), key="layout")

    def read(self, traced: TracedArray) -> None:
        """Fill an array with its content, on which the program depends from now on."""
        if traced.tensor is not None:
            self._refuse_written_tensor(traced)
        if traced.content is not None:
            return
        if traced.path is not None:
            self._refuse_written_memory(traced)
            self.note_layout(traced)
            self._session.note(
                prims.check_array, traced.path, ArrayContent.of(traced.original), key="content"
            )
            fill(traced.array, traced.original)
            if traced.tensor is None:
                self._session.objects.unread.pop(id(traced.array), None)
        else:
            module: Any = numpy()
            assert traced.tensor is not None, "an array without a path is computed by the program"
            if traced.tensor.numel > MOST_DECIDED:
                raise UnsupportedProgram(
                    "the program takes the elements of an array of a tensor one by one, or writes to it",
                    found={"array": f"{traced.array.dtype}{list(traced.array.shape)}"},
                    hint="Use functions of NumPy on the whole array, and write to a copy of it.",
                )
            values = decided_values(traced.tensor)
            traced.array[...] = module.array(values, traced.array.dtype)
            if traced.is_private:
                self._forget(traced)
        traced.content = traced.array.tobytes()

    def _forget(self, traced: TracedArray) -> None:
        """Let an array of a tensor be one that the program has computed, once it knows the elements."""
        objects = self._session.objects
        for table in (self._traced, objects.unread, objects.entries):
            table.pop(id(traced.array), None)

    def check_read(self, array: Any) -> None:
        """Check, before native code reads an array, that no write to a tensor has changed it."""
        for traced in self._traced.values():
            if traced.tensor is not None and overlap(traced.array, array):
                self._refuse_written_tensor(traced)

    def _refuse_written_tensor(self, traced: TracedArray) -> None:
        if self._writes_since(traced.start):
            raise UnsupportedProgram(
                "the program reads an array of NumPy after it has written in place to a tensor, which may "
                "share its memory",
                hint="Read the array before the write, or compute with the tensor.",
            )

    def _refuse_written_memory(self, traced: TracedArray) -> None:
        """Refuse to read an array of the user in whose memory the program has written."""
        if not self._writes_since(0):
            return
        entries = self._session.objects.entries
        tensors = [
            entry.obj for proxy, _ in self._session.objects.inputs if (entry := entries.get(id(proxy)))
        ]
        if not are_apart(traced.original, *(t for t in tensors if isinstance(t, torch.Tensor))):
            self._refuse_written_tensor(traced)

    def _writes_since(self, start: int) -> bool:
        return any(has_tags(b, {OpTags.IN_PLACE}) for b in self._session.trace.bound_symbols[start:])

    # -- the end of the program ------------------------------------------------------------------------------

    def written(self) -> list[TracedArray]:
        """Return the arrays of the user that the program has written to.

        Raises UnsupportedProgram for a write to memory that a tensor shares.
        """
        for traced in self._traced.values():
            original = traced.original
            if original is not None and traced.array.flags.writeable != original.flags.writeable:
                raise UnsupportedProgram(
                    "the program makes an array of NumPy writeable or read-only",
                    hint="Do it outside the compiled function.",
                )
        written = [t for t in self._traced.values() if t.is_written]
        for traced in written:
            if traced.tensor is not None:
                raise UnsupportedProgram(
                    "the program writes to an array of NumPy whose memory a tensor of the program shares",
                    hint="Write to the tensor, or make the tensor of a copy of the array.",
                )
        return written

    def refuse_shared(self, array: Any) -> None:
        """Refuse to build an array that is in the memory of another one that is not the program's own."""
        traced = self.owner_of(array)
        if traced is not None:
            raise UnsupportedProgram(
                "the program returns or stores an array of NumPy that shares the memory of an array of the "
                "user's or of a tensor",
                hint="Return a copy of it, or the whole array.",
            )

    def proxy_of(self, array: Any) -> TensorProxy | None:
        """Return the tensor of which an array that the program has not written is made in each call."""
        traced = self.of(array)
        if traced is None or traced.path is not None or traced.tensor is None:
            return None
        self._refuse_written_tensor(traced)
        return traced.tensor

    def note_memory(self, roots: dict[str, Any]) -> None:
        """Guard that arrays which the program reads share no memory with what it writes."""
        read = [t for t in self._traced.values() if t.path is not None and t.content is not None]
        written = self.written()
        if not read or not (written or self._writes_since(0)):
            return
        paths = [path for proxy, path in self._session.objects.inputs if isinstance(proxy, TensorProxy)]
        for traced in read:
            arrays = [t.path for t in read if t is not traced] if written else []
            others = [p for p in (*paths, *arrays) if p is not None and p.parent is not traced.path]
            if not others or traced.path is None:
                continue
            if not are_apart(traced.original, *(path.fetch(roots) for path in others)):
                raise UnsupportedProgram(
                    f"{traced.path.source} shares memory with another array or tensor, and the program "
                    "writes to one of them",
                    hint="Pass a copy.",
                )
            self._session.note(prims.check_apart, traced.path, are_apart, *others)


def adopt(session: TracingSession, raw: Any, path: Path) -> Any:
    """Return what the program sees of an array of the user."""
    return session.state(Arrays).adopt(raw, path)


def made_by(session: TracingSession, array: Any) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """Return how an array of a tensor is made in each call; None for others."""
    tensor = session.state(Arrays).proxy_of(array)
    return None if tensor is None else (torch.Tensor.numpy, (tensor,))


def arrays_in(values: Any) -> list[Any]:
    """Return the arrays among values, and in tuples and lists of them."""
    found, pending = [], list(values)
    while pending:
        value = pending.pop()
        if is_array(value):
            found.append(value)
        elif type(value) in (tuple, list):
            pending += value
    return found
