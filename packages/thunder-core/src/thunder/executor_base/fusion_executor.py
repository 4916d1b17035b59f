"""Executors that compile regions of a trace: `FusionExecutor`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextvars import ContextVar
from enum import Enum, auto
from functools import partial
from itertools import chain
from typing import Any

from thunder.base.artefact_cache import ArtefactCache
from thunder.base.context_variables import assigned
from thunder.base.current_options import changed_options, noted_reads
from thunder.base.errors import InvalidArgument, PluginError
from thunder.base.plugin_calls import shown
from thunder.executor_base.compiled_regions import CompiledRegions
from thunder.executor_base.executor import Executor, ImplInfo, Rank
from thunder.executor_base.implementation_hints import check_implementation
from thunder.executor_base.operator_ids import operator_id
from thunder.executor_base.preferred_regions import in_parts, region_preference
from thunder.executor_base.private_values import private_values
from thunder.executor_base.refusal import Refusal
from thunder.executor_base.region_compilation import compile_together
from thunder.executor_base.region_modes import no_code, region_mode, sketch
from thunder.executor_base.unfused import left_out
from thunder.executor_base.workspaces import with_workspace, workspace_bytes
from thunder.ir.aliasing import consists_of_views
from thunder.ir.copied_outputs import copied_to_inputs, with_copied
from thunder.ir.ending_inputs import with_reused
from thunder.ir.fusion_regions import UNBOUNDED, Bounds, Horizontal, Region, partition, replace_regions
from thunder.ir.proxies import Proxy, TensorProxy
from thunder.ir.region_cuts import Cuts
from thunder.ir.region_keys import structural_key
from thunder.ir.region_sizes import with_sizes
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.symbolic_sizes import SymbolicInt
from thunder.ir.trace import TraceCtx, with_bound_symbols
from thunder.ops.data_errors import checks_values
from thunder.ops.region_strides import ExpectedStrides

__all__ = ["FUEL_LEVEL", "FusionExecutor"]


#: computes the outputs of a region, as a list, from its inputs
RegionFunction = Callable[..., Any]

_NO_FUEL = Refusal("not-fused", "the fuel that set_fuel gave is used up")
_CHECKS_VALUES = Refusal("values", "torch checks values here, and the calls in it would not")
_VIEW = Refusal("not-fused", "a region returns no memory of its inputs or values, and this call does")

#: the strides of the values of the program whose regions are being compiled
_strides: ContextVar[ExpectedStrides | None] = ContextVar("thunder_region_strides", default=None)


class FUEL_LEVEL(Enum):
    """Special amounts of fuel."""

    UNLIMITED = auto()


class FusionExecutor(Executor):
    """An executor that compiles regions of the calls that it claimed.

    A subclass defines `compile_region`, which returns the function of one region, or `fuse`, which returns
    the call of one; core finds the regions. One that finds them itself defines `fusion_pass`.

    Attributes:
        bounds: how large a region may become.
        cuts: where long regions are cut into parts; `None` leaves them whole.
        horizontal: whether regions that do not depend on each other are merged: `True`, `False`, or
            `"siblings"` for those that read the same tensor near each other.
        compiles_in_threads: whether `compile_region` may run in several threads at a time.
        symbolic_sizes: whether regions may have tensors with symbolic sizes, under
            `cache="symbolic values"`; without it their calls are left to other executors. The last inputs
            of such a region are its sizes, which are numbers when it runs.
        fusion_name: what the calls of regions are called, before their number; by default by the executor.
        dtypes: of the tensors that regions may read and compute, torch's or thunder's; `None` for all.
        numbers: whether regions may read and compute numbers that differ from call to call, beside sizes.
        writes: whether the functions of regions may write their outputs to inputs (`Region.copied`). Such a
            function returns all outputs, and has a form that writes as its attribute `in_place`.
        reuses: whether they may compute outputs in the memory of inputs that end (`Region.reused`). Outputs
            then have memory of their own, or that of one such input; `reusing_function` makes the function.
        rules: functions that return a refusal or None for a call whose operator is not declared, as
            `refuse_draws`; all other calls are taken apart.
        single_calls: whether a region may be one kernel of torch; see `kernels_of`.
        several_devices: whether a region may have tensors of several devices.
    """

    default_rank = Rank.FUSION
    bounds: Bounds = UNBOUNDED
    cuts: Cuts | None = None
    horizontal: Horizontal = False
    compiles_in_threads: bool = False
    symbolic_sizes: bool = False
    fusion_name: str = ""
    dtypes: Set[Any] | None = None
    numbers: bool = True
    writes: bool = False
    reuses: bool = False
    rules: Sequence[Callable[[BoundSymbol], Refusal | None]] = ()
    single_calls: bool = True
    several_devices: bool = True

    def __init__(
        self,
        name: str,
        *,
        version: object | None = None,
        rank: int | None = None,
        aliases: tuple[str, ...] = (),
    ) -> None:
        super().__init__(name, version=version, rank=rank, aliases=aliases)
        self._fuel: int | FUEL_LEVEL = FUEL_LEVEL.UNLIMITED
        self._compiled = CompiledRegions()

    # -- what can be fused

    def register_supported(
        self,
        sym_or_id: Symbol | str,
        checker: Callable[..., bool | Refusal] | None = None,
        *,
        execution_transform: Callable[..., Any] | None = None,
        grad_transform: Callable[..., Any] | None = None,
        cost: Callable[..., float] | None = None,
        workspace: Callable[..., int] | None = None,
        rank: int | None = None,
    ) -> None:
        """Declare that calls of an operator may be fused, if `checker` agrees.

        `cost`, `workspace` and `rank` are those of `OperatorExecutor.register_implementation`; a region
        allocates for itself what the call with the largest workspace does, unless
        `register_temporary_operation` has another number. An earlier declaration for the operator is
        replaced. Raises RegistrationError for an unknown id.
        """
        target = operator_id(sym_or_id)
        info = ImplInfo(None, checker, execution_transform, grad_transform, cost, workspace, rank)
        check_implementation(self, target, info)
        self.declare(target, info)

    def can_fuse(self, bsym: BoundSymbol) -> bool | Refusal:
        """Return True if the call, or each call in it, is supported; else a refusal.

        A call that raises for some values is not taken apart, if the calls in it do not raise.
        """
        if bsym.sym.is_fusion:
            return Refusal("fusion", f"{bsym.sym.name} is a fusion already")
        declared = self._implementation_of(bsym)
        values = (self.refuse_value(p, bsym) for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs))
        others = (rule(bsym) for rule in self.rules if declared is None)
        for reason in chain(values, others):
            if reason is not None:
                return reason
        answer = self._accepts(bsym)
        if answer or not bsym.subsymbols:
            return answer
        if declared is not None and declared.execution_transform is not None:
            return answer  # else the transform that is refused would compute the call
        if checks_values(bsym):
            return _CHECKS_VALUES if declared is None else answer
        for part in bsym.subsymbols:
            refusal = self.can_fuse(part)
            if not refusal:
                return refusal if declared is None else answer
        return True

    def refuse_value(self, p: Proxy, bsym: BoundSymbol) -> Refusal | None:
        """Return why a value that a call reads or computes cannot be one of a region, or None.

        By default `dtypes` and `numbers` decide.
        """
        if not isinstance(p, TensorProxy):
            if self.numbers or isinstance(p, SymbolicInt):
                return None
            return Refusal("number", "a region computes tensors from tensors", value=p.name)
        if self.dtypes is None or p.dtype in self.dtypes:
            return None
        return Refusal("dtype", f"{self.name} is not used for this dtype", dtype=p.dtype)

    def refuse_region(self, region: Region) -> Refusal | None:
        """Return why the calls of a region are left to other executors before it is compiled, or None.

        By default `single_calls` and `several_devices` decide.
        """
        if not self.single_calls and sum(map(self.kernels_of, region.bsyms)) < 2:
            return Refusal("small", "a region of one kernel gains nothing")
        devices = {str(p.device) for p in (*region.inputs, *region.outputs) if isinstance(p, TensorProxy)}
        if self.several_devices or len(devices) < 2:
            return None
        named = ", ".join(sorted(devices))
        return Refusal("devices", "the region has tensors of several devices", devices=named)

    def kernels_of(self, bsym: BoundSymbol) -> int:
        """Return how many kernels torch runs for a call: by default none for a view, else one."""
        return 0 if consists_of_views(bsym) else 1

    # -- fusing

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        """Replace each region of the calls that this executor claimed by one call: trace → trace.

            t0 = ltorch.sin(x); t1 = ltorch.cos(t0)   →   [t1] = myFusion0(x)

        The regions are those of `partition`. A call that is in no region keeps its place, with the reason.
        The result computes the same, and calls of other executors stay as they are.
        """
        with assigned(_strides, ExpectedStrides(trace)):
            return self._fused(trace)

    def _fused(self, trace: TraceCtx) -> TraceCtx:
        regions = self._adapted(
            trace,
            partition(trace, self._claimed, horizontal=self.horizontal, bounds=self.bounds, cuts=self.cuts),
        )
        if (parts := in_parts(self, regions, lambda region: self.refuse_region(region) is None)) != regions:
            regions = self._adapted(trace, parts)
        is_sketched = region_mode() == "sketched"
        fueled = regions if is_sketched else [region for region in regions if self.get_fuel()]
        functions: dict[Region, RegionFunction | Refusal] = {} if is_sketched else self._left(fueled)
        if type(self).fuse is FusionExecutor.fuse and not is_sketched:
            fit = [region for region in fueled if region not in functions]
            functions.update(self._compiled_as_preferred(fit))
        refusals: dict[BoundSymbol, Refusal] = {}
        fused = 0

        def replacement(region: Region) -> BoundSymbol | None:
            nonlocal fused
            result: BoundSymbol | Refusal
            if is_sketched and region in fueled:
                result = self._sketch_of(region, fused)
            elif region in functions:
                result = self._call_of(region, functions[region], fused)
            else:
                with changed_options(region_preference(self, region).options):
                    result = self.fuse(region, fused) if region in fueled else _NO_FUEL
            if isinstance(result, Refusal):
                refusals.update(dict.fromkeys(region.bsyms, result))
                return None
            if not isinstance(result, BoundSymbol):
                hint = "It returns the bound symbol that register_temporary_operation makes, or a Refusal."
                raise self._fault("fuse", result, hint)
            fused += 1
            return result

        new = replace_regions(trace, regions, replacement)
        statements = [
            left_out(bsym, refusals.get(bsym, _VIEW)) if self._claimed(bsym) else bsym
            for bsym in new.bound_symbols
        ]
        return with_bound_symbols(new, statements, "Fusion")

    def _adapted(self, trace: TraceCtx, regions: list[Region]) -> list[Region]:
        """Return regions of a trace with what the executor's code takes and writes beside their values."""
        if self.symbolic_sizes:
            regions = list(map(with_sizes, regions))
        if self.writes and (copied := copied_to_inputs(trace)):
            regions = [with_copied(region, copied) for region in regions]
        if self.reuses and (private := private_values()):
            regions = with_reused(trace, regions, private)
        return regions

    def _compiled_as_preferred(self, regions: Sequence[Region]) -> dict[Region, RegionFunction | Refusal]:
        """Return the functions of regions, compiled with the values of options that are preferred."""
        preferred = {region: region_preference(self, region).options for region in regions}
        usual = [region for region in regions if not preferred[region]]
        functions = dict(zip(usual, self.compile_regions(usual), strict=True))
        for region in regions:
            if preferred[region]:
                with changed_options(preferred[region]):
                    (functions[region],) = self.compile_regions([region])
        return functions

    def _left(self, regions: Sequence[Region]) -> dict[Region, RegionFunction | Refusal]:
        """Return the regions whose calls are left to other executors, with the reasons."""
        answers = {region: self.refuse_region(region) for region in regions}
        for region in [region for region, answer in answers.items() if answer is None]:
            answers[region] = region_preference(self, region).refusal
        for answer in answers.values():
            if not isinstance(answer, Refusal | None):
                raise self._fault("refuse_region", answer, "It returns a Refusal or None.")
        return {region: answer for region, answer in answers.items() if answer is not None}

    def _fault(self, method: str, returned: object, hint: str) -> PluginError:
        message = f"{method} of executor {self.name!r} returned {shown(returned)}"
        return PluginError(message, hint=hint).blame(self.origin)

    def expected_strides(self, p: TensorProxy) -> tuple[int, ...]:
        """Return the strides (elements) that a value of a region will probably have when the program runs.

        Code that is compiled for them checks them (`ExpectedStrides`). Raises InvalidArgument outside of
        `fusion_pass`.
        """
        return _strides_of_program().of(p)

    def kept_strides(self, values: Sequence[TensorProxy], cache: ArtefactCache) -> list[tuple[int, ...]]:
        """Return the `expected_strides` of values, which a cache on disk keeps (`ExpectedStrides.of_all`)."""
        return _strides_of_program().of_all(values, cache)

    def fuse(self, region: Region, fusion_counter: int) -> BoundSymbol | Refusal:
        """Return the bound symbol of a region, printed `[t3, t4] = <name><counter>(t0)`.

        By default it runs the function of `compile_region`. An executor that defines it calls
        `register_temporary_operation`; its regions are compiled one after the other. A Refusal leaves the
        calls of the region to other executors, and is in the ledger. `fusion_counter` is the number of
        regions of the trace that were fused before.
        """
        (function,) = self.compile_regions([region])
        return self._call_of(region, function, fusion_counter)

    def compile_region(self, region: Region) -> RegionFunction | Refusal:
        """Return the function that computes the outputs of a region, as a list, from its inputs.

        It serves all regions of equal structure (`structural_key`), and may not depend on names. A Refusal
        leaves the calls of these regions to other executors, and is in the ledger. With
        `compiles_in_threads` it is called in several threads at a time, each with the caller's context
        variables, and `compile_option` works there. Raises PluginError if a subclass has no such method.
        """
        raise PluginError(
            f"fusion executor {self.name!r} has neither compile_region(self, region) nor "
            "fuse(self, region, fusion_counter)",
            found={"class": f"{type(self).__module__}.{type(self).__qualname__}"},
            hint="A subclass of thunder.extend.FusionExecutor defines one of them.",
        ).blame(self.origin)

    def compile_regions(self, regions: Sequence[Region]) -> Sequence[RegionFunction | Refusal]:
        """Return the functions of the regions of a program, or refusals, in their order.

        Regions of equal structure are compiled once, by `compile_region`, for the values of the options that
        it reads by `compile_option`; see `compile_together`. An executor overrides it if its compiler takes
        several regions at a time.
        """
        keys: list[object] = [structural_key(region) or region for region in regions]
        functions: dict[object, RegionFunction | Refusal] = {}
        missing: dict[object, Region] = {}
        for key, region in zip(keys, regions, strict=True):
            function = self._compiled.get(key) if isinstance(key, str) else None
            if function is None:
                missing.setdefault(key, region)
            else:
                functions[key] = function
        tasks = [partial(self._compiled_with_reads, region) for region in missing.values()]
        compiled = compile_together(tasks, workers=None if self.compiles_in_threads else 1)
        for key, (result, options) in zip(missing, compiled, strict=True):
            functions[key] = result
            if isinstance(key, str) and callable(result):
                self._compiled.add(key, result, options)
        return [functions[key] for key in keys]

    def compile_alone(
        self,
        trace: TraceCtx,
        copied: Sequence[tuple[int, int]] = (),
        reused: Sequence[tuple[int, int]] = (),
    ) -> RegionFunction | Refusal:
        """Return the function of a region that is a trace by itself, as one that was kept as text.

        The inputs of the trace have the strides that they will probably have when it runs. `copied` and
        `reused` are those of the region.
        """
        *calls, last = trace.bound_symbols
        inputs, outputs = tuple(trace.args), tuple(last.args[0])
        region = Region(tuple(calls), inputs, outputs, (), tuple(copied), tuple(reused))
        with assigned(_strides, ExpectedStrides(trace)):
            refusal = self.refuse_region(region)
            (function,) = self.compile_regions([region]) if refusal is None else (refusal,)
        return function

    def _compiled_with_reads(self, region: Region) -> tuple[RegionFunction | Refusal, Mapping[str, Any]]:
        """Return what `compile_region` returns, and the options that it has read."""
        with noted_reads() as options:
            return self.compile_region(region), options

    def _call_of(
        self, region: Region, function: RegionFunction | Refusal, number: int
    ) -> BoundSymbol | Refusal:
        """Return the call of the function of a region."""
        if isinstance(function, Refusal):
            return function
        if not callable(function):
            hint = "It returns a function of the region's inputs that returns its outputs, or a Refusal."
            raise self._fault("compile_region", function, hint)
        return self.register_temporary_operation(
            f"{self.fusion_name or self.name}{number}",
            function,
            inputs=region.inputs,
            outputs=region.outputs,
            bsyms=region.bsyms,
            workspace=self.region_workspace(region, function),
        )

    def _sketch_of(self, region: Region, number: int) -> BoundSymbol:
        name = f"{self.fusion_name or self.name}{number}"
        inputs, outputs, bsyms = region.inputs, region.outputs, region.bsyms
        return sketch(
            self.register_temporary_operation(name, no_code, inputs=inputs, outputs=outputs, bsyms=bsyms)
        )

    def region_workspace(self, region: Region, function: RegionFunction) -> int | None:
        """Return the bytes that a run of a region's function allocates beside the outputs.

        Plans count them. With None, the default, they are the largest workspace of the calls in the region.
        """
        return None

    def region_facts(self, function: RegionFunction) -> Mapping[str, Any]:
        """Return what the ledger shows of a region's function at the moment, by name; by default nothing."""
        return {}

    def compile_once(self, region: Region, compile: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """Return the function that was compiled for a region of equal structure, else compile it now.

        `structural_key` says which regions are equal: the function may not depend on names of the region. It
        serves compiles in which the options that `compile` reads by `compile_option` have the same values. A
        function is kept as long as a compiled program uses it.
        """
        key = structural_key(region)
        function = None if key is None else self._compiled.get(key)
        if function is None:
            with noted_reads() as options:
                function = compile()
            if key is not None:
                self._compiled.add(key, function, options)
        return function

    def _claimed(self, bsym: BoundSymbol) -> bool:
        return bsym.sym.executor is self and not bsym.sym.is_fusion

    def register_temporary_operation(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        inputs: Sequence[TensorProxy | Proxy],
        outputs: Sequence[TensorProxy | Proxy],
        bsyms: Sequence[BoundSymbol],
        workspace: int | None = None,
    ) -> BoundSymbol:
        """Return the bound symbol of a fusion, which runs `fn(*inputs)`.

        `fn` returns the outputs as a list; `bsyms` become the subsymbols. `workspace` are the bytes that a
        run allocates for itself, beside the outputs, which plans count; by default the largest workspace of
        the calls in the region. A symbol is its value in the call that is compiled. Raises InvalidArgument
        for a workspace that is not an int of at least 0.
        """
        workspace = workspace.hint if isinstance(workspace, SymbolicNumber) else workspace
        if workspace is not None and (type(workspace) is not int or workspace < 0):
            raise InvalidArgument(
                f"the workspace of the fusion {name!r} of executor {self.name!r} is {workspace!r}",
                hint="It is a number of bytes, an int that is at least 0.",
            )
        symbol = Symbol(
            name=name,
            id=f"{self.name}.{name}",
            is_prim=False,
            is_fusion=True,
            executor=self,
            python_impl=fn,
        )
        call = symbol.bind(*inputs, output=list(outputs), subsymbols=tuple(bsyms))
        return with_workspace(
            call, max(map(workspace_bytes, bsyms), default=0) if workspace is None else workspace
        )

    # -- fuel

    def set_fuel(self, value: int | FUEL_LEVEL) -> None:
        """Set how many fusions may still be compiled, to find a wrong one. Raises InvalidArgument."""
        if not isinstance(value, FUEL_LEVEL) and (type(value) is not int or value < 0):
            raise InvalidArgument(
                f"set_fuel takes a number of fusions and got {value!r}", hint="Or FUEL_LEVEL.UNLIMITED."
            )
        self._fuel = value

    def get_fuel(self, amount: int = 1) -> bool:
        """Consume `amount` of fuel and return True; return False if less is left."""
        if isinstance(self._fuel, FUEL_LEVEL):
            return True
        if self._fuel < amount:
            return False
        self._fuel -= amount
        return True


def _strides_of_program() -> ExpectedStrides:
    """Return the strides of the program whose regions are compiled."""
    strides = _strides.get()
    if strides is None:
        raise InvalidArgument(
            "the strides of a value were asked for while no regions are compiled",
            hint="ExpectedStrides(trace).of(proxy) returns those of any program.",
        )
    return strides
