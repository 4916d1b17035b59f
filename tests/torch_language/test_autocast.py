"""Autocast: a compiled call has eager's dtypes, values and errors, whatever it is given.

The judges are in ``autocasting``; ``sweep_autocast`` runs them over all of torch's samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args
from zlib import crc32

import pytest
import torch

import thunder
from recorded_refusals import refusals_as_recorded
from thunder.base.langctx import TORCH
from thunder.ir.symbol import Symbol
from thunder.torch.autocast_rules import RULES, Action
from torch_language import autocasting
from torch_language.database import op_db
from torch_language.samples import name_of
from torch_language.sweep_autocast import EXCEPT, EXCEPT_ON_CUDA, SKIPPED, VALUES_LEFT_OUT

F = torch.nn.functional


def _has_rule(op: Any, kind: str) -> bool:
    meaning = TORCH.resolve(op.op)
    return isinstance(meaning, Symbol) and meaning.id in RULES[kind]


ENTRIES = {name_of(op): op for op in op_db if not name_of(op).startswith(SKIPPED)}
#: some of the entries with a rule, and fewer of those without
ON_CPU = [n for n, op in ENTRIES.items() if crc32(n.encode()) % (2 if _has_rule(op, "cpu") else 24) == 0]
ON_CUDA = [n for i, (n, op) in enumerate(ENTRIES.items()) if _has_rule(op, "cuda") and i % 3 == 0]

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about what autocast does not support


def slice_of(op: Any) -> list[tuple[str, Any, Any]]:
    """One call of an entry as it is, and one with a tensor of another dtype."""
    found: list[tuple[str, Any, Any]] = []
    for args, kwargs in autocasting.calls(op, 1):
        found = list(autocasting.variants(args, kwargs))
    mixed = [v for v in found if v[0] == "tensor 1 in torch.bfloat16"] or found[1:2]
    return found[:1] + mixed


@pytest.mark.parametrize("name", [n for n in ON_CPU if n not in EXCEPT])
def test_a_call_on_the_cpu_is_eagers(name: str) -> None:
    op = ENTRIES[name]
    with refusals_as_recorded("autocast on the cpu", name) as refusals:
        for what, args, kwargs in slice_of(op):
            values = name not in VALUES_LEFT_OUT
            with refusals.of(what):
                assert not autocasting.difference(op.op, args, kwargs, torch.bfloat16, values=values), what


@pytest.mark.parametrize("name", [n for n in ON_CUDA if n not in EXCEPT_ON_CUDA])
def test_a_planned_call_on_cuda_has_torchs_dtypes(name: str) -> None:
    op = ENTRIES[name]
    with refusals_as_recorded("autocast planned for cuda", name) as refusals:
        for what, args, kwargs in slice_of(op):
            with refusals.of(what):
                assert not autocasting.difference_on_cuda(op.op, args, kwargs, torch.bfloat16), what


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_function_of_torchs_list_has_a_rule(kind: str) -> None:
    registered = torch._C._dispatch_get_registrations_for_dispatch_key(f"Autocast{kind.upper()}")
    names = {name.removeprefix("aten::").partition(".")[0] for name in registered}
    meanings = {m.id for name in names for m in map(TORCH.resolve, _functions(name)) if isinstance(m, Symbol)}
    assert meanings - RULES[kind].keys() == set()


def _functions(name: str) -> list[Any]:
    """The functions of torch that are called as an operator of ATen is."""
    parts = {torch.linalg: "linalg_", torch.fft: "fft_", torch: "", F: ""}
    spelt = [(place, name.removeprefix(p)) for place, p in parts.items() if name.startswith(p)]
    return [getattr(place, n) for place, n in spelt if callable(getattr(place, n, None))]


def assert_as_eager(program: Callable[..., Any], *args: Any, dtype: torch.dtype = torch.bfloat16) -> None:
    """Asserts that a program under autocast gives what eager gives."""
    assert not autocasting.difference(program, args, {}, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_a_tensor_without_dimensions_is_promoted_as_without_autocast(
    dtype: torch.dtype, scale: torch.dtype
) -> None:
    a, s = torch.randn(3, 3), torch.tensor(1, dtype=scale)
    assert_as_eager(lambda a, s: ((a @ a.T) * s, (a @ a.T) + s, (a @ a.T) > s), a, s, dtype=dtype)
    assert_as_eager(lambda a, s: torch.where(a > 0, a @ a.T, s), a, s, dtype=dtype)


MODULES: dict[str, tuple[torch.nn.Module, Callable[[Any, torch.Tensor], Any]]] = {
    "attention": (torch.nn.MultiheadAttention(4, 2), lambda m, x: m(x, x, x)),
    "encoder": (torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), lambda m, x: m(x)),
    "decoder": (torch.nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0), lambda m, x: m(x, x)),
    "bilinear": (torch.nn.Bilinear(4, 4, 3), lambda m, x: m(x, x)),
    "lstm": (torch.nn.LSTM(4, 3, 2), lambda m, x: m(x)),
    "gru": (torch.nn.GRU(4, 3, bidirectional=True), lambda m, x: m(x)),
    "rnn": (torch.nn.RNN(4, 3), lambda m, x: m(x)),
    "lstm cell": (torch.nn.LSTMCell(4, 3), lambda m, x: m(x[0])),
    "gru cell": (torch.nn.GRUCell(4, 3), lambda m, x: m(x[0])),
    "rnn cell": (torch.nn.RNNCell(4, 3), lambda m, x: m(x[0])),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_whose_functions_cast_within_gives_eagers_results_and_gradients(name: str) -> None:
    module, call = MODULES[name]
    if name == "lstm" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN has no LSTM in bfloat16 for this processor, so that eager raises")
    x = torch.randn(5, 2, 4)

    def gradients(program: Callable[..., Any]) -> list[torch.Tensor]:
        module.zero_grad()
        leaf = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            results = autocasting.tensors_of(program(leaf))
        sum(r.float().sum() for r in results).backward()  # type: ignore[union-attr]
        return [*results, leaf.grad, *(p.grad for p in module.parameters())]  # type: ignore[list-item]

    expected = gradients(lambda x: call(module, x))
    found = gradients(thunder.jit(lambda x: call(module, x)))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_calls_that_write_are_left_alone() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 1
        return y.addmm_(x, x), y.exp_(), y, torch.mm(x, x, out=torch.empty(3, 3))

    assert_as_eager(program, torch.rand(3, 3))


def test_what_is_unsafe_on_cuda_raises() -> None:
    x, y = torch.rand(3), torch.rand(3)
    assert (
        autocasting.planned_dtypes_on_cuda(F.binary_cross_entropy, (x, y), {}, torch.float16) is RuntimeError
    )


def test_each_rule_is_an_action_or_a_function_that_returns_one() -> None:
    rules = [rule for table in RULES.values() for rule in table.values()]
    assert {rule for rule in rules if not callable(rule)} <= set(get_args(Action))
