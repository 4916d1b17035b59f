"""The rewrite: statements on the current values of their operands.

Each write becomes a new version of the storage that it writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from thunder.base.errors import OperatorError, ThunderError, UnsupportedProgram
from thunder.ir.aliasing import InputAlias, views_of
from thunder.ir.proxies import ProxyTag, TensorProxy
from thunder.ir.recorder import FixedLocation
from thunder.ir.requires_grad import any_requires_grad
from thunder.ir.substitution import substitute_operands, substitute_outputs
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx
from thunder.ops import prims
from thunder.passes.functionalisation.alias_info import AliasInfo
from thunder.passes.functionalisation.overlapping_operands import OverlapChecker
from thunder.passes.functionalisation.storages import StorageMap, TensorState, replay_views, requires_layout
from thunder.passes.functionalisation.view_creation import GradModes, refuse_view
from thunder.passes.functionalisation.written_layouts import has_same_layout, restore_layout
from thunder.passes.mutations import COPY, primitives

__all__ = ["Rewriter", "located", "refuse_lost_gradient", "tensors_in"]


def tensors_in(proxies: Iterable[Any]) -> list[TensorProxy]:
    """Return the tensors among proxies."""
    return [p for p in proxies if isinstance(p, TensorProxy)]


@contextmanager
def located(bsym: BoundSymbol, recorder: FixedLocation) -> Iterator[None]:
    """Give statements and errors within the context the location of a call."""
    recorder.source = bsym.source
    try:
        yield
    except ThunderError as error:
        error.add_locations(bsym.locations)
        raise


class Rewriter:
    """Records the functional program into a new trace, statement by statement.

    Attributes:
        storages: the tensors of the program with their current values.
        written_inputs: name of an input → whether a write to it is part of torch's graph: it was made under
            grad mode, and not through a ``detach``.
        copies: names of results that are not views in the new trace, according to eager's layouts.
    """

    def __init__(self, info: AliasInfo, new: TraceCtx) -> None:
        self.info, self.new = info, new
        self.storages = StorageMap(new, info.pre_write_proxies)
        for members in info.shared:
            self.storages.share(members)
        self.written_inputs: dict[str, bool] = {}
        self.copies: set[str] = set()
        self._modes = GradModes(torch.is_grad_enabled(), is_tracked=new.grad_enabled)
        #: the roots that the current region of inference mode writes, each with its value before
        self._written_in_inference: dict[str, tuple[TensorState, TensorProxy]] = {}
        self._overlaps = OverlapChecker(info.operator_of, self.storages, info.layouts)
        self._self_overlapping = _SelfOverlappingValues(new)
        self._producers = _Producers(new)

    def rewrite(self, position: int, bsym: BoundSymbol) -> None:
        """Record the statement at ``position`` of the program."""
        if bsym.sym.id == COPY:
            self._write(position, bsym)
        else:
            self._emit(position, bsym)

    def _emit(self, position: int, bsym: BoundSymbol) -> None:
        """Record a statement that writes nothing, on the current values of its operands."""
        self._modes.follow(bsym)
        operands = tensors_in(bsym.flat_proxy_args)
        if any_requires_grad(bsym.flat_proxy_outs):
            for p in operands:
                refuse_lost_gradient(self.storages.of(p))
        if self._modes.enters_graph(bsym):
            for p in operands:
                self._refuse_stale_view(self.storages.of(p))
        for p in operands:
            restore_layout(self.info.layouts, self.storages, self.storages.of(p))
        current = {p.name: value for p in operands if (value := self.storages.read(p)) is not p}
        views = views_of(bsym)
        results: dict[str, TensorProxy] = {}
        if current and any(map(requires_layout, views)):
            for view in views:
                self.info.layouts.of(view.output)  # raises where eager does: the strides do not permit `view`
                results[view.output.name] = replay_views(view, current.get(view.source.name, view.source))
        else:
            call = substitute_operands(bsym, current)
            self.new.record(substitute_outputs(call, self.info.pre_write_proxies))
        for view in views:
            is_view = view.certain
            if not is_view and self.info.view_matters(view, position):
                is_view = self.info.layouts.share_memory(view.output, view.source)
                if not is_view and not current:  # on other operands, eager's layouts do not tell
                    self.copies.add(view.output.name)
            if is_view:
                value, creation = results.get(view.output.name, view.output), self._modes.creation_of(bsym)
                self.storages.add_view(view, bsym, value, creation)
            elif view.output.name in results:
                self.storages.of(view.output).value = results[view.output.name]
        if not self._modes.is_inference:
            self._leave_inference()
            return
        for p in tensors_in(bsym.flat_proxy_outs):
            tensor = self.storages.of(p)
            tensor.storage.is_inference |= tensor.view is None

    def _write(self, position: int, bsym: BoundSymbol) -> None:
        """Compute the next version of a storage for ``copy_(value, target)``."""
        source, target = bsym.args
        self._overlaps.check(source, target, self.info.call_of[position])
        tensor, grad = self.storages.of(target), bsym.kwargs["grad_enabled"] and not self._modes.is_inference
        chain = list(self.storages.view_chain(tensor))
        storage, root = tensor.storage, chain[-1].proxy
        if storage.is_inference and not self._modes.is_inference:
            _refuse_inference_tensor(target)
        if tensor.view is not None:
            restore_layout(self.info.layouts, self.storages, tensor)
        tracked = grad and not any(t.is_detached for t in chain)
        value = self.storages.read(source)
        if not grad and (value.requires_grad or self._may_require_grad(position, source)):
            value = prims.detach(value)  # in torch's graph, nothing flows into what is written
        old, own_gradients = self.storages.read(root), self._own_gradients(chain, grad)
        has_gradient = old.requires_grad and root.requires_grad
        if tracked and root is not target and (has_gradient or value.requires_grad):
            self._refuse_view(root, tensor)
        if storage.shared is not None:
            shared_grad = any(m.proxy.requires_grad for m in storage.shared.members)
            if grad and (shared_grad or value.requires_grad):
                _refuse_shared(storage.shared.members)
            storage.gradient_is_lost |= shared_grad and self._modes.is_inference
        if ProxyTag.RECOMPUTE_IN_BACKWARD not in target.tags:  # the result of a checkpointed region is saved
            value.tags.discard(ProxyTag.RECOMPUTE_IN_BACKWARD)
        self.storages.write(tensor, value)
        self._materialise_overlapping(chain)
        if tracked:
            self._derive_constant_views(chain)
        self._mark_layout(position, source, target, chain)
        if tracked and has_gradient and not self._depends(chain[-1].value, old):
            self.storages.replace_value(chain[-1], prims.overwrite(chain[-1].value, old))
        if root.name in self.info.inputs:
            self.written_inputs[root.name] = tracked or self.written_inputs.get(root.name, False)
        if self._modes.is_inference and not storage.is_inference:
            self._written_in_inference.setdefault(root.name, (chain[-1], old))
        elif has_gradient and not tracked:
            self._keep_history(chain, old)
        for view, before in own_gradients:
            view.value = self.storages.with_history(view.value, before)
        if isinstance(bsym.output, TensorProxy):
            self.storages.add_name(bsym.output.name, tensor)

    def _may_require_grad(self, position: int, source: TensorProxy) -> bool:
        """Return whether the value of a write where gradients are off may require grad when it runs.

        Of a view that was created where gradients are off, torch says so if its base does. What the writing
        call has computed is not such a view.
        """
        if not self.new.grad_enabled or not source.dtype.is_inexact:
            return False
        producer = self.info.layouts.producer_of(source)
        if producer is None or any(part is producer for part in self.info.parts_before(position)):
            return False
        return any(view.output.name == source.name for view in views_of(producer))

    def _own_gradients(
        self, chain: Sequence[TensorState], grad: bool
    ) -> list[tuple[TensorState, TensorProxy]]:
        """Return the views that keep their own gradient in a write to the first, with their values before.

        Those are tensors of a ``detach`` that require grad (by ``requires_grad_``, or by an earlier write),
        if gradients are off, or if another ``detach`` is between them and the written tensor.
        """
        keeping = []
        for tensor in chain:
            if tensor.has_own_gradient and not grad:
                keeping.append((tensor, self.storages.read(tensor.proxy)))
            grad = grad and not tensor.is_detached
        return keeping

    def _keep_history(self, chain: list[TensorState], old: TensorProxy) -> None:
        """Give the written tensor, which requires grad, the history that ``old`` had.

        So it is in torch after a write where gradients are off, or through a ``detach``: the numbers change,
        and the tensor is still a result of the same calls. A tensor from a ``detach`` on keeps its value.
        """
        *views_between, root = chain
        for tensor in reversed(views_between):
            if tensor.is_detached:
                break
            tensor.invalidate()
        root.value = self.storages.with_history(root.value, old)

    def _leave_inference(self) -> None:
        """Copy what a region of inference mode has written: torch's tensors are normal ones still."""
        for root, old in self._written_in_inference.values():
            if root.storage.shared is None:
                has_gradient = old.requires_grad and root.proxy.requires_grad
                value = (
                    self.storages.with_history(root.value, old) if has_gradient else prims.clone(root.value)
                )
                self.storages.replace_value(root, value)
        self._written_in_inference.clear()

    def _depends(self, value: TensorProxy, old: TensorProxy) -> bool:
        """Return whether a gradient flows from a value to the old value of the tensor.

        If not, in torch a gradient of zeros still reaches the old value.
        """
        self._producers.update()
        seen: set[str] = set()
        stack = [value]
        while stack and old.name not in seen:
            p = stack.pop()
            if p.requires_grad and p.name not in seen:
                seen.add(p.name)
                call = self._producers.calls.get(p.name)
                stack += tensors_in(call.flat_proxy_args) if call is not None else []
        return old.name in seen

    def _materialise_overlapping(self, chain: list[TensorState]) -> None:
        """Copy a written value whose elements overlap: those of the written tensor do not."""
        self._self_overlapping.update()
        *views_between, root = chain
        if root.value.name in self._self_overlapping:
            self.storages.replace_value(root, prims.clone(root.value))
        for tensor in views_between:
            if tensor.value.name in self._self_overlapping:
                tensor.invalidate()

    def _derive_constant_views(self, chain: list[TensorState]) -> None:
        """Derive from the written root the views whose value is a constant without a gradient.

        In torch's graph a written view is a view of the new root, and requires grad if that does.
        """
        *views_between, root = chain
        if root.value.requires_grad:
            for tensor in views_between:
                if not tensor.value.requires_grad:
                    tensor.invalidate()

    def _mark_layout(
        self, position: int, value: TensorProxy, target: TensorProxy, chain: list[TensorState]
    ) -> None:
        """Mark a storage whose value may have other strides than eager's; a read restores them."""
        *views_between, root = chain
        if root.storage.shared is not None or has_same_layout(self.info, position, value, target, root):
            return
        last = self.new.bound_symbols[-1] if self.new.bound_symbols else None
        if last is None or last.sym is not prims.copy_with_setitem or last.output is not root.value:
            root.storage.layout_differs = True
            return
        for tensor in views_between:  # the root is a copy of the old root; views of it are recomputed
            if not (tensor.value.requires_grad and tensor.is_detached):
                tensor.invalidate()

    def _refuse_view(self, root: TensorProxy, target: TensorState) -> None:
        """Refuse writes through views as torch does; acquisition refuses those to leaves."""
        if target.creation is not None and target.call is not None:
            refuse_view(target.creation, self._creating_call(target), "is being", target.proxy)
        was_leaf = root.requires_grad and root.name not in self.info.pre_write_proxies
        if root.name in self.info.inputs and was_leaf and root.declared_leaf is not False:
            raise OperatorError(
                "a view of a leaf Variable that requires grad is being used in an in-place operation.",
                found={root.name: f'"{root.type_string()}"'},
                hint="Write under torch.no_grad(), or use the out-of-place operator.",
            )

    def _refuse_stale_view(self, tensor: TensorState) -> None:
        """Refuse to read a view that cannot follow a write to its memory, as torch does."""
        if tensor.creation is None or tensor.created_at == tensor.storage.writes:
            return
        base = tensor
        while base.view is not None and not base.is_detached:
            base = self.storages.of(base.view.source)
        if base.proxy.requires_grad and (base.storage.shared is not None or base.value.requires_grad):
            written = "its base or another view of its base has been"
            refuse_view(tensor.creation, self._creating_call(tensor), written, tensor.proxy)

    def _creating_call(self, tensor: TensorState) -> BoundSymbol:
        """Return the first call that created a view as ``tensor`` was created."""
        chain = [t for t in self.storages.view_chain(tensor) if t.creation is tensor.creation]
        call = chain[-1].call
        assert call is not None, f"{tensor.proxy.name} is a view without a call"
        return call


