"""Application of rewrite rules to a program.

t1 = ltorch.mul(x, x)                         t9 = ltorch.rms_norm(x, (8,), w, 1e-06)
norm_x = ltorch.mean(t1, -1, True)            return t9
t2 = ltorch.add(norm_x, 1e-06)           →
t3 = ltorch.rsqrt(t2)
t4 = ltorch.mul(x, t3)
t5 = ltorch.mul(t4, w)
return t5
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from thunder.core import prims
from thunder.core.analysis import DisjointSets, Layouts, are_same, order_of_strides, shared_memory
from thunder.core.errors import OperatorError, PluginError, UnsupportedProgram
from thunder.core.proxies import TensorProxy, is_proxy
from thunder.core.rewrite import in_place_of, substitute_operands
from thunder.core.symbol import BoundSymbol, has_tags, with_parts
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, TraceProvenance, detached_trace, from_trace, tracectx
from thunder.extend import Refusal
from thunder.plugins import plugin_call
from thunder_transforms.rewriting.expression_graph import ExpressionGraph, primitives_of
from thunder_transforms.rewriting.match_selection import Place, select
from thunder_transforms.rewriting.pattern_functions import outputs_of, record
from thunder_transforms.rewriting.pattern_matching import RuleMatch, find_matches, root_of
from thunder_transforms.rewriting.rewrite_rules import RewriteRule
from thunder_transforms.rewriting.rewriting_result import Rewriting

__all__ = ["apply_rewrites"]


def apply_rewrites(trace: TraceCtx, rules: Sequence[RewriteRule]) -> tuple[TraceCtx, list[Rewriting]]:
    """Apply rules, one after the other; return the new trace and what was done where.

    The trace itself is returned if no rule applies. It has no gradients and no in-place calls yet. A rule
    does not see what it has recorded itself.

    Raises PluginError, with the rule and its package, for a replacement that raises or whose results have
    other metadata than the pattern's, for a check that raises or returns neither a bool nor a Refusal, and
    for a pattern that cannot be traced.
    """
    start = time.perf_counter_ns()
    changed, done = trace, list[Rewriting]()
    graph: ExpressionGraph | None = None
    primitives = primitives_of(trace.bound_symbols) if rules else frozenset()
    for rule in rules:
        if root_of(rule) not in primitives:
            continue
        graph = graph or ExpressionGraph(changed.bound_symbols)
        rewritten = _apply(changed, graph, rule, done)
        if rewritten is not changed:
            changed, graph, primitives = rewritten, None, primitives_of(rewritten.bound_symbols)
    if changed is not trace:
        changed.set_provenance(TraceProvenance("Rewriting", time.perf_counter_ns() - start))
    return changed, done


def _apply(trace: TraceCtx, graph: ExpressionGraph, rule: RewriteRule, done: list[Rewriting]) -> TraceCtx:
    matches: list[RuleMatch] = []
    for match in find_matches(graph, rule):
        refusal = _checked(graph, match)
        if refusal is None:
            matches.append(match)
        else:
            done.append(_rewriting(graph, match, refusal))
    if not matches:
        return trace
    places, refused = select(graph, matches)
    done += [_rewriting(graph, match, refusal) for match, refusal in refused]
    return _replaced(trace, graph, places, done) if places else trace


_HINT = "check= of the rule returns a Refusal for arguments that it cannot do."


def _rewriting(graph: ExpressionGraph, match: RuleMatch, refusal: Refusal | None = None) -> Rewriting:
    last = graph.bsyms[max(match.covered)]
    return Rewriting(
        rewrite=match.rule,
        outputs=tuple(v.proxy.name for v in match.outputs),
        statements=sum(bool(graph.labels[i]) for i in match.covered),
        source=last.source.location if last.source is not None else None,
        refusal=refusal,
    )


def _checked(graph: ExpressionGraph, match: RuleMatch) -> Refusal | None:
    """Return the refusal of the rule's check, or None."""
    check = match.rule.check
    if check is None:
        return None
    with _calling(graph, match, "a check"), detached_trace():  # what it records is not part of the program
        answer = check(*match.args)
    if answer is True:
        return None
    if answer is False:
        return Refusal("check", "the rule's check returned False")
    if isinstance(answer, Refusal):
        return answer
    raise _fault(graph, match, f"has a check that returned {answer!r}, neither a bool nor a Refusal")


