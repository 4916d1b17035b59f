"""Pattern functions as graphs: traced for guessed arguments, then for those of a place in a program.

Note [Two traces of a pattern]
What a function records depends on its arguments: `x.float()` records nothing for a float32 tensor, and
`x.shape[-1]` is a constant. A pattern is therefore traced twice. The first trace has guessed arguments; with
casts, broadcasts and constants left out, it shows where the arguments of a possible match are. The second has
the metadata of these arguments, and the match is one if the program computes exactly what it records.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from thunder.core.analysis import SymbolicNumber, has_effect
from thunder.core.devices import Device, to_torch_device
from thunder.core.dtypes import dtype, to_torch_dtype
from thunder.core.errors import PluginError
from thunder.core.interpreter import Machine, Policy
from thunder.core.langctxs import TORCH, using_language
from thunder.core.proxies import TensorProxy, is_proxy
from thunder.core.rewrite import recorded_by
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, tracectx
from thunder_transforms.rewriting.expression_graph import (
    Expression,
    ExpressionGraph,
    merged,
    reachable,
    through,
)
from thunder_transforms.rewriting.rewrite_rules import RewriteRule

#: the length of all dimensions of guessed tensors
_LENGTH = 6
_DTYPES = (torch.float32, torch.int64, torch.bool)
_MOST_GUESSES = 600


class IntVariable(int):
    """A number in a first trace, found in it by identity."""


@dataclass(frozen=True, eq=False)
class TracedPattern:
    """The calls that a pattern records for some arguments.

    `inputs` has an expression for each parameter that is a tensor, and `numbers` the value of each other one.
    """

    graph: ExpressionGraph
    inputs: dict[str, Expression]
    numbers: dict[str, Any]
    outputs: tuple[Expression, ...]
    is_tuple: bool
    statements: frozenset[int]

    @property
    def labels(self) -> frozenset[tuple[str, ...]]:
        """The primitives of the statements that compute the outputs; without casts and broadcasts."""
        return self.graph.labels_of(self.statements)

    @property
    def root(self) -> str:
        """The primitive that computes the first output."""
        return merged(through(self.outputs[0]))

    def is_written_cast(self, value: Expression) -> bool:
        """Return whether the pattern writes this cast, which no operator has added."""
        return not self.graph.labels[value.statement]


class _TorchTypes(Policy):
    """Interprets a function with torch's dtypes and devices where it reads those of a proxy.

    `x.to(y.dtype)` then has a dtype that torch's parser takes.
    """

    def native_get(self, descriptor: Any, obj: Any, owner: type, name: str) -> Any:
        """Return an attribute of an object."""
        value = super().native_get(descriptor, obj, owner, name)
        if isinstance(value, dtype):
            return to_torch_dtype(value)
        return to_torch_device(value) if isinstance(value, Device) else value

    def is_native(self, fn: FunctionType) -> bool:
        """Return whether a function is torch's or thunder's, and runs as it is."""
        return str(fn.__module__).partition(".")[0] in ("torch", "thunder")


def record(
    fn: Callable[..., Any], args: Sequence[Any], trace: TraceCtx, *, grad: bool
) -> tuple[list[BoundSymbol], Any]:
    """Return what `fn(*args)` records into a scope of its own, and its result."""
    with using_language(TORCH), torch.set_grad_enabled(grad):
        return recorded_by(trace, Machine(_TorchTypes()).call, fn, tuple(args), {})


def outputs_of(result: Any) -> tuple[Any, ...]:
    """Return the results of a pattern or a replacement as a tuple."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def _traced(rule: RewriteRule, make_arguments: Callable[[], Sequence[Any]], *, grad: bool) -> TracedPattern:
    trace = TraceCtx()
    with tracectx(trace):
        args = make_arguments()
    bsyms, result = record(rule.pattern, args, trace, grad=grad)
    graph = ExpressionGraph(bsyms)
    named = dict(zip(rule.parameters, args, strict=True))
    inputs = {name: graph.value(p) for name, p in named.items() if isinstance(p, TensorProxy)}
    numbers = {name: value for name, value in named.items() if name not in inputs}
    results = outputs_of(result)
    computed = {p.name for b in bsyms for p in b.flat_proxy_outs}
    for value in results:
        if not isinstance(value, TensorProxy) or value.name not in computed:
            raise _Unusable(f"returns {value!r}, which is not a tensor that it computes")
    outputs = tuple(graph.value(p) for p in results)
    used = reachable(outputs, lambda value: value.op is None)
    return TracedPattern(
        graph,
        inputs,
        numbers,
        outputs,
        isinstance(result, tuple | list),
        frozenset(value.statement for value in used),
    )


class _Unusable(Exception):
    """The reason why a pattern cannot be matched anywhere."""


# -- the first trace


_skeletons: weakref.WeakKeyDictionary[RewriteRule, TracedPattern] = weakref.WeakKeyDictionary()


def skeleton(rule: RewriteRule) -> TracedPattern:
    """Return the pattern traced for guessed arguments.

    Raises PluginError if it cannot be traced, or cannot be matched: it has effects, returns something else
    than tensors that it computes, or does not use an argument.
    """
    if rule not in _skeletons:
        try:
            traced = _first_trace(rule)
            _check_usable(rule, traced)
        except _Unusable as reason:
            raise PluginError(f"the pattern of rewrite {rule.name!r} {reason}").blame(rule.origin) from None
        _skeletons[rule] = traced
    return _skeletons[rule]


