"""The storages of a program's tensors, and the storage version of each value.

The tensor that allocated a storage is its root, and each view knows its parent and the call that created it.
A write to a tensor computes the root's next value, through the views between; a tensor that is read after
another tensor of its storage was written is recomputed from its parent. So a view that is not read again
costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.ir.aliasing import InputAlias, View
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import any_requires_grad
from thunder.ir.substitution import substitute, substitute_operands
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx
from thunder.ops import prims
from thunder.passes.functionalisation.overlapping_inputs import SharedStorage
from thunder.passes.functionalisation.view_creation import Creation
from thunder.passes.functionalisation.view_inverses import rerun_view, write_through


@dataclass(eq=False)
class Storage:
    """A storage during the rewrite.

    Attributes:
        version: the number of writes so far.
        writes: the number of writes of the program so far; other new versions have the same elements.
        gradient_is_lost: whether a write in inference mode replaced a value of ``shared`` that requires grad.
        is_inference: whether it was allocated in inference mode.
        layout_differs: whether its value may have other strides than the root has in eager.
        shared: set if inputs overlap in this storage: each of them is a root then.
    """

    version: int = 0
    writes: int = 0
    gradient_is_lost: bool = False
    is_inference: bool = False
    layout_differs: bool = False
    shared: SharedStorage | None = None


@dataclass(eq=False)
class TensorState:
    """A tensor of the program: its storage, its value with version, and its parent.

    ``creation`` is set for a view that torch's autograd lets nothing write; ``created_at`` is the number of
    writes to the storage before.
    """

    proxy: TensorProxy
    storage: Storage
    value: TensorProxy
    version: int = 0
    view: View | None = None
    call: BoundSymbol | None = None
    creation: Creation | None = None
    created_at: int = 0

    @property
    def is_detached(self) -> bool:
        """Whether the tensor is a view that no gradient passes."""
        return self.view is not None and self.view.is_detached

    @property
    def has_own_gradient(self) -> bool:
        """Whether the tensor has a gradient that is not that of its parent, since a write to it."""
        return self.proxy.requires_grad and self.is_detached

    def invalidate(self) -> None:
        """Let the tensor, a view, be recomputed from its parent when it is read."""
        self.version = self.storage.version - 1


class StorageMap:
    """All tensors so far, by name. Values are computed into the current trace, ``new``.

    ``pre_write_proxies`` are the first values of tensors that require grad only since a write.
    """

    def __init__(self, new: TraceCtx, pre_write_proxies: Mapping[str, TensorProxy]) -> None:
        self.new, self.pre_write_proxies = new, pre_write_proxies
        self._tensors: dict[str, TensorState] = {}

    def of(self, proxy: TensorProxy) -> TensorState:
        """Return the state of a tensor; a new one is the root of a storage."""
        tensor = self._tensors.get(proxy.name)
        if tensor is None:
            value = self.pre_write_proxies.get(proxy.name, proxy)
            tensor = self._tensors[proxy.name] = TensorState(proxy, Storage(), value)
        return tensor

    def share(self, members: tuple[InputAlias, ...]) -> None:
        """Assign one storage to inputs that overlap."""
        storage = Storage(shared=SharedStorage(members))
        for member in members:
            value = self.pre_write_proxies.get(member.proxy.name, member.proxy)
            self._tensors[member.proxy.name] = TensorState(member.proxy, storage, value)

    def add_view(
        self, view: View, call: BoundSymbol, value: TensorProxy, creation: Creation | None = None
    ) -> None:
        """Add an output of ``call`` that is a view and whose current value is ``value``."""
        source, value = self.of(view.source), self.pre_write_proxies.get(value.name, value)
        storage = source.storage
        tensor = TensorState(view.output, storage, value, storage.version, view, call)
        if not tensor.is_detached:
            tensor.creation, tensor.created_at = creation or source.creation, storage.writes
        self._tensors[view.output.name] = tensor

    def add_name(self, name: str, tensor: TensorState) -> None:
        """Add another name of a tensor."""
        self._tensors[name] = tensor

    def view_chain(self, tensor: TensorState) -> Iterator[TensorState]:
        """Yield the tensor, its parent, and so on up to the root."""
        yield tensor
        while tensor.view is not None:
            tensor = self.of(tensor.view.source)
            yield tensor

    def root(self, tensor: TensorState) -> TensorState:
        """Return the tensor that allocated the storage."""
        *_, last = self.view_chain(tensor)
        return last

    # -- reading -----------------------------------------------------------------------------------

    def read(self, proxy: TensorProxy) -> TensorProxy:
        """Return the current value of a tensor."""
        tensor = self.of(proxy)
        if tensor.version != tensor.storage.version:
            self._refresh(tensor)
        return tensor.value

    def _refresh(self, tensor: TensorState) -> None:
        """Recompute a view, and those that the same call returned, from its parent's value."""
        storage = tensor.storage
        if tensor.view is None:
            assert storage.shared is not None, f"{tensor.proxy.name} was written without a value"
            value = storage.shared.window(tensor.proxy)
            if tensor.value.requires_grad:  # written where gradients are off: the numbers change
                value = self.with_history(value, tensor.value)
            tensor.value, tensor.version = value, storage.version
            return
        for name, value in self.view_again(tensor, self.read(tensor.view.source)).items():
            sibling = self._tensors.get(name)
            if (
                sibling is not None
                and sibling.call is tensor.call
                and sibling.version != sibling.storage.version
            ):
                sibling.value, sibling.version = value, sibling.storage.version

    def view_again(
        self, tensor: TensorState, parent: TensorProxy, *, as_written: bool = False
    ) -> dict[str, TensorProxy]:
        """Return the outputs, by name, of the call that created a view, on another parent.

        That value may have other strides, for which ``view`` fails: ``reshape`` replaces it, unless the call
        has to stay ``as_written``.
        """
        assert tensor.view is not None, f"{tensor.proxy.name} is not a view"
        assert tensor.call is not None, f"{tensor.proxy.name} is a view without a call"
        if tensor.has_own_gradient:
            raise UnsupportedProgram(
                "a detached tensor was written with a value that requires grad, and its memory was written "
                "again or leaves the program under another name too",
                found={tensor.proxy.name: f'"{tensor.proxy.type_string()}"'},
                hint="Write to a clone, or use the out-of-place operator.",
            )
        if not as_written:
            _refuse_window(tensor.view)
        if not as_written and requires_layout(tensor.view):
            return {tensor.proxy.name: replay_views(tensor.view, parent)}
        call = rerecord(tensor.call, {tensor.view.source.name: parent})
        self.new.record(call)
        names = [p.name for p in tensor.call.flat_proxy_outs]
        return dict(zip(names, call.flat_proxy_outs, strict=True))

    # -- writing -----------------------------------------------------------------------------------

    def write(self, tensor: TensorState, value: TensorProxy) -> None:
        """Compute the next version of a tensor's storage, in which the tensor holds ``value``."""
        chain = list(self.view_chain(tensor))
        bases = [self.read(t.proxy) for t in chain[1:]]
        values = [value]
        for child, base in zip(chain, bases, strict=False):
            assert child.view is not None, f"{child.proxy.name} is not a view"
            values.append(write_through(child.view.path, base, values[-1]))
        storage = tensor.storage
        if storage.shared is not None:
            storage.shared.put(chain[-1].proxy, values[-1])
        storage.version += 1
        storage.writes += 1
        for t, new in zip(chain, values, strict=True):
            t.value, t.version = new, storage.version

    def replace_value(self, root: TensorState, value: TensorProxy) -> None:
        """Replace the root's value by an equal one; its views are recomputed when they are read."""
        root.storage.version += 1
        root.value, root.version = value, root.storage.version

    def with_history(self, value: TensorProxy, old: TensorProxy) -> TensorProxy:
        """Return the numbers of a value, with the gradient of an older one, which requires grad."""
        data = prims.detach(value) if value.requires_grad else value
        result = TensorProxy(like=data, requires_grad=True)
        self.new.record(prims.replace_data.bind(data, old, output=result))
        return result

    def own_gradients(self, storage: Storage) -> list[TensorState]:
        """Return the tensors of a storage that have their own gradient and are up to date."""
        tensors = {id(t): t for t in self._tensors.values() if t.storage is storage}
        return [t for t in tensors.values() if t.has_own_gradient and t.version == storage.version]


