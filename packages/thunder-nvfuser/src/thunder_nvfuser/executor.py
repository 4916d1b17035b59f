"""The executor `nvfuser`: the calls that it can fuse, and what becomes of a region of them."""

from __future__ import annotations

from thunder import TensorProxy
from thunder.core.proxies import Proxy
from thunder.core.symbol import BoundSymbol
from thunder.extend import FusionExecutor, Rank, Refusal, Region, refuse_draws, refuse_package

from . import elementwise_rules, shape_rules, sort_rules  # noqa: F401  (they register their rules)
from .attention import ATTENTION, OPERATORS, attend, check_attention
from .claims import CHECKERS, unfit_value
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
    dtypes = DTYPES
    rules = (refuse_package, refuse_draws)
    single_calls = False
    several_devices = False

    def __init__(self, name: str, *, replays: bool = False) -> None:
        super().__init__(name, version=installed_version(), rank=Rank.FUSION)
        self._replays = replays
        self._device_types = frozenset({"cuda", "cpu"} if replays else {"cuda"})
        for operator in RULES:
            self.register_supported(operator, CHECKERS.get(operator.removeprefix("prims.")))
        self.register_supported(ATTENTION, check_attention, execution_transform=attend, grad_transform=attend)
        for attention in OPERATORS:
            self.register_supported(attention)

    def refuse_value(self, p: Proxy, bsym: BoundSymbol) -> Refusal | None:
        """Return why a region does not have a value, or None."""
        refusal = unfit_value(p, self._device_types)
        if refusal is not None or (bsym.sym in OPERATORS and _is_seed(p)):
            return refusal
        return super().refuse_value(p, bsym)

    def refuse_region(self, region: Region) -> Refusal | None:
        """Return why a region is left to other executors, or None."""
        if not any(isinstance(p, TensorProxy) for p in region.inputs):
            return Refusal("inputs", "the region reads no tensor")
        return super().refuse_region(region)

    def compile_region(self, region: Region) -> RegionKernel:
        """Return the function of a region; its definitions are written when it first runs."""
        return RegionKernel(region, current_settings(), replays=self._replays)


def _is_seed(p: Proxy) -> bool:
    """Return whether a value has a dtype that only attention's seeds have."""
    return isinstance(p, TensorProxy) and p.dtype.torch_dtype in SEEDS


def replaying_executor(name: str = "nvfuser_replayed") -> NvFuserExecutor:
    """Return an executor with the definitions of `nvfuser`, which torch computes on any device."""
    return NvFuserExecutor(name, replays=True)


nvfuser_ex = NvFuserExecutor("nvfuser")
#: another name of the executor, in published programs
nvfuserex = nvfuser_ex