def _first_trace(rule: RewriteRule) -> TracedPattern:
    first: Exception | None = None
    for guess in itertools.islice(_guesses(rule), _MOST_GUESSES):
        try:
            return _traced(rule, guess, grad=False)
        except _Unusable:
            raise
        except Exception as error:  # the function of a package does not take what was guessed
            first = first or error
    raise PluginError(
        f"the pattern of rewrite {rule.name!r} cannot be traced: {type(first).__name__}: {first}",
        hint="Pass examples=, arguments that it takes: meta tensors and numbers.",
    ).blame(rule.origin) from first


def _guesses(rule: RewriteRule) -> Iterator[Callable[[], Sequence[Any]]]:
    """Yield functions that make the arguments of a first trace, the likelier ones first."""
    if rule.examples is not None:
        yield lambda: [_example(x) for x in rule.examples or ()]
        return
    types = list(rule.parameters.values())
    ranks = sorted(itertools.product((2, 3, 4, 1, 0), repeat=types.count(None)), key=lambda r: len(set(r)))
    for kinds in sorted(
        itertools.product(_DTYPES, repeat=types.count(None)),
        key=lambda d: sum(x is not torch.float32 for x in d),
    ):
        for rank in ranks:
            for ints in itertools.product((-1, 1, 0, 2, 3), repeat=types.count(int)):
                yield lambda kinds=kinds, rank=rank, ints=ints: _guessed(types, kinds, rank, ints)  # type: ignore[misc]


def _example(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return TensorProxy(like=value, device=torch.device("cpu"))
    return IntVariable(value) if type(value) is int else value


def _guessed(
    types: Sequence[type | None],
    dtypes: Sequence[torch.dtype],
    ranks: Sequence[int],
    ints: Sequence[int],
) -> list[Any]:
    tensors, whole = iter(zip(ranks, dtypes, strict=True)), iter(ints)
    args: list[Any] = []
    for position, number in enumerate(types):
        if number is None:
            rank, kind = next(tensors)
            args.append(TensorProxy(shape=(_LENGTH,) * rank, device="cpu", dtype=kind))
        elif number is float:
            args.append(0.2310 + 0.0371 * position)  # a number that no pattern contains
        else:
            args.append(IntVariable(next(whole)))
    return args


def _check_usable(rule: RewriteRule, traced: TracedPattern) -> None:
    effect = next((b for b in traced.graph.bsyms if has_effect(b)), None)
    if effect is not None:
        raise _Unusable(f"has an effect: {effect.line}")
    if rule.root not in (None, traced.root):
        raise _Unusable(f"ends with {traced.root}, and root= is {rule.root}")
    used = reachable(traced.outputs, lambda value: False)
    unused = [name for name, value in traced.inputs.items() if value not in used]
    unused += [name for name in traced.numbers if not _occurs(traced, name)]
    if unused:
        raise _Unusable(f"has the parameter {unused[0]!r}, which no call of it takes as it is")


def _occurs(traced: TracedPattern, name: str) -> bool:
    leaves = [leaf for bsym in traced.graph.bsyms for leaf in _all_leaves(bsym)]
    return any(is_variable(leaf, traced.numbers[name]) for leaf in leaves)


def _all_leaves(bsym: BoundSymbol) -> Iterator[Any]:
    yield from bsym.flat_args
    for sub in bsym.subsymbols:
        yield from _all_leaves(sub)


def is_variable(leaf: Any, value: Any) -> bool:
    """Return whether an argument in a first trace is the number that was passed for a parameter."""
    if isinstance(value, IntVariable):
        return leaf is value
    return type(leaf) is float and leaf == value


# -- the second trace


_specialised: weakref.WeakKeyDictionary[RewriteRule, dict[Any, TracedPattern | None]] = (
    weakref.WeakKeyDictionary()
)


def specialised(rule: RewriteRule, args: Sequence[Any], *, grad: bool) -> TracedPattern | None:
    """Return the pattern traced for tensors with this metadata and these numbers; None if it fails.

    The graph is that of other proxies: `inputs` has them by parameter. A pattern for symbolic sizes is traced
    for each place, since what it asks about them are facts of the program.
    """
    if any(isinstance(number, SymbolicNumber) for number in numbers_of(args)):
        return _traced_if_possible(rule, args, grad=grad)
    cache = _specialised.setdefault(rule, {})
    key = (grad, *(_metadata(arg) for arg in args))
    if key not in cache:
        if len(cache) >= 1024:
            cache.clear()
        cache[key] = _traced_if_possible(rule, args, grad=grad)
    return cache[key]


def numbers_of(args: Sequence[Any]) -> Iterator[Any]:
    """Yield the numbers among arguments, and the sizes and strides of tensors."""
    for arg in args:
        yield from (*arg.shape, *(arg.strides or ())) if isinstance(arg, TensorProxy) else (arg,)


def _traced_if_possible(rule: RewriteRule, args: Sequence[Any], *, grad: bool) -> TracedPattern | None:
    try:
        return _traced(rule, lambda: [_stand_in(arg) for arg in args], grad=grad)
    except Exception:  # the pattern does not take such arguments, so there is no match
        return None


def _metadata(arg: Any) -> Any:
    if isinstance(arg, TensorProxy):
        return arg.shape, arg.dtype, arg.device, arg.strides, arg.requires_grad
    return ("proxy", arg.name) if is_proxy(arg) else (type(arg), repr(arg))


def _stand_in(arg: Any) -> Any:
    return TensorProxy(like=arg, strides=arg.strides) if isinstance(arg, TensorProxy) else arg
