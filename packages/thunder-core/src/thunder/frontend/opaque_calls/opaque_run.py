"""One run of an opaque callable: on tensors of a call, with torch's graph of its own.

Note [Opaque calls]

    y = x * 2                      t0 = mul(x, 2)
    z = library.fn(y, n=3)    →    (z,) = run_opaque(library.fn, (t0,))     # library.fn runs, at each call
    return z + 1                   t2 = add(z, 1)

The callable receives tensors that are cut off from the graph of the program. What torch records of it is its
gradient: the rule saves that graph for the backward. Tensors that it reads by itself, such as the parameters
of a layer, are further inputs of the statement, so that their gradients flow too.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from thunder.base import opaque_results
from thunder.base.autocast_state import AutocastState, autocast_as
from thunder.base.equal_values import same_leaf
from thunder.base.errors import DecisionChanged, UnsupportedProgram
from thunder.base.provenance import outer_metadata
from thunder.base.pytree import tree_flatten
from thunder.frontend.custom_gradients.eager_backward import RecordedBackward
from thunder.frontend.custom_gradients.rebuilding import Maker
from thunder.frontend.objects.tensor_classes import TORCH_CLASSES
from thunder.frontend.objects.unmodelled_tensors import is_modelled, scalar_metadata
from thunder.ir.proxies import TensorProxy
from thunder.ir.unmodelled_proxies import UnmodelledObject, UnmodelledProxy

__all__ = [
    "VALUES",
    "EarlierResult",
    "MadeObject",
    "OpaqueCall",
    "OpaqueRun",
    "PassedTensor",
    "Raised",
    "ThisResult",
    "class_named_after",
    "without_graph",
]


@dataclass(frozen=True)
class PassedTensor:
    """A result that is a tensor which the callable was passed, by its place among them."""

    place: int


@dataclass(frozen=True)
class Raised:
    """A result that says which error was raised, for a program that may handle it; ``error`` itself, once."""

    kind: type
    text: str
    error: BaseException | None = field(compare=False)


@dataclass(eq=False)
class OpaqueRun:
    """The inputs and results of one run.

    ``states`` are those of the generators afterwards, if it drew; ``changes_inputs`` says whether it has
    changed which tensors and numbers the program takes.
    """

    inputs: list[torch.Tensor]
    leaves: list[Any]
    spec: Any
    states: torch.Tensor | None
    changes_inputs: bool = False

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The results that are tensors."""
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]

    @property
    def values(self) -> list[Any]:
        """The results that are values of the trace, without torch's graph."""
        return [
            without_graph(leaf) if isinstance(leaf, torch.Tensor) else leaf.obj
            for leaf in self.leaves
            if isinstance(leaf, torch.Tensor | MadeObject)
        ]

    @property
    def signature(self) -> tuple[Any, ...]:
        """The metadata of tensors and the other results, on which the rest of the program depends."""
        return repr(self.spec), *map(_description, self.leaves)


@dataclass(frozen=True)
class EarlierResult:
    """A result that an earlier call of the program has returned, by the number of the call, and its place."""

    call: int
    place: int


@dataclass(frozen=True, eq=False)
class ThisResult:
    """A result that is an object with an identity, not a value."""

    obj: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ThisResult) and other.obj is self.obj

    def __hash__(self) -> int:
        return id(self.obj)


@dataclass(frozen=True, eq=False)
class MadeObject:
    """A result that is an object of a package, which each call makes anew."""

    obj: Any


@dataclass(frozen=True)
class ResultObject:
    """The class of such a result."""

    seen_class: type
    requires_grad: bool = False

    def proxy(self) -> UnmodelledObject:
        """Return a proxy of the result."""
        return UnmodelledObject(self.seen_class)


@dataclass(frozen=True)
class ResultTensor:
    """The metadata of a result, and what a proxy of it is made of.

    ``leaf`` is the result itself, if it is a leaf of torch's graph that requires grad.
    """

    metadata: tuple[Any, ...]
    requires_grad: bool
    seen_class: type
    leaf: ThisResult | None
    is_modelled: bool
    proxied: dict[str, Any] = field(compare=False)

    @classmethod
    def of(cls, t: torch.Tensor) -> ResultTensor:
        """Return the metadata of a tensor; a leaf that requires grad is the same tensor in each call."""
        with torch._C.DisableTorchFunctionSubclass():
            needed, modelled = t.requires_grad, is_modelled(t)
            leaf = ThisResult(t) if needed and t.is_leaf else None
            if modelled:
                proxied = {
                    "shape": tuple(t.shape),
                    "strides": t.stride(),
                    "dtype": t.dtype,
                    "device": t.device,
                }
                return cls((*proxied.values(),), needed, type(t), leaf, True, proxied)
            return cls(outer_metadata(t), needed, type(t), leaf, False, scalar_metadata(t))

    def proxy(self) -> TensorProxy:
        """Return a proxy of the result, which does not require grad unless the result does."""
        needed = None if self.requires_grad else False
        if self.is_modelled:
            return TensorProxy(**self.proxied, requires_grad=needed)
        return UnmodelledProxy.of(self.seen_class, self.metadata[-1], **self.proxied, requires_grad=needed)


