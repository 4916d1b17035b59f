"""The end of an acquisition: what the computation returns, and what the epilogue does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import Path
from thunder.base.tags import OpTags
from thunder.frontend import ambient_state
from thunder.frontend.custom_gradients.backward_state import BackwardState
from thunder.frontend.custom_gradients.eager_backward import begin_objects
from thunder.frontend.custom_gradients.shared_objects import (
    changed_objects,
    emit_objects,
    objects_that_leave,
)
from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder, is_simple
from thunder.frontend.epilogue.value_parts import proxies_of
from thunder.frontend.opaque_calls.opaque_acquisition import OpaqueCalls
from thunder.frontend.session import Ending, TracingSession
from thunder.frontend.value_names import Input, input_order, name_values, parameter_names
from thunder.ir.requires_grad import any_requires_grad, requires_grad
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.trace import TraceCtx, TraceProvenance
from thunder.ops import prims


class TraceFinalizer:
    """The end of an acquisition: names of values, the computation's results, the epilogue."""

    def __init__(self, session: TracingSession, inputs: list[Input], fn: Callable[..., Any]) -> None:
        self.session, self.trace = session, session.trace
        self.parameters = parameter_names(fn)
        ordered = sorted(inputs, key=lambda item: input_order(item[1]))
        # the order in which the prologue returns them: symbols last
        self.inputs = sorted(ordered, key=lambda item: isinstance(item[0], SymbolicNumber))
        self.writes = False

    def run(self, result: Any) -> tuple[TraceCtx, TraceCtx | None, list[Path]]:
        """Return the computation, its epilogue or None, and the paths of what that needs."""
        session = self.session
        for state in session.states():
            state.finish()
        name_values(self.trace, self.inputs, self.parameters)
        session.objects.refuse_shared_attributes()
        self.trace.args = [proxy for proxy, _ in self.inputs]
        seen = set[int]()
        is_plain = is_simple(result, seen, session.objects)
        written = session.writes.values()
        ending = self._ending(written, result)
        for state in session.states():
            state.check(ending)
        autocast = ambient_state.Modes.now().autocast_after(session.modes)
        self.writes = bool(autocast or session.writes)
        has_effect = self.writes or any(state.needs_epilogue for state in session.states())
        if is_plain and not (has_effect or ending.changed or objects_that_leave(session, seen)):
            prims.python_return(*([result] if result is not None else [None]))
            return self._computation(), None, []
        builder = EpilogueBuilder(session)
        for value in (*written, result, *ending.changed):
            builder.count(value)
        for value in objects_that_leave(session, builder.uses) if ending.differentiable else ():
            builder.count(value)  # once more: the backwards refer to it
        for state in session.states():
            state.emit_before(builder)
        for write in session.writes:
            write.emit(builder)
        if autocast:
            builder.emit(*autocast)
        expression = builder.expression(result)
        if ending.differentiable:
            emit_objects(session, builder)
        for state in session.states():
            state.emit_after(builder, ending)
        builder.end(result, expression)
        prims.python_return(tuple(builder.tensors.values()))
        fetched = list(builder.objects_fetched.values())
        epilogue = _epilogue(builder.statements, [*builder.tensors, *(name for name, _, _ in fetched)])
        return self._computation(), epilogue, [path for _, path, _ in fetched]

    def _ending(self, written: list[Any], result: Any) -> Ending:
        session, leaving = self.session, proxies_of(self.session, [*written, result])
        differentiable = self._may_be_differentiated(leaving)
        changed = changed_objects(session) if differentiable else []
        return Ending(
            leaving=[*leaving, *proxies_of(session, changed)],
            kept=() if session.state(OpaqueCalls).calls else proxies_of(session, written),
            changed=changed,
            differentiable=differentiable,
        )

    def _may_be_differentiated(self, leaving: list[Any]) -> bool:
        """Return whether a backward of the program may run later: inputs that leave it have none in it."""
        inputs = set(map(id, self.trace.args))
        if any(requires_grad(p) and id(p) not in inputs for p in leaving):
            return True
        return any(map(_writes_history, self.trace.bound_symbols))

    def _computation(self) -> TraceCtx:
        _refuse_hidden(self.session)
        objects = self.session.state(BackwardState).objects
        if objects is not None:
            self.trace.bound_symbols.insert(0, begin_objects.bind(output=objects))
        if not self.trace.grad_enabled:  # where nothing requires grad, regions of grad mode mean nothing
            self.trace.bound_symbols = [
                b for b in self.trace.bound_symbols if b.sym is not prims.set_grad_enabled
            ]
        self.trace.set_provenance(TraceProvenance("Acquisition"))
        return self.trace


def _writes_history(call: BoundSymbol) -> bool:
    """Return whether a call writes to a tensor so that this, perhaps an input, has another gradient."""
    if OpTags.IN_PLACE not in call.all_tags:
        return False
    writing = (b for b in with_parts((call,)) if b.sym is prims.copy_ and b.kwargs.get("grad_enabled", True))
    return any(any_requires_grad(b.flat_proxy_args) for b in writing)


def _refuse_hidden(session: TracingSession) -> None:
    """Refuse the use of a custom gradient's private values outside of it."""
    for bsym in session.trace.bound_symbols if session.state(BackwardState).private else ():
        for p in bsym.flat_proxy_args:
            if id(p) in session.state(BackwardState).private:
                part = session.state(BackwardState).private[id(p)][1]
                raise UnsupportedProgram(
                    f"a tensor that {part} computed for itself is used outside of it",
                    found={"tensor": f'"{p.type_string()}"'},
                    where=bsym.locations,
                    hint="Return it from the function.",
                )


def _epilogue(statements: list[BoundSymbol], parameters: list[str]) -> TraceCtx:
    trace = TraceCtx(name="epilogue")
    trace.plain = True
    trace.args = list(parameters)
    trace.bound_symbols.extend(statements)
    trace.set_provenance(TraceProvenance("Acquisition"))
    return trace
