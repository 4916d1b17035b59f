"""The recorder of a user's program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thunder.frontend.torch_functions.override_state import TorchFunctions
from thunder.ir.recorder import PLAIN, AdaptedCall, Recorder
from thunder.ir.requires_grad import results_require_grad
from thunder.ops.constant_folding import constant_value
from thunder.ops.torch_errors import operator_error
from thunder.ops.torch_support import torch_refusal

if TYPE_CHECKING:
    import torch

    from thunder.frontend.decisions.speculation import Speculation
    from thunder.frontend.session import TracingSession
    from thunder.ir.proxies import Proxy, TensorProxy
    from thunder.ir.symbol import BoundSymbol, Symbol
    from thunder.ir.trace import Source


class ProgramRecorder(Recorder):
    """Records calls with the program's lines and autocast's casts; knows constant values."""

    hashes_numbers = True

    def __init__(self, session: TracingSession) -> None:
        self._session = session
        self._torch_functions = session.state(TorchFunctions)

    def adapt_call(self, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> AdaptedCall:
        """Return the call with the casts of the autocast that is on now."""
        if self._torch_functions.applies:
            self._torch_functions.refuse_unseen(symbol, (*args, *kwargs.values()))
        self._session.note_operator()
        return self._session.autocast.adapt_call(symbol, args, kwargs)

    def check_call(self, call: BoundSymbol) -> None:
        """Raise OperatorError where torch has no kernel for the dtypes, or would record no derivative."""
        error = torch_refusal(call, derives=results_require_grad())
        if error is not None:
            raise operator_error(error, call.args, call.kwargs)

    def location(self) -> Source | None:
        """Return the line of the program that is running."""
        return self._session.locate()

    def constant_value(self, x: TensorProxy) -> torch.Tensor | None:
        """Return the value of a tensor that the program computes from constants alone."""
        return constant_value(self._session.trace, x)

    @property
    def _speculation(self) -> Speculation | Recorder:
        """What answers questions about data; where there is none, nothing does."""
        return self._session.speculation or PLAIN

    def decide(self, question: str, operands: tuple[Any, ...]) -> Any:
        """Return the answer for the call that is traced, and record the check."""
        if self._torch_functions.applies:
            self._torch_functions.refuse_unseen(f"{question}(tensor)", operands)
        return self._speculation.decide(question, operands)

    def record_sized(self, *args: Any, **kwargs: Any) -> Any:
        """Record a call with the sizes of its results: a decision, or found by the computation."""
        return self._speculation.record_sized(*args, **kwargs)

    def as_size(self, number: Any) -> Any:
        """Return an integer of the trace as a size: its value, a decision, or found by the computation."""
        if self._torch_functions.applies:
            self._torch_functions.refuse_unseen("index(tensor)", (number,))
        return self._speculation.as_size(number)

    def elements(self, x: TensorProxy) -> Any:
        """Return the elements of a tensor: a decision, or sizes that the computation finds."""
        if self._torch_functions.applies:
            self._torch_functions.refuse_unseen("tolist(tensor)", (x,))
        return self._speculation.elements(x)

    def compute_number(self, operation: str, operands: tuple[Any, ...]) -> Any:
        """Return the number as a value of the trace, or its value of this call, as a decision."""
        return self._speculation.compute_number(operation, operands)

    def call_unmodelled(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record an opaque call."""
        return self._session.call_unmodelled(fn, args, kwargs)

    def note_text(self, proxy: Proxy | TensorProxy) -> None:
        """Keep the proxy, so that a native call that made its text can be refused."""
        self._session.objects.effects += 1
        self._session.shown_proxy = proxy
