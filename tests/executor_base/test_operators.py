"""`register_operator` and `register_implementation`: what they make, what they refuse."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from thunder.base.errors import OutsideTrace, PluginError, RegistrationError
from thunder.base.tags import OpTags
from thunder.extend import (
    OperatorExecutor,
    Refusal,
    StatefulExecutor,
    TemporaryExecutor,
    deregister_executor,
    get_executor,
    single_op_executor,
)
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ir.trace import TraceCtx, tracectx
from thunder.ops.operator import Operator, register, row_of


def scale_meta(x: Any, factor: float = 2.0, *, bias: float = 0.0) -> Any:
    return TensorProxy(like=x)


def scale_impl(x: torch.Tensor, factor: float, *, bias: float) -> torch.Tensor:
    return x * factor + bias


@pytest.fixture
def ex() -> OperatorExecutor:
    """An executor without operators."""
    return OperatorExecutor("opex")


@pytest.fixture
def scale(ex: OperatorExecutor) -> Symbol:
    """The operator `opex.scale`."""
    return ex.register_operator("scale", meta=scale_meta, fn=scale_impl)


def recorded(symbol: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[TraceCtx, Any]:
    """A trace with one call of the symbol on a tensor `x` of shape (2, 3), and the call's bound symbol."""
    trace = TraceCtx()
    with tracectx(trace):
        x = TensorProxy("x", shape=(2, 3), device="cpu", dtype=torch.float32)
        symbol(x, *args, **kwargs)
    return trace, trace.bound_symbols[-1]


def test_operator_is_a_row_with_a_symbol_of_the_executor(ex: OperatorExecutor, scale: Symbol) -> None:
    assert scale.id == "opex.scale"
    assert scale.is_prim
    assert scale.executor is ex
    assert ex.opmap == {"scale": scale}
    row = row_of("opex.scale")
    assert row is not None
    assert row.eager is scale_impl


def test_call_in_a_trace_is_printed_under_the_bare_name_and_runs_fn(scale: Symbol) -> None:
    _, bsym = recorded(scale, 3.0)
    (line,) = bsym.python()
    assert line.startswith("t0 = scale(x, 3.0, bias=0.0)")
    assert scale.python_impl is scale_impl


def test_defaults_of_the_meta_function_are_filled_in(scale: Symbol) -> None:
    _, bsym = recorded(scale)
    assert bsym.args[1:] == (2.0,)
    assert bsym.kwargs == {"bias": 0.0}


def test_call_outside_a_trace_is_refused(scale: Symbol) -> None:
    with pytest.raises(OutsideTrace, match="scale was called where no trace is current"):
        scale(torch.ones(2))


def test_like_takes_meta_and_tags_of_another_symbol(ex: OperatorExecutor) -> None:
    base = ex.register_operator("base", meta=scale_meta, tags=(OpTags.RANDOM_OP,))
    again = ex.register_operator("again", like=base, fn=scale_impl, tags=(OpTags.DONT_DCE,))
    assert again.tags == {OpTags.RANDOM_OP, OpTags.DONT_DCE}
    assert again.is_prim
    assert recorded(again)[1].output.shape == (2, 3)


def test_like_a_composite_keeps_its_decomposition(ex: OperatorExecutor, scale: Symbol) -> None:
    twice = register(Operator(id="opex_test.twice", decomposition=lambda x: scale(scale(x))), replace=True)
    mine = ex.register_operator("twice", like=twice, fn=lambda x: x * 4)
    _, bsym = recorded(mine)
    assert not mine.is_prim
    assert [s.sym for s in bsym.subsymbols] == [scale, scale]


def test_module_prints_and_calls_the_name_in_it(ex: OperatorExecutor) -> None:
    sym = ex.register_operator("erf", meta=lambda x: TensorProxy(like=x), module=torch.special)
    trace, bsym = recorded(sym)
    assert bsym.python()[0].startswith("t0 = torch.special.erf(x)")
    row = row_of("opex.erf")
    assert row is not None
    assert row.eager is torch.special.erf
    assert "import torch" in trace.python()


def test_replaces_is_on_record_for_each_function(ex: OperatorExecutor) -> None:
    sym = ex.register_operator("root", meta=lambda x: x, replaces=(math.sqrt, math.isqrt))
    assert ex.replacements == {math.sqrt: sym, math.isqrt: sym}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "got neither of meta= and like="),
        ({"meta": scale_meta, "like": "scale"}, "got both of meta= and like="),
        ({"meta": scale_meta, "fn": scale_impl, "module": torch}, "got both of fn= and module="),
        ({"like": 3}, "like= of operator"),
        ({"meta": scale_meta, "replaces": (3,)}, "replaces= takes functions"),
    ],
)
def test_definition_is_by_exactly_one_way(
    ex: OperatorExecutor, scale: Symbol, arguments: dict[str, Any], text: str
) -> None:
    if arguments.get("like") == "scale":
        arguments = arguments | {"like": scale}
    with pytest.raises(RegistrationError, match=text):
        ex.register_operator("other", **arguments)


