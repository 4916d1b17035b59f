"""The pass that divides the sequences of a program, from its inputs to what it returns and writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch

from thunder.core import prims
from thunder.core.proxies import TensorProxy
from thunder.core.rewrite import substitute
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace, tracectx

from ..last_statements import split_at_write
from ..sharding.shard import Shard
from .programs import Program, Settings

__all__ = ["DIVISION_OF_SEQUENCES", "divide_program"]

#: the provenance of the program that computes on parts of sequences
DIVISION_OF_SEQUENCES: Final = "Division of sequences"


def divide_program(trace: TraceCtx, divided: Mapping[str, Shard], settings: Settings) -> TraceCtx:
    """Return the program of this process, with some inputs divided; `divided` has their layouts by name.

    Results, and what the program writes, are whole. Raises UnsupportedProgram for an operator that cannot be
    divided, and for one that draws random numbers.
    """
    new, program = from_trace(trace), Program(settings)
    recorded: list[BoundSymbol] = []
    with tracectx(new), _grad_mode(), new.recording_into(recorded):
        for p in trace.args:
            if isinstance(p, TensorProxy) and p.name in divided:
                program.divide(p, divided[p.name])
        body, last = split_at_write(trace)
        program.run(body, new)
        results = program.results(last)
        new.bound_symbols.extend(_named(recorded, results, last, new))
    new.set_provenance(TraceProvenance(DIVISION_OF_SEQUENCES))
    return new


@contextmanager
def _grad_mode() -> Iterator[None]:
    """Restore the grad mode afterwards: the calls of a program that set it are carried out."""
    before = torch.is_grad_enabled()
    try:
        yield
    finally:
        torch.set_grad_enabled(before)


def _named(
    recorded: list[BoundSymbol], results: Mapping[str, Any], last: list[BoundSymbol], trace: TraceCtx
) -> list[BoundSymbol]:
    """Return the calls and the last statements, with results under the names that these read."""
    inputs = {p.name for p in trace.args if isinstance(p, TensorProxy)}
    names: dict[str, Any] = {}
    copies: list[BoundSymbol] = []
    for name, here in results.items():
        if here.name == name:
            continue
        if here.name in inputs or here.name in names:
            with trace.recording_into(copies):
                here = prims.shallow_copy(here)
        names[here.name] = here.replace(name=name)
    return [substitute(b, names) for b in (*recorded, *copies)] + last
