"""The memory of a program's tensors, while functionalisation walks over it: which version of it each value is
of.

Each tensor belongs to a memory: the tensor that made it is the root, and each view knows its parent and the
call that made it. A write to a tensor computes the root's next value, through the views between; a tensor
that is read after a write elsewhere in its memory is made anew from its parent. So views cost nothing where
nobody reads them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from thunder.base.errors import UnsupportedProgram
from thunder.ir.aliasing import View
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import any_requires_grad
from thunder.ir.substitution import substitute, substitute_operands
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx
from thunder.passes.overlapping_inputs import SharedMemory
from thunder.passes.view_inverses import again, written_through


@dataclass(eq=False)
class Memory:
    """A piece of memory: how often it was written, and whether a write cut it off from its gradient.

    ``shared`` is set where inputs overlap: each of them is a root then.
    """

    version: int = 0
    cut: bool = False
    shared: SharedMemory | None = None


@dataclass(eq=False)
class Tensor:
    """A tensor of the program: its memory, its value, the version that the value is of, and how it comes from
    its parent.
    """

    proxy: TensorProxy
    memory: Memory
    value: TensorProxy
    version: int = 0
    view: View | None = None
    call: BoundSymbol | None = None


class Memories:
    """All tensors met so far, by name. Values are computed into the current trace, ``new``.

    ``first`` are the first values of tensors that require grad only since they were written.
    """

    def __init__(self, new: TraceCtx, first: Mapping[str, TensorProxy]) -> None:
        self.new, self.first = new, first
        self._tensors: dict[str, Tensor] = {}

    def of(self, proxy: TensorProxy) -> Tensor:
        """What is known of a tensor; one not met before is the root of a memory of its own."""
        tensor = self._tensors.get(proxy.name)
        if tensor is None:
            first = self.first.get(proxy.name, proxy)
            tensor = self._tensors[proxy.name] = Tensor(proxy, Memory(), first)
        return tensor

    def share(self, shared: SharedMemory) -> None:
        """Gives inputs that overlap one memory."""
        memory = Memory(shared=shared)
        for member in shared.members:
            first = self.first.get(member.proxy.name, member.proxy)
            self._tensors[member.proxy.name] = Tensor(member.proxy, memory, first)

    def add_view(self, view: View, call: BoundSymbol, value: TensorProxy) -> None:
        """Notes that an output of ``call``, whose value is ``value`` now, is a view."""
        memory, value = self.of(view.source).memory, self.first.get(value.name, value)
        self._tensors[view.output.name] = Tensor(view.output, memory, value, memory.version, view, call)

    def same(self, name: str, tensor: Tensor) -> None:
        """Notes that ``name`` is another name of a tensor."""
        self._tensors[name] = tensor

    def chain(self, tensor: Tensor) -> Iterator[Tensor]:
        """The tensor, its parent, and so on up to the root."""
        yield tensor
        while tensor.view is not None:
            tensor = self.of(tensor.view.source)
            yield tensor

    def root(self, tensor: Tensor) -> Tensor:
        """The tensor that made the memory."""
        *_, last = self.chain(tensor)
        return last

    # -- reading -----------------------------------------------------------------------------------

    def read(self, proxy: TensorProxy) -> TensorProxy:
        """The value of a tensor now."""
        tensor = self.of(proxy)
        if tensor.version != tensor.memory.version:
            self._refresh(tensor)
        return tensor.value

    def _refresh(self, tensor: Tensor) -> None:
        """Makes a view, and those that the same call returned, anew from its parent's value."""
        if tensor.view is None:
            assert tensor.memory.shared is not None, f"{tensor.proxy.name} was written without a value"
            tensor.value, tensor.version = tensor.memory.shared.window(tensor.proxy), tensor.memory.version
            return
        for name, value in self.view_again(tensor, self.read(tensor.view.source)).items():
            sibling = self._tensors.get(name)
            if (
                sibling is not None
                and sibling.call is tensor.call
                and sibling.version != sibling.memory.version
            ):
                sibling.value, sibling.version = value, sibling.memory.version

    def view_again(
        self, tensor: Tensor, parent: TensorProxy, *, as_written: bool = False
    ) -> dict[str, TensorProxy]:
        """The outputs of the call that made a view, by name, on another value of its parent.

        That value may lie in memory otherwise, so that ``view`` would fail: ``reshape`` stands for it, unless
        the call is to stay ``as_written``.
        """
        assert tensor.view is not None, f"{tensor.proxy.name} is no view"
        assert tensor.call is not None, f"{tensor.proxy.name} is a view that no call made"
        if tensor.proxy.requires_grad and passes_detach(tensor):
            raise UnsupportedProgram(
                "a detached tensor was written with a value that requires grad, and its memory was written "
                "again or leaves the program under another name too",
                found={tensor.proxy.name: f'"{tensor.proxy.type_string()}"'},
                hint="Write to a clone, or use the out-of-place operator.",
            )
        if not as_written and insists_on_layout(tensor.view):
            return {tensor.proxy.name: followed(tensor.view.path, parent)}
        call = repeated(tensor.call, {tensor.view.source.name: parent})
        self.new.record(call)
        names = [p.name for p in tensor.call.flat_proxy_outs]
        return dict(zip(names, call.flat_proxy_outs, strict=True))

    # -- writing -----------------------------------------------------------------------------------

    def write(self, tensor: Tensor, value: TensorProxy) -> None:
        """The next version of a tensor's memory, in which the tensor holds ``value``."""
        chain = list(self.chain(tensor))
        bases = [self.read(t.proxy) for t in chain[1:]]
        values = [value]
        for child, base in zip(chain, bases, strict=False):
            assert child.view is not None, f"{child.proxy.name} is no view"
            values.append(written_through(child.view.path, base, values[-1]))
        memory = tensor.memory
        if memory.shared is not None:
            memory.shared.put(chain[-1].proxy, values[-1])
        memory.version += 1
        for t, new in zip(chain, values, strict=True):
            t.value, t.version = new, memory.version

    def renew(self, root: Tensor, value: TensorProxy) -> None:
        """Gives the root another value that is equal, so that its views are made anew from it when they are
        read.
        """
        root.memory.version += 1
        root.value, root.version = value, root.memory.version


