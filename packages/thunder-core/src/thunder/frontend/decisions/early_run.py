"""The early run of a program: its trace so far runs on the inputs of the call, for the answer to a question.

The results are kept, so that each call of the trace runs once, however many questions the program asks. What
the program writes to an input is written to a copy, and generators of random numbers are afterwards as they
were before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from thunder.base.autocast_state import OFF, autocast_as
from thunder.base.devices import Device, to_torch_device
from thunder.base.dtypes import dtype, to_torch_dtype
from thunder.base.errors import (
    DataDependentControlFlow,
    DecisionChanged,
    InternalError,
    ThunderError,
    UnsupportedProgram,
)
from thunder.base.provenance import Path
from thunder.base.pytree import tree_map
from thunder.base.structural_ids import STRUCTURAL
from thunder.base.tags import OpTags
from thunder.frontend.objects.unmodelled_tensors import is_modelled, parts_of
from thunder.ir.effects import KEPT
from thunder.ir.proxies import GeneratorProxy, TensorProxy, is_proxy
from thunder.ir.symbol import BoundSymbol, has_tags, with_parts
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.trace import TraceCtx
from thunder.ir.unmodelled_proxies import UnmodelledProxy
from thunder.ops import prims
from thunder.ops.data_errors import RUN_OPAQUE, is_opaque
from thunder.ops.operator import row_of
from thunder.ops.prims.decision_checks import answer_to
from thunder.ops.region_evaluation import evaluate_calls

__all__ = ["EarlyRun", "RaisedEarly"]


class RaisedEarly(InternalError):
    """The program so far raises on the inputs of the call, as eager does: ``error``.

    Only the frontend handles it; no handler of the program may see it.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__("the program raises before a decision")
        self.error = error


