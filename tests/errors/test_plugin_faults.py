"""A fault at every place where core calls a function of a plugin: a PluginError with the package.

Under `check_traces` there is no other way out: each row seeds one fault, and names the words of its error.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
import thunder.torch as ltorch
from thunder import DebugOptions, TensorProxy, Transform
from thunder.base.pytree import tree_flatten
from thunder.core.errors import OperatorError, UnsupportedProgram
from thunder.core.session import COMPUTES, Handler, LookasideTable, SessionRules, SessionState
from thunder.extend import FusionExecutor, OperatorExecutor, StatefulExecutor
from thunder.ir.trace import from_trace
from thunder.ops.operator import Operator, symbol_of
from thunder.plugins import get_manager, hookimpl

CHECKED = DebugOptions(check_traces=True)


def like(x: Any, *args: Any) -> Any:
    return TensorProxy(like=x)


def raising(*args: Any, **kwargs: Any) -> Any:
    raise KeyError("seeded")


def misusing(*args: Any, **kwargs: Any) -> Any:
    """Calls core wrongly: the error is core's, the fault is the plugin's."""
    return TensorProxy()


def run(fn: Callable[..., Any], ex: Any = None, *, grad: bool = False, **options: Any) -> Any:
    executors = [] if ex is None else [ex]
    compiled = thunder.jit(fn, executors=executors, debug_options=CHECKED, **options)
    return compiled(torch.ones(3, requires_grad=grad))


# -- operators -----------------------------------------------------------------------------------------------


def with_operator(meta: Any = like, fn: Any = lambda x: x * 2, **more: Any) -> None:
    ex = OperatorExecutor("faulty")
    op = ex.register_operator("op", meta=meta, fn=fn, replace=True, **more)
    run(lambda x: op(x), ex)


def with_batching_rule(batch: Any) -> None:
    ex = OperatorExecutor("faulty")
    op = ex.register_operator("op", meta=like, fn=lambda x: x * 2, batch=batch, replace=True)
    run(lambda x: torch.vmap(op)(x[:, None]), ex)


def with_decomposition(decomposition: Any) -> None:
    ex = OperatorExecutor("faulty")
    op = ex.register_operator("composed", like=decomposition, replace=True)
    run(lambda x: op(x), ex)


def with_row(**fields: Any) -> None:
    row = Operator(id="faulty.row", eager=lambda x: x * 2, **fields)

    class Rows:
        @hookimpl
        def thunder_operators(self, executor: Any) -> Any:
            return [row] if executor.name == "torch" else []

    with get_manager().temporary(Rows(), "faulty rows"):
        thunder.extend.get_default_executors()
        thunder.jit(torch.sin)(torch.ones(3))
        run(lambda x: symbol_of("faulty.row")(x))


def growing(x: Any) -> Any:
    """A meta function that returns another shape at each call."""
    SIZES.append(len(SIZES) + 3)
    return TensorProxy(like=x, shape=(SIZES[-1],))


SIZES: list[int] = []


def with_state() -> None:
    ex = StatefulExecutor("faulty_state")
    call = ex.register_stateful_operator("op", raising, meta=like)
    run(lambda x: call(x), ex)


# -- executors -----------------------------------------------------------------------------------------------


def with_implementation(**parts: Any) -> None:
    ex = OperatorExecutor("faulty")
    if "execution_transform" not in parts:
        parts["op"] = ex.register_operator("sin", like=ltorch.sin, fn=torch.sin, replace=True)
    ex.register_implementation("torch.sin", **parts)
    run(torch.sin, ex, grad="grad_transform" in parts)


def with_cost(**hints: Any) -> None:
    other = OperatorExecutor("other")
    op = other.register_operator("sin", like=ltorch.sin, fn=torch.sin, replace=True)
    other.register_implementation("torch.sin", op, cost=lambda a: 1.0)
    ex = OperatorExecutor("faulty")
    mine = ex.register_operator("sin", like=ltorch.sin, fn=torch.sin, replace=True)
    ex.register_implementation("torch.sin", mine, **hints)
    thunder.jit(torch.sin, executors=[ex, other], debug_options=CHECKED)(torch.ones(3))


def with_other_meta() -> None:
    """An implementation whose meta function differs from the implemented operator's."""
    ex = OperatorExecutor("faulty")
    wide = lambda a: TensorProxy(like=a, dtype=thunder.core.dtypes.float64)  # noqa: E731
    op = ex.register_operator("wide", meta=wide, fn=lambda a: a.double(), replace=True)
    ex.register_implementation("torch.sin", op)
    run(torch.sin, ex)