def _calling(graph: ExpressionGraph, match: RuleMatch, what: str) -> AbstractContextManager[None]:
    """Return the context in which a function of a rule is called; its faults are PluginErrors."""
    last = graph.bsyms[max(match.covered)]
    return plugin_call(
        f"rewrite {match.rule.name!r} has {what} that",
        lambda: match.rule.origin,
        where=last.locations,
        hint=_HINT,
        may_refuse=False,
    )


def _fault(graph: ExpressionGraph, match: RuleMatch, what: str, **found: Any) -> PluginError:
    last = graph.bsyms[max(match.covered)]
    return PluginError(
        f"rewrite {match.rule.name!r} {what}",
        found=found or None,
        where=last.locations,
        hint=_HINT,
    ).blame(match.rule.origin)


# -- replacing


def _replaced(
    trace: TraceCtx, graph: ExpressionGraph, places: Sequence[Place], done: list[Rewriting]
) -> TraceCtx:
    new = from_trace(trace)
    values: dict[str, Any] = {}
    statements: list[BoundSymbol] = []
    removable: set[BoundSymbol] = set()
    pending, layouts = list(places), Layouts((), trace.bound_symbols)
    for position, bsym in enumerate(trace.bound_symbols):
        while pending and pending[0].position == position:
            match = pending.pop(0).match
            recorded = _Recording(new, graph, match, values)
            refusal = recorded.refusal(layouts)
            done.append(_rewriting(graph, match, refusal))
            if refusal is None:
                statements += recorded.statements
                values.update(recorded.results)
                removable.update(graph.bsyms[i] for i in match.covered)
        statements.append(bsym)
    new.bound_symbols = _without_unused(statements, removable, values)
    return new if values else trace


def _without_unused(
    statements: Sequence[BoundSymbol], removable: set[BoundSymbol], values: Mapping[str, Any]
) -> list[BoundSymbol]:
    """Return the statements with values replaced, without removable ones whose results are not read."""
    read: set[str] = set()
    kept = []
    for bsym in reversed(statements):
        after = substitute_operands(bsym, values)
        if bsym in removable and not any(p.name in read for p in bsym.flat_proxy_outs):
            continue
        read.update(p.name for p in after.flat_proxy_args)
        kept.append(after)
    return kept[::-1]


