"""The strides of written values, which have to be those of eager when they are read."""

from __future__ import annotations

from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.ops import prims
from thunder.ops.layout_rules import REORDERED
from thunder.ops.layouts import Layouts, layout_of
from thunder.passes.functionalisation.alias_info import AliasInfo
from thunder.passes.functionalisation.storages import StorageMap, TensorState

#: the out-of-place form of ``y[key] = value``
_SETITEM = "ltorch.setitem"

__all__ = ["has_same_layout", "restore_layout", "with_eager_strides"]


def has_same_layout(
    info: AliasInfo, position: int, value: TensorProxy, target: TensorProxy, root: TensorState
) -> bool:
    """Return whether a written value has the order of strides of the target.

    It has, if the same call computed it from the target (``y.add_(1)``) or for it (``y.normal_()``), or if
    the operator that computed it declares these strides.
    """
    if value.strides is not None and root.proxy is target:
        return value.strides == info.layouts.strides(target)
    parts = info.parts_before(position)
    operands = [p for bsym in parts for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)]
    if not any(out is value for bsym in parts for out in bsym.flat_proxy_outs):
        return False
    if operands and not any(p.name == target.name for p in operands):
        return False
    masks = [mask for bsym in parts for mask in _masks(bsym)]
    kept = not any(layout_of(bsym) is REORDERED or _replaces_all(bsym, target) for bsym in parts)
    if kept and not masks:
        return True
    return root.proxy is target and all(map(info.layouts.is_contiguous, (target, *masks)))


def _masks(bsym: BoundSymbol) -> list[TensorProxy]:
    """Return the masks of ``y[mask] = value``: first operands, whose strides decide those of the value."""
    if bsym.sym.id != _SETITEM:
        return []
    return [part.args[0] for part in with_parts(bsym.subsymbols) if part.sym is prims.where]


def _replaces_all(bsym: BoundSymbol, target: TensorProxy) -> bool:
    """Return whether the call is ``y[...] = value`` of all elements, which reads none of ``y``."""
    if bsym.sym.id != _SETITEM:
        return False
    return not any(
        p.name == target.name for part in with_parts(bsym.subsymbols) for p in part.flat_proxy_args
    )


def restore_layout(layouts: Layouts, storages: StorageMap, tensor: TensorState) -> None:
    """Give the value of a tensor's storage the strides of eager, if they may differ.

    A tensor from a ``detach`` with a gradient of its own is not recomputed from the root: its value gets them
    too.
    """
    storage = tensor.storage
    if storage.layout_differs:
        storage.layout_differs = False
        root, own = storages.root(tensor), storages.own_gradients(storage)
        storages.replace_value(root, with_eager_strides(layouts, root.proxy, storages.read(root.proxy)))
        for view in own:
            view.value, view.version = with_eager_strides(layouts, view.proxy, view.value), storage.version


def with_eager_strides(layouts: Layouts, root: TensorProxy, value: TensorProxy) -> TensorProxy:
    """Return a value with eager's order of elements in memory, so that its views are views."""
    strides = layouts.strides(root)
    ranked = sorted(range(len(strides)), key=lambda d: (strides[d], -d))
    order = tuple(ranked.index(d) for d in range(len(strides)))
    return prims.stride_order(value, order)  # type: ignore[no-any-return]
