"""Faults of what is around a compiled region: fuel, state, modes, errors, gradients."""

from __future__ import annotations

import os
from typing import Any

import torch

from testing.example_executors import FUSIBLE, Runs
from testing.fault_table import of_fusions
from testing.faults_of_regions import Arithmetic
from thunder.base.pytree import tree_map


@of_fusions("calls are claimed, and nothing is fused", "fused")
class _FusesNothing(Runs):
    def fusion_pass(self, trace: Any) -> Any:
        return trace


@of_fusions("regions of three operators alone, and two are supported", "fused")
class _OnlyLarge(Runs):
    def runs(self, statements: Any) -> Any:
        kinds = [{b.sym.id for b in statements[s:e]} for _, s, e in super().runs(statements)]
        return [
            (m and len(k) > 2, s, e) for (m, s, e), k in zip(super().runs(statements), kinds, strict=True)
        ]


@of_fusions("fuel is counted once for all regions", "fuel")
class _FuelOnce(Runs):
    def get_fuel(self, amount: int = 1) -> bool:
        return super().get_fuel(amount) or bool(FUSIBLE)


@of_fusions("without fuel a region is dropped", "fuel")
class _FuelDrops(Runs):
    def fusion_pass(self, trace: Any) -> Any:
        new = super().fusion_pass(trace)
        if not self.get_fuel():
            raise RuntimeError("no fuel is left")
        return new


@of_fusions("compiling leaves an environment variable", "fusion-state")
class _Environment(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        os.environ["TOY_COMPILER"] = "on"
        return super().compiled(bsyms, inputs, outputs)


@of_fusions("running leaves the default dtype", "fusion-state")
class _DefaultDtype(Arithmetic):
    def change(self, out: torch.Tensor) -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        return out


@of_fusions("a region is compiled for the autocast of its compile", "fusion-modes")
class _ByAutocast(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        run, low = super().compiled(bsyms, inputs, outputs), torch.is_autocast_enabled("cpu")
        return lambda *args: [x.bfloat16().to(x.dtype) if low else x for x in run(*args)]


@of_fusions("a region depends on the grad mode", "fusion-modes")
class _ByGradMode(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        run, inference = super().compiled(bsyms, inputs, outputs), torch.is_inference_mode_enabled()
        return lambda *args: [x * 2 if inference else x for x in run(*args)]


@of_fusions("a region swallows an error", "fusion-failures")
class _Swallows(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        run = super().compiled(bsyms, inputs, outputs)

        def safe(*args: torch.Tensor) -> list[torch.Tensor]:
            try:
                return run(*args)  # type: ignore[no-any-return]
            except RuntimeError:
                return [torch.zeros_like(args[0]) for _ in outputs]

        return safe


@of_fusions("a region raises an error of its own", "fusion-failures")
class _OwnError(Runs):
    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        run = super().compiled(bsyms, inputs, outputs)

        def named(*args: torch.Tensor) -> list[torch.Tensor]:
            try:
                return run(*args)  # type: ignore[no-any-return]
            except RuntimeError as error:
                raise ValueError(f"region failed: {error}") from error

        return named


@of_fusions("random numbers in a region", "fusion-repeats")
class _Noise(Arithmetic):
    def change(self, out: torch.Tensor) -> torch.Tensor:
        return out * (1 + 1e-7 * torch.rand(())).to(out.dtype) if out.dtype is torch.float32 else out


class _InCompiledFunctions(Runs):
    """Makes other regions of calls that have a line of a program."""

    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        run = super().compiled(bsyms, inputs, outputs)
        if not any(b.source for b in bsyms):
            return run
        return lambda *args: tree_map(self.other, run(*args))

    def other(self, x: torch.Tensor) -> torch.Tensor:
        return x * 1.001


@of_fusions("regions of programs differ from those of traces", "fusion-jit")
class _OfPrograms(_InCompiledFunctions):
    pass


@of_fusions("products of one factor are computed together, and wrongly", "fusion-training")
class _Together(Runs):
    """A product has two products with its cotangent for its gradient."""

    def compiled(self, bsyms: Any, inputs: Any, outputs: Any) -> Any:
        run = super().compiled(bsyms, inputs, outputs)
        factors = [{p.name for p in b.flat_proxy_args} for b in bsyms]
        is_backward = len(bsyms) > 1 and bool(set.intersection(*factors))
        return (lambda *args: [x * 1.01 for x in run(*args)]) if is_backward else run