def test_name_that_cannot_be_printed_is_refused(ex: OperatorExecutor) -> None:
    with pytest.raises(RegistrationError, match="is not an identifier"):
        ex.register_operator("rms-norm", meta=scale_meta)


def test_name_taken_in_the_executor_is_refused_with_both_places(ex: OperatorExecutor, scale: Symbol) -> None:
    with pytest.raises(RegistrationError) as error:
        ex.register_operator("scale", meta=scale_meta)
    text = str(error.value)
    assert text.startswith("the operator 'opex.scale' is already registered")
    assert text.count("test_operators.py:") == 2
    assert 'ex.register_operator("scale", meta=scale_meta, fn=scale_impl)' in text
    assert "replace=True" in text
    assert ex.opmap["scale"] is scale


def test_replace_takes_the_name_over(ex: OperatorExecutor, scale: Symbol) -> None:
    other = ex.register_operator("scale", meta=scale_meta, replace=True)
    assert ex.opmap["scale"] is other
    assert other is not scale


def test_new_executor_of_the_same_name_takes_its_operators_over(scale: Symbol) -> None:
    """A notebook cell that makes executor and operator runs twice."""
    again = OperatorExecutor("opex")
    other = again.register_operator("scale", meta=scale_meta)
    assert other.executor is again


def test_id_of_somebody_else_is_refused(ex: OperatorExecutor) -> None:
    register(Operator(id="opex.foreign", meta=scale_meta), replace=True)
    with pytest.raises(RegistrationError, match=r"'opex\.foreign' is already registered"):
        ex.register_operator("foreign", meta=scale_meta)


def test_unknown_id_gets_the_nearest(ex: OperatorExecutor, scale: Symbol) -> None:
    with pytest.raises(RegistrationError) as error:
        ex.register_implementation("opex.sclae", scale)
    assert "'opex.sclae'" in str(error.value)
    assert "opex.scale" in str(error.value)


def test_implementation_with_nothing_to_run_is_refused(ex: OperatorExecutor, scale: Symbol) -> None:
    with pytest.raises(RegistrationError, match="nothing to run") as error:
        ex.register_implementation(scale, checker=lambda x: True)
    assert "one of op=" in str(error.value)


@pytest.mark.parametrize(
    ("declaration", "value", "allowed"),
    [
        ({"tags": ["POINTWISE_OP"]}, "'POINTWISE_OP'", "OpTags.POINTWISE_OP"),
        ({"tags": [OpTags("POINTWISE_OP")]}, "OpTags.POINTWISE_OP", "OpTags.RANDOM_OP"),
        ({"tags": "V"}, "'V'", "OpTags.VIEW"),
    ],
)
def test_a_tag_that_is_not_registered_is_refused(
    ex: OperatorExecutor, declaration: Any, value: str, allowed: str
) -> None:
    with pytest.raises(RegistrationError, match=r"operator 'opex\.tagged' has the tag") as error:
        ex.register_operator("tagged", meta=scale_meta, **declaration)
    assert value in str(error.value)
    assert allowed in str(error.value)
    assert row_of("opex.tagged") is None


def test_a_gradient_of_another_form_is_refused() -> None:
    with pytest.raises(RegistrationError, match=r"operator 'opex\.row' has vjp='none'") as error:
        Operator(id="opex.row", meta=scale_meta, vjp="none")  # type: ignore[arg-type]
    assert "NONDIFFERENTIABLE" in str(error.value)


def test_implementation_by_a_plain_function_is_refused(ex: OperatorExecutor, scale: Symbol) -> None:
    with pytest.raises(RegistrationError, match="op= of an implementation"):
        ex.register_implementation(scale, scale_impl)  # type: ignore[arg-type]


def test_registering_an_implementation_again_replaces_the_record(ex: OperatorExecutor, scale: Symbol) -> None:
    ex.register_implementation(scale, scale, grad_transform=scale_meta)
    ex.register_implementation("opex.scale", execution_transform=scale_meta)
    record = ex.implmap["opex.scale"]
    assert (record.symbol, record.execution_transform, record.grad_transform) == (None, scale_meta, None)
    assert ex.get_grad_transform(scale) is None
    assert ex.get_execution_transform(recorded(scale)[1]) is scale_meta


def test_meta_that_returns_a_tensor_is_the_plugins_fault(ex: OperatorExecutor) -> None:
    wrong = ex.register_operator("wrong", meta=lambda x: (torch.ones(2), None))
    with pytest.raises(PluginError, match=r"meta function of operator 'opex\.wrong' returned a torch tensor"):
        recorded(wrong)


