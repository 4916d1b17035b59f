"""Places in a program that compute what a pattern computes.

Note [Matching by data flow]
`_unified` walks from an output of the pattern's first trace and a value of the program down to the pattern's
parameters, without regard to casts, broadcasts and constants, and so finds the possible arguments. For each
choice of them, `_Comparison` compares the program with the pattern traced for these arguments: the same
primitives with the same shapes, dtypes and constants, in any order of commutative operands.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder.core import dtypes
from thunder.core.analysis import SymbolicNumber, are_same
from thunder.core.proxies import NumberProxy, TensorProxy
from thunder_transforms.rewriting.expression_graph import (
    CONVERT,
    FLOATS,
    Expression,
    ExpressionGraph,
    equal_constants,
    is_commutative,
    is_float_cast,
    merged,
    reachable,
    through,
)
from thunder_transforms.rewriting.pattern_functions import (
    TracedPattern,
    is_variable,
    numbers_of,
    skeleton,
    specialised,
)
from thunder_transforms.rewriting.rewrite_rules import RewriteRule

#: choices of arguments that are compared for one place
_MOST_CHOICES = 64


@dataclass(frozen=True, eq=False)
class RuleMatch:
    """One place where a rule applies.

    `args` are the arguments of the replacement, `outputs` the program's values that are replaced. `covered`
    are the positions of the statements that compute these from the arguments.
    """

    rule: RewriteRule
    args: tuple[Any, ...]
    outputs: tuple[Expression, ...]
    traced: TracedPattern
    covered: frozenset[int]
    grad: bool


def root_of(rule: RewriteRule) -> str:
    """Return the primitive that computes the first output of a rule's pattern, in a program that has it."""
    return rule.root or skeleton(rule).root


def find_matches(graph: ExpressionGraph, rule: RewriteRule) -> Iterator[RuleMatch]:
    """Yield the matches of a rule, at most one for each value, in the order of the program."""
    pattern = skeleton(rule)
    for value in list(graph.by_op.get(root_of(rule), ())):
        match = _match_at(graph, rule, pattern, value)
        if match is not None:
            yield match


def _match_at(
    graph: ExpressionGraph, rule: RewriteRule, pattern: TracedPattern, value: Expression
) -> RuleMatch | None:
    for binding in itertools.islice(_bindings(graph, pattern, value, rule.parameters), _MOST_CHOICES):
        if (
            binding.tensors.keys() == pattern.inputs.keys()
            and binding.numbers.keys() == pattern.numbers.keys()
        ):
            for exact in (True, False) if rule.casts == "through" else (True,):
                match = _with_arguments(graph, rule, pattern, binding, exact)
                if match is not None:
                    return match
    return None


# -- possible arguments


@dataclass(frozen=True)
class _Binding:
    """A partial assignment: expressions of the pattern to those of the program.

    `tensors` has for each parameter the values that it may be, the nearest first.
    """

    values: Mapping[Expression, Expression] = field(default_factory=dict)
    tensors: Mapping[str, tuple[Expression, ...]] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)


def _bindings(
    graph: ExpressionGraph, pattern: TracedPattern, value: Expression, types: Mapping[str, type | None]
) -> Iterator[_Binding]:
    """Yield the assignments in which the pattern's first output is `value`."""
    names = {expression: name for name, expression in pattern.inputs.items()}
    unifier = _Unifier(graph, pattern, names, types)
    first, *others = (through(output) for output in pattern.outputs)
    for binding in unifier.unified(first, value, _Binding()):
        yield from unifier.with_outputs(others, binding)


