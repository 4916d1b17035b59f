"""A program whose sequences are divided between the processes of a group.

    def program(x, w):                       def program(x, w):                  # process r of n
        t0 = ltorch.linear(x, w)                 t1 = take_part(x, '0', …)
        t1 = ltorch.mean(t0, 1)        →         t2 = use_in_parts(w, '0')
        return t1                                t3 = ltorch.linear(t1, t2)
                                                 t4 = prims.sum(t3, (1,))
                                                 t5 = sum_parts(t4, '0')
                                                 return t5 / 8

The program is that of the whole sequence, so positions, lengths and results mean what its author wrote. Each
value gets a layout (Note [Values of a divided program]), call by call. The first of these that applies:

1. a call without divided operands is recorded as it is: it computes the same in each process;
2. the rule of the operator: what it computes from parts, and how the results are divided;
3. a composite whose primitives all compute parts from parts is called with the parts, if it then consists of
   the same primitives with the arguments that the rules give them;
4. the calls that a composite decomposes into;
5. with `gather`, the call itself on whole values; otherwise the program is refused.

The idea of propagating layouts through a program is that of Xu et al., GSPMD, arXiv:2105.04663; unlike there
nothing is guessed: an operator without a rule is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from thunder.core import prims
from thunder.core.errors import OperatorError, UnsupportedProgram
from thunder.core.proxies import TensorProxy
from thunder.core.pytree import tree_flatten_with_dataclass
from thunder.core.rewrite import in_place_of, substitute, substitute_operands
from thunder.core.symbol import BoundSymbol, has_tags
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx
from thunder.extend import Region, structural_key

from ..last_statements import final_grad_mode
from ..process_groups import Members
from ..sharding.rules import rule_of
from ..sharding.shard import Shard
from ..sharding.values import NoRule, Result, called
from .parts import collect_parts, gather_parts, sum_parts, take_part, use_in_parts

__all__ = ["Program", "Settings", "Value"]

CONVERSION = "prims.convert_element_type"
#: calls that are made in the layout in which their results are needed
SET_GRAD_ENABLED = "prims.set_grad_enabled"
EXPANSIONS = frozenset({"prims.broadcast_in_dim", "prims.full"})
#: the operators that give operands of composites their form
CONVERSIONS = frozenset({take_part.id, use_in_parts.id})
#: composites that are refused by the reasons of their own rules, and not by those of what they consist of
WITH_REASONS = frozenset(
    f"torch.nn.functional.{name}" for name in ("scaled_dot_product_attention", "cross_entropy", "nll_loss")
)


class _NotInside(Exception):
    """A call within a composite needs a value in another layout."""


@dataclass
class Value:
    """A value of the program in the form in which this process has it.

    `layout` is a Shard, or None for a whole value; `same` says that cotangents of a whole value are summed.
    `source` is the input that a part was taken from. A value that is expanded or constant is computed in the
    layout in which it is needed: `expanded` has what it is expanded from, or None for a constant, and its
    call.
    """

    here: Any = None
    layout: Shard | None = None
    same: bool = False
    source: Any = None
    expanded: tuple[Any, BoundSymbol] | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A record of what the user has chosen."""

    members: Members
    #: whether keys and values of attention go around a ring
    rotates: bool
    gather: bool
    #: the bucket of the gradient of an input, by its name
    buckets: Mapping[str, str]


@dataclass
class _Forms:
    """The other forms of values that have been computed, by name; they are used again."""

    whole: dict[str, Any] = field(default_factory=dict)
    same: dict[str, Any] = field(default_factory=dict)
    parts: dict[tuple[str, Shard], Any] = field(default_factory=dict)

    def copy(self) -> _Forms:
        return _Forms(dict(self.whole), dict(self.same), dict(self.parts))