#: views of the memory around their operand, which a value in other memory does not have
_WINDOWS = frozenset({"prims.as_strided", "torch.as_strided"})


def _refuse_window(view: View) -> None:
    """Refuse to read a window onto memory again after a write to it."""
    if any(call.sym.id in _WINDOWS for call in view.path):
        raise UnsupportedProgram(
            "a tensor is written, and read through as_strided, which shows memory and not elements",
            found={view.output.name: f'"{view.output.type_string()}"'},
            hint="Read a clone of the window, or use slices, transpose and reshape.",
        )


def requires_layout(view: View) -> bool:
    """Return whether the call that creates the view fails for some strides of its operand."""
    return any(call.sym.id == "prims.view" for call in view.path)


def replay_views(view: View, value: TensorProxy) -> TensorProxy:
    """Return the view of ``value`` that the primitives of a view's path create.

    It requires grad only if the view itself does: one that was created under no_grad does not.
    """
    with torch.set_grad_enabled(view.output.requires_grad):
        for call in view.path:
            value = rerun_view(call, value)
    return value


def rerecord(call: BoundSymbol, values: Mapping[str, TensorProxy]) -> BoundSymbol:
    """Return the call, which creates views, on other operands, with results under new names.

    If a result requires grad only since a write, all tensors between the operands and the results require
    grad too.
    """
    differentiable = any_requires_grad(call.flat_proxy_outs)
    fresh = {
        p.name: TensorProxy(like=p, requires_grad=p.requires_grad or (differentiable and p.dtype.is_inexact))
        for p in _computed(call)
    }
    # The names come first: the new operands may be results of the original call.
    return substitute_operands(substitute(call, fresh), values)


def _computed(call: BoundSymbol) -> Iterable[TensorProxy]:
    """Yield the tensors that the call and its subsymbols compute."""
    operands = {p.name for p in call.flat_proxy_args}
    for bsym in (call, *call.subsymbols):
        yield from (p for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy) and p.name not in operands)
        if bsym is not call:
            yield from _computed(bsym)
