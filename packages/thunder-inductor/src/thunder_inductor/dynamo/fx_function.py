"""`thunderfx`: a function that TorchDynamo reads and thunder compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import thunder
from thunder.core.errors import NeverCalled

from .divided_options import divided
from .thunder_compiler import SubgraphInfo, ThunderCompiler, run_parts

__all__ = ["ThunderFXFunction", "thunderfx"]


def thunderfx(fn: Callable[..., Any], /, **kwargs: Any) -> ThunderFXFunction:
    """Return a function or module that TorchDynamo divides into graphs, which thunder compiles.

    Args:
        fn: as for `torch.compile`.
        kwargs: options of `torch.compile` (`fullgraph`, `dynamic`, `disable`) and of `thunder.jit`; `options`
            is a dictionary of more of the latter.

    Raises UnknownOption for an option that neither has.
    """
    of_torch, of_thunder = divided(kwargs)
    backend = ThunderCompiler(**of_thunder)
    return ThunderFXFunction(torch.compile(fn, backend=backend, **of_torch), backend)


class ThunderFXFunction:
    """A compiled function or module; its other attributes are those of `torch.compile`'s result."""

    def __init__(self, compiled: Callable[..., Any], backend: ThunderCompiler) -> None:
        self._compiled = compiled
        self._ran: list[Any] | None = None
        self.backend = backend

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        results, self._ran = run_parts(lambda: self._compiled(*args, **kwargs))
        return results

    def __getattr__(self, name: str) -> Any:
        if name == "_compiled":  # of an instance that is being copied
            raise AttributeError(name)
        return getattr(self._compiled, name)

    @property
    def subgraph_infos(self) -> list[SubgraphInfo]:
        """The graphs that TorchDynamo found, with their parts and the reasons of their cuts."""
        return self.backend.subgraph_infos

    def _last_parts(self) -> list[Any]:
        if self._ran is None:
            raise NeverCalled("the function of thunderfx was not called yet", hint="Call it first.")
        return self._ran

    def explain(self) -> str:
        """Return the parts of each graph, the reasons of its cuts, and the ledgers of the last call."""
        graphs = [f"graph {i}\n{info}" for i, info in enumerate(self.subgraph_infos)]
        return "\n\n".join((*graphs, *(str(thunder.explain(compiled)) for compiled in self._last_parts())))

    @property
    def last_traces(self) -> list[thunder.TraceCtx]:
        """The computations of the parts that ran in the last call, part by part, stage by stage."""
        return [trace for compiled in self._last_parts() for trace in thunder.last_traces(compiled)]

    @property
    def last_backward_traces(self) -> list[thunder.TraceCtx]:
        """The backwards of the parts that ran in the last call, part by part, stage by stage."""
        return [trace for compiled in self._last_parts() for trace in thunder.last_backward_traces(compiled)]
