"""An edited trace as a program in the place of another: on its inputs, with its results.

    edited, as its text says          the program                     edited, in its place
    def computation(a):               def computation(x):             def computation(x):
      # a: "cpu f32[3]"                 # x: "cpu f32[3]", a leaf        # x: "cpu f32[3]", a leaf
      t = ltorch.sin(a)                 y = ltorch.sin(x)       →        t = ltorch.sin(x)
      return t                          return y                         return t

A printed text says device, dtype and shape of a value, and not what is only of interest to passes. A call
that is as it was has all metadata of that one; inputs and results have those of the program.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import torch

from thunder.core.entries import (
    BLOCK,
    BLOCK_END,
    COMMENT,
    RELEASES,
    UNPACK,
    BoundSymbol,
    TensorProxy,
    TraceCtx,
    TraceTag,
    detached_trace,
    from_trace,
    propagate_requires_grad,
    substitute,
    substitute_operands,
)
from thunder.core.proxies import AnyProxy
from thunder.core.trace import TraceProvenance, load
from thunder_store.edited.forms import canonical, key_of, structure, type_of, values_in
from thunder_store.edited.order import check_order
from thunder_store.edited.refusals import OtherSignature, refusal
from thunder_store.edited.texts import Definition, sources_of

__all__ = ["EDITED", "STRUCTURE", "conformed", "is_unchanged", "match_inputs", "unpacked"]

#: the pass that an edited trace is said to be constructed by
EDITED: Final = "Edited program"
#: ids of statements that compute nothing; the stages make them again
STRUCTURE: Final = frozenset({*RELEASES, COMMENT, BLOCK, BLOCK_END})


def match_inputs(definition: Definition, base: TraceCtx) -> None:
    """Raise OtherSignature unless a text is for inputs of these types."""
    expected = [type_of(p) for p in base.args]
    found = [definition.types.get(name) for name in definition.parameters]
    if len(found) != len(expected):
        raise OtherSignature(f"it has {len(found)} inputs, and the program {len(expected)}")
    for name, own, p in zip(definition.parameters, found, base.args, strict=True):
        if own is not None and own != type_of(p):
            raise OtherSignature(f'{name} is "{own}", and {p.name} of the program "{type_of(p)}"')
    if definition.is_backward:
        unpacked = {p.name: type_of(p) for b in base.bound_symbols for p in values_in(b.output)}
        for name, own in definition.types.items():
            if own != unpacked.get(name, own):
                raise OtherSignature(f'{name} is "{own}", and "{unpacked[name]}" in the program')


def conformed(edited: TraceCtx, base: TraceCtx, text: str, saved: Sequence[Any] | None = None) -> TraceCtx:
    """Return an edited trace in the place of another, without the statements of :data:`STRUCTURE`.

    ``saved`` are the values that the backward of a forward unpacks, or the forward of a backward saves, where
    it is edited too; by default it is as in ``base``.

    Raises EditedProgramError for other results, other effects, or a decomposition that is not that of its
    call.
    """
    return _Conforming(edited, base, text).result(saved)


class _Conforming:
    def __init__(self, edited: TraceCtx, base: TraceCtx, text: str) -> None:
        self.edited, self.base, self.text = edited, base, text
        #: the names of both programs, and of what is recorded
        self.names = base.names | edited.names
        #: the calls of the program by what they are; of equal ones, as `y.add_(1)` twice, each is taken once
        self.own: dict[Any, deque[BoundSymbol]] = defaultdict(deque)
        for bsym in base.bound_symbols:
            self.own[key_of(bsym)].append(bsym)
        #: id of a function → the operator that it runs: a printed text names functions of executors alone
        self.symbols = {
            id(b.sym.python_impl): b.sym for b in base.bound_symbols if b.sym.python_impl is not None
        }
        self.regions = {b.sym.name: b.sym for b in base.bound_symbols if b.sym.is_fusion}

    @cached_property
    def forms(self) -> frozenset[Any]:
        """The forms of the program's calls, and of those that are read of what it prints."""
        printed = load(*next(sources_of(self.base)))
        return frozenset(canonical(b) for trace in (self.base, printed) for b in trace.bound_symbols)

    def result(self, saved: Sequence[Any] | None) -> TraceCtx:
        base, before = self.base, [b for b in self.base.bound_symbols if b.sym.id not in STRUCTURE]
        values = self._inputs()
        calls = []
        for bsym in self.edited.bound_symbols:
            if bsym.sym.id in STRUCTURE:
                continue
            call = self._call(bsym, values)
            calls.append(call)
            values.update({p.name: p for p in values_in(call.output)})
        new = from_trace(base)
        new.args, new.bound_symbols = list(base.args), calls
        new.names = self.names
        if TraceTag.BACKWARD in base.tags:
            self._check_unpacked(saved)
        self._check_returned(calls[-1], saved)
        check_order(before, calls, {p.name for p in base.args}, self.text)
        new.bound_symbols = _with_results_of(base, calls)
        new = propagate_requires_grad(new, base)
        new.set_provenance(TraceProvenance(EDITED))
        return new

    # -- inputs --------------------------------------------------------------------------------------------

    def _inputs(self) -> dict[str, Any]:
        """Return the inputs of the program, by their names in the edited one."""
        names = [p.name for p in self.edited.args]
        own = [p.name for p in self.base.args]
        if names != own and sorted(names) == sorted(own):
            raise self._refused(
                "the inputs are in another order", "def ", found=", ".join(names), expected=", ".join(own)
            )
        renamed = {b for a, b in zip(names, own, strict=True) if a != b}
        computed = {p.name for b in self.edited.bound_symbols for p in values_in(b.output)}
        if renamed & computed:
            name = min(renamed & computed)
            raise self._refused(
                f"{name} is computed, and is the name of an input of the program", f"{name} ="
            )
        return dict(zip(names, self.base.args, strict=True))

    # -- calls ---------------------------------------------------------------------------------------------

    def _call(self, bsym: BoundSymbol, values: Mapping[str, Any]) -> BoundSymbol:
        """Return a call on the values of the program so far."""
        symbol = self.symbols.get(id(bsym.sym.python_impl)) or self.regions.get(bsym.sym.name)
        if symbol is not None and symbol is not bsym.sym:
            bsym = bsym.from_bsym(sym=symbol)
        now = {p.name: values[p.name] for p in bsym.flat_proxy_args if p.name in values}
        call = substitute_operands(bsym, now)
        equal = self.own[key_of(call)]
        original = equal.popleft() if equal else None
        self._check_decomposition(bsym if original is None else call, original)
        if original is not None:
            return substitute_operands(original, {name: p for name, p in now.items() if p.name == name})
        self._check_types(bsym, now)
        return call if bsym.sym.meta is None or bsym.sym.id == UNPACK else self._recorded(call)

    def _recorded(self, bsym: BoundSymbol) -> BoundSymbol:
        """Return a new call as its operator records it: with its decomposition, and all its arguments."""
        with detached_trace() as scratch, torch.set_grad_enabled(self.base.grad_enabled):
            scratch.names = self.names
            bsym.sym(*bsym.args, **bsym.kwargs)
        if len(scratch.bound_symbols) != 1:
            raise self._refused(f"{bsym.sym.name} is not one statement on these arguments", bsym)
        (recorded,) = scratch.bound_symbols
        pairs = zip(values_in(recorded.output), values_in(bsym.output), strict=True)
        known = {p.name for p in bsym.flat_proxy_args}
        names = {p.name: p.replace(name=own.name) for p, own in pairs if p.name not in known}
        return substitute(recorded, names).from_bsym(
            tags=bsym.own_tags, source=bsym.source, header=bsym.header
        )

    def _check_types(self, bsym: BoundSymbol, now: Mapping[str, Any]) -> None:
        for p in bsym.flat_proxy_args:
            if p.name in now and type_of(now[p.name]) != type_of(p):
                raise self._refused(
                    f'{p.name} is "{type_of(now[p.name])}" here, and not "{type_of(p)}"', bsym
                )

    def _check_decomposition(self, bsym: BoundSymbol, original: BoundSymbol | None) -> None:
        """Refuse lines below a call that are not its decomposition: passes read them as what it computes."""
        if original is not None and canonical(original) == canonical(bsym):
            return
        is_read = bsym.sym.is_fusion or (original is not None and bool(bsym.subsymbols))
        if is_read and canonical(bsym) in self.forms:
            return
        if bsym.sym.is_fusion:
            raise self._refused(
                f"the region {bsym.sym.name} is compiled, and its lines, or its arguments, are others",
                bsym,
                expected="the call and the lines as they were; edit a trace before fusion",
            )
        if not bsym.subsymbols or bsym.sym.meta is None:
            return
        if canonical(bsym) not in self._derived(bsym):
            raise self._refused(
                f"the lines below the call are not the decomposition of {bsym.sym.name} on these arguments",
                bsym,
                expected="no lines below a call that was changed, or its decomposition",
            )

    def _derived(self, bsym: BoundSymbol) -> list[Any]:
        """Return the forms of a call as its meta function records it, without gradients and with them."""
        forms = []
        for has_gradients in (False, True):
            with detached_trace() as scratch, torch.set_grad_enabled(has_gradients):
                scratch.names = set(self.names)
                bsym.sym(*bsym.args, **bsym.kwargs)
            forms += [canonical(b) for b in scratch.bound_symbols]
        return forms

    # -- results -------------------------------------------------------------------------------------------

    def _check_returned(self, returned: BoundSymbol, saved: Sequence[Any] | None) -> None:
        """Refuse results of other types, in another structure, or that are other inputs."""
        before, after = self.base.bound_symbols[-1], returned
        is_forward = TraceTag.AUGMENTED_FORWARD in self.base.tags
        expected, found = before.args, after.args
        if is_forward:
            self._check_saved(values_in(found[1]), values_in(expected[1]) if saved is None else saved)
            self._check_outputs(found[0])
            expected, found = expected[:1], found[:1]
        inputs = {p.name for p in self.base.args}

        def form(p: Any) -> Any:
            return type_of(p), p.name if p.name in inputs else None

        if structure(found, form) != structure(expected, form):
            raise self._refused(
                "the program returns other results",
                "return",
                found=_shown(after),
                expected=_shown(before),
            )
        if _repetitions(found) != _repetitions(expected):
            raise self._refused("results that were one value are two, or the other way round", "return")

    def _check_outputs(self, returned: Mapping[str, Any]) -> None:
        shown = [p.name for p in values_in(returned["output"]) if isinstance(p, TensorProxy)]
        flat = {p.name for p in values_in(returned["flat_output"])}
        if not set(shown) <= flat | {p.name for p in self.base.args}:
            raise self._refused("'output' has tensors that 'flat_output' has not", "return")

    def _check_unpacked(self, saved: Sequence[Any] | None) -> None:
        """Refuse a backward that unpacks other values than are saved, or other cotangents."""
        (own, cotangents), (usual, expected) = unpacked(self.edited), unpacked(self.base)
        self._check_saved(usual if saved is None else saved, own)
        if not _have_same_types(cotangents, expected):
            raise self._refused(
                "the backward unpacks other cotangents",
                "def ",
                found=_typed(cotangents),
                expected=_typed(expected),
            )

    def _check_saved(self, saved: Iterable[Any], needed: Iterable[Any]) -> None:
        saved, needed = list(saved), list(needed)
        if not _have_same_types(needed, saved):
            raise self._refused(
                "the values that the forward saves are not those that the backward unpacks",
                "def " if TraceTag.BACKWARD in self.base.tags else "return",
                saved=_typed(saved),
                unpacked=_typed(needed),
            )

    def _refused(self, asked: str, statement: str | BoundSymbol, **found: object) -> Exception:
        return refusal(asked, self.text, statement, **found)