def with_query(name: str, method: Any) -> None:
    cls = type("Queried", (OperatorExecutor,), {name: method, "__module__": __name__})
    ex = cls("faulty_query")
    op = ex.register_operator("sin", like=ltorch.sin, fn=torch.sin, replace=True)
    ex.register_implementation("torch.sin", op, grad_transform=lambda a: op(a))
    run(torch.sin, ex, grad=name == "get_grad_transform")


def with_fusion_pass(fusion_pass: Any) -> None:
    class Fuser(FusionExecutor):
        pass

    Fuser.fusion_pass = fusion_pass  # type: ignore[method-assign]
    ex = Fuser("faulty_fuser")
    ex.register_supported("torch.sin")
    run(lambda x: torch.sin(torch.sin(x)), ex)


def without_definition(self: Any, trace: Any) -> Any:
    new = from_trace(trace)
    new.bound_symbols += trace.bound_symbols[1:]
    return new


def untraced(self: Any, trace: Any) -> Any:
    return ltorch.sin(trace.args[0], trace)


# -- transforms, stages ---


def with_hook(hook: str, method: Any, **options: Any) -> None:
    cls = type("Faulty", (Transform,), {hook: method, "__module__": __name__})
    compiled = thunder.jit(
        torch.nn.Linear(3, 3), transforms=[cls()], executors=[], debug_options=CHECKED, **options
    )
    compiled(torch.ones(3)).sum().backward()
    compiled.original_state_dict()
    compiled.load_original_state_dict(compiled.original_state_dict())
    thunder.explain(compiled)


def headless(self: Any, *traces: Any, **facts: Any) -> Any:
    """A hook that drops the first statement."""
    trace = traces[1] if len(traces) > 1 else traces[0]
    new = from_trace(trace)
    new.bound_symbols += trace.bound_symbols[1:]
    return (traces[0], new, traces[2]) if len(traces) > 1 else new


def with_stage(fn: Any) -> None:
    class Staged(Transform):
        def configure_pipeline(self, pipeline: Any, options: Any) -> None:
            pipeline.insert_before("claim", "seeded", fn)

    run(lambda x: torch.sin(torch.cos(x)), transforms=[Staged()])


def with_planner(plan: Any) -> None:
    class Planned(Transform):
        def configure_pipeline(self, pipeline: Any, options: Any) -> None:
            def stage(trace: Any, context: Any) -> Any:
                context.plan_backward = plan
                return trace

            pipeline.insert_before("partition", "planned", stage)

    run(lambda x: torch.sin(torch.exp(x)), transforms=[Planned()], grad=True)


def _hook_rows() -> dict[str, tuple[Callable[[], Any], str]]:
    hooks = [
        "validate",
        "transform_module",
        "configure_pipeline",
        "cache_state",
        "transform_traces_pre_prologue",
        "transform_joint_trace",
        "transform_trace_pre_execution",
        "transform_trace_post_optimization",
        "transform_state_dict_for_submodule",
        "reverse_transform_state_dict_for_submodule",
        "complete_original_state_dict_for_submodule",
        "unchanged",
    ]
    rows: dict[str, tuple[Callable[[], Any], str]] = {}
    for hook in hooks:
        rows[f"{hook} raises"] = (lambda h=hook: with_hook(h, raising), f"Faulty.{hook} raised KeyError")
        if hook != "configure_pipeline":  # a wrong stage of a transform is its own error
            text = f"Faulty.{hook} raised InvalidArgument"
            rows[f"{hook} misuses core"] = (lambda h=hook: with_hook(h, misusing), text)
        if "trace" in hook:
            rows[f"{hook} returns None"] = (
                lambda h=hook: with_hook(h, lambda self, *a, **k: None),
                f"Faulty.{hook} returned None",
            )
            rows[f"{hook} loses a definition"] = (lambda h=hook: with_hook(h, headless), "made by Faulty")
    return rows