def passes_detach(tensor: Tensor) -> bool:
    """Whether the tensor is a view that a ``detach`` made, or took part in making."""
    return tensor.view is not None and any(call.sym.id == "prims.detach" for call in tensor.view.path)


def insists_on_layout(view: View) -> bool:
    """Whether the call that makes the view fails on a tensor that lies otherwise in memory."""
    return any(call.sym.id == "prims.view" for call in view.path)


def followed(path: Sequence[BoundSymbol], value: TensorProxy) -> TensorProxy:
    """The view of ``value`` that the primitives of ``path`` make."""
    for call in path:
        value = again(call, value)
    return value


def repeated(call: BoundSymbol, values: Mapping[str, TensorProxy]) -> BoundSymbol:
    """The call, which makes views, on other arguments, with results under fresh names.

    The tensor may require grad only since it was written; then all between it and the views does too.
    """
    differentiable = any_requires_grad(call.flat_proxy_outs)
    fresh = {
        p.name: TensorProxy(like=p, requires_grad=p.requires_grad or (differentiable and p.dtype.is_inexact))
        for p in _results(call)
    }
    # renamed first: the values may be results of the call as it was
    return substitute_operands(substitute(call, fresh), values)


def _results(call: BoundSymbol) -> Iterable[TensorProxy]:
    """What the call and its subsymbols compute."""
    given = {p.name for p in call.flat_proxy_args}
    for bsym in (call, *call.subsymbols):
        yield from (p for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy) and p.name not in given)
        if bsym is not call:
            yield from _results(bsym)
