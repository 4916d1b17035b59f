"""Executors that compile regions of a trace: `FusionExecutor`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

from thunder.base.errors import InvalidArgument, PluginError
from thunder.executor_base.executor import Executor, ImplInfo, Rank, Refusal
from thunder.executor_base.operator_executor import operator_id
from thunder.ir.proxies import Proxy, TensorProxy
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import TraceCtx

__all__ = ["FUEL_LEVEL", "FusionExecutor"]


class FUEL_LEVEL(Enum):
    """Special amounts of fuel."""

    UNLIMITED = auto()


class FusionExecutor(Executor):
    """An executor that compiles regions of the calls that it claimed.

    Subclasses define `fusion_pass` and `fuse`.
    """

    default_rank = Rank.FUSION

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

    # -- what can be fused

    def register_supported(
        self,
        sym_or_id: Symbol | str,
        checker: Callable[..., bool | Refusal] | None = None,
        *,
        execution_transform: Callable[..., Any] | None = None,
        grad_transform: Callable[..., Any] | None = None,
    ) -> None:
        """Declare that calls of an operator may be fused, if `checker` agrees.

        An earlier declaration for the operator is replaced. Raises RegistrationError for an unknown id.
        """
        info = ImplInfo(None, checker, execution_transform, grad_transform)
        self.declare(operator_id(sym_or_id), info)

    def can_fuse(self, bsym: BoundSymbol) -> bool | Refusal:
        """Return True if the call, or each call in it, is supported; else a refusal."""
        if bsym.sym.is_fusion:
            return Refusal("fusion", f"{bsym.sym.name} is a fusion already")
        answer = self._accepts(bsym)
        if answer or not bsym.subsymbols:
            return answer
        for part in bsym.subsymbols:
            refusal = self.can_fuse(part)
            if not refusal:
                return answer if bsym.sym.id in self.implmap else refusal
        return True

    # -- fusing

    def fusion_pass(self, trace: TraceCtx) -> TraceCtx:
        """Group calls that this executor claimed into fusion symbols: trace → trace.

        The result computes the same, and calls of other executors stay as they are.
        """
        raise self._lacks("fusion_pass(self, trace)")

    def fuse(self, region: Any, fusion_counter: int) -> BoundSymbol:
        """Return the bound symbol of a region, printed `[t3, t4] = <name><counter>(t0)`."""
        raise self._lacks("fuse(self, region, fusion_counter)")

    def _lacks(self, method: str) -> PluginError:
        return PluginError(
            f"fusion executor {self.name!r} has no method {method}",
            found={"class": f"{type(self).__module__}.{type(self).__qualname__}"},
            hint="A subclass of thunder.extend.FusionExecutor defines it.",
        ).blame(self.origin)

    def register_temporary_operation(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        inputs: Sequence[TensorProxy | Proxy],
        outputs: Sequence[TensorProxy | Proxy],
        bsyms: Sequence[BoundSymbol],
    ) -> BoundSymbol:
        """Return the bound symbol of a fusion, which runs `fn(*inputs)`.

        `fn` returns the outputs as a list; `bsyms` become the subsymbols.
        """
        symbol = Symbol(
            name=name,
            id=f"{self.name}.{name}",
            is_prim=False,
            is_fusion=True,
            executor=self,
            python_impl=fn,
        )
        return symbol.bind(*inputs, output=list(outputs), subsymbols=tuple(bsyms))

    # -- fuel

    def set_fuel(self, value: int | FUEL_LEVEL) -> None:
        """Set how many fusions may still be compiled, to find a wrong one by bisection."""
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
