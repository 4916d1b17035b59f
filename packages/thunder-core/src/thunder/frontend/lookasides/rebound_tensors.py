"""Tensors that become another tensor in place: ``x.unsqueeze_(0)``, ``h.detach_()``, ``p.data = value``.

Note [Rebound tensors]
The object stays the same, in all variables and containers of the program, and has other metadata or other
memory. So its proxy becomes the result of the out-of-place form, and in the calls before, another proxy takes
its place. For an input, the epilogue does the same to the user's tensor:

    y = x + 1                     y = t0 + 1
    x.unsqueeze_(0)        →      x = t0.unsqueeze(0)
    return x * 2                  return x * 2              # epilogue: args[0].unsqueeze_(0)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from thunder.base.errors import Location, OperatorError, UnsupportedProgram
from thunder.frontend.custom_gradients.recorded_memory import names_of_memory, written_names
from thunder.frontend.epilogue.subtrace import recorded
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.writes import Write, moment
from thunder.frontend.places import REBINDS, REBINDS_ARGUMENT, Place
from thunder.frontend.raised_errors import tensor_refusal
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.aliasing import views_of
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.substitution import substitute
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.ops import prims
from thunder.ops.layouts import Layouts
from thunder.torch.inplace import is_leaf

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

TABLE = LookasideTable(REBINDS)

#: in-place method → the out-of-place form
_FORMS: dict[Any, Any] = {
    torch.Tensor.squeeze_: torch.Tensor.squeeze,
    torch.Tensor.swapaxes_: torch.Tensor.swapaxes,
    torch.Tensor.swapdims_: torch.Tensor.swapdims,
    torch.Tensor.t_: torch.Tensor.t,
    torch.Tensor.transpose_: torch.Tensor.transpose,
    torch.Tensor.unsqueeze_: torch.Tensor.unsqueeze,
}
_METADATA = (
    "shape",
    "requires_grad",
    "tags",
    "strides",
    "derived_strides",
    "requires_grad_since_write",
)


class ReboundTensors(SessionState):
    """The tensors that were rebound.

    ``inputs`` are those of the inputs, by id. ``statements`` are what the epilogue does to them, each with
    the input and, for a text with a place for it, a value. ``assigned`` has for each assignment of data the
    tensor, the value, the call, and where.
    """

    def __init__(self, session: TracingSession) -> None:
        self.inputs: dict[int, TensorProxy] = {}
        self.statements: list[tuple[TensorProxy, str, TensorProxy | None, int]] = []
        self.assigned: list[tuple[TensorProxy, TensorProxy, Any, list[Location]]] = []

    def writes(self) -> Iterator[Write]:
        return itertools.starmap(self._write, self.statements)

    def add(self, tensor: TensorProxy, text: str, data: TensorProxy | None = None) -> None:
        """Let the epilogue do what ``text`` says to an input, or assign data to it."""
        self.statements.append((tensor, text, data, moment()))

    def _write(self, tensor: TensorProxy, text: str, data: TensorProxy | None, at: int) -> Write:
        def emit(builder: EpilogueBuilder) -> None:
            value = "" if data is None else builder.expression(data)
            builder.emit(f"{builder.expression(tensor)}{text.format(value)}")

        entry = self._session.entry_of(tensor)
        values = () if data is None else (data,)
        owner = None if entry is None else entry.obj
        return Write(
            name=tensor.name, emit=emit, owner=owner, content=values, values=values, state=text, moment=at
        )

    def finish(self) -> None:
        self._share_data()
        self._track_detached()

    def _track_detached(self) -> None:
        """Let inputs that were detached have the graph that the program has given them after that.

        The trace writes to the memory of the input as it came, whose graph the write is no part of; so the
        epilogue writes once more, to the detached one.
        """
        for x in [x for x, text, *_ in self.statements if text == ".detach_()" and x.requires_grad]:
            if not x.requires_grad_since_write:  # it would be a leaf with a gradient of its own
                raise _refusal(x, "calls detach_ of an input, and lets it require grad again")
            self.add(x, ".copy_({})", prims.clone(x))

    def _share_data(self) -> None:
        """Let a tensor and its new data, which then share memory, both have what is written to one of them.

        A tensor that requires grad has a copy in the trace, so each write is repeated. Raises
        UnsupportedProgram where a part of the program has run before, and where a write would be repeated
        several times.
        """
        calls, shared = self._session.trace.bound_symbols, set[str]()
        for x, data, call, where in self.assigned:
            if self._session.entry_of(x) is not None:
                _refuse_tracked_write(calls, x, where)
            if call.sym is not prims.replace_data:
                continue
            pairs = [(x, data), (data, x)]
            memories = [names_of_memory(calls, {p.name}) for p in (x, data)]
            start = next(i for i, b in enumerate(calls) if any(p.name == x.name for p in b.flat_proxy_outs))
            for i in range(len(calls) - 1, start, -1):
                written = set(written_names(calls[i]))
                found = [k for k, memory in enumerate(memories) if not memory.isdisjoint(written)]
                if not found:
                    continue
                has_decided = self._session.speculation is not None and self._session.speculation.decisions
                if has_decided or len(found) > 1 or not shared.isdisjoint(memories[1 - found[0]]):
                    raise UnsupportedProgram(
                        "the program writes in place to a tensor whose data it has assigned, or to that "
                        "data, and decides by values or assigns these data to several",
                        where=[*calls[i].locations, *where],
                        hint="Copy the data under torch.no_grad(), tensor.copy_(value), in the place of the "
                        "assignment, or write before it.",
                    )
                calls[i + 1 : i + 1] = _copy(self._session, *pairs[found[0]])
            shared |= memories[0] | memories[1]


def _register(method: Any, form: Any) -> None:
    @TABLE.lookaside(method)
    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TensorProxy:
        return _change_shape(session, method, form, args, kwargs)


for _method, _form in _FORMS.items():
    _register(_method, _form)


def _change_shape(
    session: TracingSession, method: Any, form: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> TensorProxy:
    x, *dims = args
    name = method.__name__
    _check_rebinding(session, x, f"calls {name}")
    if torch.is_grad_enabled() and x.requires_grad and is_leaf(x):
        raise OperatorError("a leaf Variable that requires grad is being used in an in-place operation.")
    is_input = session.entry_of(x) is not None
    if is_input and (x.requires_grad or not all(type(d) is int for d in (*dims, *kwargs.values()))):
        raise _refusal(x, f"calls {name} of an input that requires grad, or with a number out of a tensor")
    result = session.call(form, args, kwargs)
    if result is not x:
        _rebind(session, x, result, lambda: method(x, *dims, **kwargs))
    if is_input:
        text = ", ".join([*map(repr, dims), *(f"{key}={value!r}" for key, value in kwargs.items())])
        session.state(ReboundTensors).add(x, f".{name}({text})")
    return x  # type: ignore[no-any-return]


@TABLE.with_parameters(torch.Tensor.detach_, torch.detach_)
def _detach_(session: TracingSession, x: Any) -> TensorProxy:
    _check_rebinding(session, x, "calls detach_")
    entry = session.entry_of(x)
    if entry is not None:
        with torch._C.DisableTorchFunction():
            is_view = entry.obj._is_view()
        session.note(
            prims.check_same_object,
            entry.path.step("attribute", "_base"),
            entry.obj._base if is_view else None,
        )
    else:
        is_view = _is_differentiable_view(session, x)
    if is_view:
        raise RuntimeError(
            "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel "
            "(DDP) for training, and gradient_as_bucket_view is set as True, gradients are views of DDP "
            "buckets, and hence detach_() cannot be called on these gradients. To fix this error, please "
            "refer to the Optimizer.zero_grad() function in torch/optim/optimizer.py as the solution."
        )
    if not x.requires_grad:
        return x  # type: ignore[no-any-return]
    if entry is not None and any(t is x for t, *_ in session.state(ReboundTensors).statements):
        raise _refusal(x, "calls detach_ of an input, writes to it, and detaches it again")
    _rebind(session, x, prims.detach(x), lambda: None)
    if entry is not None:
        x.declared_leaf = True
        session.state(ReboundTensors).add(x, ".detach_()")
    return x  # type: ignore[no-any-return]


def _is_differentiable_view(session: TracingSession, x: TensorProxy) -> bool:
    """Return whether torch tracks a tensor of the program as a view; results of ``detach`` it does not."""
    calls = session.trace.bound_symbols
    layouts = Layouts((a for a, _ in session.objects.inputs if isinstance(a, TensorProxy)), calls)
    for bsym in calls:
        for view in views_of(bsym):
            if view.output is x and not view.is_detached:
                return view.certain or layouts.share_memory(view.output, view.source)
    return False


def assign_data(session: TracingSession, x: TensorProxy, value: Any) -> None:
    """Do ``x.data = value``.

    Raises UnsupportedProgram for a tensor that has a gradient function, and for a value of another shape,
    dtype or device.
    """
    if not isinstance(value, TensorProxy):
        raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
    _check_rebinding(session, x, "assigns the data")
    same = (x.shape, x.dtype, x.device) == (value.shape, value.dtype, value.device)
    is_input = session.entry_of(x) is not None
    if not same or not (is_input or is_leaf(x)):
        raise _refusal(x, "assigns the data of a tensor with a grad_fn, or data of another form")
    data = prims.detach(value)
    if x.requires_grad:
        result = TensorProxy(like=x)
        session.trace.record(prims.replace_data.bind(data, x, output=result))
    else:
        result = prims.shallow_copy(data)
    _rebind(session, x, result, lambda: None)
    rebound, call = session.state(ReboundTensors), session.trace.peek_scope()[-1]
    rebound.statements = [s for s in rebound.statements if s[0] is not x or s[2] is None]
    if is_input:
        rebound.add(x, ".data = {}", data)
    rebound.assigned.append((x, data, call, session.locations()))


@TABLE.lookaside(torch.Tensor.set_)
def _set(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TensorProxy:
    """Do ``x.set_(value)``, after which the tensor has the memory of the value, as by ``x.data = value``."""
    x, *values = args
    if len(values) != 1 or kwargs or not isinstance(values[0], TensorProxy):
        raise _refusal(x, "calls set_ with a storage, or with sizes")
    if torch.is_grad_enabled() and x.requires_grad and is_leaf(x):
        raise OperatorError("a leaf Variable that requires grad is being used in an in-place operation.")
    if torch.is_grad_enabled() and (x.requires_grad or values[0].requires_grad):
        raise _refusal(x, "calls set_, which has no derivative, where gradients are tracked")
    if session.entry_of(x) is not None or (x.requires_grad and _has_been_used(session, x)):
        raise _refusal(x, "calls set_ of an input, or of a tensor whose gradient it has used")
    assign_data(session, x, values[0])
    return x  # type: ignore[no-any-return]


def _has_been_used(session: TracingSession, x: TensorProxy) -> bool:
    """Return whether a tensor that requires grad was computed from ``x``: torch forgets that in ``set_``."""
    calls = (b for scope in session.trace.scopes for b in scope if any(p is x for p in b.flat_proxy_args))
    return any(requires_grad(p) for b in calls for p in b.flat_proxy_outs if p is not x)


def _refuse_tracked_write(calls: list[BoundSymbol], x: TensorProxy, where: list[Location]) -> None:
    """Refuse a write whose gradient an input would have that then gets new data, which have no graph."""
    memory = names_of_memory(calls, {x.name})
    start = next(i for i, b in enumerate(calls) if any(p.name == x.name for p in b.flat_proxy_outs))
    for bsym in with_parts(calls[start + 1 :]):
        if bsym.sym is not prims.copy_ or not bsym.kwargs["grad_enabled"]:
            continue
        value, target = bsym.args
        if target.name in memory and (requires_grad(value) or x.requires_grad):
            raise UnsupportedProgram(
                "the program writes in place, where gradients are tracked, to a tensor whose data it "
                "has assigned",
                where=[*bsym.locations, *where],
                hint="Write under torch.no_grad(), or copy the data in the place of the assignment.",
            )


def _copy(session: TracingSession, source: TensorProxy, target: TensorProxy) -> list[BoundSymbol]:
    """Return the calls that copy one tensor to another, which no gradient passes."""
    with torch.no_grad(), recorded(session.trace) as calls:
        prims.copy_(prims.clone(prims.detach(source)), target, grad_enabled=False)
    return calls


# -- rebinding -----------------------------------------------------------------------------------------------


_refusal = partial(
    tensor_refusal, hint="Use the out-of-place form, or do it outside of the compiled function."
)


def _check_rebinding(session: TracingSession, x: TensorProxy, what: str) -> None:
    """Raise UnsupportedProgram in a part of the program that is recorded again, or at another time."""
    is_argument = any(x is i for fn in session.place.parts(Place.FORWARD) for i in fn.inputs)
    effect = REBINDS_ARGUMENT if is_argument else REBINDS
    session.place.check(effect, f"the program {what}", found={x.name: f'"{x.type_string()}"'})


def _rebind(session: TracingSession, x: TensorProxy, result: TensorProxy, change: Callable[[], Any]) -> None:
    """Let ``x`` be the result of the last call, and another proxy the argument of all calls before.

    ``change`` changes the shape that torch's parser sees of the proxy.
    """
    before = x.replace(name=session.trace.make_name(prefix="t"))
    scope = session.trace.peek_scope()
    for i, bsym in enumerate(scope):
        parts = with_parts((bsym,))
        if any(p.name == x.name for b in parts for p in (*b.flat_proxy_args, *b.flat_proxy_outs)):
            scope[i] = substitute(bsym, {x.name: before})
    scope[-1] = substitute(scope[-1], {result.name: x})
    state = session.state(ReboundTensors)
    state.assigned = [
        (before if t is x else t, before if v is x else v, *rest) for t, v, *rest in state.assigned
    ]
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        change()  # by torch's code for meta tensors, which reads the metadata of before
    for field in _METADATA:
        setattr(x, field, getattr(result, field))
    inputs = session.state(ReboundTensors).inputs
    if session.entry_of(x) is not None and id(x) not in inputs:
        inputs[id(x)] = x
        session.objects.replace_input(x, before)
    if session.speculation is not None:
        session.speculation.note_rebound(x, before)