class _Producers:
    """The calls of a trace that grows, by the names of their results."""

    def __init__(self, trace: TraceCtx) -> None:
        self._trace, self._scanned = trace, 0
        self.calls: dict[str, BoundSymbol] = {}

    def update(self) -> None:
        """Add the calls that were recorded since the last update."""
        for bsym in self._trace.bound_symbols[self._scanned :]:
            self.calls.update({p.name: bsym for p in bsym.flat_proxy_outs})
        self._scanned = len(self._trace.bound_symbols)


class _SelfOverlappingValues:
    """The names of values of a trace in which several elements may be one place in memory."""

    def __init__(self, trace: TraceCtx) -> None:
        self._trace, self._scanned = trace, 0
        self._names: set[str] = set()

    def update(self) -> None:
        """Scan the statements that were recorded since the last update."""
        for bsym in primitives(self._trace.bound_symbols[self._scanned :]):
            for view in views_of(bsym):
                if view.source.name in self._names or view.output.numel() > view.source.numel():
                    self._names.add(view.output.name)
        self._scanned = len(self._trace.bound_symbols)

    def __contains__(self, name: str) -> bool:
        return name in self._names


def _refuse_inference_tensor(target: TensorProxy) -> None:
    """Refuse a write to a tensor of inference mode outside of it, as torch does."""
    raise OperatorError(
        "Inplace update to inference tensor outside InferenceMode is not allowed.",
        found={target.name: f'"{target.type_string()}"'},
        hint="Write to a clone of it.",
    )


def _refuse_shared(members: Iterable[InputAlias]) -> None:
    """Refuse a write to overlapping inputs: only the graph of their base has the gradients."""
    raise UnsupportedProgram(
        "an input that overlaps another in memory is written where gradients are tracked",
        found={m.proxy.name: f'"{m.proxy.type_string()}"' for m in members},
        hint="Write under torch.no_grad(), or pass clones to the program.",
    )


def refuse_lost_gradient(tensor: TensorState) -> None:
    """Raise UnsupportedProgram if a write under no_grad replaced a value that requires grad."""
    if tensor.storage.gradient_is_lost:
        proxy = tensor.proxy
        raise UnsupportedProgram(
            "a tensor that requires grad was written where gradients are off, and read where they are on",
            found={proxy.name: f'"{proxy.type_string()}"'},
            hint="Use an out-of-place operator, or do the write outside the compiled function.",
        )
