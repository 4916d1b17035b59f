"""Parameters and buffers that a program makes: ``torch.nn.Parameter(data)``, and so modules made in it.

In eager a parameter shares memory with its data. Here it is a copy, so that a gradient reaches it after
writes in place too; what is detached from it is a part of the data, and a program that could observe the
difference is refused. One that leaves the program is made again by the epilogue: of its data where others
have these, and else of the copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from thunder.base.errors import Location, UnsupportedProgram
from thunder.frontend.custom_gradients.recorded_memory import names_of_memory, written_names
from thunder.frontend.lookasides.grad_requests import request_grad
from thunder.frontend.session import Ending, SessionState, TracingSession
from thunder.frontend.torch_functions.override_state import TorchFunctions
from thunder.ir.aliasing import views_of
from thunder.ir.proxies import TensorProxy
from thunder.ir.substitution import substitute
from thunder.ops import prims


class MadeParameters(SessionState):
    """The parameters and buffers that a program has made, with their data, and where."""

    def __init__(self, session: TracingSession) -> None:
        self.made: list[tuple[TensorProxy, TensorProxy, list[Location]]] = []
        #: the data of which the epilogue makes a parameter, by its id, where these leave the program too
        self.shared: dict[int, TensorProxy] = {}

    def finish(self) -> None:
        """Let what is detached from a parameter be a part of its data, which others may have.

        The two have the same elements where neither has been written.
        """
        calls = self._session.trace.bound_symbols
        written = {name for b in calls for name in written_names(b)} if self.made else set()
        for parameter, data, _ in self.made:
            if not written.isdisjoint(names_of_memory(calls, {parameter.name, data.name})):
                continue
            for i, b in enumerate(calls):
                views = [view for view in views_of(b) if view.source.name == parameter.name]
                if views and all(view.is_detached for view in views):
                    calls[i] = substitute(b, {parameter.name: data})

    def check(self, ending: Ending) -> None:
        self.refuse_observed(ending.leaving)

    def refuse_observed(self, leaving: Iterable[Any]) -> None:
        """Refuse a program that writes to a parameter it has made, or to its data, and uses the other."""
        calls = self._session.trace.bound_symbols
        leaving = {p.name for p in leaving}
        for parameter, data, where in self.made:
            start = 1 + next((i for i, b in enumerate(calls) if parameter.name in _results(b)), 0)
            memories = [names_of_memory(calls, {p.name}) for p in (parameter, data)]
            written = {name for b in calls[start:] for name in written_names(b)}
            read = {p.name for b in calls[start:] for p in b.flat_proxy_args} | leaving
            shares = not memories[1].isdisjoint(_inputs(self._session) | leaving)
            if shares and memories[0].isdisjoint(written):
                self.shared[id(parameter)] = data
            has_part = shares and not leaving.isdisjoint(memories[0] - {parameter.name})
            is_observed = memories[0] & memories[1] or any(
                not memories[i].isdisjoint(written)
                and not memories[1 - i].isdisjoint(read | _inputs(self._session))
                for i in (0, 1)
            )
            if has_part or is_observed:
                what = "writes in place to it or to its data, and uses the other"
                raise UnsupportedProgram(
                    f"the program makes a parameter, {what if is_observed else 'and returns a part of it'}",
                    found={parameter.name: f'"{parameter.type_string()}"'},
                    where=where,
                    hint="Make it of a clone of the data.",
                )


def make_parameter(session: TracingSession, cls: type, data: TensorProxy, require_grad: bool) -> TensorProxy:
    """Return a parameter or buffer (``cls``) of the values of a tensor, which is a leaf of torch's graph."""
    with session.state(TorchFunctions).recording():
        parameter: TensorProxy = prims.clone(prims.detach(data))
    session.objects.tensor_classes[id(parameter)] = parameter, cls
    session.state(MadeParameters).made.append((parameter, data, session.locations()))
    if require_grad:
        request_grad(session, parameter, True)
    return parameter


def _results(bsym: Any) -> set[str]:
    return {p.name for p in bsym.flat_proxy_outs}


def _inputs(session: TracingSession) -> set[str]:
    return {p.name for p, _ in session.objects.inputs if isinstance(p, TensorProxy)}