class EarlyRun:
    """The values of a trace that is being recorded, for the inputs of one call.

    Args:
        trace: the trace; only its outermost scope is run.
        inputs: the inputs so far, with their paths; the frontend appends to it.
        roots: the roots from which the paths lead to the inputs.
    """

    def __init__(
        self,
        trace: TraceCtx,
        inputs: Sequence[tuple[TensorProxy | GeneratorProxy | SymbolicNumber, Path]],
        roots: dict[str, Any],
    ) -> None:
        self._trace, self._inputs, self._roots = trace, inputs, roots
        self._copies = _Copies()
        self._copies_inputs = False
        self._noted: dict[str, Any] = {}  # results of calls that run once
        self._originals: list[torch.Tensor] = []  # inputs, of which there may be copies
        self._begin()

    def _begin(self) -> None:
        self._values: dict[str, Any] = dict(self._noted)
        self._done: set[str] = set(self._noted)
        self._ran: dict[int, BoundSymbol] = {}  # calls without results, by id
        self._adopted = 0
        #: the statement up to which the program has run, and its position
        self._position = 0
        self._last: BoundSymbol | None = None
        self._states: list[torch.Tensor] | None = None

    def answer(self, question: str, operands: tuple[Any, ...], end: int | None = None) -> Any:
        """Return the answer to a question about values of the program so far, or of its first statements.

        Raises DataDependentControlFlow where the program cannot be run early, RaisedEarly where it raises.
        """
        values = tuple(self.value(o, end) if is_proxy(o) else o for o in operands)
        with _errors_of_program():
            return answer_to(question, values)

    def value(self, proxy: Any, end: int | None = None) -> Any:
        """Return the value of a proxy, of the first statements or all; raises as :meth:`answer` does."""
        if isinstance(proxy, SymbolicNumber):
            return proxy.hint  # the program is run for the inputs of this call
        self._advance(end)
        value = self._values.get(proxy.name, _UNKNOWN)
        if value is _UNKNOWN:
            raise _refusal("no part of it computes the value", proxy.name)
        return value

    def read_inputs(self, count: int) -> list[Any]:
        """Return the first inputs of the call, read again."""
        return [path.fetch(self._roots) for _, path in self._inputs[:count]]

    def run_once(self, function: Callable[[list[Any]], Any], operands: Iterable[TensorProxy]) -> Any:
        """Return what a function returns for values of the program so far, with the random numbers there."""
        self._advance()
        values = [self._values[operand.name] for operand in operands]
        others = [t for t in (*self._values.values(), *self._originals) if _has_version(t)]
        computing = [v for v in values if isinstance(v, torch.Tensor) and not is_modelled(v)]
        versions, outer = [t._version for t in others], [_version_of(t) for t in computing]
        with self._at_state():
            try:
                result = function(values)
            except ThunderError:
                raise
            except Exception as error:
                raise RaisedEarly(error) from error
        # a write within ``__torch_dispatch__`` counts for the outer tensor alone
        written = [t for t, v in zip(computing, outer, strict=True) if _version_of(t) != v]
        memory = {part.untyped_storage().data_ptr() for t in written for part in parts_of(t)}
        shared = any(t.untyped_storage().data_ptr() in memory for t in others if memory and t.numel())
        if shared or versions != [t._version for t in others]:
            raise UnsupportedProgram(
                "code that runs as it is writes in place to memory of a tensor that the program has read",
                hint="Read the tensor after the write, or clone it before.",
            )
        return result

    def compute(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what a function without effects returns for values of the program so far."""
        self._advance()

        def value(leaf: Any) -> Any:
            if isinstance(leaf, SymbolicNumber):
                return leaf.hint
            if is_proxy(leaf):
                return self._values[leaf.name]
            if isinstance(leaf, dtype):
                return to_torch_dtype(leaf)
            return to_torch_device(leaf) if isinstance(leaf, Device) else leaf

        args, kwargs = tree_map(value, (args, kwargs))
        with _errors_of_program(), torch.no_grad(), autocast_as(OFF):
            return function(*args, **kwargs)

    def note(self, results: Mapping[str, Any]) -> None:
        """Note the results of a statement that is not to be run, by name."""
        self._noted |= results
        self._values |= results
        self._done |= results.keys()

    def note_copy(self, value: TensorProxy, copy: TensorProxy) -> None:
        """Note that a call which has run computes ``copy``, of which ``value`` is now computed."""
        if value.name in self._done and value.name in self._values:
            self._values[copy.name] = self._values[value.name]
            self._done.add(copy.name)

    def drop(self, value: TensorProxy) -> None:
        """Drop a value, which a later call computes again."""
        self._values.pop(value.name, None)
        self._noted.pop(value.name, None)
        self._done.discard(value.name)

    def has_computed(self, value: TensorProxy) -> bool:
        """Return whether the call that computes a value has run."""
        return value.name in self._done

    def begin_again(self) -> bool:
        """Let the next question run the program from its beginning, since calls that ran were replaced.

        Returns whether that is possible: not where results that cannot be computed again may be overwritten.
        """
        if self._noted and self._copies_inputs:
            return False
        self._copies = _Copies()
        self._begin()
        return True

    def _advance(self, end: int | None = None) -> None:
        """Run the calls that have been recorded since the last question, up to a position."""
        recorded = self._trace.bound_symbols[:end]
        calls = self._new_calls(recorded)
        if not self._copies_inputs and any(has_tags(b, {OpTags.IN_PLACE}) for b in calls):
            self._copies_inputs = True
            self._begin()
            calls = self._new_calls(recorded)
        for call in calls:
            _refuse_effects(call)
        self._adopt_inputs()
        with self._drawing(calls), _errors_of_program():
            for call in calls:
                evaluate_calls(_computing((call,)), self._values)
                self._done.update(p.name for b in with_parts((call,)) for p in b.flat_proxy_outs)
                self._ran[id(call)] = call
        self._position, self._last = len(recorded), recorded[-1] if recorded else None

    def _new_calls(self, recorded: Sequence[BoundSymbol]) -> list[BoundSymbol]:
        """Return the calls among these that have been recorded since the last question, and are to be run."""
        start = self._position
        if not (0 < start <= len(recorded) and recorded[start - 1] is self._last):
            start = 0  # a part was taken out of the trace, and perhaps recorded again as one call
        return [b for b in recorded[start:] if not _is_skipped(b) and not self._has_run(b)]

    def _has_run(self, bsym: BoundSymbol) -> bool:
        arguments = {p.name for p in bsym.flat_proxy_args}
        names = {p.name for p in bsym.flat_proxy_outs} - arguments
        if not names:  # it writes in place
            names = {p.name for b in with_parts(bsym.subsymbols) for p in b.flat_proxy_outs} - arguments
        return names <= self._done if names else id(bsym) in self._ran

    def _adopt_inputs(self) -> None:
        for proxy, path in self._inputs[self._adopted :]:
            value = path.fetch(self._roots)
            if isinstance(proxy, TensorProxy):
                if value.device.type == "meta" or type(value) is torch._subclasses.FakeTensor:
                    raise _refusal("its inputs have no data", proxy.name)
                self._originals.append(value)
                if self._copies_inputs and not isinstance(proxy, UnmodelledProxy):
                    value = self._copies.of(value)
            elif isinstance(value, torch.Generator) and value is not torch.default_generator:
                value = value.clone_state()
            self._values[proxy.name] = value
        self._adopted = len(self._inputs)

    @contextlib.contextmanager
    def _drawing(self, calls: Iterable[BoundSymbol]) -> Iterator[None]:
        """Let the calls draw from the default generators as the whole program will; then restore these."""
        if not any(not _DRAWING.isdisjoint(b.tags) for b in with_parts(calls)):
            yield
            return
        with self._at_state():
            yield

    @contextlib.contextmanager
    def _at_state(self) -> Iterator[None]:
        """Let the default generators be as the program so far leaves them; then restore these."""
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
        with torch.random.fork_rng(devices):
            if self._states is not None:
                torch.set_rng_state(self._states[0])
                for device, state in zip(devices, self._states[1:], strict=True):
                    torch.cuda.set_rng_state(state, device)
            yield
            self._states = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, devices)]


def _version_of(t: torch.Tensor) -> int:
    with torch._C.DisableTorchFunctionSubclass():
        return 0 if t.is_inference() else t._version


def _has_version(x: Any) -> bool:
    return (
        type(x) in (torch.Tensor, torch.nn.Parameter) and x.layout is torch.strided and not x.is_inference()
    )


def _computing(calls: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    """Yield the calls, or for a composite without a torch function its parts, without skipped statements."""
    for call in calls:
        row = row_of(call.sym)
        if call.subsymbols and (row is None or row.eager is None):
            yield from _computing(call.subsymbols)
        elif not _is_skipped(call):
            yield call


class _Copies:
    """Copies of tensors, of which those that share memory are copied to shared memory."""

    def __init__(self) -> None:
        self._storages: dict[int, Any] = {}

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the copy of a tensor."""
        with torch.no_grad(), torch._C.DisableTorchFunction():
            if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
                return tensor.detach().clone()
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._storages:
                self._storages[key] = storage, storage.clone()
            copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            return copy.set_(self._storages[key][1], tensor.storage_offset(), tensor.size(), tensor.stride())


@contextlib.contextmanager
def _errors_of_program() -> Iterator[None]:
    """Raise RaisedEarly for what an operator raises on these values. Modes of the program do not see it."""
    try:
        with torch._C.DisableTorchFunction():
            yield
    except DecisionChanged as change:  # executors round differently: Python runs the call
        raise RaisedEarly(
            _refusal("the early run computes other sizes than the compiled program", str(change.answer))
        ) from None
    except InternalError:
        raise
    except ThunderError as error:
        raise _refusal("a part of it has no torch function", str(error)) from error
    except Exception as error:
        raise RaisedEarly(error) from error


def _refuse_effects(call: BoundSymbol) -> None:
    """Refuse a call that must not run once more than in eager."""
    for bsym in with_parts((call,)):
        if bsym.sym.id in _FROM_ENTROPY:
            raise _refusal("a seed of it is drawn from the operating system", bsym.sym.id)
        if "c10d" in bsym.sym.id:
            raise _refusal("another process takes part in it", bsym.sym.id)
        effects = KEPT - {OpTags.RANDOM_OP} if OpTags.FALLBACK in bsym.tags else KEPT
        if is_opaque(bsym) and not effects.isdisjoint(bsym.tags):
            raise _refusal("it has called an operator with effects", bsym.sym.id)


def _refusal(why: str, found: str) -> DataDependentControlFlow:
    return DataDependentControlFlow(
        f"the program asks for the data of a tensor, and cannot be run up to here: {why}",
        found={"found": found},
        hint="Use torch.where or another tensor operation, or move the test out of the compiled function.",
    )


#: in place of a value
_UNKNOWN: Final = object()
#: statements that compute nothing, and what has run when the program called it
_SKIPPED: Final = STRUCTURAL | {RUN_OPAQUE}
_SKIPPED_TAGS: Final = frozenset({OpTags.SETS_MODE, OpTags.SKIPPED_EARLY})
_FROM_ENTROPY: Final = frozenset({prims.seed_from_entropy.id, prims.seed_generator_from_entropy.id})
#: tags of operators that may draw random numbers
_DRAWING: Final = frozenset({OpTags.RANDOM_OP, OpTags.FALLBACK})


def _is_skipped(bsym: BoundSymbol) -> bool:
    """Return whether a call computes nothing that an early run needs."""
    return bsym.sym.id in _SKIPPED or not _SKIPPED_TAGS.isdisjoint(bsym.tags)
