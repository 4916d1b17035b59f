"""The end of an acquisition: what the computation returns, and what the epilogue does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import Path
from thunder.frontend import ambient_state
from thunder.frontend.custom_gradients import backward_reads
from thunder.frontend.custom_gradients.backward_state import BackwardState
from thunder.frontend.custom_gradients.eager_backward import begin_objects
from thunder.frontend.custom_gradients.leaf_hooks import is_hook_table, refuse_left_hooks
from thunder.frontend.custom_gradients.module_backward_hooks import refuse_written_results
from thunder.frontend.custom_gradients.retained_gradients import RetainedGradients, retaining_results
from thunder.frontend.custom_gradients.shared_objects import (
    changed_objects,
    emit_objects,
    objects_that_leave,
)
from thunder.frontend.custom_gradients.tensor_hooks import refuse_written_views
from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder, is_simple
from thunder.frontend.epilogue.value_parts import proxies_of
from thunder.frontend.lookasides.grad_requests import GradRequests, returned_leaves
from thunder.frontend.lookasides.locks import refuse_held
from thunder.frontend.lookasides.rebound_tensors import share_data, track_detached
from thunder.frontend.lookasides.weakrefs import refuse_callbacks
from thunder.frontend.natives.cached_functions import CachedCalls
from thunder.frontend.objects.shared_attributes import refuse_shared_attributes
from thunder.frontend.opaque_calls.opaque_acquisition import OpaqueCalls
from thunder.frontend.output.progress_bars import close_bars
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.made_parameters import refuse_observed_copies
from thunder.frontend.types.tensors import original_of
from thunder.frontend.types.written_attributes import WrittenAttributes, emit_attributes
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
        close_bars(self.session)
        name_values(self.trace, self.inputs, self.parameters)
        session = self.session
        refuse_held(session)
        refuse_callbacks(session)
        refuse_shared_attributes(session.objects.entries.values())
        self.trace.args = [proxy for proxy, _ in self.inputs]
        seen = set[int]()
        simple = is_simple(result, seen, session.objects)
        autocast = ambient_state.Modes.now().autocast_after(session.modes)
        self.writes = bool(autocast or session.writes)
        refuse_left_hooks(session)
        share_data(session)
        track_detached(session)
        refuse_written_views(session)
        refuse_written_results(session)
        leaving = proxies_of(session, [*session.writes.values(), result])
        may_be_differentiated = self._may_be_differentiated(leaving)
        changed = changed_objects(session) if may_be_differentiated else []
        refuse_observed_copies(session, proxies_of(session, [*session.writes.values(), result, *changed]))
        is_annotated = self._is_annotated() or changed or objects_that_leave(session, seen)
        backward_reads.refuse_changed(session, may_be_differentiated)
        if simple and not self.writes and not is_annotated:
            prims.python_return(*([result] if result is not None else [None]))
            return self._computation(), None, []
        builder = EpilogueBuilder(session)
        for value in (*session.writes.values(), result, *changed):
            builder.count(value)
        for value in objects_that_leave(session, builder.uses) if may_be_differentiated else ():
            builder.count(value)  # once more: the backwards refer to it
        for query in session.state(CachedCalls).uses:
            builder.emit(f"{builder.constant('entry', query)}.repeat()")
        for write in sorted(session.writes, key=lambda write: not is_hook_table(write.owner)):
            write.emit(builder)  # what hooks are left, before others are registered
        if autocast:
            builder.emit(*autocast)
        expression = builder.expression(result)
        if may_be_differentiated:
            emit_objects(session, builder)
        emit_attributes(
            session,
            builder.tensors,
            original_of,
            lambda tensor, name, value: builder.emit(
                f"{builder.parameters.get(tensor, tensor)}.{name} = {builder.expression(value)}"
            ),
        )
        self._emit_leaves(builder)
        builder.end(result, expression)
        prims.python_return(tuple(builder.tensors.values()))
        reached = list(builder.reached.values())
        epilogue = _epilogue(builder.statements, [*builder.tensors, *(name for name, _, _ in reached)])
        return self._computation(), epilogue, [path for _, path, _ in reached]

    def _is_annotated(self) -> bool:
        """Return whether the epilogue does something to the results."""
        session = self.session
        retained = session.state(RetainedGradients)
        return bool(
            session.state(GradRequests).has_any()
            or session.state(WrittenAttributes)
            or retained.intermediates
            or retained.inputs
            or session.state(CachedCalls).uses
        )

    def _emit_leaves(self, builder: EpilogueBuilder) -> None:
        """Let the epilogue set which tensors are leaves, and which retain gradients."""
        session = self.session
        kept = () if session.state(OpaqueCalls).calls else proxies_of(session, session.writes.values())
        for leaf in returned_leaves(session, self.trace.args, builder.tensors.values(), kept):
            if leaf.name not in builder.parameters:
                builder.emit(f"{leaf.name}.requires_grad_()")
        for tensor in retaining_results(session, builder.tensors.values()):
            builder.emit(f"{tensor.name}.retain_grad()")
        for tensor in session.state(RetainedGradients).inputs.values():
            builder.emit(f"{builder.expression(tensor)}.retain_grad()")

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
