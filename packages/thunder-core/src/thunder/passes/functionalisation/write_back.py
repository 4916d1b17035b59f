"""The end of the program: the last value of each written input, and the results.

Results share storage where they do in eager.
"""

from __future__ import annotations

from collections.abc import Mapping

from thunder.ir.aliasing import views_of
from thunder.ir.proxies import TensorProxy
from thunder.ir.substitution import substitute_in_tree
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import get_tracectx
from thunder.ops import prims
from thunder.passes.functionalisation.alias_info import AliasInfo
from thunder.passes.functionalisation.rewriter import Rewriter, refuse_lost_gradient, tensors_in
from thunder.passes.functionalisation.storages import Storage, TensorState
from thunder.passes.functionalisation.view_creation import Creation
from thunder.passes.functionalisation.written_layouts import restore_layout, with_eager_strides

__all__ = ["write_back"]

#: the ways to create a view through which no gradient flows
_IN_NO_GRAPH = frozenset({Creation.NO_GRAD, Creation.INFERENCE})


def write_back(info: AliasInfo, rewriter: Rewriter, bsym: BoundSymbol) -> None:
    """Record the writes to inputs and the return statement ``bsym`` of a rewritten program.

    Results share storage with each other and with inputs where eager's do, and only there.
    """
    _WriteBack(info, rewriter).run(bsym)