@dataclass(frozen=True)
class _Unifier:
    graph: ExpressionGraph
    pattern: TracedPattern
    names: Mapping[Expression, str]
    types: Mapping[str, type | None]

    def with_outputs(self, outputs: Sequence[Expression], binding: _Binding) -> Iterator[_Binding]:
        """Yield the extensions of a binding by further outputs of the pattern."""
        if not outputs:
            yield binding
            return
        first, *others = outputs
        places = (
            [binding.values[first]] if first in binding.values else self.graph.by_op.get(merged(first), ())
        )
        for place in places:
            for extended in self.unified(first, place, binding):
                yield from self.with_outputs(others, extended)

    def unified(self, wanted: Expression, value: Expression, binding: _Binding) -> Iterator[_Binding]:
        """Yield the extensions of a binding in which `wanted` of the pattern is `value`."""
        wanted = through(wanted)
        if wanted in self.names:
            tensors = self._with_tensor(self.names[wanted], value, binding)
            if tensors is not None:
                yield _Binding(binding.values, tensors, binding.numbers)
            return
        value = through(value)
        if wanted in binding.values:
            if binding.values[wanted] is value:
                yield binding
            return
        if value.op is None or merged(wanted) != merged(value) or wanted.output != value.output:
            return
        numbers = self._with_numbers(wanted, value, binding.numbers)
        if numbers is None:
            return
        binding = _Binding({**binding.values, wanted: value}, binding.tensors, numbers)
        yield from self._with_arguments(wanted.args, value.args, binding)
        if is_commutative(wanted.op) and all(isinstance(a, Expression) for a in (*wanted.args, *value.args)):
            yield from self._with_arguments(wanted.args, value.args[::-1], binding)

    def _with_tensor(
        self, name: str, value: Expression, binding: _Binding
    ) -> dict[str, tuple[Expression, ...]] | None:
        chain = [value]
        while chain[-1].op is not None and through(chain[-1]) is not chain[-1]:
            chain.append(chain[-1].operand)
        before = binding.tensors.get(name)
        possible = tuple(
            v
            for v in chain
            if v.visible and isinstance(v.proxy, TensorProxy) and (before is None or v in before)
        )
        return {**binding.tensors, name: possible} if possible else None

    def _with_arguments(
        self, wanted: Sequence[Any], args: Sequence[Any], binding: _Binding
    ) -> Iterator[_Binding]:
        pairs = _expression_pairs(tuple(wanted), tuple(args))
        if pairs is not None:
            yield from self._with_pairs(pairs, binding)

    def _with_pairs(
        self, pairs: Sequence[tuple[Expression, Expression]], binding: _Binding
    ) -> Iterator[_Binding]:
        if not pairs:
            yield binding
            return
        (wanted, value), *others = pairs
        for extended in self.unified(wanted, value, binding):
            yield from self._with_pairs(others, extended)

    def _with_numbers(
        self, wanted: Expression, value: Expression, numbers: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return the numbers that are arguments of a primitive, or of its statement, with those before."""
        pairs = list(_leaf_pairs(wanted.args, value.args))
        mine, its = self.pattern.graph.bsyms[wanted.statement], self.graph.bsyms[value.statement]
        if mine.sym.id == its.sym.id:
            pairs += _leaf_pairs((mine.args, mine.kwargs), (its.args, its.kwargs))
        found = dict(numbers)
        for leaf, number in pairs:
            for name, variable in self.pattern.numbers.items():
                if is_variable(leaf, variable):
                    number = _as_declared(self.types[name], number)
                    if number is None or not equal_constants(found.setdefault(name, number), number):
                        return None
        return found


def _as_declared(kind: type | None, number: Any) -> Any:
    """Return a number of a program as the parameter of a pattern takes it; None for one that it does not.

    A parameter that is annotated `int` takes whole numbers.
    """
    if isinstance(number, NumberProxy):
        return number if kind is not int or number.python_type is int else None
    if type(number) not in (int, float):
        return None
    if kind is int and type(number) is float:
        return int(number) if number.is_integer() else None
    return number


def _expression_pairs(a: Any, b: Any) -> list[tuple[Expression, Expression]] | None:
    """Return the pairs of expressions at the same places of two arguments; None if they do not correspond."""
    if isinstance(a, Expression) or isinstance(b, Expression):
        return [(a, b)] if isinstance(a, Expression) and isinstance(b, Expression) else None
    if not (isinstance(a, tuple) and isinstance(b, tuple)):
        return []
    if len(a) != len(b):
        return None if _has_expression(a) or _has_expression(b) else []
    pairs: list[tuple[Expression, Expression]] = []
    for x, y in zip(a, b, strict=True):
        inner = _expression_pairs(x, y)
        if inner is None:
            return None
        pairs += inner
    return pairs


def _has_expression(value: Any) -> bool:
    return isinstance(value, Expression) or (isinstance(value, tuple) and any(map(_has_expression, value)))


def _leaf_pairs(a: Any, b: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the pairs of leaves at the same places of two trees."""
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        if len(a) == len(b):
            for x, y in zip(a, b, strict=True):
                yield from _leaf_pairs(x, y)
    elif isinstance(a, dict) and isinstance(b, dict):
        for key in a.keys() & b.keys():
            yield from _leaf_pairs(a[key], b[key])
    else:
        yield a, b


# -- comparison


def _with_arguments(
    graph: ExpressionGraph, rule: RewriteRule, pattern: TracedPattern, binding: _Binding, exact: bool
) -> RuleMatch | None:
    """Return the match with one of the possible choices of arguments, or None.

    With its casts as they are (`exact`), a match has as many casts of the program as it can; otherwise it
    has as few.
    """
    candidates = [values[::-1] if exact else values for values in binding.tensors.values()]
    for choice in itertools.islice(itertools.product(*candidates), _MOST_CHOICES):
        tensors = dict(zip(binding.tensors, choice, strict=True))
        args = tuple(
            tensors[name].proxy if name in tensors else binding.numbers[name] for name in rule.parameters
        )
        places = [binding.values[through(output)] for output in pattern.outputs]
        grad = _records_gradients(tensors.values(), places)
        with suppress(_Differs), _forgetting_facts(args):
            traced = specialised(rule, args, grad=grad)
            if traced is None:
                raise _Differs
            names = {traced.inputs[name]: value.proxy.name for name, value in tensors.items()}
            outputs = _matching_outputs(graph, traced, places, _Comparison(traced, names, exact))
            covered = frozenset() if outputs is None else _covered(outputs, frozenset(names.values()))
            if outputs is None or graph.labels_of(covered) != traced.labels:  # parts of operators
                raise _Differs
            return RuleMatch(rule, args, outputs, traced, covered, grad)
    return None


class _Differs(Exception):
    """The end of a comparison whose facts about sizes are forgotten."""


def _forgetting_facts(args: Sequence[Any]) -> AbstractContextManager[None]:
    """Return a context that forgets what was asked about symbolic sizes if it is left by an error."""
    symbol = next((n for n in numbers_of(args) if isinstance(n, SymbolicNumber)), None)
    return nullcontext() if symbol is None else symbol.facts.attempt()


def _records_gradients(inputs: Any, outputs: Sequence[Expression]) -> bool:
    """Return whether the program computes the outputs where gradients are recorded."""
    if any(value.proxy.requires_grad for value in inputs):
        return any(value.proxy.requires_grad for value in outputs)
    return True


def _matching_outputs(
    graph: ExpressionGraph, traced: TracedPattern, places: Sequence[Expression], comparison: _Comparison
) -> tuple[Expression, ...] | None:
    """Return the program's values that are the pattern's outputs; None if one has none."""
    outputs = []
    for wanted, place in zip(traced.outputs, places, strict=True):
        candidates = [
            v
            for v in _with_forms(graph, place)
            if v.visible and _holds(wanted.proxy.dtype, v.proxy.dtype) and comparison.same(wanted, v)
        ]
        if not candidates:
            return None
        same_dtype = (v for v in candidates if v.proxy.dtype is wanted.proxy.dtype)
        outputs.append(next(same_dtype, candidates[0]))
    return tuple(outputs)


def _holds(dtype: dtypes.dtype, other: dtypes.dtype) -> bool:
    """Return whether a dtype has the values of another."""
    a, b = dtypes.to_torch_dtype(dtype), dtypes.to_torch_dtype(other)
    return torch.promote_types(a, b) is a


def _with_forms(graph: ExpressionGraph, value: Expression) -> Iterator[Expression]:
    """Yield a value, its casts and broadcasts, and theirs."""
    yield value
    for form in graph.forms_of.get(value, ()):
        yield from _with_forms(graph, form)


def _covered(outputs: Sequence[Expression], leaves: frozenset[str]) -> frozenset[int]:
    values = reachable(outputs, lambda v: v.op is None or (v.visible and v.proxy.name in leaves))
    return frozenset(value.statement for value in values)


class _Comparison:
    """Whether values of the program are what a pattern computes from `names`, its arguments."""

    def __init__(self, traced: TracedPattern, names: Mapping[Expression, str], exact: bool) -> None:
        self.traced, self.names, self.exact = traced, names, exact
        self._answers: dict[tuple[Expression, Expression], bool] = {}

    def same(self, wanted: Expression, value: Expression) -> bool:
        """Return whether `value` of the program is `wanted` of the pattern."""
        key = wanted, value
        if key not in self._answers:
            self._answers[key] = self._exactly(wanted, value) if self.exact else self._through(wanted, value)
        return self._answers[key]

    def _exactly(self, wanted: Expression, value: Expression) -> bool:
        if wanted in self.names:
            return value.visible and value.proxy.name == self.names[wanted]
        return wanted.proxy.dtype is value.proxy.dtype and self._same_call(wanted, value)

    def _through(self, wanted: Expression, value: Expression) -> bool:
        """Compare without regard to casts between floating-point dtypes that the pattern does not write."""
        if is_float_cast(wanted):
            if not self.traced.is_written_cast(wanted):
                return self.same(wanted.operand, value)
            return any(
                cast.proxy.dtype is wanted.proxy.dtype and self.same(wanted.operand, cast.operand)
                for cast in _float_casts(value)
            )
        if wanted in self.names:
            chain = [value, *(cast.operand for cast in _float_casts(value))]
            return any(v.visible and v.proxy.name == self.names[wanted] for v in chain)
        for cast in list(_float_casts(value)):
            value = cast.operand
        both = wanted.proxy.dtype, value.proxy.dtype
        return (both[0] is both[1] or FLOATS.issuperset(both)) and self._same_call(wanted, value)

    def _same_call(self, wanted: Expression, value: Expression) -> bool:
        if wanted.op is None or wanted.op != value.op or wanted.output != value.output:
            return False
        if wanted.proxy.device is not value.proxy.device:
            return False
        if not are_same(wanted.proxy.shape, value.proxy.shape):
            return False
        if self._same_arguments(wanted.args, value.args):
            return True
        swapped = value.args[::-1]
        return is_commutative(wanted.op) and len(swapped) == 2 and self._same_arguments(wanted.args, swapped)

    def _same_arguments(self, wanted: Any, value: Any) -> bool:
        if isinstance(wanted, Expression) or isinstance(value, Expression):
            both = isinstance(wanted, Expression) and isinstance(value, Expression)
            return both and self.same(wanted, value)
        if isinstance(wanted, tuple) and isinstance(value, tuple):
            return len(wanted) == len(value) and all(map(self._same_arguments, wanted, value))
        return equal_constants(wanted, value)


def _float_casts(value: Expression) -> Iterator[Expression]:
    while value.op == CONVERT and is_float_cast(value):
        yield value
        value = value.operand
