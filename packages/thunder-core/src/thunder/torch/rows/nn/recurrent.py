"""Recurrent networks: whole sequences are torch's kernels, the cells have decompositions.

Torch chooses how to compute a sequence (oneDNN for float32 on CPUs, cuDNN on CUDA devices, else one cell
after the other), so a sequence is not decomposed. Its gradient is torch's too, by running the sequence again:
only the arguments are saved. Dropout between layers is taken out, since a kernel that draws random numbers
cannot be run again:

    lstm(x, hx, w, layers=2, dropout=p)   →   y = lstm(x, hx[:1], w[:4])
                                              lstm(dropout(y, p), hx[1:], w[4:])

On CPUs torch draws the same numbers. On CUDA devices cuDNN draws its own, so dropout is refused there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.errors import UnsupportedOperator
from thunder.base.pytree import tree_map
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops.meta_kernels import torch_meta, without_checks
from thunder.torch.fallback.fallback_rows import gradients_by_torch
from thunder.torch.fallback.unknown_functions import run_by_torch
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torch_names, torchsymbol
from thunder.torch.usual_calls import RESULTS

#: function → the position that has a tensor only in the form for packed sequences,
#: ``(data, batch_sizes, hx, params, …)``
SEQUENCES = {"torch.lstm": 1, "torch.gru": 2, "torch.rnn_tanh": 2, "torch.rnn_relu": 2}


def _refuse_autocast(name: str, input: TensorProxy) -> None:
    """Raise UnsupportedOperator under autocast on a CUDA device: cuDNN has its own rules."""
    if input.device.type == "cuda" and torch.is_autocast_enabled("cuda"):
        raise UnsupportedOperator(
            f"{name} under autocast, whose rule depends on the kernel that torch chooses",
            found={input.name: input.type_string()},
            hint="Cast its arguments, and call it under torch.autocast(…, enabled=False).",
        )


def _sequence(name: str, packed_at: int) -> None:
    fn = getattr(torch, name.rpartition(".")[2])
    kernel_meta = torch_meta(fn, usual=RESULTS[name])

    def meta(
        input: TensorProxy,
        hx: Any,
        params: Sequence[TensorProxy],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
        *,
        grad_mode: bool = False,
    ) -> Any:
        return kernel_meta(
            input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
        )

    def differentiated(*args: Any, grad_mode: bool = False, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    symbol = torchsymbol(
        id=name,
        prim=True,
        eager=without_checks(_in_grad_mode(fn)),
        vjp=gradients_by_torch(name, differentiated),
        tags=(OpTags.DONT_RECOMPUTE_IN_BACKWARD,),
    )(meta)

    packed = _packed_sequence(name, fn)

    @torch_names(name)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "batch_sizes" in kwargs or isinstance((*args[packed_at:], None)[0], TensorProxy):
            return _of_packed(packed, fn, *args, **kwargs)
        return by_layers(symbol, *args, **kwargs)


def _packed_sequence(name: str, fn: Callable[..., Any]) -> Symbol:
    """Return the operator of a packed sequence, whose number of steps is in the data of ``batch_sizes``."""

    def meta(
        data: TensorProxy,
        batch_sizes: TensorProxy,
        hx: Any,
        params: Sequence[TensorProxy],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        *,
        grad_mode: bool = False,
    ) -> Any:
        states = tuple(hx) if isinstance(hx, tuple | list) else (hx,)
        width = states[0].shape[-1] * (2 if bidirectional else 1)
        return tuple(
            TensorProxy(shape=shape, device=data.device, dtype=data.dtype)
            for shape in ((data.shape[0], width), *(s.shape for s in states))
        )

    def differentiated(*args: Any, grad_mode: bool = False, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return torchsymbol(
        id=f"{name}_packed",
        prim=True,
        eager=without_checks(_in_grad_mode(fn)),
        vjp=gradients_by_torch(f"{name}_packed", differentiated),
        tags=(OpTags.DONT_RECOMPUTE_IN_BACKWARD,),
    )(meta)


def _of_packed(
    symbol: Symbol,
    fn: Callable[..., Any],
    data: TensorProxy,
    batch_sizes: TensorProxy,
    hx: Any,
    params: Sequence[TensorProxy],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> Any:
    """Record the operator of a packed sequence, of torch's function ``fn``.

    ``data: (n, i)`` has the steps one after the other, ``batch_sizes: (t,)`` how many sequences each has.
    Under autocast, and for dropout between layers, torch runs it as any function without a row.
    """
    if torch.is_autocast_enabled(data.device.type) or (train and dropout and num_layers > 1):
        arguments = (data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)
        return run_by_torch(fn)(*arguments)
    mode = torch.is_grad_enabled() and _by_onednn(symbol.id.removesuffix("_packed"), data, hx)
    return symbol(
        data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional, grad_mode=mode
    )


def _in_grad_mode(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``fn`` run in the grad mode ``grad_mode``; traces run without gradients.

    In grad mode oneDNN uses its training kernel, whose last bits differ, and which does not compare shapes.
    """

    @functools.wraps(fn)
    def run(*args: Any, grad_mode: bool = False) -> Any:
        if not grad_mode or torch.is_grad_enabled():
            return fn(*args)
        with torch.enable_grad():
            return fn(*tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) else x, args))

    return run


