"""What is measured: a distinct call or region of a program, with all that is needed to run it alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thunder.core.dtypes import to_torch_dtype
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.extend import Executor, FusionExecutor, Region
from thunder_autotune.entries import Entry, Kind
from thunder_autotune.keys import described
from thunder_bisect.calls import is_random

__all__ = ["Unit"]


@dataclass(eq=False)
class Unit:
    """A distinct call or region, with all that is needed to run it alone.

    `accepting` are the executors that accept a call, in the order of the list; for a region, the other fusion
    executors that accept all of its calls. `region_executor` compiles the region; `function` is what it has
    compiled, or None. `places` are the results of each of its occurrences. `ending` are the inputs that
    nothing reads afterwards, in whose memory a region may compute. `with_backward` marks a call for which an
    executor has a gradient rule, in a program that is differentiated: forward and backward are measured as
    one.
    """

    kind: Kind
    key: str
    bsyms: tuple[BoundSymbol, ...]
    inputs: tuple[TensorProxy, ...]
    outputs: tuple[TensorProxy, ...]
    accepting: tuple[Executor, ...] = ()
    region: Region | None = None
    region_executor: FusionExecutor | None = None
    with_backward: bool = False
    ending: frozenset[str] = frozenset()
    #: the inputs to which a call writes
    written: frozenset[str] = frozenset()
    places: set[tuple[str, ...]] = field(default_factory=set)
    function: Any = None
    #: name → value, with the memory that they share; None where the values are not known
    values: Mapping[str, Any] | None = None
    #: the symbolic sizes of the call that was recorded, which the function of a region takes last
    sizes: Mapping[str, int] = field(default_factory=dict)
    #: the keys of the calls of a region
    call_keys: tuple[str, ...] = ()
    #: of a region that is fastest in parts: what was measured of these
    parts: tuple[Entry, ...] = ()
    #: the executor that runs it in the default program
    default: str = ""

    @property
    def is_random(self) -> bool:
        """Whether it draws random numbers."""
        return any(map(is_random, self.bsyms))

    @property
    def description(self) -> str:
        """The operators in it."""
        return described(self.bsyms)

    @property
    def weight(self) -> float:
        """How many bytes its occurrences read and write: the units with most are measured first."""
        tensors = (*self.inputs, *self.outputs)
        nbytes = sum(p.numel() * to_torch_dtype(p.dtype).itemsize for p in tensors)
        return float(nbytes) * max(len(self.places), 1)
