"""The executor `inductor`: the calls that it can fuse, and what becomes of a region of them.

No function here needs a device, and TorchInductor is imported when a region is first compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any

import torch

from thunder import TensorProxy
from thunder.core.dtypes import arithmetic_dtypes
from thunder.core.errors import PluginError
from thunder.core.proxies import Proxy
from thunder.core.symbol import BoundSymbol
from thunder.extend import (
    Cuts,
    FusionExecutor,
    Rank,
    Refusal,
    Region,
    SymbolicInt,
    consists_of_views,
    refuse_draws,
    refuse_package,
    sizes_of,
)
from thunder.plugins import is_strict

from .background import AwaitedCode
from .kept_code import load_region, open_cache, store_region
from .kernels import VERSION, WORKSPACE, Code, RegionKernel, Strides, failure
from .operators import CHECKERS, MODES, WORTH_A_REGION, is_matrix_product, is_product
from .products import left_to_torch
from .run_time_numbers import is_number, takes_number
from .sent_regions import can_be_sent
from .settings import Settings, compile_time, current_settings
from .symbolic_regions import SymbolicCode, SymbolicKernel, function_of_region
from .toolchain import missing_for

__all__ = ["InductorExecutor", "ex"]

#: computes the outputs of a region from its inputs
RegionFunction = Callable[..., Any]


class InductorExecutor(FusionExecutor):
    """Compiles regions by TorchInductor."""

    fusion_name = "InductorFusion"
    symbolic_sizes = True
    horizontal = "siblings"
    #: a product is a kernel of its own, so that a cut after one separates nothing that would be fused
    cuts = Cuts(after=is_matrix_product, calls=64, values=4, repeats=3)
    dtypes = arithmetic_dtypes
    numbers = False
    writes = True
    rules = (refuse_package, refuse_draws)
    single_calls = False
    several_devices = False

    @property
    def reuses(self) -> bool:  # type: ignore[override]
        """Whether outputs are computed in the memory of inputs: not by code that another process compiles."""
        return compile_time() == "now"

    def no_effect(self) -> Refusal | None:
        """Return what is missing to compile for this machine's CPU and, if there is one, its GPU, or None."""
        missing = missing_for("cpu")
        return missing if missing is None or not torch.cuda.is_available() else missing_for("cuda")

    def can_fuse(self, bsym: BoundSymbol) -> bool | Refusal:
        """Return True for a call that TorchInductor may compile, else the reason why not."""
        for refusal in (_outside_mode(bsym), _without_symbol(bsym)):
            if refusal is not None:
                return refusal
        return super().can_fuse(bsym)

    def refuse_value(self, p: Proxy, bsym: BoundSymbol) -> Refusal | None:
        """Return why a region does not have a value, or None."""
        if is_number(p) and takes_number(bsym, is_whole=self._is_whole(bsym)):
            return None
        refusal = super().refuse_value(p, bsym)
        missing = missing_for(p.device.type) if refusal is None and isinstance(p, TensorProxy) else None
        if missing is not None and is_strict() and missing.code != "device":
            # a tool is missing; no tool serves other devices
            raise PluginError(str(missing), hint="Without THUNDER_PLUGIN_STRICT=1 torch's kernels run.")
        return missing if refusal is None else refusal

    def _is_whole(self, bsym: BoundSymbol) -> bool:
        """Return whether a region computes a call as it is, and not by its parts."""
        return not bsym.subsymbols or self._implementation_of(bsym) is not None

    def kernels_of(self, bsym: BoundSymbol) -> int:
        """Return how many kernels torch runs for a call: for some operators several."""
        return 2 if bsym.sym.id in WORTH_A_REGION else super().kernels_of(bsym)

    def refuse_region(self, region: Region) -> Refusal | None:
        """Return why a region is left to other executors, or None."""
        refusal = super().refuse_region(region)
        if refusal is None and all(is_product(b) for b in region.bsyms if not consists_of_views(b)):
            return Refusal("small", "a region of products alone gains nothing")
        return refusal

    def region_workspace(self, region: Region, function: RegionFunction) -> int | None:
        """Return the bytes that the code of a region allocates beside the results."""
        return getattr(function, WORKSPACE, None)

    def compile_regions(self, regions: Sequence[Region]) -> list[RegionFunction | Refusal]:
        """Return the functions of regions, whose code is compiled together, or refusals for the ledger."""
        compiler = _Compiler(current_settings())
        symbolic = [region for region in regions if sizes_of(region)]
        static = [region for region in regions if region not in symbolic]
        tensors = [p for region in static for p in region.inputs if not is_number(p)]
        found = iter(self.kept_strides(tensors, open_cache()))
        strides = {r: tuple(() if is_number(p) else next(found) for p in r.inputs) for r in static}
        kernels: dict[Region, RegionKernel] = {}
        others: dict[Region, RegionFunction | Refusal] = {}
        for region in regions:
            if region in symbolic:
                others[region] = self._symbolic_function(region)
                continue
            kernel = self.compile_once(region, partial(_kernel, region))
            assert isinstance(kernel, RegionKernel), f"compile_once returned {type(kernel).__name__}"
            kernels[region] = kernel
        functions = self._awaiting_functions(kernels, strides)
        kernels = {region: kernel for region, kernel in kernels.items() if region not in functions}
        errors = _add_versions([(kernels[r], strides[r]) for r in kernels if _is_here(r)], compiler)
        functions.update({r: _function(r, kernels[r], strides[r], errors) for r in kernels})
        return [others[region] if region in others else functions[region] for region in regions]

    def _awaiting_functions(
        self, kernels: Mapping[Region, RegionKernel], strides: Mapping[Region, tuple[Strides, ...]]
    ) -> dict[Region, RegionFunction | Refusal]:
        """Return the functions of regions that are compiled in the background; none in other compiles."""
        when = compile_time()
        if when == "now":
            return {}
        awaited = AwaitedCode(current_settings(), waits=when == "later")
        regions = [region for region in kernels if can_be_sent(region)]
        functions: dict[Region, RegionFunction | Refusal] = {
            region: kernels[region].function_for(strides[region], awaited, is_first=i == 0)
            for i, region in enumerate(regions)
        }
        awaited.start()
        return functions

    def region_facts(self, function: RegionFunction) -> Mapping[str, Any]:
        """Return what runs a region, where that is not code which was compiled before its first run."""
        version = getattr(function, VERSION, None)
        return {"runs": version.state} if version is not None and version.state else {}

    def _symbolic_function(self, region: Region) -> RegionFunction | Refusal:
        """Return the function of a region with symbolic sizes, or a refusal."""
        if region.outputs[0].device.type != "cpu":
            return Refusal("static_shape", "regions with symbolic sizes are compiled for CPUs")
        if any(size.hint == 0 for size in sizes_of(region)):  # from 0 == 0 * n torch infers n == 1
            return Refusal("static_shape", "TorchInductor takes no symbolic size that is 0 at first")
        if any(map(is_number, region.inputs)):
            return Refusal("number", "a region with symbolic sizes takes no other numbers")
        kernel = self.compile_once(region, partial(_symbolic_kernel, region))
        assert isinstance(kernel, SymbolicKernel), f"compile_once returned {type(kernel).__name__}"
        try:
            compile = partial(_compile_symbolic, current_settings())
            return function_of_region(region, kernel, self.expected_strides, compile)
        except Exception as error:  # of any class: it comes from TorchInductor or from a C++ compiler
            return _failed(error, region)