class _Recording:
    """The replacement of one match: its statements, and its results by the values that they replace."""

    def __init__(
        self, trace: TraceCtx, graph: ExpressionGraph, match: RuleMatch, values: Mapping[str, Any]
    ) -> None:
        self.trace, self.graph, self.match = trace, graph, match
        self.last = graph.bsyms[max(match.covered)]
        #: the refusal of a replacement that promotes the dtypes of its arguments in another way
        self.other_dtypes: Refusal | None = None
        self.args = [values.get(a.name, a) if is_proxy(a) else a for a in match.args]
        with _calling(graph, match, "a replacement"):
            self.statements, result = record(match.rule.replacement, self.args, trace, grad=match.grad)
        self._check_writes()
        self.results: dict[str, Any] = {}
        outputs = self._checked_results(result)
        if self.other_dtypes is not None:
            return
        with tracectx(trace), trace.recording_into(self.statements):
            for value, result in zip(match.outputs, outputs, strict=True):
                self.results[value.proxy.name] = self._as_value(value.proxy, result)
        self.statements[:] = in_place_of(self.last, self.statements)

    def _check_writes(self) -> None:
        """Raise PluginError for a write: the program's own have been functionalised already."""
        writes = [b.sym.id for b in self.statements if has_tags(b, {OpTags.IN_PLACE})]
        if writes:
            what = "has a replacement that writes to a tensor"
            raise _fault(self.graph, self.match, what, writes=", ".join(map(str, writes)))

    def _checked_results(self, result: Any) -> tuple[TensorProxy, ...]:
        expected = tuple(v.proxy for v in self.match.traced.outputs)
        is_tuple = isinstance(result, tuple | list)
        results = outputs_of(result)
        has_structure = is_tuple is self.match.traced.is_tuple and len(results) == len(expected)
        if has_structure and all(map(_same_metadata, expected, results)):
            dtypes = [
                (a.dtype, b.dtype) for a, b in zip(expected, results, strict=True) if a.dtype is not b.dtype
            ]
            if not dtypes:
                return results
            if len({arg.dtype for arg in self.match.args if isinstance(arg, TensorProxy)}) > 1:
                before, after = dtypes[0]
                self.other_dtypes = Refusal(
                    "dtype",
                    "the replacement promotes the dtypes of its arguments in another way",
                    pattern=before.shortname(),
                    replacement=after.shortname(),
                )
                return results
        raise _fault(
            self.graph,
            self.match,
            "has a replacement whose results differ from the pattern's in structure, shape, dtype, "
            "device or requires_grad",
            pattern=_described(expected, self.match.traced.is_tuple),
            replacement=_described(results, is_tuple),
        )

    def _as_value(self, old: TensorProxy, result: TensorProxy) -> Any:
        """Return a result as a value that shares no memory with others, with the dtype of the program's."""
        if old.dtype is not result.dtype:
            return prims.convert_element_type(result, old.dtype)
        memory = _memory(self.statements)
        others = [p.name for p in (*self.args, *self.results.values()) if is_proxy(p)]
        if memory.find(result.name) in {memory.find(name) for name in others}:
            return prims.clone(result)
        return result

    def refusal(self, layouts: Layouts) -> Refusal | None:
        """Return why the results cannot take the place of the program's values, or None.

        Results of the program have eager's strides, and are views where eager's are. `layouts` are those of
        the program and of the replacements before this one.
        """
        if self.other_dtypes is not None:
            return self.other_dtypes
        layouts.extend(self.statements)
        for value in self.match.outputs:
            old = value.proxy
            if old.name in self.graph.escaping and _is_view(self.graph, self.match, old):
                return Refusal("view", "a result of the program is a view of an argument of the match")
            if old.derived_strides is not None or old.name in self.graph.layout_read:
                refusal = self._with_strides(old, layouts)
                if refusal is not None:
                    return refusal
        return None

    def _with_strides(self, old: TensorProxy, layouts: Layouts) -> Refusal | None:
        """Give a result the strides of the program's value, or return why it cannot have them.

        Only the result of a package's operator, whose strides are known when it runs, is copied if need be.
        """
        before = _strides(layouts, old)
        if before is None:
            return Refusal("strides", "the strides of the program's value cannot be derived")
        result = self.results[old.name]
        if all(b.sym.executor is None for b in with_parts(self.statements)):
            after = _strides(layouts, result)
            if after is not None and are_same(after, before):
                return None
            return Refusal("strides", "the replacement has other strides", pattern=before, replacement=after)
        order = order_of_strides(old.shape, before)
        if order is None:
            return Refusal("strides", "the strides of the program's value are not those of a dense tensor")
        with tracectx(self.trace), self.trace.recording_into(self.statements):
            self.results[old.name] = prims.stride_order(result, order)
        self.statements[-1:] = in_place_of(self.last, self.statements[-1:])
        return None


def _same_metadata(old: TensorProxy, new: object) -> bool:
    """Return whether a replacement's result has the metadata of the pattern's, apart from the dtype."""
    if not isinstance(new, TensorProxy) or not are_same(old.shape, new.shape):
        return False
    return (old.device, old.requires_grad) == (new.device, new.requires_grad)


def _described(results: Sequence[Any], is_tuple: bool) -> str:
    texts = [
        x.type_string() + (" requires_grad" if x.requires_grad else "")
        if isinstance(x, TensorProxy)
        else repr(x)
        for x in results
    ]
    return f"({', '.join(texts)})" if is_tuple else texts[0]


def _is_view(graph: ExpressionGraph, match: RuleMatch, old: TensorProxy) -> bool:
    """Return whether a result of a match may share memory with an argument or another result."""
    memory = _memory([graph.bsyms[i] for i in sorted(match.covered)])
    others = [a.name for a in match.args if is_proxy(a)]
    others += [v.proxy.name for v in match.outputs if v.proxy.name != old.name]
    return memory.find(old.name) in {memory.find(name) for name in others}


def _memory(bsyms: Iterable[BoundSymbol]) -> DisjointSets:
    """Return the sets of values that may share memory."""
    return shared_memory(bsym for bsym in bsyms if bsym.sym.executor is None)


def _strides(layouts: Layouts, proxy: TensorProxy) -> tuple[int, ...] | None:
    """Return eager's strides of a value; None where they cannot be derived."""
    try:
        return layouts.strides(proxy)
    except (UnsupportedProgram, OperatorError):
        return None
