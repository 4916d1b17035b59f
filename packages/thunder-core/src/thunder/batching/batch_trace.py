"""The pass that batches a program: each call of one example becomes calls for all examples.

    def example(x, w):                def batch(x, w):                   # x: (B, 3), w: (4, 3)
        t0 = ltorch.sin(x)                t0 = ltorch.sin(x)             # (B, 3)
        t1 = ltorch.linear(t0, w)   →     t1 = prims.linear(t0, w, None) # (B, 4)
        return t1                         return t1

As in functorch's and JAX's ``vmap`` (the JAX authors: Autodidax, part 1), a value either has a batch as its
first dimension, or is the same for all examples. A call without batched arguments is recorded as it is. For
others, the first of these that applies:

1. the rule of the operator (``batch`` of its row);
2. an elementwise composite is called with the batched arguments;
3. the calls that the operator decomposes into are batched;
4. the call is recorded once for each example, and the results are stacked, as functorch's fallback does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from thunder.base.errors import OperatorError, PluginError, UnsupportedProgram
from thunder.base.extension_origin import is_of_core, origin_of
from thunder.base.plugin_calls import plugin_call
from thunder.base.tags import OpTags
from thunder.batching.elementwise_calls import call_again
from thunder.ir.decomposition import with_decomposition
from thunder.ir.effects import KEPT
from thunder.ir.evaluation import eval_calls
from thunder.ir.proxies import TensorProxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.substitution import substitute_in_tree
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.ir.trace import TraceCtx, get_tracectx
from thunder.ops import prims
from thunder.ops.batched_call import BatchedCall, BatchingRefused, BatchRule, arguments_of
from thunder.ops.extension_code import call_extension
from thunder.ops.operator import row_of
from thunder.ops.primitive_batching.batched_random import WithSameNumbers, check_randomness
from thunder.torch.namespace import ltorch

__all__ = ["Batching", "batch_trace"]

#: examples for which the calls of an operator without a rule are written one by one
MOST_EXAMPLES = 256


def batch_trace(
    program: TraceCtx, inputs: Sequence[Any], batched: Sequence[bool], size: int, randomness: str
) -> tuple[Any, frozenset[str]]:
    """Record the calls of a program of one example into the current trace, for ``size`` examples.

    ``inputs`` replace the program's arguments, in order; ``batched`` says which of them have a batch as their
    first dimension. Returns the program's result, with the names of the tensors in it that have one too.
    Raises OperatorError for a random operator under ``randomness="error"``, UnsupportedProgram for a call
    that cannot be batched.
    """
    batching = Batching(size, randomness)
    same_for_all = {x.name for x, is_batched in zip(inputs, batched, strict=True) if not is_batched}
    for formal, actual, is_batched in zip(program.args, inputs, batched, strict=True):
        if is_batched and actual.name in same_for_all:  # one tensor, as a batch and as a whole
            actual = prims.shallow_copy(actual)
        batching.values[formal.name] = actual
        if is_batched:
            batching.batched.add(actual.name)
    result = batching.run(program.bound_symbols)
    return result, frozenset(p.name for p in proxies_in(result) if p.name in batching.batched)


class Batching:
    """The values of a program for all examples, as its calls are batched one after the other.

    ``values`` are those of the program's names. ``batched`` are the names of values that have a batch.
    """

    def __init__(self, size: int, randomness: str) -> None:
        self.size, self.randomness = size, randomness
        self.values: dict[str, Any] = {}
        self.batched: set[str] = set()

    def run(self, bsyms: Sequence[BoundSymbol]) -> Any:
        """Batch calls in order, and return the result of the program if they do."""
        return eval_calls(bsyms, self.values, lambda bsym: partial(self._results, bsym))

    def _results(self, bsym: BoundSymbol, *args: Any, **kwargs: Any) -> Any:
        """Record a call for all examples, and return its results."""
        has_batched = any(p.name in self.batched for p in proxies_in((args, kwargs)))
        is_random = _is_random(bsym)
        if not has_batched and (not is_random or self.randomness == "same"):
            return bsym.sym(*args, **kwargs)
        rule = _rule_of(bsym)
        if is_random and bsym.subsymbols and rule is None:
            return self._by_parts(bsym)
        if is_random and not (self.randomness == "same" and isinstance(rule, WithSameNumbers)):
            self._check_randomness(bsym, has_batched)
        result = self._by_rule(bsym, rule, args, kwargs)
        if result is NotImplemented:
            bsym = with_decomposition(bsym, _current_trace())
            if bsym.subsymbols:
                return self._by_parts(bsym)
            result = self._one_by_one(bsym, args, kwargs)
        self.batched.update(p.name for p in proxies_in(result))
        return result

    def _by_parts(self, bsym: BoundSymbol) -> Any:
        """Batch the calls of which one consists, and return its results."""
        self.run(bsym.subsymbols)
        return substitute_in_tree(bsym.output, self.values)

    def _by_rule(
        self, bsym: BoundSymbol, rule: BatchRule | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return the results by a rule, if there is one that applies."""
        call = BatchedCall(
            sym=bsym.sym,
            args=args,
            kwargs=kwargs,
            arguments=arguments_of(bsym.sym, args, kwargs),
            batched=self.batched,
            size=self.size,
            output=bsym.output,
            randomness=self.randomness,
        )
        if rule is not None and not is_of_core(rule):
            return self._by_rule_of_package(rule, call, bsym)
        candidates = [rule] if rule is not None else []
        if not bsym.sym.is_prim and rule is None:
            candidates.append(lambda c: call_again(c, bsym))
        for candidate in candidates:
            recorded: list[BoundSymbol] = []
            with _current_trace().recording_into(recorded):
                try:
                    result = candidate(call)
                except BatchingRefused:
                    raise
                except OperatorError:
                    result = NotImplemented
            if result is not NotImplemented and self._fits(bsym, result):
                for b in recorded:
                    _current_trace().record(b)
                return result
        return NotImplemented

    def _by_rule_of_package(self, rule: BatchRule, call: BatchedCall, bsym: BoundSymbol) -> Any:
        """Return the results by the rule that a package declares; raise PluginError for its faults."""
        with plugin_call(
            "a batching rule",
            lambda: origin_of(rule),
            found=lambda: {"call": bsym.line},
            where=bsym.locations,
            hint="A rule returns the results of all examples, with the batch as their first dimension.",
        ):
            result = call_extension(rule, (call,), {})
            if result is NotImplemented or self._fits(bsym, result):
                return result
            shown = ", ".join(getattr(p, "type_string", p.__class__)() for p in proxies_in(result))
            raise PluginError(
                f"the batching rule of {bsym.sym.id} returned results of other shapes or dtypes",
                found={"results": shown or repr(result), "examples": self.size, "call": bsym.line},
            ).blame(origin_of(rule))

    def _fits(self, bsym: BoundSymbol, result: Any) -> bool:
        """Return whether results have the shapes and dtypes of the examples' results, with a batch."""
        expected, actual = proxies_in(bsym.output), proxies_in(result)
        return len(expected) == len(actual) and all(
            isinstance(a, TensorProxy)
            and tuple(a.shape) == (self.size, *e.shape)
            and a.dtype is e.dtype
            and a.device is e.device
            for e, a in zip(expected, actual, strict=True)
        )

    def _check_randomness(self, bsym: BoundSymbol, has_batched: bool) -> None:
        try:
            check_randomness(self.randomness, has_batched)
        except OperatorError as error:
            raise error.add_locations(bsym.locations) from None

    def _one_by_one(self, bsym: BoundSymbol, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the stacked results of one call for each example."""
        _check_may_repeat(bsym, self.size)
        results = []
        for i in range(self.size):
            example = {p.name: _example(p, i) for p in proxies_in((args, kwargs)) if p.name in self.batched}
            its_args, its_kwargs = substitute_in_tree((args, kwargs), example)
            results.append(proxies_in(bsym.sym(*its_args, **its_kwargs)))
        stacked = [ltorch.stack(list(parts), 0) for parts in zip(*results, strict=True)]
        names = [p.name for p in proxies_in(bsym.output)]
        return substitute_in_tree(bsym.output, dict(zip(names, stacked, strict=True)))


def _rule_of(bsym: BoundSymbol) -> BatchRule | None:
    row = row_of(bsym.sym)
    if row is not None and row.batch is not None:
        return row.batch
    return _pointwise if bsym.sym.is_prim and OpTags.POINTWISE_OP in bsym.sym.tags else None


def _pointwise(c: BatchedCall) -> Any:
    """Batch an elementwise primitive, whose operands have one shape."""
    arguments = {name: c.full(x) for name, x in c.arguments.items()}
    return c.again(**arguments)


def _example(x: TensorProxy, index: int) -> TensorProxy:
    rest = x.shape[1:]
    start, end = (index, *(0 for _ in rest)), (index + 1, *rest)
    return prims.squeeze(prims.slice_prim(x, start, end), (0,))  # type: ignore[no-any-return]


def _check_may_repeat(bsym: BoundSymbol, size: int) -> None:
    """Refuse the repetition of a call that has an effect, or that is repeated too often."""
    outputs = proxies_in(bsym.output)
    why = None
    if not outputs or not all(isinstance(p, TensorProxy) for p in outputs):
        why = "its result is not a tensor"
    elif not (KEPT - {OpTags.RANDOM_OP}).isdisjoint(bsym.tags):
        why = "it has an effect, which eager has once for all examples"
    elif size > MOST_EXAMPLES:
        why = f"it has no batching rule, and {size} examples are too many for one call each"
    elif not size:
        why = "it has no batching rule, and there are no examples"
    if why is not None:
        raise UnsupportedProgram(
            f"vmap over a call of {bsym.sym.id}: {why}",
            found={"call": bsym.line},
            where=bsym.locations,
            hint="Call it outside of the mapped function, or give the operator a rule (batch= of its row).",
        )


def _is_random(bsym: BoundSymbol) -> bool:
    """Return whether a call draws random numbers: a primitive in it does."""
    return any(not b.subsymbols and OpTags.RANDOM_OP in b.tags for b in with_parts((bsym,)))


def _current_trace() -> TraceCtx:
    trace = get_tracectx()
    assert trace is not None, "batching records into a trace"
    return trace
