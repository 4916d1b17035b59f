"""Activations and sums after a product, which its kernel computes before it writes the result.

t0 = onednn_linear(x, p, b, 512, "none", (), ""); t1 = relu(t0)
                                                 →   t1 = onednn_linear(x, p, b, 512, "relu", (), "")
t0 = onednn_convolution(x, p, …); t1 = add(t0, y)   →   t1 = onednn_convolution_add(x, y, p, …, False)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from thunder import TensorProxy
from thunder.core.proxies import ProxyTag
from thunder.core.rewrite import in_place_of
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace
from thunder_onednn.activations import NO_ACTIVATION, Activation, activation_of
from thunder_onednn.convolution import convolution, convolution_add
from thunder_onednn.linear import linear, linear_add

__all__ = ["add_post_operations"]

#: returns the call of a product with the call after it, or None
_Merge = Callable[[BoundSymbol, BoundSymbol], BoundSymbol | None]


def add_post_operations(trace: TraceCtx) -> tuple[TraceCtx, set[str]]:
    """Return a trace in which products compute what follows them alone, or the same trace.

    The second result has the names of what was computed by calls of their own before.
    """
    readers = Counter(p.name for b in trace.bound_symbols for p in b.flat_proxy_args)
    calls: dict[str, BoundSymbol] = {}  # the products so far that one call reads, by name
    statements: list[BoundSymbol] = []
    names: set[str] = set()
    for bsym in trace.bound_symbols:
        products = [calls[p.name] for p in bsym.flat_proxy_args if p.name in calls]
        for product in reversed(products):  # the later one has the earlier one's result
            merged = _MERGES[product.sym.id](product, bsym)
            if merged is not None:
                statements.remove(product)
                names.add(bsym.output.name)
                bsym = merged
                break
        statements.append(bsym)
        if bsym.sym.id in _MERGES and readers[bsym.output.name] == 1:
            calls[bsym.output.name] = bsym
    if not names:
        return trace, names
    new = from_trace(trace)
    new.bound_symbols = statements
    new.set_provenance(TraceProvenance("Post-operations"))
    return new, names


def _with_activation(operator: Any) -> _Merge:
    """Return the merge of a product with the activation after it."""

    def merge(product: BoundSymbol, bsym: BoundSymbol) -> BoundSymbol | None:
        activation = activation_of(bsym)
        *args, name, numbers, algorithm = product.args
        if activation is None or Activation(name, numbers, algorithm) != NO_ACTIVATION:
            return None
        return _in_place_of(bsym, operator, *args, *activation.arguments)

    return merge


def _with_sum(operator: Any, *last: Any) -> _Merge:
    """Return the merge of a product with the sum after it; `last` are the last arguments of the result."""

    def merge(product: BoundSymbol, bsym: BoundSymbol) -> BoundSymbol | None:
        x, *args, name, numbers, algorithm = product.args
        other = _other(product.output, bsym)
        if other is None or Activation(name, numbers, algorithm) != NO_ACTIVATION:
            return None
        return _in_place_of(bsym, operator, x, other, *args, *last)

    return merge


def _with_relu(product: BoundSymbol, bsym: BoundSymbol) -> BoundSymbol | None:
    *args, has_relu = product.args
    if has_relu or activation_of(bsym) != Activation("relu"):
        return None
    return _in_place_of(bsym, convolution_add, *args, True)


def _either(*merges: _Merge) -> _Merge:
    def merge(product: BoundSymbol, bsym: BoundSymbol) -> BoundSymbol | None:
        return next((found for m in merges if (found := m(product, bsym)) is not None), None)

    return merge


_MERGES: Final[Mapping[Any, _Merge]] = {
    linear.id: _either(_with_activation(linear), _with_sum(linear_add)),
    convolution.id: _either(_with_activation(convolution), _with_sum(convolution_add, False)),
    convolution_add.id: _with_relu,
}


def _other(value: TensorProxy, bsym: BoundSymbol) -> TensorProxy | None:
    """Return the tensor that a call adds to a value, in the same form, or None."""
    if bsym.sym.id != "torch.add" or bsym.kwargs.get("alpha", 1) != 1:
        return None
    others = [p for p in bsym.args if isinstance(p, TensorProxy) and p.name != value.name]
    if len(others) != 1 or value.name == others[0].name:
        return None
    (other,) = others
    is_alike = other.type_string() == value.type_string() == bsym.output.type_string()
    return other if is_alike and _have_one_layout(other, value) else None


def _have_one_layout(other: TensorProxy, value: TensorProxy) -> bool:
    return value.ndim != 4 or ProxyTag.CHANNELS_LAST in other.tags


def _in_place_of(bsym: BoundSymbol, operator: Any, *args: Any) -> BoundSymbol:
    """Return a call with the result of another."""
    (call,) = in_place_of(bsym, [operator.bind(*args, output=bsym.output)])
    return call
