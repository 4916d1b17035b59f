"""The executor `triton`: the calls that its kernels can compute, and what becomes of a region of them.

No function here needs a device, and Triton is imported when a kernel is first launched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import torch

from thunder import TensorProxy
from thunder.core.errors import UnknownOption
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder.extend import (
    Cuts,
    ExpectedStrides,
    FusionExecutor,
    Rank,
    Refusal,
    Region,
    compile_option,
    device_profile,
    refuse_draws,
    refuse_package,
)
from thunder.plugins import Unavailable

from .environment import missing_device, triton_version, unavailable
from .fusions.building import BUILDERS
from .fusions.unsupported import Unsupported
from .operators import CHECKERS, is_view
from .random_numbers import COMPOSITES, DRAWS, draws_in_kernels
from .region_functions import RegionFunction

__all__ = ["TritonExecutor", "ex", "executor"]

#: dtypes of the tensors that a kernel may read and compute
_DTYPES = frozenset(
    {
        *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    }
)

#: the strides that the values of the program have whose regions are being compiled
_strides: ContextVar[ExpectedStrides] = ContextVar("thunder_triton_strides")


class TritonExecutor(FusionExecutor):
    """Compiles regions to generated Triton kernels."""

    fusion_name = "TritonFusion"
    horizontal = "siblings"
    cuts = Cuts(after=lambda bsym: False, calls=96, values=4)

    def can_fuse(self, bsym: BoundSymbol) -> bool | Refusal:
        """Return True for a call that a kernel can compute, else the reason why not."""
        is_draw = bsym.sym.id in DRAWS and draws_in_kernels()
        is_own = bsym.sym in COMPOSITES
        if not (is_draw or is_own):
            for refusal in (refuse_package(bsym), refuse_draws(bsym)):
                if refusal is not None:
                    return refusal
        unfit = _unfit_values(bsym)
        if unfit is not None:
            return unfit
        return is_own or (self._accepts(bsym) if is_draw else super().can_fuse(bsym))

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        """Replace each region by a call of generated kernels: trace → trace.

        t0 = ltorch.sin(x); t1 = ltorch.cos(t0)   →   [t1] = TritonFusion0(x)
        """
        token = _strides.set(ExpectedStrides(trace))
        try:
            return super().fusion_pass(trace)
        finally:
            _strides.reset(token)

    def compile_regions(self, regions: Sequence[Region]) -> list[Callable[..., Any] | Refusal]:
        """Return the functions of regions, or refusals for the ledger."""
        return [self._function(region) for region in regions]

    def _function(self, region: Region) -> Callable[..., Any] | Refusal:
        for refusal in (_too_small(region), _on_several_devices(region)):
            if refusal is not None:
                return refusal
        device = torch.device(str(region.outputs[0].device))
        function = self.compile_once(region, lambda: _function_of(region, device))
        assert isinstance(function, RegionFunction), f"compile_once returned {type(function).__name__}"
        try:
            function.program(expected_strides(region))
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
            layouts = _strides.get()
            call.header = fn.program(tuple(layouts.of(p) for p in inputs)).text
        return call


def _function_of(region: Region, device: torch.device) -> RegionFunction:
    return RegionFunction(region, device, tunes=_tunes())


def _tunes() -> bool:
    """Return the option `triton_autotune`; False where the plugin is not registered that declares it."""
    try:
        return bool(compile_option("triton_autotune"))
    except UnknownOption:
        return False


def expected_strides(region: Region) -> tuple[tuple[int, ...], ...]:
    """Return the strides (elements) that the inputs of a region will probably have."""
    layouts = _strides.get()
    return tuple(layouts.of(p) for p in region.inputs)


def executor() -> TritonExecutor | Unavailable:
    """Return the executor, or why it cannot be used here: no Triton, or no device and no interpreter."""
    return unavailable() or ex


def _unfit_values(bsym: BoundSymbol) -> Refusal | None:
    """Return why the values of a call cannot be those of a kernel, or None."""
    for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs):
        if not isinstance(p, TensorProxy):
            return Refusal("number", "a kernel computes tensors from tensors", value=p.name)
        if p.dtype.torch_dtype not in _DTYPES:
            return Refusal("dtype", "no kernel is generated for this dtype", dtype=p.dtype)
        missing = missing_device(p.device.type)
        if missing is not None:
            return missing
        if p.dtype not in device_profile(p.device).dtypes:
            return Refusal("dtype", "the device does not compute in this dtype", dtype=p.dtype)
        if not all(type(size) is int for size in p.shape):
            return Refusal("static_shape", "kernels are generated for sizes that are known", value=p.name)
    return None


def _too_small(region: Region) -> Refusal | None:
    """Return a refusal for a region whose calls torch runs in one kernel, else None."""
    if not region.outputs:
        return Refusal("unread", "no result of the region is read")
    computing = [bsym for bsym in region.bsyms if not is_view(bsym)]
    if len(computing) < 2 and not any(bsym.subsymbols and _parts(bsym) > 2 for bsym in computing):
        return Refusal("small", "a region of one kernel gains nothing")
    return None


def _parts(bsym: BoundSymbol) -> int:
    """Return the number of primitives that compute a call."""
    if not bsym.subsymbols:
        return 0 if is_view(bsym) else 1
    return sum(map(_parts, bsym.subsymbols))


def _on_several_devices(region: Region) -> Refusal | None:
    devices = {str(p.device) for p in (*region.inputs, *region.outputs)}
    if len(devices) < 2:
        return None
    return Refusal("devices", "the region has tensors of several devices", devices=", ".join(sorted(devices)))


ex = TritonExecutor("triton", version=triton_version(), rank=Rank.FUSION)
for _name in sorted(BUILDERS):
    ex.register_supported(f"prims.{_name}", CHECKERS.get(_name))
for _name, _draw in DRAWS.items():
    ex.register_supported(
        _name,
        _draw.checker,
        execution_transform=_draw.execution_transform,
        grad_transform=_draw.grad_transform,
    )
