"""Facts about a call as a whole: which inputs are different objects, and which share memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from thunder.base.errors import InvalidArgument, UnsupportedProgram
from thunder.base.provenance import Path
from thunder.base.tags import OpTags
from thunder.frontend.arrays.traced_arrays import Arrays
from thunder.frontend.host_draws.draw_calls import HostDraws
from thunder.frontend.lookasides import weakrefs
from thunder.frontend.objects.input_overlap import Member, overlapping_groups
from thunder.frontend.objects.object_table import ObjectTable
from thunder.frontend.opaque_calls.opaque_acquisition import OpaqueCalls, check_state_after_calls
from thunder.frontend.ran_code import refuse_changed_facts
from thunder.frontend.released_objects import note_releases
from thunder.frontend.session import TracingSession
from thunder.frontend.types import patches
from thunder.frontend.value_names import Input
from thunder.ir.aliasing import InputAlias
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import has_tags
from thunder.ir.trace import TraceCtx
from thunder.ir.unmodelled_proxies import UnmodelledProxy
from thunder.ops import prims

__all__ = ["note_last_facts", "tensors_of"]


def note_last_facts(
    session: TracingSession,
    inputs: list[Input],
    roots: dict[str, Any],
    result: Any,
    contributed: Mapping[str, Callable[[], Mapping[str, Any]]],
    inputs_are_disjoint: bool,
) -> None:
    """Add the facts about the call as a whole."""
    objects = session.objects
    refuse_changed_facts(session, roots)
    if session.state(HostDraws).states and session.state(OpaqueCalls).run_unseen():
        raise UnsupportedProgram(
            "the program draws random numbers of Python or NumPy, and calls an opaque callable, which may "
            "draw some of them",
            hint="Draw all in opaque callables, or none.",
        )
    check_state_after_calls(session)
    note_releases(session, inputs, roots, result)
    classes = {type(path.fetch(roots)) for _, path in tensors_of(inputs)}
    patches.note_special_methods(session, classes | {cls for _, cls in objects.tensor_classes.values()})
    _note_shared_memory(session.trace, objects, tensors_of(inputs), roots, inputs_are_disjoint)
    if session.uses_arrays:
        session.state(Arrays).note_memory(roots)
    objects.guard_distinctness()
    _note_contributed(objects, contributed)
    weakrefs.hold_weakly(objects)


def _note_contributed(
    objects: ObjectTable, contributed: Mapping[str, Callable[[], Mapping[str, Any]]]
) -> None:
    for name, read_state in contributed.items():
        # a copy: the plugin may keep the mapping and change it
        objects.note(prims.check_state, objects.object_root(read_state, name), dict(read_state()))


def tensors_of(inputs: list[Input]) -> list[tuple[TensorProxy, Path]]:
    """Return the tensors among the inputs, with their paths."""
    return [(proxy, path) for proxy, path in inputs if isinstance(proxy, TensorProxy)]


def _note_shared_memory(
    trace: TraceCtx,
    objects: ObjectTable,
    inputs: list[tuple[TensorProxy, Path]],
    roots: dict[str, Any],
    inputs_are_disjoint: bool,
) -> None:
    """Guard that all tensors are different objects, and their overlap if memory is written.

    With ``inputs_are_disjoint`` the overlap is not guarded. Raises InvalidArgument if there is one.
    """
    unmodelled = [path for proxy, path in inputs if isinstance(proxy, UnmodelledProxy)]
    if len(unmodelled) > 1:
        objects.note(prims.check_different, unmodelled[0], *unmodelled[1:])
    inputs = [(proxy, path) for proxy, path in inputs if not isinstance(proxy, UnmodelledProxy)]
    if len(inputs) < 2:
        return
    first, *others = (path for _, path in inputs)
    objects.note(prims.check_distinct, first, *others)
    overriding = [p.parent for p in (first, *others) if p.kind == "plain" and p.parent is not None]
    if len(overriding) > 1:
        objects.note(prims.check_different, overriding[0], *overriding[1:])
    if not any(has_tags(b, {OpTags.IN_PLACE}) for b in trace.bound_symbols):
        return
    tensors = [path.fetch(roots) for _, path in inputs]
    groups = overlapping_groups(*tensors)
    if inputs_are_disjoint:
        _refuse_overlap(groups, [path.source for _, path in inputs])
        return
    objects.note(prims.check_overlap, first, groups, overlapping_groups, *others)
    for member in (m for group in groups for m in group):
        proxy = inputs[member.position][0]
        tuple(map(int, (*proxy.shape, *(proxy.strides or ()))))  # on which the overlap depends
    trace.input_aliases = tuple(
        tuple(
            InputAlias(inputs[m.position][0], tensors[m.position].stride(), m.offset, m.storage)
            for m in group
        )
        for group in groups
    )


def _refuse_overlap(groups: Sequence[Sequence[Member]], sources: Sequence[str]) -> None:
    for group in groups:
        raise InvalidArgument(
            "skip_inplace_alias_updates=True says that no two inputs share memory, and two do",
            found={"sharing": ", ".join(sources[member.position] for member in group)},
            hint="Leave the option out; a guard then checks each call.",
        )
