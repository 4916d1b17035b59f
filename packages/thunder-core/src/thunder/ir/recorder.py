"""Recorders: how calls of symbols become statements of a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from thunder.base.errors import UnsupportedProgram

if TYPE_CHECKING:
    import torch

    from thunder.ir.proxies import Proxy, TensorProxy
    from thunder.ir.symbol import BoundSymbol, Symbol
    from thunder.ir.trace import Source

#: what a call becomes: a callable that records it, and its arguments
AdaptedCall = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Undecided:
    """The type of :data:`UNDECIDED`."""


#: in place of an answer: the trace knows none
UNDECIDED: Final = Undecided()


class Recorder:
    """The plain way of recording; subclasses are installed by ``tracectx(trace, recorder=…)``.

    A recorder belongs to the code that builds one trace, and is never part of the finished program.
    """

    #: whether the calls belong to a backward, which runs with gradients on in case it is differentiated
    in_backward: bool = False
    #: whether a user's program runs, which may use numbers as keys
    hashes_numbers: bool = False

    def adapt_call(self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AdaptedCall:
        """Return what to record for a call outside of other calls: by default, the call itself.

        If the first element of the result is not ``symbol``, it is called in place of the symbol.
        """
        return symbol, args, kwargs

    def check_call(self, call: BoundSymbol) -> None:
        """Raise what eager raises for a call that is about to be recorded, outside of other calls."""

    def location(self) -> Source | None:
        """Return the line of the user's program that the statement being recorded comes from."""
        return None

    def constant_value(self, x: TensorProxy) -> torch.Tensor | None:
        """Return the value of a tensor, on the CPU, if it depends on no input of the trace."""
        return None

    def decide(self, question: str, operands: tuple[Any, ...]) -> Any:
        """Return the answer to a question about data that the rest of the trace is for, or UNDECIDED.

        Where a program is acquired, the question is answered for the call, and the answer is checked in each
        run (Note [Decisions on data]).
        """
        return UNDECIDED

    def record_sized(
        self,
        call: str,
        compute: Callable[..., Any],
        record: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        record_with_size: Callable[..., Any] | None = None,
    ) -> Any:
        """Record a call whose results have sizes that depend on data, or return UNDECIDED.

        ``compute`` returns the results for tensors, ``record(results=…, decision=…)`` records the statement
        (Note [Sizes that depend on data]). ``call`` is the text of the call. ``record_with_size(metadata,
        new_size)`` records it for any size, and returns its results with the size (Note [Computed sizes]).
        """
        return UNDECIDED

    def as_size(self, number: Any) -> Any:
        """Return an integer of the trace as a size or position, or UNDECIDED.

        It is its value, which is a decision, or a size that the computation finds.
        """
        return self.decide("index", (number,))

    def elements(self, x: TensorProxy) -> Any:
        """Return the elements of a tensor as nested tuples, or UNDECIDED.

        They are a decision, or sizes that the computation finds.
        """
        return self.decide("tolist", (x,))

    def compute_number(self, operation: str, operands: tuple[Any, ...]) -> Any:
        """Return the proxy of a number that is computed from numbers out of tensors, or UNDECIDED.

        ``operation`` is ``sum``, or the name of a function of the module ``operator``.
        """
        return UNDECIDED

    def call_unmodelled(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function on tensors of the class UnmodelledProxy: only a program that is acquired can."""
        raise UnsupportedProgram(
            f"{getattr(fn, '__qualname__', fn)} is called on a tensor whose class or layout thunder does not "
            "model",
            hint="Mark the function around it by thunder.opaque.",
        )

    def note_text(self, proxy: Proxy | TensorProxy) -> None:
        """Take notice that the text of a proxy was made: in a program it would show a value."""


class FixedLocation(Recorder):
    """Records every statement as coming from the line ``source``, which may be assigned."""

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    def location(self) -> Source | None:
        """Return ``source``."""
        return self.source


#: the recorder of a trace for which none is installed
PLAIN = Recorder()
