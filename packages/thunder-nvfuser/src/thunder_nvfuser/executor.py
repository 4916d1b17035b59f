"""The executor `nvfuser`: the calls that it can fuse, and what becomes of a region of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.core.symbol import BoundSymbol
from thunder.extend import FusionExecutor, Rank, Refusal, Region, refuse_package

from . import elementwise_rules, shape_rules, sort_rules  # noqa: F401  (they register their rules)
from .attention import ATTENTION, OPERATORS, attend, check_attention
from .claims import CHECKERS, is_trivial, value_refusal
from .data_types import DTYPES, SEEDS
from .kernels import RegionKernel
from .library import installed_version
from .settings import current_settings
from .translation import RULES

__all__ = ["NvFuserExecutor", "nvfuser_ex", "nvfuserex", "replaying_executor"]


class NvFuserExecutor(FusionExecutor):
    """Compiles regions by nvFuser.

    Args:
        name: of the executor.
        replays: whether torch computes the definitions, on any device; for tests.
    """

    fusion_name = "nvFusion"
    symbolic_sizes = True
    horizontal = "siblings"

    def __init__(self, name: str, *, replays: bool = False) -> None:
        super().__init__(name, version=installed_version(), rank=Rank.FUSION)
        self._replays = replays
        self._device_types = frozenset({"cuda", "cpu"} if replays else {"cuda"})
        for operator in RULES:
            self.register_supported(operator, CHECKERS.get(operator.removeprefix("prims.")))
        self.register_supported(ATTENTION, check_attention, execution_transform=attend, grad_transform=attend)

    def can_fuse(self, bsym: BoundSymbol) -> bool | Refusal:
        """Return True for a call that nvFuser may compile, else the reason why not."""
        if bsym.sym in OPERATORS:
            return value_refusal(bsym, self._device_types, DTYPES | SEEDS) or True
        of_package = refuse_package(bsym)
        if of_package is not None:
            return of_package
        if bsym.sym.id == ATTENTION and not (answer := check_attention(*bsym.args, **bsym.kwargs)):
            return answer  # its parts are not fused: torch has kernels for the whole
        refusal = value_refusal(bsym, self._device_types)
        return super().can_fuse(bsym) if refusal is None else refusal

    def compile_region(self, region: Region) -> Callable[..., Any] | Refusal:
        """Return the function of a region; its definitions are written when it first runs."""
        computing = [bsym for bsym in region.bsyms if not is_trivial(bsym)]
        if len(computing) < 2:
            return Refusal("small", "a region of one kernel gains nothing")
        devices = {str(p.device) for p in (*region.inputs, *region.outputs) if hasattr(p, "device")}
        if len(devices) > 1:
            return Refusal(
                "devices", "its tensors are on several devices", devices=", ".join(sorted(devices))
            )
        if not any(hasattr(p, "device") for p in region.inputs):
            return Refusal("inputs", "the region reads no tensor")
        return RegionKernel(region, current_settings(), replays=self._replays)


def replaying_executor(name: str = "nvfuser_replayed") -> NvFuserExecutor:
    """Return an executor with the definitions of `nvfuser`, which torch computes on any device."""
    return NvFuserExecutor(name, replays=True)


nvfuser_ex = NvFuserExecutor("nvfuser")
#: another name of the executor, in published programs
nvfuserex = nvfuser_ex