def without_graph(t: torch.Tensor) -> torch.Tensor:
    """Return a tensor cut off from torch's graph: one that thunder does not model as it is, if it may be."""
    return t.detach() if t.requires_grad or is_modelled(t) else t


def _description(leaf: Any) -> Any:
    if isinstance(leaf, Raised):
        return replace(leaf, error=None)
    if isinstance(leaf, torch.Tensor):
        return ResultTensor.of(leaf)
    return ResultObject(type(leaf.obj)) if isinstance(leaf, MadeObject) else leaf


class OpaqueCall:
    """An opaque call of a program.

    Args:
        name: the full name of the callable.
        make: from the tensors of a call, they build the callable, its arguments and its keywords.
        requires_grad: one bool for each of these tensors.
        number: counts the opaque calls of the program.
        index: counts its decisions.
        grad_mode, autocast: the modes at the place of the call.
        is_pure: whether the callable depends on its arguments alone, and returns new memory.

    ``signature`` is that of the results; ``changed`` returns what the callable has changed of the state that
    the program depends on, or None. Both are set when the program has been traced. ``read_inputs`` returns
    the tensors and numbers that the program takes as inputs, read again.
    """

    def __init__(
        self,
        name: str,
        *,
        make: Sequence[Maker],
        requires_grad: Sequence[bool],
        number: int,
        index: int,
        grad_mode: bool,
        autocast: AutocastState,
        is_pure: bool,
    ) -> None:
        self.name, self.make, self.requires_grad = name, make, requires_grad
        self.number, self.index = number, index
        self.grad_mode, self.autocast, self.is_pure = grad_mode, autocast, is_pure
        self.signature: tuple[Any, ...] = ()
        self.changed: Callable[[], str | None] = _nothing
        self.read_inputs: Callable[[], list[Any]] = list

    def __repr__(self) -> str:
        return f"<opaque {self.name}>"

    @property
    def results(self) -> list[ResultTensor | ResultObject]:
        """The metadata of the results that are values of the trace."""
        return [part for part in self.signature[1:] if isinstance(part, ResultTensor | ResultObject)]

    def run(self, tensors: Sequence[torch.Tensor]) -> OpaqueRun:
        """Run the callable, or return its results, or raise its error, if it has run in this call.

        Raises UnsupportedProgram for results that a program cannot use, and for writes to arguments.
        """
        if self.number == 0:
            opaque_results.begin()
        finished: OpaqueRun | Exception | None = opaque_results.take()
        if finished is None:
            try:
                finished = self._run(tensors[: len(self.requires_grad)])
            except Exception as error:
                opaque_results.add(error)
                raise
            opaque_results.add(finished)
        elif isinstance(finished, Exception):
            raise finished
        elif finished.states is not None:
            torch.set_rng_state(finished.states)
        return finished

    def checked_run(self, tensors: Sequence[torch.Tensor]) -> OpaqueRun:
        """Run the callable in a compiled program.

        Raises DecisionChanged for results with other metadata or values than the program was traced with.
        """
        finished = self.run(tensors)
        if not same_leaf(finished.signature, self.signature):
            raise DecisionChanged(self.index, finished.signature)
        self.refuse_changes(finished.changes_inputs)
        return finished

    def refuse_changes(self, inputs: bool) -> None:
        """Refuse a callable that has changed what the program depends on, or ``inputs`` of it."""
        changed = "inputs of the program" if inputs else self.changed()
        if changed is not None:
            raise UnsupportedProgram(
                f"the opaque callable {self.name} has changed the {changed}, on which the program depends",
                hint="Mark the function that reads it opaque too, or pass the value as a tensor.",
            )

    def _run(self, tensors: Sequence[torch.Tensor]) -> OpaqueRun:
        inputs = [_cut_off(t, needed) for t, needed in zip(tensors, self.requires_grad, strict=True)]
        rebuilt: dict[int, Any] = {}
        fn, args, kwargs = (maker(inputs, rebuilt) for maker in self.make)
        followed = [t for t in inputs if _is_followed(t) and not t.is_inference()]
        versions = [t._version for t in followed]
        before, taken = torch.get_rng_state(), self.read_inputs()
        with torch.set_grad_enabled(self.grad_mode), autocast_as(self.autocast), opaque_results.inside():
            result = fn(*args, **kwargs)
        if versions != [t._version for t in followed]:
            raise self._refusal("writes in place to a tensor that it is passed", "Write to a clone.")
        leaves, spec = tree_flatten(result)
        places = {id(t): i for i, t in enumerate(inputs)}
        leaves = [
            PassedTensor(places[id(_raw(leaf))]) if id(_raw(leaf)) in places else _earlier(leaf)
            for leaf in leaves
        ]
        after = torch.get_rng_state()
        finished = OpaqueRun(inputs, leaves, spec, None if torch.equal(before, after) else after)
        finished.changes_inputs = not all(map(_is_same, taken, self.read_inputs()))
        self._refuse_unusable(finished)
        return finished

    def _refuse_unusable(self, run: OpaqueRun) -> None:
        memory = {t.untyped_storage().data_ptr() for t in run.inputs if _is_followed(t) and t.numel()}
        for leaf in run.leaves:
            if isinstance(leaf, torch.Tensor):
                if not is_modelled(leaf):
                    continue
                if type(leaf) not in TORCH_CLASSES:
                    raise self._refusal(f"returns a tensor of type {type(leaf).__name__}", _RETURN)
                if leaf.numel() and leaf.untyped_storage().data_ptr() in memory:
                    raise self._refusal("returns memory of a tensor that it is passed", "Return a clone.")
            elif type(leaf) not in VALUES:
                raise self._refusal(f"returns an object of type {type(leaf).__qualname__}", _RETURN)

    def _refusal(self, what: str, hint: str) -> UnsupportedProgram:
        return UnsupportedProgram(f"the opaque callable {self.name} {what}", hint=hint)

    def recorded(self, run: OpaqueRun, tensors: Sequence[torch.Tensor]) -> RecordedBackward:
        """Return torch's graph of a run, from the tensors of the statement to the differentiable results."""
        read = list(tensors[len(self.requires_grad) :])
        results = tuple(t for t in run.tensors if t.requires_grad)
        return RecordedBackward(self.name, [*run.inputs, *read], results)


