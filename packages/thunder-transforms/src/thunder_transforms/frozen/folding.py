"""Batch norm, and numbers that multiply, become part of the weights of the products before them.

    t0 = conv2d(x, w, b); t1 = batch_norm(t0, mean, var, gamma, beta)
                       →   s = gamma / sqrt(var + eps); t1 = conv2d(x, w·s, (b - mean)·s + beta)
    t0 = linear(x, w, b); t1 = t0 * 3
                       →   t1 = linear(x, w·3, b·3)

The algebra is that of Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference" (2018), section 3.2. Weights in bfloat16 and float16 are computed in
float32 and rounded once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import thunder
import thunder.torch as ltorch
from thunder.core.rewrite import in_place_of, rename_results
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace, tracectx

__all__ = ["fold"]

_LINEAR: Final = "torch.nn.functional.linear"
#: products take an input, a weight whose first dimension is that of the results' channels, and a bias
_PRODUCTS: Final = frozenset({_LINEAR, *(f"torch.nn.functional.conv{n}d" for n in (1, 2, 3))})


@dataclass(frozen=True)
class _Affine:
    """What a call does to each channel of a product: it multiplies by `scale`, and adds `shift`."""

    scale: Any
    shift: Any = None


#: records what a call does to the channels of a product, and returns it; None where it does something else
_Rule = Callable[[BoundSymbol, BoundSymbol, set[str]], _Affine | None]


def _batch_norm(bsym: BoundSymbol, product: BoundSymbol, frozen: set[str]) -> _Affine | None:
    x, mean, var, weight, bias, training, _, eps = bsym.args
    has_channels = x.ndim == (2 if product.sym.id == _LINEAR else product.args[1].ndim)
    parameters = [p for p in (mean, var, weight, bias) if p is not None]
    if training or mean is None or not has_channels or any(p.name not in frozen for p in parameters):
        return None
    scale = ltorch.rsqrt(ltorch.add(_wide(var), eps))
    if weight is not None:
        scale = ltorch.mul(scale, _wide(weight))
    shift = ltorch.neg(ltorch.mul(_wide(mean), scale))
    return _Affine(scale, shift if bias is None else ltorch.add(shift, _wide(bias)))


def _scaling(bsym: BoundSymbol, product: BoundSymbol, frozen: set[str]) -> _Affine | None:
    numbers = [x for x in bsym.args if type(x) in (int, float)]
    return _Affine(numbers[0]) if numbers else None


_RULES: Final[Mapping[str, _Rule]] = {
    "torch.nn.functional.batch_norm": _batch_norm,
    "torch.mul": _scaling,
}


def fold(trace: TraceCtx, frozen: set[str]) -> TraceCtx:
    """Return a trace in which calls after products of frozen weights are part of these, or the same trace.

    `frozen` are the names of frozen values. A product that is read elsewhere stays as it is.
    """
    readers = Counter(p.name for b in trace.bound_symbols for p in b.flat_proxy_args)
    frozen, products = set(frozen), dict[str, BoundSymbol]()
    new, calls = from_trace(trace), list[BoundSymbol]()
    for bsym in trace.bound_symbols:
        product = next((products[p.name] for p in bsym.flat_proxy_args if p.name in products), None)
        folded: list[BoundSymbol] = []
        if product is not None and readers[product.output.name] == 1:
            folded = _folded(new, bsym, product, frozen)
        if product is not None and folded:
            calls.remove(product)
            frozen.update(p.name for b in folded[:-1] for p in b.flat_proxy_outs)
        calls += folded or [bsym]
        last = calls[-1]
        if last.sym.id in _PRODUCTS and all(p is None or p.name in frozen for p in last.args[1:3]):
            products[last.output.name] = last
    if calls == trace.bound_symbols:
        return trace
    new.bound_symbols = calls
    new.set_provenance(TraceProvenance("Folding into weights"))
    return new


def _folded(trace: TraceCtx, bsym: BoundSymbol, product: BoundSymbol, frozen: set[str]) -> list[BoundSymbol]:
    """Return the calls in the place of a call and the product before it, the product last; else none."""
    rule = _RULES.get(bsym.sym.id)
    if (
        rule is None
        or bsym.output.dtype is not product.output.dtype
        or not bsym.output.dtype.is_floating_point
    ):
        return []
    recorded: list[BoundSymbol] = []
    with tracectx(trace), trace.recording_into(recorded):
        affine = rule(bsym, product, frozen)
        if affine is None:
            return []
        x, weight, bias, *rest = product.args
        result = product.sym(x, *_changed(weight, bias, affine), *rest, **product.kwargs)
    return in_place_of(bsym, rename_results(recorded, bsym, [(bsym.output, result)], {}))


def _changed(weight: Any, bias: Any, affine: _Affine) -> tuple[Any, Any]:
    """Record the weight and the bias of a product whose channels are scaled and shifted."""
    scale = affine.scale
    if not isinstance(scale, int | float):
        scale = ltorch.reshape(scale, (-1, *[1] * (weight.ndim - 1)))
    new_weight = ltorch.mul(_wide(weight), scale)
    new_bias = affine.shift
    if bias is not None:
        scaled = ltorch.mul(_wide(bias), affine.scale)
        new_bias = scaled if new_bias is None else ltorch.add(scaled, new_bias)
    new_bias = None if new_bias is None else ltorch.to(new_bias, weight.dtype)
    return ltorch.to(new_weight, weight.dtype), new_bias


def _wide(x: Any) -> Any:
    """Record a tensor in float32, if its dtype is a narrower one."""
    return ltorch.to(x, thunder.float32) if x.dtype in (thunder.bfloat16, thunder.float16) else x
