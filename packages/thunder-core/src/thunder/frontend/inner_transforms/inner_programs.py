"""The program of a function that is called within a program, to be transformed.

The function is interpreted like any other; what it records is taken out of the trace and becomes a functional
program, of which the transform records another form in its place:

    torch.vmap(fn)(x)    x': (3,)   →   a = sin(x')   →   a' = sin(x)        x: (4, 3)

The values of the inner program are no values of the outer one: their use after it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.custom_gradients.backward_state import BackwardState
from thunder.frontend.epilogue.subtrace import recorded, uses_and_definitions, writes
from thunder.frontend.lookasides.grad_requests import GradRequests
from thunder.frontend.places import Place
from thunder.frontend.session import TracingSession
from thunder.ir.aliasing import shared_memory, views_of
from thunder.ir.proxies import TensorProxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, from_trace
from thunder.ops import prims
from thunder.ops.layouts import Layouts
from thunder.passes.functionalise import functionalise

__all__ = ["InnerProgram", "inner_program"]


@dataclass(frozen=True, kw_only=True)
class InnerProgram:
    """The program of a function.

    ``program.args`` are the arguments that the transform made, and ``captured``, the values of the outer
    program that it reads. ``result`` is what the function returned, ``written`` are the indices of the inputs
    that it wrote to; ``program.output`` is ``(tensors of the result, written values)``. ``views`` has, by the
    index of a tensor of the result that is a part of a written argument, the index of the argument, and the
    program from it to the part.
    """

    program: TraceCtx
    captured: tuple[Any, ...]
    result: Any
    written: tuple[int, ...]
    views: dict[int, tuple[int, TraceCtx]]


def inner_program(
    session: TracingSession, name: str, arguments: Sequence[TensorProxy], call: Callable[[], Any]
) -> InnerProgram:
    """Interpret a function by ``call()``, and return its program.

    ``arguments`` are the proxies that no statement computes. Raises UnsupportedProgram where it writes in
    place to memory that another value shares.
    """
    outside = torch.is_grad_enabled()
    with session.place.entered(Place.MAPPED, name), recorded(session.trace) as calls:
        result = call()
        session.read_lists(result)
    assert torch.is_grad_enabled() == outside, "a function leaves the grad mode as it was"
    tensors = tuple(proxies_in(result))
    used, defined = uses_and_definitions(calls, tensors)
    own = {a.name for a in arguments}
    captured = tuple(p for n, p in used.items() if n not in own)
    raw = from_trace(session.trace)
    raw.args, raw.grad_enabled = [*arguments, *captured], True
    raw.bound_symbols = [*calls, prims.python_return.bind(tensors, output=None)]
    program = functionalise(raw)
    session.trace.names |= program.names
    written, rest = writes(program)
    if written:
        _check_writes(session, [raw.args[i] for i in written], raw.args, name)
    *body, end = rest.bound_symbols
    rest.bound_symbols = [*body, end.from_bsym(args=((end.args[0], tuple(written.values())),))]
    _forget_requests(session, defined.values())
    _mark_private(session, name, (*arguments, *defined.values()))
    places = {arguments[i].name: i for i in written if i < len(arguments)}
    views = _views_of_written(raw, calls, tensors, places) if places else {}
    return InnerProgram(program=rest, captured=captured, result=result, written=tuple(written), views=views)


def _views_of_written(
    raw: TraceCtx, calls: Sequence[BoundSymbol], tensors: Sequence[TensorProxy], written: Mapping[str, int]
) -> dict[int, tuple[int, TraceCtx]]:
    """Return the parts of arguments, which the function has written, among the tensors that it returns."""
    layouts = Layouts((p for p in raw.args if isinstance(p, TensorProxy)), calls)
    sources = {view.output.name: (call, view) for call in calls for view in views_of(call) if view.path}
    found: dict[int, tuple[int, TraceCtx]] = {}
    for index, x in enumerate(tensors):
        chain: list[BoundSymbol] = []
        source = x
        while source.name in sources:
            call, view = sources[source.name]
            if not (view.certain or layouts.share_memory(view.output, view.source)):
                break  # a copy
            chain, source = [call, *chain], view.source
        if chain and source.name in written:
            part = from_trace(raw)
            part.args = [source]
            part.bound_symbols = [*chain, prims.python_return.bind((x,), output=None)]
            found[index] = written[source.name], part
    return found


def _check_writes(
    session: TracingSession, targets: Iterable[TensorProxy], inputs: Iterable[Any], name: str
) -> None:
    """Refuse a write to memory that another input of the function may share."""
    families = shared_memory(bsym for scope in session.trace.scopes for bsym in scope)
    outer = [p for p in inputs if isinstance(p, TensorProxy)]
    for target in targets:
        family = families.find(target.name)
        for other in outer:
            if other is not target and families.find(other.name) == family:
                raise UnsupportedProgram(
                    f"a function under {name} writes in place to memory that it also reads otherwise",
                    found={"written": f'"{target.type_string()}"', "read": f'"{other.type_string()}"'},
                    where=session.locations(),
                    hint="Use the out-of-place operator, or write to a clone.",
                )


def _forget_requests(session: TracingSession, values: Iterable[Any]) -> None:
    """Forget of which values the function set ``requires_grad``: they are not values of the outer program."""
    state, own = session.state(GradRequests), {id(p) for p in values}
    for x, where in state.without_use:
        if id(x) in own:
            raise UnsupportedProgram(
                "a mapped function sets requires_grad of what it computed from a tensor with gradients",
                found={x.name: f'"{x.type_string()}"'},
                where=where,
                hint="Use what detach() of it returns.",
            )
    state.requests = [(x, where) for x, where in state.requests if id(x) not in own]


def _mark_private(session: TracingSession, name: str, values: Iterable[Any]) -> None:
    """Note the values that no code outside of the function may use."""
    private = session.state(BackwardState).private
    for p in values:
        private[id(p)] = (p, name)