class Thing:
    pass


THING = Thing()


def subject(x: torch.Tensor, thing: Thing = THING) -> torch.Tensor:
    return x * vars(thing).get("factor", thing is not None)


def with_rules(rule: Any = None, handler: Any = None, **methods: Any) -> None:
    table = LookasideTable(COMPUTES)
    if methods:
        state = type("State", (SessionState,), methods | {"__module__": __name__})
        rule = lambda session, args, kwargs: session.state(state) and session.call(torch.sin, args, kwargs)  # noqa: E731
    if rule is not None:
        table.lookaside(subject)(rule)
    handlers = {} if handler is None else {Thing: handler}
    rules = SessionRules("faulty", lookasides=table, handlers=handlers, kinds=(state,) if methods else ())

    class Rules:
        @hookimpl
        def thunder_session_rules(self) -> Any:
            return [rules]

    with get_manager().temporary(Rules(), "faulty rules"):
        run(lambda x: (subject(x), THING.__class__, THING.factor if rule is None else THING)[0])


FAULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "a meta function raises": (
        lambda: with_operator(raising),
        "meta function of operator 'faulty.op' raised",
    ),
    "a meta function misuses core": (lambda: with_operator(misusing), "raised InvalidArgument: "),
    "a meta function reads data": (
        lambda: with_operator(lambda x: x if x.sum() > 0 else None),
        "raised DataDependentControlFlow",
    ),
    "a meta function returns a tensor": (
        lambda: with_operator(lambda x: torch.ones(3)),
        "returned a torch tensor",
    ),
    "a meta function returns an object": (lambda: with_operator(lambda x: object()), "object of type object"),
    "a meta function changes its mind": (
        lambda: with_operator(growing),
        "meta function of faulty.op returns",
    ),
    "a meta function lies about shape": (
        lambda: with_operator(lambda x: TensorProxy(like=x, shape=(4,))),
        "faulty.op computes a result that differs",
    ),
    "a meta function lies about structure": (
        lambda: with_operator(lambda x: (TensorProxy(like=x),)),
        "returns another structure",
    ),
    "a meta function lies about gradients": (
        lambda: with_operator(lambda x: TensorProxy(like=x, requires_grad=True)),
        "returned a result that requires grad",
    ),
    "a decomposition raises": (lambda: with_decomposition(raising), "the decomposition of operator"),
    "a meta function of a row raises": (
        lambda: with_row(meta=raising),
        "operator 'faulty.row' raised KeyError",
    ),
    "a decomposition of a row raises": (
        lambda: with_row(decomposition=raising),
        "decomposition of operator 'faulty.row' raised KeyError",
    ),
    "bind_postprocess raises": (
        lambda: with_operator(bind_postprocess=raising),
        "bind_postprocess of operator 'faulty.op' raised KeyError",
    ),
    "python_printer raises": (
        lambda: with_operator(python_printer=raising),
        "python_printer of operator 'faulty.op' raised KeyError",
    ),
    "python_printer returns None": (
        lambda: with_operator(python_printer=lambda *a: None),
        "python_printer of operator 'faulty.op' returned None",
    ),
    "a state class raises": (with_state, "the state class of operator faulty_state.op raised KeyError"),
    "a checker raises": (
        lambda: with_implementation(checker=raising),
        "checker raising of executor 'faulty'",
    ),
    "a checker misuses core": (lambda: with_implementation(checker=misusing), "raised InvalidArgument"),
    "a checker returns None": (lambda: with_implementation(checker=lambda a: None), "returned None"),
    "a cost raises": (
        lambda: with_cost(cost=raising),
        "cost raising of executor 'faulty' for",
    ),
    "a cost returns None": (lambda: with_cost(cost=lambda a: None), "returned None"),
    "a workspace raises": (lambda: with_cost(workspace=raising), "workspace raising of executor 'faulty'"),
    "an execution transform raises": (
        lambda: with_implementation(execution_transform=raising),
        "execution transform of executor 'faulty' for torch.sin raised KeyError",
    ),
    "an execution transform misuses core": (
        lambda: with_implementation(execution_transform=misusing),
        "for torch.sin raised InvalidArgument",
    ),
    "an execution transform misuses an operator": (
        lambda: with_implementation(execution_transform=lambda a: ltorch.cat(a, 7)),
        "execution transform of executor 'faulty' for torch.sin raised",
    ),
    "an execution transform returns None": (
        lambda: with_implementation(execution_transform=lambda a: None),
        "transform:  None",
    ),
    "a batching rule raises": (lambda: with_batching_rule(raising), "raised KeyError"),
    "a batching rule returns an example": (
        lambda: with_batching_rule(lambda c: ltorch.sum(c.x, 0)),
        "other shapes or dtypes",
    ),
    "a gradient rule raises": (lambda: with_implementation(grad_transform=raising), "raised KeyError"),
    "a gradient rule returns None": (
        lambda: with_implementation(grad_transform=lambda a: None),
        "rule returned:  None",
    ),
    "an implementation has another meta function": (with_other_meta, "meta function of"),
    "a fusion pass raises": (
        lambda: with_fusion_pass(raising),
        "fusion pass of executor 'faulty_fuser' raised",
    ),
    "a fusion pass misuses core": (lambda: with_fusion_pass(misusing), "raised InvalidArgument"),
    "a fusion pass calls an operator outside of a trace": (
        lambda: with_fusion_pass(untraced),
        "fusion pass of executor 'faulty_fuser' raised",
    ),
    "a fusion pass returns None": (
        lambda: with_fusion_pass(lambda self, t: None),
        "'faulty_fuser' returned None",
    ),
    "a fusion pass loses a definition": (lambda: with_fusion_pass(without_definition), "used before"),
    "a stage raises": (lambda: with_stage(raising), "the stage 'seeded' raised KeyError"),
    "a stage misuses core": (lambda: with_stage(misusing), "the stage 'seeded' raised InvalidArgument"),
    "a planner raises": (lambda: with_planner(raising), "the planner of a backward raised KeyError"),
    "a planner loses a call": (lambda: with_planner(lambda p: p.backward[1:]), "each call of the backward"),
    "a planner adds a call": (
        lambda: with_planner(lambda p: [*p.backward, p.backward[0].from_bsym()]),
        "not one",
    ),
    "a planner returns something else": (lambda: with_planner(lambda p: 3), "it is 3, of type int"),
    "a stage returns None": (lambda: with_stage(lambda t, c: None), "the stage 'seeded' returned None"),
    "a stage loses a definition": (lambda: with_stage(lambda t, c: headless(None, t)), "made by seeded"),
    **{
        f"{query} raises": (
            lambda q=query: with_query(q, raising),
            f"Queried.{query} of executor 'faulty_query' raised KeyError",
        )
        for query in ("can_execute", "can_execute_or_fuse", "get_execution_transform", "get_grad_transform")
        if query != "can_execute_or_fuse"
    },
    "can_execute returns None": (
        lambda: with_query("can_execute", lambda self, b: None),
        "Queried.can_execute of executor 'faulty_query' returned None",
    ),
    "get_execution_transform returns a number": (
        lambda: with_query("get_execution_transform", lambda self, b: 3),
        "Queried.get_execution_transform of executor 'faulty_query' returned 3",
    ),
    **_hook_rows(),
    "a lookaside of a session raises": (lambda: with_rules(raising), "the rule raising raised KeyError"),
    "a lookaside of a session misuses core": (
        lambda: with_rules(lambda session, args, kwargs: misusing()),
        "<lambda> raised InvalidArgument",
    ),
    **{
        f"a handler raises in {column}": (
            lambda c=column: with_rules(handler=Handler(**{c: raising})),
            "the rule raising raised KeyError",
        )
        for column in ("load", "class_of", "adopt")
    },
    **{
        f"a state raises in {method}": (
            lambda m=method: with_rules(**{m: property(raising) if m == "needs_epilogue" else raising}),
            "the rule raising raised KeyError",
        )
        for method in ("__init__", "writes", "finish", "check", "needs_epilogue", "end")
    },
    "a state raises in emit_after": (
        lambda: with_rules(needs_epilogue=True, emit_after=raising),
        "the rule raising raised KeyError",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_plugin_is_a_plugin_error_with_its_package(name: str) -> None:
    seed, words = FAULTS[name]
    with pytest.raises(thunder.PluginError, match=r"(?s).*") as error:
        seed()
    text = str(error.value)
    assert words in text
    assert "NoneType" not in text.partition("raised")[0]
    assert "from:  " in text
    assert "test_plugin_faults" in text.partition("from:  ")[2].partition("\n")[0] or "faulty rows" in text


STORE = """
import sys
import torch
import thunder
from thunder.plugins import get_manager, hookimpl

def fails(*args):
    raise KeyError("a fault")

class Faulty:
    find = keep = staticmethod(lambda *args: None)
    revise = staticmethod(lambda entry, *args: entry)

setattr(Faulty, sys.argv[1], staticmethod(fails))

class Store:
    @hookimpl
    def thunder_program_store(self):
        return Faulty()

with get_manager().temporary(Store(), "faulty store"):
    try:
        thunder.jit(torch.sin)(torch.ones(3))
    except thunder.PluginError as error:
        print(error)
"""


@pytest.mark.parametrize("method", ["find", "keep", "revise"])
def test_a_fault_of_a_store_of_programs_is_a_plugin_error(method: str) -> None:
    """In a process of its own, in which no test has replaced what asks the stores."""
    command = [sys.executable, "-c", STORE, method]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"{method} of the program store raised KeyError" in printed
    assert "from:  __main__" in printed


# -- what is not a fault -------------------------------------------------------------------------------------


def refusing(error: Exception) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise error

    return refuse


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (lambda: with_operator(refusing(OperatorError("no such width"))), OperatorError),
        (lambda: with_operator(refusing(UnsupportedProgram("no such width"))), UnsupportedProgram),
        (lambda: with_decomposition(lambda x: x.reshape(7)), OperatorError),
        (lambda: with_hook("validate", refusing(thunder.core.errors.UserError("no such width"))), Exception),
        (lambda: with_hook("transform_module", refusing(UnsupportedProgram("no width"))), UnsupportedProgram),
        (lambda: with_stage(refusing(UnsupportedProgram("no width"))), UnsupportedProgram),
    ],
    ids=["meta", "meta, unsupported", "decomposition", "validate", "transform_module", "stage"],
)
def test_a_refusal_by_the_plugins_own_code_is_no_fault(seed: Callable[[], Any], expected: Any) -> None:
    with pytest.raises(expected, match=r"width|shape|size") as error:
        seed()
    assert not isinstance(error.value, thunder.PluginError)


