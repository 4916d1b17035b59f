"""Which proxies are one tensor to the program: a call such as ``x.contiguous()`` may return its argument."""

from __future__ import annotations

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.torch import tensor_attributes

#: the marks that make a function return a copy, and not its argument
_RESOLVED = {"torch.resolve_conj": "is_conj", "torch.resolve_neg": "is_neg"}


def is_marked(session: TracingSession, x: TensorProxy, mark: str) -> bool:
    """Return ``x.is_conj()`` or ``x.is_neg()``, by the name ``mark``.

    Raises UnsupportedProgram for an intermediate for which the result is not certain.
    """
    entry = session.entry_of(x)
    if entry is not None:
        with torch._C.DisableTorchFunction():
            return bool(getattr(entry.obj, mark)())  # among the dispatch keys, which are checked
    if not (x.dtype.is_complex if mark == "is_conj" else x.dtype.is_inexact):
        return False
    if not _may_have_marks(session):
        return False
    raise UnsupportedProgram(
        f"{mark}() of an intermediate tensor",
        found={x.name: x.type_string()},
        hint=f"Call {mark.replace('is', 'resolve')}() instead, which decides when the program runs.",
    )


def _may_have_marks(session: TracingSession) -> bool:
    """Return whether an input is marked as conjugate or negative, or a call may mark a result."""
    with torch._C.DisableTorchFunction():
        tensors = [r.obj for r in session.objects.entries.values() if isinstance(r.obj, torch.Tensor)]
        if any(t.is_conj() or t.is_neg() for t in tensors):
            return True
    calls = (bsym for scope in session.trace.scopes for bsym in with_parts(scope))
    return any(OpTags.MAY_MARK in bsym.tags or OpTags.FALLBACK in bsym.tags for bsym in calls)


def is_same(session: TracingSession, a: TensorProxy, b: TensorProxy) -> bool:
    """Return whether two proxies are one tensor to the program.

    For a function that may return its argument the trace has a call, whose result is another proxy.
    """
    if a is b:
        return True
    of_a, of_b = _sources(session, a), _sources(session, b)
    common = {id(x) for x, _ in of_a} & {id(x) for x, _ in of_b}
    if not common:
        return False
    for chain in (of_a, of_b):
        for x, call in chain:
            if id(x) in common:
                break
            if call is not None and not _returns_its_argument(session, call):
                return False
    return True


def _sources(session: TracingSession, x: TensorProxy) -> list[tuple[TensorProxy, BoundSymbol | None]]:
    """Return ``x`` and the arguments that it may be, each with the call that returned it."""
    sources: list[tuple[TensorProxy, BoundSymbol | None]] = []
    for scope in reversed(session.trace.scopes):
        for bsym in reversed(scope):
            if OpTags.MAYBE_ARGUMENT in bsym.tags and bsym.output is x:
                sources.append((x, bsym))
                x = bsym.args[0]
    return [*sources, (x, None)]


def _returns_its_argument(session: TracingSession, call: BoundSymbol) -> bool:
    mark = _RESOLVED.get(call.sym.id)
    if mark is None:
        return tensor_attributes.is_contiguous(call.args[0], **call.kwargs)
    return not is_marked(session, call.args[0], mark)


def original_of(session: TracingSession, x: TensorProxy) -> TensorProxy:
    """Return the tensor that ``x`` is: the argument of a call that returns its argument, or itself."""
    for source, call in _sources(session, x):
        if call is None or not _returns_its_argument(session, call):
            return source
    return x
