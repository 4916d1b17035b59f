"""`thunder.why_slow`: why a compiled program takes as long as it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import thunder
from thunder_bisect.slowness.answer import LongStatement, Slowness
from thunder_bisect.slowness.evidence import Evidence, gathered
from thunder_bisect.slowness.rules import findings_of
from thunder_bisect.slowness.runs import Call

__all__ = ["why_slow"]

#: how many statements the answer lists
_LONGEST = 3


def why_slow(compiled: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Slowness:
    """Return why a call of a compiled object takes as long as it does, with what was measured.

        print(thunder.why_slow(compiled, x))

    `compiled` is what `thunder.jit` or `thunder.compile` returned, or a function or module, which is compiled
    with the default settings. It is called with these arguments some tens of times, in turns with the
    program as it was written; where a result requires grad, each call is followed by a backward. A copy of
    the compiled object is compiled again, to measure each statement.

    Values of tensors that the program writes, the state of generators of random numbers and the number of
    torch's threads are as before at the end, and so are gradients; what it prints is not shown. Tensors are
    those that the arguments, the module, and variables and globals of the function reach. What it writes of
    Python's objects is not undone; `notes` of the result say which. Raises what it raises.
    """
    own = compiled if thunder.compile_data(compiled) is not None else thunder.jit(compiled)
    data = thunder.compile_data(own)
    assert data is not None, "it is a compiled object"
    call = Call(fn=data.fn, args=args, kwargs=kwargs)
    evidence = gathered(call, own)
    return Slowness(
        findings=tuple(findings_of(evidence)),
        compiled=evidence.compiled,
        eager=evidence.eager,
        with_backward=evidence.with_backward,
        guards=evidence.guards,
        statements=evidence.computing,
        longest=tuple(_longest(evidence)),
        notes=tuple(_notes(evidence, call)),
    )


def _longest(evidence: Evidence) -> Iterator[LongStatement]:
    for timed in sorted(evidence.statements, key=lambda timed: -timed.seconds)[:_LONGEST]:
        yield LongStatement(
            seconds=timed.seconds,
            operator=timed.name,
            module=timed.statement.module,
            in_backward=timed.statement.branch == "backward",
            where=timed.statement.locations,
        )


def _notes(evidence: Evidence, call: Call) -> Iterator[str]:
    if call.written:
        yield f"the program writes {', '.join(sorted(call.written))}: the values are as before"
    lasting = sorted(source for source in evidence.written if not source.endswith(".grad"))
    if lasting:
        names = ", ".join(lasting)
        yield f"the program writes {names}: these calls have done so, and it is not undone"