def _by_onednn(name: str, input: TensorProxy, hx: Any) -> bool:
    """Return whether torch uses oneDNN: an lstm without projections, in float32 or narrower."""
    is_small = input.device.type == "cpu" and input.dtype.torch_dtype in (torch.float32, torch.bfloat16)
    return name == "torch.lstm" and is_small and hx[0].shape[-1] == hx[1].shape[-1]


def by_layers(
    symbol: Symbol,
    input: TensorProxy,
    hx: Any,
    params: Sequence[TensorProxy],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """Record the operator of a sequence: once, or once a layer with dropout in between.

    ``input: (t, b, i)``, or ``(b, t, i)`` if ``batch_first``; ``hx: (layers * directions, b, h)``, of an lstm
    two. Returns the output, ``(t, b, directions * h)``, and the last states. Raises UnsupportedOperator.
    """
    _refuse_autocast(symbol.id, input)
    rest, mode = (train, bidirectional), torch.is_grad_enabled() and _by_onednn(symbol.id, input, hx)
    if not (train and dropout and num_layers > 1):
        return symbol(input, hx, params, has_biases, num_layers, dropout, *rest, batch_first, grad_mode=mode)
    if input.device.type != "cpu":
        raise UnsupportedOperator(
            f"{symbol.id} with dropout between its layers in training, whose random numbers cuDNN draws",
            found={input.name: input.type_string(), "dropout": dropout},
            hint="Stack modules of one layer, with torch.nn.Dropout between them.",
        )
    directions = 2 if bidirectional else 1
    count = len(params) // num_layers
    states = tuple(hx) if isinstance(hx, tuple | list) else (hx,)
    output = ltorch.transpose(input, 0, 1) if batch_first else input
    last: list[Any] = []
    for layer in range(num_layers):
        own = [ltorch.narrow(s, 0, layer * directions, directions) for s in states]
        weights = list(params[layer * count : (layer + 1) * count])
        layer_states = own if isinstance(hx, tuple | list) else own[0]
        output, *after = symbol(
            output, layer_states, weights, has_biases, 1, 0.0, *rest, False, grad_mode=mode
        )
        last.append(after)
        if layer < num_layers - 1:  # in the layout of torch's draws: time first
            output = ltorch.dropout(output, dropout, True)
    output = ltorch.transpose(output, 0, 1) if batch_first else output
    return (output, *(ltorch.cat(list(layers), 0) for layers in zip(*last, strict=True)))


for _name, _packed_at in SEQUENCES.items():
    _sequence(_name, _packed_at)


# -- cells ---------------------------------------------------------------------------------------------------


@torchsymbol("torch.lstm_cell")
def lstm_cell(
    input: TensorProxy,
    hx: Sequence[TensorProxy],
    w_ih: TensorProxy,
    w_hh: TensorProxy,
    b_ih: TensorProxy | None = None,
    b_hh: TensorProxy | None = None,
) -> tuple[TensorProxy, TensorProxy]:
    """``input: (b, i)``, ``hx``: two of ``(b, h)`` → the next two.

    Hochreiter and Schmidhuber, Long Short-Term Memory (1997), with the forget gate of Gers and others (2000).
    """
    hidden, cell = hx
    gates = ltorch.add(ltorch.linear(hidden, w_hh, b_hh), ltorch.linear(input, w_ih, b_ih))
    into, forget, candidate, out = ltorch.chunk(gates, 4, 1)
    remembered = ltorch.mul(ltorch.sigmoid(forget), cell)
    cell = ltorch.add(remembered, ltorch.mul(ltorch.sigmoid(into), ltorch.tanh(candidate)))
    return ltorch.mul(ltorch.sigmoid(out), ltorch.tanh(cell)), cell


@torchsymbol("torch.gru_cell")
def gru_cell(
    input: TensorProxy,
    hx: TensorProxy,
    w_ih: TensorProxy,
    w_hh: TensorProxy,
    b_ih: TensorProxy | None = None,
    b_hh: TensorProxy | None = None,
) -> TensorProxy:
    """``input: (b, i)``, ``hx: (b, h)`` → the next state.

    Cho and others, Learning Phrase Representations using RNN Encoder-Decoder (2014), with the reset gate
    after the product, as in cuDNN.
    """
    reset_i, update_i, new_i = ltorch.chunk(ltorch.linear(input, w_ih, b_ih), 3, 1)
    reset_h, update_h, new_h = ltorch.chunk(ltorch.linear(hx, w_hh, b_hh), 3, 1)
    reset = ltorch.sigmoid(ltorch.add(reset_h, reset_i))
    update = ltorch.sigmoid(ltorch.add(update_h, update_i))
    new = ltorch.tanh(ltorch.add(new_i, ltorch.mul(new_h, reset)))
    return ltorch.add(ltorch.mul(ltorch.sub(hx, new), update), new)


def _elman_cell(name: str, nonlinearity: str) -> None:
    @torchsymbol(f"torch.{name}")
    def cell(
        input: TensorProxy,
        hx: TensorProxy,
        w_ih: TensorProxy,
        w_hh: TensorProxy,
        b_ih: TensorProxy | None = None,
        b_hh: TensorProxy | None = None,
    ) -> TensorProxy:
        """``input: (b, i)``, ``hx: (b, h)`` → the next state.

        Elman, Finding Structure in Time (1990).
        """
        gates = ltorch.add(ltorch.linear(hx, w_hh, b_hh), ltorch.linear(input, w_ih, b_ih))
        return getattr(ltorch, nonlinearity)(gates)


_elman_cell("rnn_tanh_cell", "tanh")
_elman_cell("rnn_relu_cell", "relu")
