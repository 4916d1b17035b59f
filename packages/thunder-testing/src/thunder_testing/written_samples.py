"""Sample calls of operators that have none in torch's database and occur in no decomposition."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from thunder.core.devices import to_device
from thunder.core.dtypes import to_dtype
from thunder_testing.call_harvest import Call

__all__ = ["written_samples"]

Calls = list[tuple[Any, ...]]


def _x(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def _call(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return args, kwargs


def _attention() -> Calls:
    q, k, v = (_x(2, 2, 4, 8) for _ in range(3))
    return [_call(q, k, v, 0.0, causal, attn_mask=None, scale=None) for causal in (False, True)]


def _attention_backward() -> Calls:
    calls = []
    for args, kwargs in _attention():
        out, logsumexp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*args)
        calls.append(_call(_x(*out.shape), *args[:3], out, logsumexp, *args[3:], **kwargs))
    return calls


def _weights(gates: int) -> list[torch.Tensor]:
    return [_x(gates * 3, 4), _x(gates * 3, 3), _x(gates * 3), _x(gates * 3)]


def _recurrent(gates: int) -> Calls:
    state = _x(1, 2, 3)
    hx: Any = (state, _x(1, 2, 3)) if gates == 4 else state
    return [
        _call(_x(5, 2, 4), hx, _weights(gates), True, 1, 0.0, train, False, False) for train in (False, True)
    ]


def _packed(gates: int) -> Calls:
    hx: Any = (_x(1, 2, 3), _x(1, 2, 3)) if gates == 4 else _x(1, 2, 3)
    sizes = torch.tensor([2, 2, 1])
    return [
        _call(_x(5, 4), sizes, hx, _weights(gates), True, 1, 0.0, train, False) for train in (False, True)
    ]


def _cell(gates: int) -> Calls:
    hx: Any = (_x(2, 3), _x(2, 3)) if gates == 4 else _x(2, 3)
    weights = _weights(gates)
    return [_call(_x(2, 4), hx, *weights), _call(_x(2, 4), hx, *weights[:2])]


def _filled(*parameters: Any, dtype: torch.dtype = torch.float32) -> Callable[[], Calls]:
    return lambda: [
        _call(shape, *parameters, device=to_device("cpu"), dtype=to_dtype(dtype))
        for shape in ((3, 4), (5,), (0,))
    ]


def _selected() -> Calls:
    calls = []
    for shape, mask in (((3, 4), torch.rand(3, 4) > 0.5), ((2, 3, 4), torch.rand(3, 1) > 0.5)):
        calls.append(_call(_x(*shape), mask, list(mask.broadcast_to(shape).nonzero(as_tuple=True))))
    return calls


def _window() -> Calls:
    return [_call(8), _call(7, periodic=False), _call(1), _call(5, dtype=torch.float64)]


def _grouped() -> Calls:
    ends = torch.tensor([2, 6], dtype=torch.int32)
    return [_call(_x(6, 8), _x(2, 8, 16), ends), _call(_x(2, 6, 8), _x(2, 8, 16), None)]


def _philox() -> Calls:
    return [
        _call(shape, -1.0, 2.0, device=to_device("cpu"), dtype=to_dtype(torch.float32), seed=7, offset=offset)
        for shape, offset in (((3, 4), 0), ((5,), 4))
    ]


def _multi_head() -> Calls:
    x = _x(2, 3, 8)
    return [_call(x, x, x, 8, 2, _x(24, 8), _x(24), _x(8, 8), _x(8), None, need) for need in (True, False)]


def _pooled(dims: int) -> Calls:
    x = _x(2, 3, *([6] * dims)).abs()
    return [_call(x, 2.0, 2), _call(x, 3.0, 3, stride=2), _call(x, 2.0, 2, ceil_mode=True)]


def _affine() -> Calls:
    return [
        _call(_x(2, 2, 3), [2, 1, 4, 5], align_corners=False),
        _call(_x(1, 3, 4), [1, 1, 2, 3, 4], align_corners=True),
    ]


def _quantised(learned: bool, *, of_channels: bool) -> Calls:
    scale = torch.full((3 if of_channels else 1,), 0.1)
    zero = torch.zeros_like(scale) if learned else torch.zeros_like(scale, dtype=torch.int32)
    axis, factor = (1,) if of_channels else (), (0.5,) if learned else ()
    return [
        _call(_x(2, 3), scale, zero, *axis, -8, 7, *factor),
        _call(_x(4, 3) * 9, scale, zero, *axis, 0, 15),
    ]


def _observed() -> Calls:
    on = torch.ones(1, dtype=torch.int64)
    state = (torch.full((1,), -1.0), torch.full((1,), 2.0), torch.ones(1), torch.zeros(1, dtype=torch.int32))
    return [_call(_x(2, 3), on, flag, *state, 0.01, 0, 255, 0, False, False) for flag in (on, on * 0)]


def _dropped(dims: int) -> Calls:
    x = _x(2, 3, *([4] * dims))
    return [_call(x, 0.5), _call(x, 0.3, training=False)]


def _gamma() -> Calls:
    return [_call(torch.rand(3, 4) + 0.5), _call(torch.rand(5) * 3 + 0.1)]


def _encoder_layer() -> Calls:
    weights = (_x(24, 8), _x(24), _x(8, 8), _x(8))
    norms = (torch.rand(8), _x(8), torch.rand(8), _x(8))
    rest = (_x(16, 8), _x(16), _x(8, 16), _x(8))
    return [
        _call(_x(2, 3, 8), 8, 2, *weights, use_gelu, norm_first, 1e-5, *norms, *rest)
        for use_gelu, norm_first in ((False, False), (True, True))
    ]


#: id of a row → function that returns its sample calls
WRITTEN: Mapping[str, Callable[[], Calls]] = {
    "prims.erfcinv": lambda: [_call(torch.rand(3, 4) * 1.8 + 0.1), _call(torch.tensor(0.5))],
    "prims._grouped_mm": _grouped,
    "torch._grouped_mm": _grouped,
    "prims.uniform_philox": _philox,
    "prims.py_abs": lambda: [_call(_x(3, 4)), _call(torch.arange(-3, 3))],
    "prims.device_put": lambda: [_call(_x(3, 4), to_device("cpu"))],
    "prims.bitcast": lambda: [_call(_x(3, 4), to_dtype(torch.int32))],
    "prims.untracked_alias": lambda: [_call(_x(3, 4)), _call(_x(5))],
    "prims.detach": lambda: [_call(_x(3, 4)), _call(_x(5))],
    "torch.detach": lambda: [_call(_x(3, 4)), _call(_x(5))],
    "prims.overwrite": lambda: [_call(_x(3, 4), _x(3, 4))],
    "prims.replace_data": lambda: [_call(_x(3, 4), _x(3, 4))],
    "prims.item": lambda: [_call(torch.tensor(1.5)), _call(torch.tensor([3]))],
    "torch.Tensor.item": lambda: [_call(torch.tensor(1.5)), _call(torch.tensor([3]))],
    "prims.as_strided": lambda: [_call(_x(12), (2, 3), (4, 1), 1), _call(_x(3, 3), (2, 2), (1, 2), 0)],
    "prims.as_strided_scatter": lambda: [_call(_x(12), _x(2, 3), (2, 3), (4, 1), 1)],
    "torch.Tensor.view_dtype": lambda: [_call(_x(3, 4), torch.int32), _call(_x(3, 4), torch.float16)],
    "prims.take_along_axis": lambda: [_call(_x(3, 4), torch.randint(3, (2, 4)), 0)],
    "torch.masked_select": _selected,
    "prims.dynamic_select": lambda: [_call(_x(3, 4), torch.tensor(i), 1) for i in (2, -1)],
    "prims.copy_with_setitem": lambda: [_call(_x(3, 4), (slice(1, 3), 0), _x(2)), _call(_x(3, 4), 1, 2.0)],
    "ltorch.setitem": lambda: [_call(_x(3, 4), (slice(1, 3), 0), _x(2)), _call(_x(3, 4), 1, 2.0)],
    "prims.convert_element_type": lambda: [
        _call(_x(3, 4), to_dtype(torch.float64)),
        _call(_x(5), to_dtype(torch.int64)),
    ],
    "prims.randperm": lambda: [
        _call(n, device=to_device("cpu"), dtype=to_dtype(torch.int64)) for n in (5, 1)
    ],
    "prims.trunc_normal": _filled(0.0, 1.0, -2.0, 2.0),
    "prims.log_normal": _filled(0.0, 1.0),
    "prims.cauchy": _filled(0.0, 1.0),
    "prims.exponential": _filled(1.5),
    "prims.geometric": _filled(0.3),
    "prims.randint_fill": _filled(2, 9, dtype=torch.int64),
    "prims.bernoulli_fill": _filled(0.3),
    "torch.Tensor.type_as": lambda: [
        _call(_x(3, 4), _x(2).double()),
        _call(_x(3), torch.ones(2, dtype=torch.int64)),
    ],
    "torch.tensor": lambda: [_call([1.5, 2.0]), _call([[1, 2], [3, 4]], dtype=torch.float64), _call(2.5)],
    **{
        f"torch.{'_' * learned}fake_quantize_{'learnable_' * learned}{kind}_affine": functools.partial(
            _quantised, learned, of_channels=kind == "per_channel"
        )
        for learned in (False, True)
        for kind in ("per_tensor", "per_channel")
    },
    "torch._fused_moving_avg_obs_fq_helper_functional": _observed,
    "torch.nn.functional.dropout2d": lambda: _dropped(2),
    "torch.nn.functional.dropout3d": lambda: _dropped(3),
    "torch.nn.functional.alpha_dropout": lambda: _dropped(1),
    "torch.nn.functional.feature_alpha_dropout": lambda: _dropped(2),
    "torch._standard_gamma": _gamma,
    "torch._standard_gamma_grad": lambda: [_call(torch.rand(3, 4) + 0.5, torch.rand(3, 4) + 0.1)],
    "torch._sample_dirichlet": _gamma,
    "torch._transformer_encoder_layer_fwd": _encoder_layer,
    "prims.embedding_backward": lambda: [_call(_x(3, 4), torch.tensor([0, 2, 4]), 5, -1, False)],
    "torch.relu": lambda: [_call(_x(3, 4)), _call(_x(5)), _call(torch.tensor(-1.0))],
    "ltorch.flash_attention_for_cpu": _attention,
    "ltorch.flash_attention_for_cpu_backward": _attention_backward,
    "torch.nn.functional.dropout1d": lambda: [_call(_x(2, 3, 4)), _call(_x(2, 3, 4), 0.3, False)],
    "torch._native_multi_head_attention": _multi_head,
    "ltorch.native_batch_norm": lambda: [
        _call(_x(4, 3, 5), _x(3), _x(3), 1e-5),
        _call(_x(4, 3), None, None, 1e-3),
    ],
    "torch.nn.functional.lp_pool1d": lambda: _pooled(1),
    "torch.nn.functional.lp_pool2d": lambda: _pooled(2),
    "torch.nn.functional.lp_pool3d": lambda: _pooled(3),
    "torch.nn.functional.upsample": lambda: [
        _call(_x(1, 2, 3, 3), scale_factor=2),
        _call(_x(1, 2, 3, 3), size=(5, 6), mode="bilinear"),
    ],
    "torch.nn.functional.affine_grid": _affine,
    "ltorch.affine_grid_generator_backward": lambda: [_call(_x(2, 4, 5, 2), [2, 1, 4, 5], False)],
    "torch.lstm": lambda: _recurrent(4),
    "torch.gru": lambda: _recurrent(3),
    "torch.rnn_tanh": lambda: _recurrent(1),
    "torch.rnn_relu": lambda: _recurrent(1),
    "torch.lstm_packed": lambda: _packed(4),
    "torch.gru_packed": lambda: _packed(3),
    "torch.rnn_tanh_packed": lambda: _packed(1),
    "torch.rnn_relu_packed": lambda: _packed(1),
    "torch.lstm_cell": lambda: _cell(4),
    "torch.gru_cell": lambda: _cell(3),
    "torch.rnn_tanh_cell": lambda: _cell(1),
    "torch.rnn_relu_cell": lambda: _cell(1),
    "torch.nn.functional.gumbel_softmax": lambda: [_call(_x(3, 4)), _call(_x(3, 4), tau=0.5, hard=True)],
    "torch.nn.functional.rrelu": lambda: [
        _call(_x(3, 4)),
        _call(_x(3, 4), 0.2, 0.4),
        _call(_x(3, 4), training=True),
    ],
    "torch.rand": lambda: [_call((3, 4)), _call((2,), dtype=torch.float64)],
    "torch.rand_like": lambda: [_call(_x(3, 4)), _call(_x(2), dtype=torch.float64)],
    "torch.randperm": lambda: [_call(5), _call(3, dtype=torch.int32)],
    "torch.poisson": lambda: [_call(torch.rand(3, 4) * 5)],
    "torch.binomial": lambda: [_call(torch.full((3, 4), 10.0), torch.rand(3, 4))],
    "torch.vander": lambda: [_call(_x(4)), _call(_x(4), N=3), _call(_x(4), increasing=True)],
    "torch.fft.fftfreq": lambda: [_call(8), _call(5, d=0.5)],
    "torch.fft.rfftfreq": lambda: [_call(8), _call(5, d=0.5)],
    "torch.range": lambda: [_call(0, 5), _call(1.0, 2.0, 0.5)],
    **{f"torch.{name}_window": _window for name in ("bartlett", "blackman", "hamming", "hann", "kaiser")},
    "torch.histogram": lambda: [_call(_x(20), 5, range=(-2.0, 2.0)), _call(_x(20), torch.linspace(-2, 2, 6))],
    "torch.histogramdd": lambda: [_call(_x(20, 2), [3, 4], range=[-2.0, 2.0, -2.0, 2.0])],
    "ltorch.pad_backward": lambda: [
        _call(_x(2, 3, 8), [2, 3, 5], [1, 2], mode) for mode in ("reflect", "replicate")
    ],
    "ltorch.dropout_mask": lambda: [_call(_x(3, 4), 0.3)],
    "ltorch.dropout_by_mask": lambda: [_call(_x(3, 4), _x(3, 4) > 0, 0.3)],
    "torch.native_dropout": lambda: [_call(_x(3, 4), 0.3, True), _call(_x(3, 4), 0.3, False)],
    "ltorch.rrelu_with_noise": lambda: [_call(_x(3, 4), 0.1, 0.3)],
    "ltorch.as_strided_like": lambda: [_call(_x(2, 3), _x(12), [2, 3], [4, 1], 1)],
}


def written_samples(operator_id: str, device: torch.device) -> Iterator[Call]:
    """Yield the arguments of the written sample calls of an operator, for a CPU."""
    if operator_id in WRITTEN and device.type == "cpu":
        yield from WRITTEN[operator_id]()