def test_the_error_of_a_malformed_trace_is_also_a_trace_error() -> None:
    with pytest.raises(thunder.core.errors.TraceError, match="used before it is defined") as error:
        with_stage(lambda trace, context: headless(None, trace))
    assert isinstance(error.value, thunder.PluginError)


def test_without_the_option_a_meta_function_raises_what_eager_raises_with_a_note() -> None:
    ex = OperatorExecutor("faulty")
    op = ex.register_operator("op", meta=raising, fn=raising, replace=True)

    def handled(x: torch.Tensor) -> torch.Tensor:
        try:
            return op(x)
        except KeyError:
            return x * 3

    compiled = thunder.jit(handled, executors=[ex])
    torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 3.0))
    with pytest.raises(KeyError, match="seeded") as error:
        thunder.jit(lambda x: op(x), executors=[ex])(torch.ones(2))
    assert any("meta function of operator 'faulty.op', from" in note for note in error.value.__notes__)


def test_a_kernel_that_raises_passes_with_a_note() -> None:
    with pytest.raises(KeyError, match="seeded") as error:
        with_operator(fn=lambda x: raising())
    assert any("the compiled program ran  t0 = op(x)" in note for note in error.value.__notes__)
    assert tree_flatten(error.value.args)[0] == ["seeded"]