def unpacked(backward: TraceCtx) -> tuple[list[Any], list[Any]]:
    """Return the saved values that a backward unpacks, and its cotangents."""
    parts = {b.args[0].name: list(values_in(b.output)) for b in backward.bound_symbols if b.sym.id == UNPACK}
    saved, cotangents = (parts.get(p.name, []) for p in backward.args)
    return [p for collection in saved for p in parts.get(collection.name, [])], cotangents


def _have_same_types(unpacked_values: Sequence[Any], values: Sequence[Any]) -> bool:
    """Return whether unpacked values have the types of others; a text has none of what is not read."""
    pairs = zip(unpacked_values, values, strict=False)
    is_equal = all(isinstance(p, AnyProxy) or type_of(p) == type_of(q) for p, q in pairs)
    return is_equal and len(unpacked_values) == len(values)


def _typed(values: Iterable[Any]) -> str:
    return ", ".join(f'{p.name}: "{type_of(p)}"' for p in values)


def is_unchanged(edited: TraceCtx, base: TraceCtx, text: str) -> bool:
    """Return whether an edited trace has the calls of another, in its order, or what it prints."""
    if text.partition("\ndef ")[2].rstrip() == str(base).partition("\ndef ")[2].rstrip():
        return True
    before = [key_of(b) for b in base.bound_symbols if b.sym.id not in STRUCTURE]
    return before == [key_of(b) for b in edited.bound_symbols]


def _shown(returned: BoundSymbol) -> str:
    text = re.sub(r"\s+", " ", returned.line)
    types = ", ".join(dict.fromkeys(_typed([p]) for p in values_in(returned.args)))
    return f"{text}  # {types}"


def _repetitions(tree: Any) -> list[int]:
    names = [p.name for p in values_in(tree)]
    return [names.index(name) for name in names]


def _with_results_of(base: TraceCtx, calls: Sequence[BoundSymbol]) -> list[BoundSymbol]:
    """Return calls whose results and saved values have the metadata of a program's in the same place."""
    pairs = zip(values_in(calls[-1].args), values_in(base.bound_symbols[-1].args), strict=False)
    changed = {
        own.name: before.replace(name=own.name)
        for own, before in pairs
        if isinstance(own, TensorProxy) and own is not before and type_of(own) == type_of(before)
    }
    inputs = {p.name for p in base.args}
    changed = {name: p for name, p in changed.items() if name not in inputs}
    return [substitute(call, changed) for call in calls] if changed else list(calls)
