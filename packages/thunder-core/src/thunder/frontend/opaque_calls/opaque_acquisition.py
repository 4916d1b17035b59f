"""Calls of opaque callables while a program is traced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from thunder.base import opaque_results
from thunder.base.autocast_state import autocast_now
from thunder.base.errors import UnsupportedProgram
from thunder.base.opaque_marks import OpaqueSet
from thunder.base.provenance import Path, comes_with_arguments
from thunder.base.pytree import tree_unflatten
from thunder.base.tags import VIEW_TAGS
from thunder.frontend.custom_gradients.rebuilding import Rebuilding
from thunder.frontend.facts import Fact
from thunder.frontend.guards import first_failure, unchanged_check
from thunder.frontend.natives.unread_items import refuse
from thunder.frontend.natives.written_state import reached, reached_write
from thunder.frontend.objects.class_kinds import is_foreign
from thunder.frontend.opaque_calls.opaque_run import (
    EarlierResult,
    MadeObject,
    OpaqueCall,
    OpaqueRun,
    PassedTensor,
    ThisResult,
    class_named_after,
)
from thunder.frontend.opaque_calls.opaque_statements import run_opaque
from thunder.frontend.places import CALLS_OPAQUE
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.traced_replacements import full_name
from thunder.frontend.types.same_tensors import original_of
from thunder.frontend.types.written_attributes import WrittenAttributes
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import has_tags, with_parts
from thunder.ir.trace import TraceCtx, detached_trace
from thunder.ir.unmodelled_proxies import UnmodelledObject, UnmodelledProxy
from thunder.ops import prims

__all__ = ["OpaqueCalls", "call", "check_state_after_calls"]


class OpaqueCalls(SessionState):
    """The opaque callables of an acquisition, and the calls of them."""

    def __init__(self, session: TracingSession) -> None:
        self.callables = OpaqueSet()
        self.calls: list[OpaqueCall] = []
        #: of each call, the results as the program sees them
        self.seen: list[list[Any]] = []
        #: objects of the user that were passed, by id, with their paths
        self.passed: dict[int, tuple[Any, Path]] = {}

    def run_unseen(self) -> list[OpaqueCall]:
        """Return the calls that may depend on more than their arguments, and change more."""
        return [opaque_call for opaque_call in self.calls if not opaque_call.is_pure]


def call(
    session: TracingSession,
    fn: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    is_pure: bool = False,
) -> Any:
    """Run an opaque callable on the values of the call that is traced, and record its statement.

    ``is_pure``: whether it depends on its arguments alone, and returns new memory. Raises UnsupportedProgram
    where it could not run at its place in each call.
    """
    name = full_name(fn)
    _check_place(session, name)
    if not is_pure:
        _refuse_written(session, name, fn, (*args, *kwargs.values()))
    calls, speculation = session.state(OpaqueCalls), session.speculation
    assert speculation is not None, "a program that is not run early is refused"
    rebuilding = Rebuilding(session)
    make = rebuilding.makers((fn, args, kwargs))
    tensors = [t for t in rebuilding.tensors if isinstance(t, TensorProxy)]
    if any(session.state(WrittenAttributes).of(original_of(session, t)) for t in tensors):
        raise UnsupportedProgram(
            f"the opaque callable {name} is passed a tensor with attributes that the program has written",
            hint="Pass their values as arguments.",
        )
    _note_passed(session, (fn, *args, *kwargs.values()))
    opaque_call = class_named_after(name)(
        name,
        make=make,
        requires_grad=[torch.is_grad_enabled() and t.requires_grad for t in rebuilding.tensors],
        number=len(calls.calls),
        index=len(speculation.decisions),
        grad_mode=torch.is_grad_enabled(),
        autocast=autocast_now(),
        is_pure=is_pure,
    )
    calls.calls.append(opaque_call)
    opaque_call.read_inputs = functools.partial(speculation.read_inputs, len(session.objects.inputs))
    with detached_trace():
        run = speculation.run_once(opaque_call.run, rebuilding.tensors)
    opaque_call.refuse_changes(run.changes_inputs)
    opaque_call.signature = run.signature
    read = [session.adopt(t, session.object_root(t, f"a tensor of {name}")) for t in _leaves(run)]
    for tensor in read:
        refuse(session.objects.unread.get(id(tensor)))
    results = run_opaque(opaque_call, (*rebuilding.tensors, *read))
    speculation.note_run(name, run.signature, results, run.values)
    session.objects.has_unmodelled |= any(isinstance(r, UnmodelledProxy | UnmodelledObject) for r in results)
    leaves = _leaves_seen(session, run, iter(results), rebuilding.tensors, name)
    calls.seen.append(leaves)
    return tree_unflatten(leaves, run.spec)


def _leaves_seen(
    session: TracingSession, run: OpaqueRun, results: Iterator[Any], passed: Sequence[Any], name: str
) -> list[Any]:
    """Return the results of a run as the program sees them: tensors and objects by their proxies."""
    leaves: list[Any] = []
    for leaf in run.leaves:
        match leaf:
            case torch.Tensor() | MadeObject():
                leaf = next(results)
            case PassedTensor():
                leaf = passed[leaf.place]
            case EarlierResult():
                leaf = session.state(OpaqueCalls).seen[leaf.call][leaf.place]
            case ThisResult():
                leaf = session.adopt(leaf.obj, session.object_root(leaf.obj, f"a result of {name}"))
        leaves.append(leaf)
    return leaves


def _refuse_written(session: TracingSession, name: str, fn: Any, passed: tuple[Any, ...]) -> None:
    """Refuse a callable that may read what the program has written: writes are made when it has run."""
    written = reached_write(session, fn, [_original(session, value) for value in passed])
    if written is not None:
        raise UnsupportedProgram(
            f"the opaque callable {name} may read {written}, which the program has written before: "
            "its writes are made when it has run",
            hint="Write it inside of an opaque callable too, or after the call.",
        )


def _check_place(session: TracingSession, name: str) -> None:
    what = f"the opaque callable {name} is called"
    if session.speculation is None:
        raise UnsupportedProgram(
            f"{what} in a program that is only planned, or with data_dependent='refuse'",
            hint=CALLS_OPAQUE.hint,
        )
    session.place.check(CALLS_OPAQUE, what)


def _original(session: TracingSession, value: Any) -> Any:
    entry = session.entry_of(value)
    return value if entry is None else entry.obj


def _note_passed(session: TracingSession, values: Iterable[Any]) -> None:
    for value in values:
        entry = session.entry_of(value)
        if entry is not None and not isinstance(entry.obj, torch.Tensor):
            session.state(OpaqueCalls).passed[id(entry.obj)] = entry.obj, entry.path


def _is_iterator(obj: Any) -> bool:
    return hasattr(type(obj), "__next__") and is_foreign(type(obj))


def _leaves(run: OpaqueRun) -> list[torch.Tensor]:
    """Return the tensors that require grad and that a callable has read by itself."""
    own, found = {id(t) for t in run.inputs}, dict[int, torch.Tensor]()
    nodes = [t.grad_fn for t in run.tensors if t.grad_fn is not None]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        variable = getattr(node, "variable", None)
        if variable is not None and id(variable) not in own:
            found[id(variable)] = variable
        new = {n for n, _ in node.next_functions if n is not None} - seen
        seen |= new
        nodes += new
    return list(found.values())


# -- state ---------------------------------------------------------------------------------------------------


def check_state_after_calls(session: TracingSession) -> None:
    """Let each opaque call check that it changes nothing on which the program depends."""
    state = session.state(OpaqueCalls)
    if not state.calls:
        return
    _refuse_writes(session.trace)
    if unseen := state.run_unseen():
        _check_after(session, state, unseen)
    opaque_results.keep()


def _check_after(session: TracingSession, state: OpaqueCalls, unseen: Sequence[OpaqueCall]) -> None:
    _note_reached(session, state)
    paths = {id(path): obj for obj, path in state.passed.values()}
    facts = [f for f in (_rooted(fact, paths, session) for fact in session.objects.facts) if f is not None]
    inputs = _inputs(session, paths)
    read_inputs = functools.partial(_values, inputs)
    check = functools.partial(_changed, unchanged_check(facts), facts)
    for opaque_call in unseen:
        opaque_call.changed, opaque_call.read_inputs = check, read_inputs


def _note_reached(session: TracingSession, state: OpaqueCalls) -> None:
    """Note which objects the iterators reach that were passed: their bodies run, and others advance.

    Raises UnsupportedProgram where the program has a copy of an iterator that one of them advances.
    """
    advanced = [obj for obj, _ in state.passed.values() if _is_iterator(obj)]
    if not advanced:
        return
    found = reached(session, advanced)
    state.passed = {key: row for key, row in state.passed.items() if not _is_iterator(row[0])}
    for entry in session.objects.entries.values():
        if (found is None or id(entry.obj) in found) and not _is_iterator(entry.obj):
            state.passed.setdefault(id(entry.obj), (entry.obj, entry.path))
    for count in session.objects.counts:
        if found is None or id(count.original) in found:
            raise UnsupportedProgram(
                f"the program has {count.path.source}, which another iterator advances",
                hint="Advance the other one outside of the compiled function.",
            )


def _refuse_writes(trace: TraceCtx) -> None:
    """Refuse writes to results, whose memory may belong to an object that the program does not know."""
    names: dict[str, str] = {}  # of results and their views, with those of the callables
    for bsym in with_parts(trace.bound_symbols):
        if bsym.sym is run_opaque and not bsym.args[0].is_pure:
            names |= {p.name: bsym.args[0].name for p in bsym.flat_proxy_outs}
        if bsym.sym is prims.copy_ and bsym.args[1].name in names:
            raise UnsupportedProgram(
                f"the program writes in place to a result of the opaque callable {names[bsym.args[1].name]}",
                hint="Write to a clone of it.",
                where=bsym.locations,
            )
        shared = [names[p.name] for p in bsym.flat_proxy_args if p.name in names]
        if shared and has_tags(bsym, VIEW_TAGS):
            names |= dict.fromkeys((p.name for p in bsym.flat_proxy_outs), shared[0])


def _changed(check: Callable[[], Any], facts: Sequence[Fact]) -> str | None:
    if check() is not None:
        return None
    failure = first_failure(facts, (), {})
    return "state of the program" if failure is None else str(failure[0])


def _inputs(session: TracingSession, passed: Mapping[int, Any]) -> list[Path]:
    """Return where the program reads its inputs, except for parameters, and what comes with the arguments."""
    members = session.objects.members
    return [
        root
        for _, path in session.objects.inputs
        if (root := _root_of(path, passed, session)) is not None and id(root.fetch({})) not in members
    ]


def _values(paths: Sequence[Path]) -> list[Any]:
    return [path.fetch({}) for path in paths]


def _root_of(path: Path, passed: Mapping[int, Any], session: TracingSession) -> Path | None:
    return _path_from(path, passed, session) if comes_with_arguments(path) else path


def _rooted(fact: Fact, passed: Mapping[int, Any], session: TracingSession) -> Fact | None:
    """Return a fact about what does not come with the arguments, or about an object that is passed on.

    A fact about a tensor, or about other values of the arguments, is None: no callable can change it.
    """
    if fact.sym is prims.check_tensor or fact.others or fact.path.kind == "cached":
        return None
    path = _root_of(fact.path, passed, session)
    return None if path is None else Fact(fact.sym, (path, *fact.args[1:]))


def _path_from(path: Path, passed: Mapping[int, Any], session: TracingSession) -> Path | None:
    if id(path) in passed:
        return session.object_root(passed[id(path)], path.source)
    if path.parent is None:
        return None
    parent = _path_from(path.parent, passed, session)
    return None if parent is None else parent.step(path.kind, path.key)
