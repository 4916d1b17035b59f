"""The transformers of ``torch.nn`` under every kind of mask: in training, in evaluation, on the fast path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from sweeping import in_turn
from thunder.base.errors import DataDependentControlFlow

WIDTH, HEADS, LENGTH, BATCH = 8, 2, 5, 3
PADDING = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
PADDING[1, 3:] = PADDING[2, 4:] = True
CAUSAL = nn.Transformer.generate_square_subsequent_mask(LENGTH, dtype=torch.float64)
HIDDEN = torch.triu(torch.ones(LENGTH, LENGTH, dtype=torch.bool), 1)

MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"mask": CAUSAL},
    "causal, and said so": {"mask": CAUSAL, "is_causal": True},
    "causal as truth values": {"mask": HIDDEN},
    "another": {"mask": torch.linspace(-1, 1, LENGTH * LENGTH, dtype=torch.float64).view(LENGTH, LENGTH)},
    "padding": {"padding": PADDING},
    "padding in front": {"padding": PADDING.flip(1)},
    "padding and causal": {"padding": PADDING, "mask": HIDDEN},
    "padding to be added": {"padding": torch.zeros(BATCH, LENGTH).double().masked_fill(PADDING, -1e9)},
}


def attention(module: Any, x: Any, mask: Any = None, padding: Any = None, is_causal: Any = False) -> Any:
    return module(x, x, x, attn_mask=mask, key_padding_mask=padding, is_causal=is_causal)


def blind_attention(
    module: Any, x: Any, mask: Any = None, padding: Any = None, is_causal: Any = False
) -> Any:
    return module(x, x, x, attn_mask=mask, key_padding_mask=padding, is_causal=is_causal, need_weights=False)[
        0
    ]


def layer(module: Any, x: Any, mask: Any = None, padding: Any = None, is_causal: Any = False) -> Any:
    return module(x, src_mask=mask, src_key_padding_mask=padding, is_causal=is_causal)


def encoder(module: Any, x: Any, mask: Any = None, padding: Any = None, is_causal: Any = None) -> Any:
    return module(x, mask=mask, src_key_padding_mask=padding, is_causal=is_causal)


def decoder(module: Any, x: Any, mask: Any = None, padding: Any = None, is_causal: Any = None) -> Any:
    return module(x, x * 2, tgt_mask=mask, tgt_key_padding_mask=padding, tgt_is_causal=is_causal)


def both(module: Any, x: Any, mask: Any = None, padding: Any = None, is_causal: Any = False) -> Any:
    return module(
        x * 2, x, tgt_mask=mask, tgt_key_padding_mask=padding, src_mask=mask, tgt_is_causal=is_causal
    )


Make = Callable[[bool], nn.Module]
MODULES: dict[str, tuple[Make, Callable[..., Any]]] = {
    "attention": (lambda b: nn.MultiheadAttention(WIDTH, HEADS, 0.1, batch_first=b), attention),
    "attention without weights": (
        lambda b: nn.MultiheadAttention(WIDTH, HEADS, 0.1, batch_first=b),
        blind_attention,
    ),
    "layer": (
        lambda b: nn.TransformerEncoderLayer(WIDTH, HEADS, 16, batch_first=b, activation="gelu"),
        layer,
    ),
    "encoder": (
        lambda b: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 16, batch_first=b), 2, enable_nested_tensor=False
        ),
        encoder,
    ),
    "decoder": (
        lambda b: nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, HEADS, 16, batch_first=b), 2),
        decoder,
    ),
    "both": (lambda b: nn.Transformer(WIDTH, HEADS, 1, 1, 16, batch_first=b), both),
}
#: training, and whether gradients are tracked
MODES = {"train": (True, True), "eval": (False, True), "fast path": (False, False)}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(("mask", "mode"), in_turn(MASKS, list(MODES), 4))
@pytest.mark.filterwarnings("ignore:.*mismatched:UserWarning", "ignore:.*nested:UserWarning")
def test_a_transformer_of_torch_is_eagers_under_every_mask(name: str, mode: str, mask: str) -> None:
    make, call = MODULES[name]
    training, tracks = MODES[mode]
    batch_first = len(mask) % 2 == 0
    torch.manual_seed(0)
    module = make(batch_first).double().train(training)
    x = torch.randn(*((BATCH, LENGTH) if batch_first else (LENGTH, BATCH)), WIDTH, dtype=torch.float64)

    def program(x: torch.Tensor, **masks: Any) -> Any:
        return call(module, x, **masks)

    compiled = thunder.jit(program)
    with torch.set_grad_enabled(tracks):
        for _ in range(2):
            results = []
            for f in (compiled, program):
                torch.manual_seed(1)
                results.append(f(x, **MASKS[mask]))
            torch.testing.assert_close(results[0], results[1], rtol=1e-10, atol=1e-12)
    assert thunder.cache_misses(compiled) == 1
    if tracks:
        firsts = [r[0] if isinstance(r, tuple) else r for r in results]
        ours, eagers = (
            torch.autograd.grad(r.square().sum(), list(module.parameters()), allow_unused=True)
            for r in firsts
        )
        for a, e in zip(ours, eagers, strict=True):
            expected = None if e is None or not e.any() else e
            actual = None if a is None or not a.any() else a
            torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-10)


def test_an_encoder_that_packs_the_batch_leaves_zeros_where_the_padding_is() -> None:
    module = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS, 16, batch_first=True), 1).double()
    compiled, x = thunder.jit(module.eval()), torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.float64)
    expected = module(x, src_key_padding_mask=PADDING)
    torch.testing.assert_close(compiled(x, src_key_padding_mask=PADDING), expected, rtol=1e-10, atol=1e-12)
    with torch.no_grad():
        for mask in (PADDING, PADDING.flip(-1), PADDING):  # eager packs a batch with padding on the right
            actual, expected = (fn(x, src_key_padding_mask=mask) for fn in (compiled, module))
            torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
        strict = thunder.jit(module, data_dependent="refuse")
        with pytest.raises(DataDependentControlFlow, match="use_nested_tensor = False"):
            strict(x, src_key_padding_mask=PADDING)


def test_a_user_s_own_question_whether_something_compiles_is_answered_yes() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if torch.compiler.is_compiling() else x * 3

    assert torch.equal(thunder.jit(program)(torch.ones(2)), torch.full((2,), 2.0))
