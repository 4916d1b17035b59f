"""The process that runs one way: it prepares workloads, and measures them on request.

    python -m thunder_benchmarks.worker WAY

Requests are lines of JSON on standard input, replies lines on standard output; what libraries print goes to
standard error. Nothing here imports thunder but the ways that run it: the peer's interpreter runs it too.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import torch
from torch import Tensor, nn

from .correctness import check_results
from .cpu_time import calls_in, microseconds, tree_seconds
from .step_memory import peak_bytes, saved_bytes
from .subjects import Subject, WholeStep
from .ways import WAYS
from .workloads import DTYPES, WORKLOADS

__all__ = ["Session", "main"]


class Session:
    """A way, and the workload that it runs now."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.compile: Callable[[nn.Module], Callable[..., Any]] | None = None
        self.subject: Subject
        self.calls = 1

    def prepare(self, workload: str, dtype: str, mode: str) -> dict[str, Any]:
        """Compile a workload and compare its first results with eager's; return the CPU time of both.

        `mode` is "inference", "training" or "step", a whole training step. Imports of what the way needs are
        apart: they are those of the first workload only. Raises WrongResult.
        """
        training = mode != "inference"
        model, inputs = WORKLOADS[workload].make(DTYPES[dtype])
        model.train(training)
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        exact_model, eager_model = copy.deepcopy(model).double(), copy.deepcopy(model)

        def subject(model: nn.Module, compile: Callable[[Any], Any], inputs: Sequence[Tensor]) -> Subject:
            if mode == "step":
                return WholeStep(model, compile, inputs)
            return Subject(model, compile(model), inputs, training)

        _, exact = subject(exact_model, lambda model: model, wide).first_results()
        _, eager = subject(eager_model, lambda model: model, inputs).first_results()
        start = tree_seconds()
        self.compile = self.compile or WAYS[self.way].prepare()
        imported = tree_seconds()
        self.subject = subject(model, self.compile, inputs)
        names, results = self.subject.first_results()
        end = tree_seconds()
        error = check_results(names, results, eager, exact)
        return {"imports_s": imported - start, "first_s": end - imported, "error": error}

    def warm_up(self, budget_us: float) -> dict[str, Any]:
        """Run the workload until it is steady; return how many calls take `budget_us`."""
        with self.subject.grad_mode():
            for _ in range(3):
                self.subject.step()
            self.calls = calls_in(self.subject.step, budget_us)
        return {"calls": self.calls}

    def time(self) -> dict[str, Any]:
        """Return the CPU time of one call, in µs: the mean of as many as `warm_up` found."""
        with self.subject.grad_mode():
            return {"us": microseconds(self.subject.step, self.calls)}

    def memory(self) -> dict[str, Any]:
        """Return the bytes that a training step saves, and the most that it allocates at once.

        Of a whole step nobody sees what is saved: its `saved` is None.
        """
        subject = self.subject
        for _ in range(2):  # the first steps make gradients and states of the optimizer
            subject.step()
        existing = (*subject.model.parameters(), *subject.model.buffers(), *subject.inputs)
        is_whole = isinstance(subject, WholeStep)
        saved = None if is_whole else saved_bytes(subject.forward, existing)
        return {"saved": saved, "peak": peak_bytes(subject.step)}


def main() -> None:
    """Answer requests until the input ends.

    A request `{"do": method of Session, …}` is answered by `{"ok": result}` or `{"failed": why}`.
    """
    replies = _private_output()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    session: Session | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            session = session or Session(sys.argv[1])
            reply = {"ok": getattr(session, request.pop("do"))(**request)}
        # Whatever a way raises is its result in the table, with the name of the error.
        except Exception as error:
            text = " ".join(str(error).split())
            reply = {"failed": f"{type(error).__name__}: {text[:300]}"}
        print(json.dumps(reply), file=replies, flush=True)


def _private_output() -> TextIO:
    """Return standard output, of which everything else that prints gets standard error instead."""
    private = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return private


if __name__ == "__main__":
    main()
