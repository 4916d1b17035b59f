"""The collectives of a final trace in their order, and the statement that agrees on them.

agree('0', '9c41…', 'b52e…')      # the others of group '0' begin the same collectives, of one program
ft0 = all_gather(t_0_weight, …
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunder import TensorProxy
from thunder.core.proxies import FutureTensorProxy
from thunder.core.rewrite import module_tensors
from thunder.core.symbol import BoundSymbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, TraceProvenance, TraceTag, from_trace

from .agreement import begin
from .collectives import ex, pack, pack_for_fsdp
from .communication import calls_of_collectives
from .exchanges import EXCHANGES
from .program_statements import program_of
from .running import known_program, known_sequence, register_program, register_sequence

__all__ = ["agree", "register_record", "sequences_of", "sequences_record", "with_agreement"]

agree = ex.register_operator(
    "agree",
    meta=lambda group, digest, program="": None,
    fn=begin,
    tags=(OpTags.DONT_DCE, OpTags.NONDIFFERENTIABLE),
)

#: operators of several tensors whose result consists of them
_PACKS = frozenset({pack.id, pack_for_fsdp.id})


@dataclass
class _Inputs:
    """The names of the inputs of a program, which its gradients belong to."""

    names: list[str] = field(default_factory=list)
    #: those that all processes have in common, where a process has other ones of its own
    common: dict[str, str] = field(default_factory=dict)
    #: the digest of the program as it was acquired
    program: str = ""


def with_agreement(trace: TraceCtx, context: Any) -> TraceCtx:
    """Return a final trace that agrees with the other processes before it communicates.

    A backward without collectives agrees, too: another process may have called the module outside of
    `no_sync()`. A program that has neither does not communicate, and any process may run it alone.
    """
    inputs = context.state(_Inputs)
    if not context.is_backward or TraceTag.AUGMENTED_FORWARD in trace.tags:
        inputs.names = [p.name for p in trace.args]
        inputs.common = _common_names(context)
        names = dict(zip(inputs.names, inputs.names, strict=True))
    else:
        names = _gradients(trace.bound_symbols, inputs.names)
    sequences = sequences_of(trace, {n: inputs.common.get(label, label) for n, label in names.items()})
    if context.is_backward and TraceTag.AUGMENTED_FORWARD not in trace.tags:
        for transform in context.transforms:
            if hasattr(transform, "members"):
                sequences.setdefault(transform.members.group, [])
    if not sequences:
        return trace
    if not inputs.program and context.options.get("same_program", True):
        program = program_of(context)
        inputs.program = program.digest
        register_program(program.digest, program.inputs, program.statements)
    new = from_trace(trace)
    statements = []
    for group, sequence in sorted(sequences.items()):
        kind = "backward" if context.is_backward else "forward"
        described = [f"{kind}: {line}" for line in sequence]
        digest = hashlib.sha256("\n".join([kind, *described]).encode()).hexdigest()[:16]
        register_sequence(digest, described)
        statements.append(agree.bind(group, digest, inputs.program, output=None))
    new.bound_symbols = [*statements, *trace.bound_symbols]
    new.set_provenance(TraceProvenance("Agreement of processes"))
    return new


def sequences_record(traces: Iterable[TraceCtx]) -> dict[str, Any]:
    """Return what is registered of final traces: the collectives, and the statements, by their digests."""
    calls = [b for trace in traces for b in trace.bound_symbols if b.sym.id == agree.id]
    sequences = {digest: list(known_sequence(digest)) for _, digest, _ in (b.args for b in calls)}
    programs = {program for *_, program in (b.args for b in calls) if program}
    return {"sequences": sequences, "programs": {p: _listed(*known_program(p)) for p in sorted(programs)}}


def _listed(inputs: str, statements: Iterable[str]) -> list[Any]:
    return [inputs, list(statements)]


def register_record(record: Mapping[str, Any]) -> None:
    """Register what another process has registered of the same traces."""
    for digest, sequence in record["sequences"].items():
        register_sequence(str(digest), [str(line) for line in sequence])
    for digest, (inputs, statements) in record["programs"].items():
        register_program(str(digest), str(inputs), [str(line) for line in statements])


def _common_names(context: Any) -> dict[str, str]:
    """Return what inputs of a program are called where processes have different parameters."""
    tensors = module_tensors(context.prologue)
    return {
        tensors[name].name: layout.common_name
        for transform in context.transforms
        for name, layout in getattr(transform, "parts", {}).items()
        if name in tensors and hasattr(layout, "common_name")
    }


def sequences_of(trace: TraceCtx, names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the collectives of a trace by group, each with what it is called with, and for which parameters.

    `names` has the parameters by the names of their tensors in the trace, and of their gradients.
    """
    owners = _owners(trace.bound_symbols, names)
    sequences: dict[str, list[str]] = {}
    for bsym in calls_of_collectives(trace.bound_symbols):
        operand, group, *options = bsym.args
        line = f"{bsym.sym.name} {operand.dtype.shortname()}{list(operand.shape)}"
        constants = [x for x in options[:-1] if not isinstance(x, TensorProxy)]
        if constants:  # the last one says whether it is waited for at once
            line += f" ({', '.join(map(str, constants))})"
        parameters = owners.get(operand.name) or owners.get(bsym.output.name)
        # what a ring exchanges is of no parameter, and processes compute different blocks of it
        if parameters and bsym.sym.id not in EXCHANGES:
            line += f" of {', '.join(parameters)}"
        sequences.setdefault(group, []).append(line)
    return sequences


def _gradients(bsyms: Sequence[BoundSymbol], inputs: Sequence[str]) -> dict[str, str]:
    """Return the inputs of the forward by the names of their gradients, which a backward returns in order."""
    results = bsyms[-1].args
    if len(results) == 1 and isinstance(results[0], tuple | list):
        results = tuple(results[0])
    labels = inputs if len(results) == len(inputs) else [f"result {i}" for i in range(len(results))]
    gradients = {
        result.name: label
        for result, label in zip(results, labels, strict=True)
        if isinstance(result, TensorProxy)
    }
    return {**{name: name for name in inputs}, **gradients}


def _owners(bsyms: Sequence[BoundSymbol], names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the parameters that a value is computed from, or that its results are gradients of.

    Only the statements are followed that change the form of one tensor, or join several.
    """
    owners: dict[str, tuple[str, ...]] = {name: (label,) for name, label in names.items()}
    forms = [bsym for bsym in bsyms if bsym.sym.id in _PACKS or len(_tensors(bsym.flat_proxy_args)) == 1]
    for bsym in forms:
        read = dict.fromkeys(name for p in _tensors(bsym.flat_proxy_args) for name in owners.get(p.name, ()))
        for p in _tensors(bsym.flat_proxy_outs):
            owners.setdefault(p.name, tuple(read))
    for bsym in reversed(forms):
        results = dict.fromkeys(n for p in _tensors(bsym.flat_proxy_outs) for n in owners.get(p.name, ()))
        for p in _tensors(bsym.flat_proxy_args):
            owners[p.name] = owners.get(p.name) or tuple(results)
    return owners


def _tensors(proxies: Iterable[Any]) -> list[Any]:
    """Return the tensors among proxies, and the futures of tensors."""
    return [p for p in proxies if isinstance(p, TensorProxy | FutureTensorProxy)]
