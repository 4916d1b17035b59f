"""Attention in regions, forward and backward, where the option `nvfuser_products` allows products.

    y = scaled_dot_product_attention(q, k, v)   →   y, sums, seed, offset = attention(q, k, v, False, None)
                                                    in the backward, from the gradient g of y:
                                                    gradients = attention_backward(g, q, k, v, y, sums, …)

Where no region contains one of these calls, torch's flash attention computes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from thunder import TensorProxy, dtypes
from thunder.core.prims import OpTags
from thunder.core.symbol import BoundSymbol
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import OperatorExecutor, Refusal, compile_option

from .flash_attention import flash_attention, flash_attention_backward
from .translation import RULES, Translation

__all__ = ["ATTENTION", "OPERATORS", "attend", "check_attention"]

ATTENTION: Final = "torch.nn.functional.scaled_dot_product_attention"
#: the greatest size of a head, and what divides all of them
_LARGEST, _MULTIPLE = 256, 8

Tensor = TensorProxy


@dataclass(frozen=True)
class Call:
    """A call of torch's `scaled_dot_product_attention`, with its arguments."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def check_attention(*args: Any, **kwargs: Any) -> bool | Refusal:
    """Refuse what flash attention does not compute as torch's function does."""
    if not compile_option("nvfuser_products"):
        return Refusal("products", "nvfuser_products=False leaves attention to torch")
    call = Call(*args, **kwargs)
    tensors = call.query, call.key, call.value
    if any(x.dtype.torch_dtype.itemsize != 2 or x.ndim != 4 for x in tensors):
        return Refusal(
            "attention", "flash attention takes four dimensions in 16 bits", dtype=call.query.dtype
        )
    if call.attn_mask is not None or call.dropout_p != 0.0 or call.enable_gqa:
        return Refusal("attention", "masks, dropout and grouped queries are left to torch")
    return _fitting_shapes(call)


def _fitting_shapes(call: Call) -> bool | Refusal:
    """Refuse shapes that flash attention broadcasts, pads or masks in another way than torch's function."""
    q, k, v = (tuple(x.shape) for x in (call.query, call.key, call.value))
    if q[:2] != k[:2] or k != v or q[3] != k[3]:
        return Refusal("attention", "flash attention does not broadcast", shapes=(q, k, v))
    if not 0 < q[3] <= _LARGEST or q[3] % _MULTIPLE != 0:
        reason = f"flash attention takes heads of at most {_LARGEST} elements, multiples of {_MULTIPLE}"
        return Refusal("attention", reason, shapes=(q, k, v))
    if call.is_causal and q[2] != k[2]:
        return Refusal("attention", "flash attention aligns the last query with the last key", shapes=(q, k))
    return True


# -- operators -----------------------------------------------------------------------------------------------

_operators = OperatorExecutor("nvfuser_attention")


def _result(like: Tensor, shape: Any, dtype: Any) -> Tensor:
    return TensorProxy(shape=tuple(shape), device=like.device, dtype=dtype, requires_grad=False)


def _flash_meta(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float | None) -> Any:
    parts = (query.shape, query.dtype), (query.shape[:-1], dtypes.float32), ((2,), dtypes.uint64)
    return tuple(_result(query, *part) for part in (*parts, ((), dtypes.uint64)))


def _flash_backward_meta(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    sums: Tensor,
    is_causal: bool,
    seed: Tensor,
    offset: Tensor,
    scale: float | None,
) -> Any:
    return tuple(_result(x, x.shape, x.dtype) for x in (query, key, value))


_flash = _operators.register_operator(
    "flash_attention", meta=_flash_meta, fn=flash_attention, tags=[OpTags.MATMUL_OP]
)
_flash_backward = _operators.register_operator(
    "flash_attention_backward",
    meta=_flash_backward_meta,
    fn=flash_attention_backward,
    tags=[OpTags.MATMUL_OP],
)


def _attention(query: Any, key: Any, value: Any, is_causal: bool, scale: float | None) -> Any:
    """Compute attention, and what its gradient reads."""
    return _flash(query, key, value, is_causal, scale)


def _attention_backward(
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    out: Any,
    sums: Any,
    is_causal: bool,
    seed: Any,
    offset: Any,
    scale: float | None,
) -> Any:
    """Compute the gradients of query, key and value."""
    return _flash_backward(grad, query, key, value, out, sums, is_causal, seed, offset, scale)


#: composites, since what runs as it is cannot be part of a region
attention = _operators.register_operator("attention", like=_attention)
attention_backward = _operators.register_operator("attention_backward", like=_attention_backward)
OPERATORS: Final = (attention, attention_backward)


def attend(*args: Any, **kwargs: Any) -> Any:
    """Compute torch's attention and its gradients by the operators."""
    call = Call(*args, **kwargs)
    tensors = call.query, call.key, call.value
    out, sums, seed, offset = attention(*tensors, call.is_causal, call.scale)
    saved = (*tensors, out, sums, call.is_causal, seed, offset, call.scale)
    put_grads(tensors, attention_backward(get_grad(out), *saved))
    return out


# -- rules ---------------------------------------------------------------------------------------------------


def _settings(t: Translation, is_causal: bool) -> dict[str, Any]:
    """Return the constants of an operation; a dropout of 0 draws nothing."""
    return {"dropout_p": t.value(0.0), "is_causal": t.value(is_causal)}


def _forward(t: Translation, call: BoundSymbol) -> None:
    query, key, value, is_causal, scale = call.args
    settings = _settings(t, is_causal)
    if scale is not None:
        settings["scale"] = t.value(scale)
    results = t.ops.sdpfa_fwd(t.value(query), t.value(key), t.value(value), **settings)
    for proxy, result in zip(call.output, results, strict=True):
        t.set(proxy, result)


def _backward(t: Translation, call: BoundSymbol) -> None:
    *tensors, is_causal, seed, offset, scale = call.args
    settings = _settings(t, is_causal)
    results = t.ops.sdpfa_bwd(
        *map(t.value, tensors),
        **settings,
        philox_seed=t.value(seed),
        philox_offset=t.value(offset),
        scale=None if scale is None else t.value(scale),
    )
    for proxy, result in zip(call.output, results, strict=True):
        t.set(proxy, result)


RULES[attention.id] = _forward
RULES[attention_backward.id] = _backward