class Program:
    """A program while it is divided: its values, and the forms in which rules take them."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.rotates = settings, settings.rotates
        self.values: dict[str, Value] = {}
        self._forms = _Forms()
        #: the statement of the user's program that is divided, of which a call may be a part
        self._statement: BoundSymbol | None = None
        #: within a composite: the names of its operands, which alone may change their layout
        self._operands: frozenset[str] | None = None
        #: the forms in which the primitives of a composite take its operands
        self._demands: dict[str, set[Shard | None]] = {}

    def divide(self, p: TensorProxy, layout: Shard) -> None:
        """Take the part of this process of an input."""
        self.values[p.name] = Value(take_part(*self._call(p, layout)), layout, source=p)

    # -- values

    def local(self, p: Any) -> Any:
        """Return what this process has of a value."""
        return self.value(p).here if isinstance(p, TensorProxy) else p

    def value(self, p: Any) -> Value:
        """Return the value of a proxy; one that was not divided is whole."""
        return self.values.setdefault(p.name, Value(here=p))

    def shard_of(self, p: Any) -> Shard | None:
        """Return how a proxy is divided, or None."""
        return self.value(p).layout if isinstance(p, TensorProxy) else None

    def _conversion(self, p: Any, form: Shard | None) -> None:
        """Note that a value changes its layout; within a composite only its operands do."""
        if self._operands is not None and p.name not in self._operands:
            raise _NotInside
        self._demand(p, form)

    def _demand(self, p: Any, form: Shard | None) -> None:
        self._demands.setdefault(p.name, set()).add(form)

    def full(self, p: Any) -> Any:
        """Return all of a value; what does not take part in the division computes with it."""
        if not isinstance(p, TensorProxy):
            return p
        value = self.value(p)
        if value.layout is None:
            if value.same:
                raise _NotInside
            if value.here is None:
                value.here = self._expand(value, None)
            return value.here
        if self._operands is not None:
            raise _NotInside
        if value.source is not None:
            return value.source
        if p.name not in self._forms.whole:
            self._forms.whole[p.name] = gather_parts(*self._call(value.here, value.layout))
        return self._forms.whole[p.name]

    def replicate(self, p: Any, group: str | None = None) -> Any:
        """Return all of a value, for a computation with parts."""
        if not isinstance(p, TensorProxy):
            return p
        value = self.value(p)
        if p.name not in self._forms.same:
            if value.expanded is not None:
                form = self._expand(value, None, same=True)
            elif value.layout is not None:
                self._conversion(p, None)
                form = collect_parts(*self._call(value.here, value.layout))
            elif value.same or not p.requires_grad:
                self._demand(p, None)
                form = value.here
            else:
                self._conversion(p, None)
                settings = self.settings
                form = use_in_parts(value.here, settings.members.group, settings.buckets.get(p.name))
            self._forms.same[p.name] = form
        return self._forms.same[p.name]

    def shard(self, p: Any, layout: Shard) -> Any:
        """Return this process's part of a value in a layout. Raises NoRule for another division."""
        if not isinstance(p, TensorProxy):
            return p
        value = self.value(p)
        if value.layout == layout:
            return value.here
        if value.layout is not None:
            raise NoRule(f"{p.name} is divided along another dimension")
        if (p.name, layout) not in self._forms.parts:
            if value.expanded is not None:
                form = self._expand(value, layout)
            else:
                self._conversion(p, layout)
                if value.same:
                    raise _NotInside
                form = take_part(*self._call(value.here, layout))
            self._forms.parts[p.name, layout] = form
        return self._forms.parts[p.name, layout]

    def _call(self, a: Any, layout: Shard) -> tuple[Any, ...]:
        return a, layout.group, layout.arrangement, layout.dim, layout.length, layout.before

    def _expand(self, value: Value, layout: Shard | None, same: bool = False) -> Any:
        """Return an expanded or constant value in a layout."""
        assert value.expanded is not None, "only expanded values are expanded again"
        base, bsym = value.expanded
        if base is None:
            shape, *others = bsym.args
            return bsym.sym(layout.local(shape) if layout else shape, *others, **bsym.kwargs)
        if bsym.sym.id == CONVERSION:
            if layout is not None:
                return bsym.sym(self.shard(base, layout), *bsym.args[1:])
            return bsym.sym(self.replicate(base) if same or value.same else self.full(base), *bsym.args[1:])
        _, shape, dims = bsym.args
        if layout is None:
            return prims.broadcast_in_dim(
                self.replicate(base) if same or value.same else self.full(base), shape, dims
            )
        source = dims.index(layout.dim) if layout.dim in dims else None
        if source is None or base.shape[source] == 1:
            operand = self.replicate(base)
        else:
            operand = self.shard(base, replace(layout, dim=source))
        return prims.broadcast_in_dim(operand, layout.local(shape), dims)

    def reduce(self, partial: Any, layout: Shard) -> Result:
        """Return the sum of the terms of all processes; a composite whose primitives add them is not kept."""
        if self._operands is not None:
            raise _NotInside
        return sum_parts(partial, layout.group), None

    def _bind(self, bsym: BoundSymbol, results: Iterable[Result]) -> None:
        """Enter the results of a call; check that they are parts of the results of the program."""
        for p, (here, layout) in zip(bsym.flat_proxy_outs, results, strict=True):
            expected = tuple(p.shape) if layout is None else layout.local(p.shape)
            assert tuple(here.shape) == expected, f"{bsym.sym.id} has computed {tuple(here.shape)}"
            assert here.dtype is p.dtype, f"{bsym.sym.id} has computed {here.dtype}"
            self.values[p.name] = Value(here, layout)

    def results(self, last: Sequence[BoundSymbol]) -> dict[str, Any]:
        """Return the values that the last statements of the program read, whole, by name."""
        computed = {p.name for bsym in last for p in bsym.flat_proxy_outs}
        mode = torch.is_grad_enabled()
        with final_grad_mode(mode, last) as final:
            if final != mode:
                self._forms = _Forms()  # a form that was computed without gradients has none
            return {
                p.name: self.full(p)
                for bsym in last
                for p in bsym.flat_proxy_args
                if isinstance(p, TensorProxy) and p.name not in computed
            }

    # -- calls

    def run(self, bsyms: Iterable[BoundSymbol], scope: TraceCtx) -> None:
        """Divide calls in order."""
        for bsym in bsyms:
            self._statement = bsym if bsym.source is not None else self._statement
            if bsym.sym.id == SET_GRAD_ENABLED:
                torch.set_grad_enabled(bool(bsym.args[0]))
            if has_tags(bsym, {OpTags.CTX_MANAGER_ENTER_EXIT_OP}):
                self._forms = _Forms()  # a form that was computed without gradients has none
            recorded: list[BoundSymbol] = []
            with scope.recording_into(recorded):
                self._visit(bsym, scope)
            scope.peek_scope().extend(in_place_of(bsym, recorded))

    def _visit(self, bsym: BoundSymbol, scope: TraceCtx) -> None:
        operands = [p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)]
        if has_tags(bsym, {OpTags.RANDOM_OP}):
            raise self._refusal(bsym, "each process would draw other numbers", "Set dropout to 0.")
        values = [self.value(p) for p in operands]
        if all(value.layout is None for value in values):
            self._as_it_is(bsym, scope, any(value.same for value in values))
            return
        try:
            if not self._by_rule(bsym, scope) and not self._call_with_parts(bsym, scope):
                self.run(bsym.subsymbols, scope)
        except NoRule as reason:
            if self._operands is not None:
                raise _NotInside from None
            if not self.settings.gather:
                raise self._refusal(
                    bsym,
                    str(reason),
                    'otherwise="gather" lets such operators compute with the whole sequence.',
                ) from None
            self._on_whole(bsym, scope)

    def _by_rule(self, bsym: BoundSymbol, scope: TraceCtx) -> bool:
        """Record what a rule computes; return False for a composite without a rule for its operands."""
        rule = rule_of(bsym)
        try:
            if rule is None:
                raise NoRule("the operator has no rule for parts of a sequence")
            self._bind(bsym, rule(bsym, self))
        except NoRule:
            if not bsym.subsymbols or bsym.sym.id in WITH_REASONS:
                raise
            return False
        return True

    def _refusal(self, bsym: BoundSymbol, reason: str, hint: str) -> UnsupportedProgram:
        divided = {
            p.name: f"{tuple(p.shape)}, divided along dimension {self.shard_of(p).dim}"  # type: ignore[union-attr]
            for p in bsym.flat_proxy_args
            if self.shard_of(p) is not None
        }
        statement = self._statement or bsym
        return UnsupportedProgram(
            f"context_parallel does not divide {statement.sym.id} between processes: {reason}",
            found={"call": bsym.line, **divided},
            where=statement.locations,
            hint=hint,
        )

    def _as_it_is(self, bsym: BoundSymbol, scope: TraceCtx, same: bool) -> None:
        """Record a call without divided operands, which computes the same in each process."""
        is_converted = bsym.sym.id == CONVERSION and self.value(bsym.args[0]).expanded is not None
        if bsym.sym.id in EXPANSIONS or is_converted:
            base = bsym.args[0] if isinstance(bsym.args[0], TensorProxy) else None
            self.values[bsym.output.name] = Value(same=same, expanded=(base, bsym))
            return
        form = self.replicate if same else self.full
        operands = {p.name: form(p) for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)}
        scope.record(substitute_operands(bsym, operands))
        for p in bsym.flat_proxy_outs:
            if isinstance(p, TensorProxy):
                self.values[p.name] = Value(here=operands.get(p.name, p), same=same)

    def _on_whole(self, bsym: BoundSymbol, scope: TraceCtx) -> None:
        """Record a call on whole values."""
        if not bsym.flat_proxy_outs or not all(isinstance(p, TensorProxy) for p in bsym.flat_proxy_outs):
            whole = {p.name: self.full(p) for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)}
            scope.record(substitute_operands(bsym, whole))
            return
        self._bind(bsym, [(here, None) for here in _leaves(called(bsym, self.full))])

    # -- composites

    def _call_with_parts(self, bsym: BoundSymbol, scope: TraceCtx) -> bool:
        """Call a composite with parts, if its primitives compute parts of the results from them."""
        if not bsym.subsymbols or bsym.sym.meta is None:
            return False
        return any(self._tried(bsym, scope, same_first) for same_first in (False, True))

    def _tried(self, bsym: BoundSymbol, scope: TraceCtx, same_first: bool) -> bool:
        operands = {p.name: p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)}
        inside = Program(self.settings)
        inside._operands = frozenset(operands)
        expected: list[BoundSymbol] = []
        for name, p in operands.items():
            value = self.value(p)
            if value.layout is not None:
                inside.values[name] = Value(value.here, value.layout)
            else:
                inside.values[name] = Value(p, None, same_first or value.same)
        try:
            with scope.recording_into(expected):
                inside.run(bsym.subsymbols, scope)
        except _NotInside:
            return False
        outputs = [inside.values.get(p.name) for p in bsym.flat_proxy_outs]
        if any(len(inside._demands.get(name, ())) > 1 for name in operands):
            return False
        if any(v is None or v.layout is None for v in outputs):
            return False
        before, recorded = self._forms.copy(), list[BoundSymbol]()
        arguments: dict[str, Any] = {}
        with scope.recording_into(recorded):
            for name, p in operands.items():
                demands = inside._demands.get(name)
                if self.shard_of(p) is not None:
                    arguments[name] = self.value(p).here
                elif demands and (form := next(iter(demands))) is not None:
                    arguments[name] = self.shard(p, form)
                else:
                    arguments[name] = self.replicate(p)
            count = len(recorded)
            try:
                results = called(bsym, lambda p: arguments[p.name])
            except OperatorError:  # its arguments have sizes of the whole sequence
                self._forms = before
                return False
        forms = {form.name: arguments[name] for name, p in operands.items() for form in inside.forms_of(p)}
        wanted = [substitute(b, forms) for b in _primitives(expected)]
        key = structural_key(_region(wanted, arguments))
        if key is None or key != structural_key(_region(_primitives(recorded[count:]), arguments)):
            self._forms = before
            return False
        scope.peek_scope().extend(recorded)
        layouts = [v.layout for v in outputs if v is not None]
        self._bind(bsym, zip(_leaves(results), layouts, strict=True))
        return True

    def forms_of(self, p: Any) -> list[Any]:
        """Return the forms in which calls with parts have read a value."""
        found = [self.value(p).here, self._forms.same.get(p.name)]
        found += [form for (name, _), form in self._forms.parts.items() if name == p.name]
        return [form for form in found if form is not None]


def _region(bsyms: Iterable[BoundSymbol], inputs: Mapping[str, Any]) -> Region:
    return Region(tuple(bsyms), tuple({p.name: p for p in inputs.values()}.values()), ())


def _primitives(bsyms: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    """Yield the primitives of calls, without those that give operands their form."""
    for bsym in bsyms:
        if bsym.sym.id in CONVERSIONS:
            continue
        if bsym.subsymbols:
            yield from _primitives(bsym.subsymbols)
        else:
            yield bsym


def _leaves(results: Any) -> list[Any]:
    return [x for x in tree_flatten_with_dataclass(results)[0] if isinstance(x, TensorProxy)]
