"""The collectives of a final trace, with the statements that wait for them."""

from __future__ import annotations

from collections.abc import Iterator

from thunder import TraceCtx
from thunder_distributed.collectives import COLLECTIVES, wait
from thunder_distributed.exchanges import EXCHANGES
from thunder_distributed.roofline import nbytes_of
from thunder_report.model import CollectiveCall
from thunder_report.statements import shown_statements

__all__ = ["collectives_in"]


def collectives_in(trace: TraceCtx, name: str) -> Iterator[CollectiveCall]:
    """Yield the collectives of a final trace that is called `name`.

    Their groups need not exist any more.
    """
    statements = [bsym for _, bsym in shown_statements(trace)]
    waits = {
        bsym.args[0].name: position for position, bsym in enumerate(statements) if bsym.sym.id == wait.id
    }
    for position, bsym in enumerate(statements):
        if bsym.sym.id not in COLLECTIVES and bsym.sym.id not in EXCHANGES:
            continue
        operand, group = bsym.args[:2]
        output = bsym.flat_proxy_outs[0]
        nbytes = max(nbytes_of((operand,)), nbytes_of((output,)))
        yield CollectiveCall(
            name, position, waits.get(output.name, position), bsym.sym.name, str(group), nbytes
        )
