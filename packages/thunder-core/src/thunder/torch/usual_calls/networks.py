"""Recurrent networks, attention and losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from thunder.torch.usual_calls.conditions import (
    ACCEPTED,
    RESULTS,
    alike,
    are_equal,
    result_of,
)

_F: Final = "torch.nn.functional."


def _recurrent(gates: int) -> Callable[..., Any]:
    """Return the rule of a network of which a step computes ``gates`` values for each of its state."""

    def result(
        input: Any,
        hx: Any,
        params: Any,
        has_biases: Any,
        num_layers: Any,
        dropout: Any,
        train: Any,
        bidirectional: Any,
        batch_first: Any,
    ) -> Any:
        states = tuple(hx) if isinstance(hx, tuple | list) else (hx,)
        if len(states) != (2 if gates == 4 else 1) or not alike(input, *states, *params):
            return None
        if len(input.shape) != 3 or len({s.shape for s in states}) != 1 or len(states[0].shape) != 3:
            return None
        ways, width = 2 if bidirectional else 1, states[0].shape[-1]
        batch = input.shape[0 if batch_first else 1]
        if type(num_layers) is not int or states[0].shape != (num_layers * ways, batch, width):
            return None
        expected: list[tuple[int, ...]] = []
        for layer in range(num_layers):
            read = width * ways if layer else input.shape[-1]
            biases = [(gates * width,)] * 2 if has_biases else []
            expected += ways * [(gates * width, read), (gates * width, width), *biases]
        if [p.shape for p in params] != expected:
            return None
        return (result_of(input, (*input.shape[:2], ways * width)), *(result_of(s, s.shape) for s in states))

    return result


RESULTS.update({"torch.lstm": _recurrent(4), "torch.gru": _recurrent(3)})
RESULTS.update({"torch.rnn_tanh": _recurrent(1), "torch.rnn_relu": _recurrent(1)})

# -- calls that are only checked -----------------------------------------------------------------------------


def _is_usual_loss(input: Any, target: Any, *, reduction: Any = "mean", **more: Any) -> bool:
    """A loss of tensors of one shape, without weights, old arguments and warnings."""
    return are_equal(input, target) and reduction in ("mean", "sum", "none")


def _accepts_loss(*names: str) -> Callable[..., bool]:
    """Return the predicate of a loss with parameters ``names`` after the two tensors."""

    def is_usual(*args: Any, **kwargs: Any) -> bool:
        given = {**dict(zip(("input", "target", *names), args, strict=False)), **kwargs}
        for name in ("weight", "pos_weight", "size_average", "reduce"):
            if given.pop(name, None) is not None:
                return False
        numbers = [given.pop(name, 1.0) for name in ("beta", "delta")]
        return all(type(n) is float and n > 0 for n in numbers) and _is_usual_loss(**given)

    return is_usual


_OLD: Final = ("size_average", "reduce", "reduction")
ACCEPTED.update(
    {
        f"{_F}binary_cross_entropy": _accepts_loss("weight", *_OLD),
        f"{_F}binary_cross_entropy_with_logits": _accepts_loss("weight", *_OLD, "pos_weight"),
        f"{_F}smooth_l1_loss": _accepts_loss(*_OLD, "beta"),
        f"{_F}huber_loss": _accepts_loss("reduction", "delta", "weight"),
    }
)


def _is_usual_sample(
    input: Any, grid: Any, mode: Any = "bilinear", padding_mode: Any = "zeros", align_corners: Any = None
) -> bool:
    if not alike(input, grid):
        return False
    count = len(input.shape) - 2
    return (
        count in (2, 3)
        and len(grid.shape) == count + 2
        and (grid.shape[0], grid.shape[-1]) == (input.shape[0], count)
        and mode in ("bilinear", "nearest")
        and padding_mode in ("zeros", "border", "reflection")
        and type(align_corners) is bool
    )


ACCEPTED[f"{_F}grid_sample"] = _is_usual_sample


def _is_usual_attention(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: Any,
    num_heads: Any,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: Any,
    dropout_p: Any,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: Any = True,
    key_padding_mask: Any = None,
    need_weights: Any = True,
    attn_mask: Any = None,
    use_separate_proj_weight: Any = False,
    *separate: Any,
    is_causal: Any = False,
    average_attn_weights: Any = True,
    **more: Any,
) -> bool:
    """Attention of sequences in batches, without masks and added keys, with one weight for q, k and v."""
    absent = (bias_k, bias_v, key_padding_mask, attn_mask, *separate[:5], *more.values())
    biases = [b for b in (in_proj_bias, out_proj_bias) if b is not None]
    if any(x is not None for x in absent) or use_separate_proj_weight or add_zero_attn or is_causal:
        return False
    if separate[6:7] not in ((), (False,)):
        return False
    if not alike(query, key, value, in_proj_weight, out_proj_weight, *biases) or len(query.shape) != 3:
        return False
    e = query.shape[-1]
    return (
        embed_dim_to_check == e
        and type(num_heads) is int
        and e % num_heads == 0
        and key.shape == value.shape
        and key.shape[1:] == query.shape[1:]
        and in_proj_weight.shape == (3 * e, e)
        and out_proj_weight.shape == (e, e)
        and all(b.shape == (n * e,) for b, n in ((in_proj_bias, 3), (out_proj_bias, 1)) if b is not None)
    )


ACCEPTED[f"{_F}multi_head_attention_forward"] = _is_usual_attention
