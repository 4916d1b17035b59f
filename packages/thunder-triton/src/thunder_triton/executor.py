"""The executor `triton`: the calls that its kernels can compute, and what becomes of a region of them.

No function here needs a device, and Triton is imported when a kernel is first launched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder import TensorProxy
from thunder.core.dtypes import arithmetic_dtypes
from thunder.core.errors import UnknownOption
from thunder.core.proxies import Proxy
from thunder.core.symbol import BoundSymbol
from thunder.extend import (
    FusionExecutor,
    Rank,
    Refusal,
    Region,
    compile_option,
    consists_of_views,
    device_profile,
    refuse_draws,
    refuse_package,
)
from thunder.plugins import Unavailable

from .environment import missing_device, triton_version, unavailable
from .fusions.building import BUILDERS
from .fusions.unsupported import Unsupported
from .operators import CHECKERS
from .random_numbers import COMPOSITES, DRAWS
from .region_functions import RegionFunction

__all__ = ["TritonExecutor", "ex", "executor"]


class TritonExecutor(FusionExecutor):
    """Compiles regions to generated Triton kernels."""

    fusion_name = "TritonFusion"
    horizontal = "siblings"
    dtypes = arithmetic_dtypes
    numbers = False
    rules = (refuse_package, refuse_draws)
    single_calls = False
    several_devices = False

    def refuse_value(self, p: Proxy, bsym: BoundSymbol) -> Refusal | None:
        """Return why no kernel has a value, or None."""
        refusal = super().refuse_value(p, bsym)
        if refusal is not None or not isinstance(p, TensorProxy):
            return refusal
        missing = missing_device(p.device.type)
        if missing is not None:
            return missing
        if p.dtype not in device_profile(p.device).dtypes:
            return Refusal("dtype", "the device does not compute in this dtype", dtype=p.dtype)
        return None

    def kernels_of(self, bsym: BoundSymbol) -> int:
        """Return how many kernels torch runs for a call: of more than two primitives several."""
        return 2 if bsym.subsymbols and _parts(bsym) > 2 else super().kernels_of(bsym)

    def refuse_region(self, region: Region) -> Refusal | None:
        """Return why no kernels are generated for a region, or None."""
        if not region.outputs:
            return Refusal("unread", "no result of the region is read")
        return super().refuse_region(region)

    def compile_regions(self, regions: Sequence[Region]) -> list[Callable[..., Any] | Refusal]:
        """Return the functions of regions, or refusals for the ledger."""
        return [self._function(region) for region in regions]

    def _function(self, region: Region) -> Callable[..., Any] | Refusal:
        device = torch.device(str(region.outputs[0].device))
        function = self.compile_once(region, lambda: RegionFunction(region, device, tunes=_tunes()))
        assert isinstance(function, RegionFunction), f"compile_once returned {type(function).__name__}"
        try:
            function.program(tuple(map(self.expected_strides, region.inputs)))
        except Unsupported as unsupported:
            return unsupported.refusal
        return function

    def register_temporary_operation(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        bsyms: Sequence[BoundSymbol],
        workspace: int | None = None,
    ) -> BoundSymbol:
        """Return the bound symbol of a fusion, with the source of its kernels above it in the trace."""
        call = super().register_temporary_operation(
            name, fn, inputs=inputs, outputs=outputs, bsyms=bsyms, workspace=workspace
        )
        if isinstance(fn, RegionFunction):
            call.header = fn.program(tuple(map(self.expected_strides, inputs))).text
        return call


def _tunes() -> bool:
    """Return the option `triton_autotune`; False where the plugin is not registered that declares it."""
    try:
        return bool(compile_option("triton_autotune"))
    except UnknownOption:
        return False


def executor() -> TritonExecutor | Unavailable:
    """Return the executor, or why it cannot be used here: no Triton, or no device and no interpreter."""
    return unavailable() or ex


def _parts(bsym: BoundSymbol) -> int:
    """Return the number of primitives that compute a call."""
    if bsym.subsymbols:
        return sum(map(_parts, bsym.subsymbols))
    return 0 if consists_of_views(bsym) else 1


ex = TritonExecutor("triton", version=triton_version(), rank=Rank.FUSION)
for _name in sorted(BUILDERS):
    ex.register_supported(f"prims.{_name}", CHECKERS.get(_name))
for _composite in COMPOSITES:
    ex.register_supported(_composite)
for _name, _draw in DRAWS.items():
    ex.register_supported(
        _name,
        _draw.checker,
        execution_transform=_draw.execution_transform,
        grad_transform=_draw.grad_transform,
    )