class _WriteBack:
    def __init__(self, info: AliasInfo, rewriter: Rewriter) -> None:
        self.info, self.new, self.storages = info, rewriter.new, rewriter.storages
        self.written_inputs, self.copies = rewriter.written_inputs, rewriter.copies

    def run(self, bsym: BoundSymbol) -> None:
        returned = {p.name: self.storages.of(p) for p in tensors_in(bsym.flat_proxy_args)}
        in_no_input = {
            name: t
            for name, t in returned.items()
            if self.storages.root(t).proxy.name not in self.info.inputs
        }
        for tensor in in_no_input.values():
            if tensor.storage.version and tensor.proxy.requires_grad:
                refuse_lost_gradient(tensor)
        for name, tracked in self.written_inputs.items():
            if tracked:
                refuse_lost_gradient(self.storages.of(self.info.inputs[name]))
        values = self._result_values(in_no_input)
        roots = self._value_roots()
        data_of = self._replaced_data(roots)
        for name, value in self._last_values(roots).items():
            target = self.info.inputs[name]  # if it does not require grad, its last write may be one without
            tracked = self.written_inputs[name] and target.requires_grad
            if not tracked and value.requires_grad:
                value = data_of[value.name] if value.name in data_of else prims.detach(value)
            prims.copy_(value, target, grad_enabled=tracked)
        views: dict[str, TensorProxy] = {}
        for name, tensor in returned.items():
            if name not in in_no_input and tensor.storage.version:
                values[name] = self._view_of_input(tensor, views)
        self.new.record(bsym.from_bsym(args=substitute_in_tree(bsym.args, values)))

    def _result_values(self, results: dict[str, TensorState]) -> dict[str, TensorProxy]:
        """Return the values of results that share storage with no input, in separate storages.

        The value of a written tensor may be an input, or a view of another result: such a value is copied.
        """
        groups: dict[Storage, list[TensorProxy]] = {}
        for tensor in results.values():
            restore_layout(self.info.layouts, self.storages, tensor)
            groups.setdefault(tensor.storage, []).append(tensor.proxy)
        roots = self._value_roots()
        #: value → the storage that owns it, None for an input's
        owners: dict[str, Storage | None] = dict.fromkeys(self.info.inputs)
        values: dict[str, TensorProxy] = {}
        # Tensors that are never written come first: they keep their values, and others are copied.
        for storage in sorted(groups, key=lambda storage: self.info.is_written(groups[storage][0])):
            is_written = storage.version or self.info.is_written(groups[storage][0])
            if is_written and self._exposes_storage(groups[storage]):
                root = self.storages.root(self.storages.of(groups[storage][0]))
                self._separate_root(root, roots, owners)
            for proxy in groups[storage]:
                value = self.storages.read(proxy)
                owner = owners.setdefault(roots.get(value.name, value.name), storage)
                is_separate = owner is storage or not self.info.is_written(proxy)
                values[proxy.name] = value if is_separate else self._clone(value, proxy)
                values[proxy.name] = _with_requires_grad(values[proxy.name], proxy)
        return values

    def _clone(self, value: TensorProxy, proxy: TensorProxy) -> TensorProxy:
        """Return a copy, which requires grad only if the result does.

        Of a view that was created where gradients are off, torch says when it runs that it requires grad.
        """
        copy: TensorProxy = prims.clone(value)
        if proxy.requires_grad or not self.new.grad_enabled or not proxy.dtype.is_inexact:
            return copy
        return prims.detach(copy)  # type: ignore[no-any-return]

    def _exposes_storage(self, tensors: list[TensorProxy]) -> bool:
        """Return whether the caller sees that tensors are views of one value.

        It does if there are several, or if one is a part of its storage: it has strides or an offset that a
        separate value would not have.
        """
        if len(tensors) > 1:
            return True
        return self.storages.of(tensors[0]).view is not None and self.info.layouts.is_partial_view(tensors[0])

    def _separate_root(
        self, root: TensorState, roots: dict[str, str], owners: dict[str, Storage | None]
    ) -> None:
        """Give the root of a storage a separate value, of which all tensors in it become views."""
        value = self.storages.read(root.proxy)
        if roots.get(value.name, value.name) != value.name or value.name in owners:
            value = prims.clone(value)
        owners[value.name] = root.storage
        self.storages.replace_value(root, with_eager_strides(self.info.layouts, root.proxy, value))

    def _value_roots(self) -> dict[str, str]:
        """Map each value of the new trace to the one whose storage it may share at run time."""
        roots: dict[str, str] = {}
        for bsym in self.new.bound_symbols:
            for view in views_of(bsym):
                if view.output.name not in self.copies:
                    roots[view.output.name] = roots.get(view.source.name, view.source.name)
        return roots

    def _last_values(self, roots: Mapping[str, str]) -> dict[str, TensorProxy]:
        """Map the name of each written input to the value to write back.

        A value that shares storage with an input is copied first: another write-back may change it.
        """
        last_values: dict[str, TensorProxy] = {}
        for name, proxy in self.info.inputs.items():
            if name in self.written_inputs:
                value = self.storages.read(proxy)
                if value is not proxy:
                    last_values[name] = prims.clone(value) if self._is_in_input(value, roots) else value
        return last_values

    def _replaced_data(self, roots: Mapping[str, str]) -> dict[str, TensorProxy]:
        """Map the results of ``replace_data`` to the data, in memory that no write to an input changes."""
        calls = (b for b in self.new.bound_symbols if b.sym is prims.replace_data)
        return {b.output.name: b.args[0] for b in calls if not self._is_in_input(b.args[0], roots)}

    def _is_in_input(self, value: TensorProxy, roots: Mapping[str, str]) -> bool:
        """Return whether a value may share storage with an input."""
        return roots.get(value.name, value.name) in self.info.inputs

    def _view_of_input(self, tensor: TensorState, views: dict[str, TensorProxy]) -> TensorProxy:
        """Return a tensor in an input's storage after the write-back: the input or a new view.

        ``views`` has the views so far, by name.
        """
        if tensor.view is None:
            return tensor.proxy
        if tensor.proxy.name not in views:
            source = self.storages.of(tensor.view.source)
            again = self.storages.view_again(tensor, self._view_of_input(source, views), as_written=True)
            if tensor.creation in _IN_NO_GRAPH and source.creation is not tensor.creation:
                again = {name: prims.detach(view) for name, view in again.items()}
            views.update(again)
        return views[tensor.proxy.name]


def _with_requires_grad(value: TensorProxy, proxy: TensorProxy) -> TensorProxy:
    """Return a value that requires grad if its tensor does.

    After ``x.zero_()`` torch's tensor still requires grad; its gradient is zero.
    """
    if value.requires_grad or not proxy.requires_grad:
        return value
    result = TensorProxy(like=value, requires_grad=True)
    trace = get_tracectx()
    assert trace is not None, "the pass records into a trace"
    trace.record(prims.shallow_copy.bind(value, output=result))
    return result
