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
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TextIO

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from .correctness import check_results
from .cpu_time import calls_in, microseconds, tree_seconds
from .step_memory import peak_bytes, saved_bytes
from .ways import WAYS
from .workloads import DTYPES, WORKLOADS

__all__ = ["Session", "main"]


class Subject:
    """A workload that a way runs: calls of it in inference, or forwards and backwards in training.

    `step` is one of these. It does not set the grad mode, which would be a large part of a small call: that
    is what `grad_mode` is for.
    """

    def __init__(
        self, model: nn.Module, run: Callable[..., Any], inputs: Sequence[Tensor], training: bool
    ) -> None:
        self.model, self.training = model, training
        self.inputs = inputs
        self.forward: Callable[[], Any] = partial(run, *inputs)
        self.step: Callable[[], object] = self._training_step if training else self.forward
        self.seeds: list[Tensor] = []

    def grad_mode(self) -> AbstractContextManager[object]:
        """Return the context in which the workload runs."""
        return torch.set_grad_enabled(self.training)

    def _training_step(self) -> None:
        """Call the model and compute the gradients of its parameters, which are dropped."""
        torch.autograd.backward(_tensors(self.forward()), self.seeds)
        self.model.zero_grad()

    def first_results(self) -> tuple[list[str], list[Tensor]]:
        """Return outputs, and in training also gradients and buffers, of one call, with names for them."""
        with self.grad_mode():
            outputs = _tensors(self.forward())
        results = {f"output {n}": output for n, output in enumerate(outputs)}
        if self.training:
            if not self.seeds:
                generator = torch.Generator().manual_seed(1)
                self.seeds = [
                    torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
                    for out in outputs
                ]
            torch.autograd.backward(outputs, self.seeds)
            for name, parameter in self.model.named_parameters():
                if parameter.grad is not None:
                    results[f"gradient of {name}"] = parameter.grad
            results |= {f"buffer {name}": buffer.clone() for name, buffer in self.model.named_buffers()}
            self.model.zero_grad()
        return list(results), [result.detach() for result in results.values()]


def _tensors(outputs: Any) -> list[Tensor]:
    """Return the tensors in the result of a call."""
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]


class Session:
    """A way, and the workload that it runs now."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.compile: Callable[[nn.Module], Callable[..., Any]] | None = None
        self.subject: Subject
        self.calls = 1

    def prepare(self, workload: str, dtype: str, mode: str) -> dict[str, Any]:
        """Compile a workload and compare its first results with eager's; return the CPU time of both.

        `mode` is "inference" or "training". Imports of what the way needs are apart: they are those of the
        first workload only. Raises WrongResult.
        """
        training = mode == "training"
        model, inputs = WORKLOADS[workload].make(DTYPES[dtype])
        model.train(training)
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        exact_model, eager_model = copy.deepcopy(model).double(), copy.deepcopy(model)
        _, exact = Subject(exact_model, exact_model, wide, training).first_results()
        _, eager = Subject(eager_model, eager_model, inputs, training).first_results()
        start = tree_seconds()
        self.compile = self.compile or WAYS[self.way].prepare()
        imported = tree_seconds()
        self.subject = Subject(model, self.compile(model), inputs, training)
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
        """Return the bytes that a training step saves, and the most that it allocates at once."""
        subject = self.subject
        subject.step()
        existing = (*subject.model.parameters(), *subject.model.buffers(), *subject.inputs)
        return {"saved": saved_bytes(subject.forward, existing), "peak": peak_bytes(subject.step)}


def main() -> None:
    """Answer requests until the input ends.

    A request `{"do": method of Session, …}` is answered by `{"ok": result}` or `{"failed": why}`.
    """
    replies = _private_output()
    torch.set_num_threads(1)
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