def test_meta_that_returns_another_object_is_the_plugins_fault(ex: OperatorExecutor) -> None:
    wrong = ex.register_operator("wrong", meta=lambda x: object(), replace=True)
    with pytest.raises(PluginError, match="returned an object of type object"):
        recorded(wrong)


def test_fn_that_does_not_take_what_meta_takes_shows_both_signatures(ex: OperatorExecutor) -> None:
    with pytest.raises(PluginError) as error:
        ex.register_operator("scale", meta=scale_meta, fn=lambda x, factor: x)
    assert "(x: 'Any', factor: 'float' = 2.0, *, bias: 'float' = 0.0) -> 'Any'" in str(error.value)
    assert "(x, factor)" in str(error.value)
    assert ex.opmap == {}


def test_can_execute_asks_the_checker_with_defaults_filled_in(ex: OperatorExecutor, scale: Symbol) -> None:
    seen: list[Any] = []

    def checker(x: Any, factor: float, *, bias: float) -> bool:
        seen.append((factor, bias))
        return factor == 2.0

    ex.register_implementation(scale, scale, checker=checker)
    assert ex.can_execute(recorded(scale)[1]) is True
    refusal = ex.can_execute(recorded(scale, 3.0)[1])
    assert isinstance(refusal, Refusal)
    assert refusal.code == "checker"
    assert refusal.message.endswith("checker returned False")
    assert seen == [(2.0, 0.0), (3.0, 0.0)]


def test_refusal_of_a_checker_is_passed_on(ex: OperatorExecutor, scale: Symbol) -> None:
    mine = Refusal("dtype", "only bfloat16", found="float32")
    ex.register_implementation(scale, scale, checker=lambda x, factor, bias: mine)
    answer = ex.can_execute_or_fuse(recorded(scale)[1])
    assert answer is mine
    assert not answer
    assert mine.facts == {"found": "float32"}
    assert repr(mine) == "Refusal('dtype', 'only bfloat16', found='float32')"


@pytest.mark.parametrize(
    ("checker", "text"),
    [
        (lambda x, factor, bias: None, "returned None"),
        (lambda x, factor, bias: 1, "returned 1"),
        (lambda x, factor, bias: x.no_such_attribute, "raised AttributeError"),
    ],
)
def test_checker_that_fails_is_named_with_symbol_and_value(
    ex: OperatorExecutor, scale: Symbol, checker: Callable[..., Any], text: str
) -> None:
    ex.register_implementation(scale, scale, checker=checker)
    with pytest.raises(PluginError) as error:
        ex.can_execute(recorded(scale)[1])
    assert text in str(error.value)
    assert "of executor 'opex' for opex.scale" in str(error.value)
    assert "scale(x, 2.0, bias=0.0)" in str(error.value)


def test_executor_runs_its_own_operators_and_no_others(ex: OperatorExecutor, scale: Symbol) -> None:
    _, bsym = recorded(scale)
    assert ex.can_execute(bsym) is True
    other = OperatorExecutor("other").can_execute(bsym)
    assert isinstance(other, Refusal)
    assert other.code == "no-implementation"


def test_temporary_operators_are_numbered_alike_in_every_compile() -> None:
    ex = TemporaryExecutor("tempex")

    def names() -> list[str]:
        trace = TraceCtx()
        with tracectx(trace):
            x = TensorProxy("x", shape=(2,), device="cpu", dtype=torch.float32)
            for _ in range(2):
                symbol = ex.register_operator("region", meta=lambda x: TensorProxy(like=x), fn=torch.neg)
                symbol(x)
        return [b.sym.name for b in trace.bound_symbols]

    assert names() == ["region_0", "region_1"]
    assert row_of("tempex.region_0") is None


def test_stateful_operator_has_a_state_per_call() -> None:
    class Counter:
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return x * self.calls

    ex = StatefulExecutor("stateex")
    count = ex.register_stateful_operator("count", Counter, meta=lambda x: TensorProxy(like=x))
    trace = TraceCtx()
    with tracectx(trace):
        x = TensorProxy("x", shape=(2,), device="cpu", dtype=torch.float32)
        count(count(x))
    first, second = (b.sym for b in trace.bound_symbols)
    assert (first.name, second.name) == ("count_0", "count_1")
    assert first.python_impl is not second.python_impl
    assert isinstance(first.python_impl, Counter)
    assert ex.opmap == {}, "the trace alone keeps the state alive"


def test_single_op_executor_registers_and_replaces_its_function() -> None:
    def tripled(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    ex = single_op_executor(
        "tripler",
        "triple",
        tripled,
        lambda x: TensorProxy(like=x),
        checker=lambda x: Refusal("no", "not today"),
    )
    try:
        assert get_executor("tripler") is ex
        assert ex.replacements == {tripled: ex.opmap["triple"]}
        refusal = ex.can_execute(recorded(ex.opmap["triple"])[1])
        assert isinstance(refusal, Refusal)
        assert refusal.code == "no"
    finally:
        deregister_executor(ex)