def _symbolic_kernel(region: Region) -> Any:
    """Return an empty kernel, for the settings of the compile that runs."""
    current_settings()
    return SymbolicKernel({})


def _compile_symbolic(settings: Settings, region: Region, *layouts: Any) -> SymbolicCode:
    inductor = import_module("thunder_inductor.compiler")
    code: SymbolicCode = inductor.compile_symbolic(region, *layouts, settings, open_cache())
    return code


class _Compiler:
    """Compiles regions by the options of a compile, unless their code is on disk."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, region: Region, strides: tuple[Strides, ...]) -> Code:
        """Return the code of a region whose inputs have these strides (elements)."""
        (result,) = self.several([(region, strides)])
        if isinstance(result, Exception):
            raise result
        return result

    def several(self, regions: Sequence[tuple[Region, tuple[Strides, ...]]]) -> list[Code | Exception]:
        """Return the code of regions, or for one that fails the exception that was raised."""
        cache = open_cache()
        results: dict[int, Code | Exception] = {}
        for i, (region, strides) in enumerate(regions):
            code = load_region(cache, region, strides, self._settings)
            if code is not None:
                results[i] = code
        missing = [i for i in range(len(regions)) if i not in results]
        if missing:
            inductor = import_module("thunder_inductor.compiler")
            compiled = inductor.compile_regions([regions[i] for i in missing], self._settings, cache)
            for i, result in zip(missing, compiled, strict=True):
                if isinstance(result, Exception):
                    results[i] = result
                else:
                    results[i], kept = result
                    store_region(cache, *regions[i], self._settings, kept)
        return [results[i] for i in range(len(regions))]


def _kernel(region: Region) -> RegionKernel:
    """Return the kernel of a region in compiles with the options of the one that is running."""
    compile_time()  # code that is awaited is not that of a program which has its own at once
    return RegionKernel(region, _Compiler(current_settings()))


def _add_versions(
    wanted: Sequence[tuple[RegionKernel, tuple[Strides, ...]]], compiler: _Compiler
) -> dict[tuple[RegionKernel, tuple[Strides, ...]], Exception]:
    """Compile what kernels lack for strides of their inputs; return the errors."""
    errors: dict[tuple[RegionKernel, tuple[Strides, ...]], Exception] = {}
    missing = [(k, strides) for k, strides in dict.fromkeys(wanted) if not k.has_version(strides)]
    codes = compiler.several([(kernel.region, strides) for kernel, strides in missing]) if missing else []
    for (kernel, strides), code in zip(missing, codes, strict=True):
        if isinstance(code, Exception):
            errors[kernel, strides] = code
        else:
            kernel.add_version(strides, code)
    return errors


def _function(
    region: Region,
    kernel: RegionKernel,
    strides: tuple[Strides, ...],
    errors: Mapping[tuple[RegionKernel, tuple[Strides, ...]], Exception],
) -> RegionFunction | Refusal:
    """Return the function of a region, or a refusal if TorchInductor failed on it."""
    if not _is_here(region):
        return kernel  # the program is planned for another machine
    error = errors.get((kernel, strides))
    return kernel.function_for(strides) if error is None else _failed(error, region)


def _outside_mode(bsym: BoundSymbol) -> Refusal | None:
    """Return a refusal for an operator that only another mode compiles, else None."""
    mode = current_settings().mode
    if mode == "auto":
        return left_to_torch(bsym)
    if bsym.sym.id in MODES["full"] and bsym.sym.id not in MODES[mode]:
        return Refusal("mode", f"inductor_mode={mode!r} leaves {bsym.sym.name} to torch's kernels")
    return None


def _without_symbol(bsym: BoundSymbol) -> Refusal | None:
    """Return a refusal for a call with a size that torch's symbols cannot express, else None."""
    shapes = (p.shape for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs) if isinstance(p, TensorProxy))
    for size in chain(bsym.flat_args, *shapes):
        if isinstance(size, SymbolicInt) and not size.is_arithmetic:
            return Refusal("symbol", "torch's symbols have no such operation", size=size.text)
    return None


def _is_here(region: Region) -> bool:
    """Return whether the device of a region exists; programs can be planned for one that does not."""
    return region.outputs[0].device.type != "cuda" or torch.cuda.is_available()


def _failed(error: Exception, region: Region) -> Refusal:
    """Return the reason for a region that was not compiled; raise it under THUNDER_PLUGIN_STRICT=1."""
    if is_strict():
        raise PluginError(
            failure(error),
            found={"region": "; ".join(bsym.line for bsym in region.bsyms)},
            hint="Without THUNDER_PLUGIN_STRICT=1 torch's kernels run. set_fuel bisects.",
        ) from error
    return Refusal("inductor", failure(error))


ex = InductorExecutor("inductor", version=torch.__version__, rank=Rank.FUSION, aliases=("torchcompile",))
for _operator in sorted(MODES["full"]):
    ex.register_supported(_operator, CHECKERS.get(_operator))