@functools.cache
def class_named_after(name: str) -> type[OpaqueCall]:
    """Return the class of the calls of one callable: the text of a trace names objects after their class."""
    return type("opaque_" + re.sub(r"\W+", "_", name).strip("_"), (OpaqueCall,), {})


def _nothing() -> None:
    """Return that nothing has changed."""


VALUES = (
    int,
    float,
    complex,
    bool,
    str,
    bytes,
    type(None),
    torch.dtype,
    torch.device,
    torch.Size,
    torch.layout,
    torch.memory_format,
    torch.qscheme,
    types.EllipsisType,
    PassedTensor,
    Raised,
    EarlierResult,
    ThisResult,
    MadeObject,
)
_RETURN = "Return tensors, numbers, strings, and tuples, lists and dicts of them."


def _is_same(a: Any, b: Any) -> bool:
    """Return whether an input that was read twice is one; an array is another tensor each time."""
    if a is b or (type(a) in (int, float) and same_leaf(a, b)):
        return True
    return _is_followed(a) and _is_followed(b) and _memory(a) == _memory(b)


def _memory(t: torch.Tensor) -> tuple[Any, ...]:
    return t.data_ptr(), t.shape, t.stride(), t.dtype, t.requires_grad


def _raw(leaf: Any) -> Any:
    return leaf.obj if isinstance(leaf, MadeObject) else leaf


def _earlier(leaf: Any) -> Any:
    """Return a result, or where to find the tensor or object that an earlier call has returned."""
    if isinstance(leaf, torch.Tensor | MadeObject):
        for number, run in enumerate(opaque_results.finished()):
            for place, other in enumerate(run.leaves if isinstance(run, OpaqueRun) else ()):
                if _raw(other) is _raw(leaf):
                    return EarlierResult(number, place)
    return leaf


def _is_followed(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and is_modelled(x)


def _cut_off(t: Any, requires_grad: bool) -> Any:
    if not isinstance(t, torch.Tensor) or (not requires_grad and not is_modelled(t)):
        return t
    cut = t.detach()
    return cut.requires_grad_() if requires_grad else cut
