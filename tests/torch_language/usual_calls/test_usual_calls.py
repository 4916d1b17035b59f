"""Rules for usual calls answer as eager does, and leave to torch what eager refuses."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder
from thunder.base.attribute_paths import find_torch
from thunder.base.pytree import tree_flatten, tree_map
from thunder.base.signature import make_normaliser
from thunder.ir.proxies import TensorProxy
from thunder.ir.trace import TraceCtx
from thunder.ir.trace_context import tracectx
from thunder.ops.operator import row_of
from thunder.torch.usual_calls import ACCEPTED, RESULTS
from torch_language.database import op_db, seed_cpu

RULES: dict[str, Callable[..., Any]] = {**RESULTS, **ACCEPTED}
_OPS = {name: op for op in reversed(op_db) for name in (op.name, *(alias.name for alias in op.aliases))}
_F = "torch.nn.functional."
#: no sample of a default run is a usual call; calls of some are generated below
WITHOUT_SAMPLES = {
    *(f"torch.{name}" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu", "polygamma")),
    *(f"{_F}{name}" for name in ("affine_grid", "fold", "pad", "unfold", "multi_head_attention_forward")),
    *(f"{_F}{name}_pool{n}d_with_indices" for name in ("max", "adaptive_max") for n in (1, 2, 3)),
}


def op_of(path: str) -> Any:
    """Return torch's samples of a function, or None."""
    name = path.removeprefix("torch.")
    return _OPS.get(name) or _OPS.get(name.removeprefix("special."))


def answer(path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what the rule of a function answers for a call on proxies of tensors."""
    with tracectx(TraceCtx()):
        args, kwargs = tree_map(
            lambda x: TensorProxy(like=x) if isinstance(x, torch.Tensor) else x, (args, kwargs)
        )
        row = row_of(path)
        if row is not None and path != f"{_F}pad":
            signature = row.meta or row.decomposition
            assert signature is not None
            args, kwargs = make_normaliser(signature, path)(*args, **kwargs)
        kwargs.pop("grad_mode", None)  # of recurrent networks, which the rule does not depend on
        return RULES[path](*args, **kwargs)


def is_as_eager(path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a rule answers for a call; fail unless eager's results are as it says."""
    found = answer(path, args, kwargs)
    if found is None or found is False:
        return False
    eager = find_torch(path)(*args, **kwargs)
    if path in RESULTS:
        kind = torch.Tensor if isinstance(found, TensorProxy) else type(found)
        assert isinstance(eager, kind)
        expected = [(tuple(x.shape), x.dtype) for x in tree_flatten(eager)[0]]
        assert [(tuple(x.shape), x.dtype.torch_dtype) for x in tree_flatten(found)[0]] == expected
    return True


@pytest.mark.parametrize("path", [path for path in RULES if op_of(path) is not None])
def test_samples_are_as_in_eager(path: str, whole_run: bool) -> None:
    op, answered = op_of(path), 0
    for dtype in (torch.float32, torch.complex64, torch.int64, torch.bfloat16):
        if dtype in op.dtypes:
            seed_cpu(0)
            samples = op.sample_inputs("cpu", dtype, requires_grad=False)
            for sample in itertools.islice(samples, None if whole_run else 80):
                answered += is_as_eager(path, (sample.input, *sample.args), sample.kwargs)
    assert answered or path in WITHOUT_SAMPLES


@pytest.mark.parametrize("path", [path for path in RULES if op_of(path) is not None])
def test_a_call_is_a_program_with_one_entry(path: str) -> None:
    """To ask whether a call is usual records nothing and decides nothing."""
    op = op_of(path)
    sample = next(iter(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)))
    fn = op.op if path == "torch.polygamma" else find_torch(path)  # whose sample has the order last
    compiled = thunder.jit(fn, executors=["torch"])
    compiled(sample.input, *sample.args, **sample.kwargs)
    assert len(thunder.compile_stats(compiled).interpreter_cache) == 1


@pytest.mark.parametrize("path", [p for p in RULES if getattr(op_of(p), "error_inputs_func", None)])
def test_calls_that_eager_refuses_are_left_to_torch(path: str) -> None:
    for case in op_of(path).error_inputs("cpu"):
        sample = case.sample_input
        try:
            found = answer(path, (sample.input, *sample.args), sample.kwargs)
        except (TypeError, AttributeError):  # a call that torch's parser refuses before
            continue
        assert found is None or found is False


def windows() -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Yield calls of functions of images, among them ones that eager refuses."""
    for n, size, kernel, stride, padding, dilation, ceil in itertools.product(
        (1, 2), (1, 4, 7), (1, 2, 3), (None, 1, 3), (0, 1, 2), (1, 2), (False, True)
    ):
        x = torch.ones(2, 3, *(size,) * n)
        yield f"{_F}max_pool{n}d_with_indices", (x, kernel, stride, padding, dilation, ceil), {}
        yield f"{_F}max_pool{n}d", (x, kernel, stride, padding, dilation, ceil), {}
        if dilation == 1:
            yield f"{_F}avg_pool{n}d", (x, kernel, stride, padding, ceil), {}
        if n == 2 and stride:
            yield f"{_F}unfold", (x, kernel, dilation, padding, stride), {}
            for count in (1, 4, 9):
                y = torch.ones(2, 3 * kernel * kernel, count)
                yield f"{_F}fold", (y, (size, size), kernel, dilation, padding, stride), {}
    for n, mode, before, after in itertools.product(
        (1, 2, 3), ("reflect", "replicate"), (-1, 0, 1, 3), (0, 2, 4)
    ):
        for lead in ((), (2,), (2, 3), (1, 2, 3)):
            yield f"{_F}pad", (torch.ones(*lead, *(4,) * n), (before, after) * n, mode), {}
    for size in ((2, 1, 3, 5), (2, 1, 3, 5, 4), (2, 1, 3), (3, 1, 2, 2)):
        for n in (2, 3):
            yield f"{_F}affine_grid", (torch.ones(2, n, n + 1), size, False), {}


def networks() -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Yield calls of recurrent networks, among them ones that eager refuses."""
    for kind, biased, layers, both, first, width in itertools.product(
        ("LSTM", "GRU", "RNN"), (True, False), (1, 2), (False, True), (False, True), (4, 5)
    ):
        module = getattr(torch.nn, kind)(4, 3, layers, bias=biased, bidirectional=both, batch_first=first)
        state = torch.ones(layers * (1 + both), 2, 3)
        path = {"LSTM": "torch.lstm", "GRU": "torch.gru", "RNN": "torch.rnn_tanh"}[kind]
        x = torch.ones(2, 6, width) if first else torch.ones(6, 2, width)
        hx = (state, state) if kind == "LSTM" else state
        yield path, (x, hx, module._flat_weights, biased, layers, 0.0, False, both, first), {}


@pytest.mark.parametrize("calls", [windows, networks])
def test_generated_calls_are_as_in_eager(calls: Callable[[], Iterator[Any]]) -> None:
    answered: dict[str, int] = {}
    for path, args, kwargs in calls():
        with torch.no_grad():
            answered[path] = answered.get(path, 0) + is_as_eager(path, args, kwargs)
    assert all(answered.values()), answered
