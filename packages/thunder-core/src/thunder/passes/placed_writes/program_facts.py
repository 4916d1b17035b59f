"""What is known of a program whose writes may be put in place: who reads what, and which forms calls have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache

from thunder.base.structural_ids import RETURN, STRUCTURAL
from thunder.base.tags import OpenTag, OpTags
from thunder.executor_base.fusion_executor import FusionExecutor
from thunder.ir.aliasing import shared_memory, views_of
from thunder.ir.effects import COPY, has_effect
from thunder.ir.ending_inputs import have_same_elements
from thunder.ir.proxies import FutureTensorProxy, TensorProxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.registered_operators import OperatorName, declare_finder
from thunder.ir.substitution import substitute_operands
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.symbolic_sizes import are_same
from thunder.ir.trace import TraceCtx, TraceTag
from thunder.ops.data_errors import has_opaque
from thunder.ops.in_place import ENDING, InPlaceForm
from thunder.ops.operator import row_of, symbols_named
from thunder.passes.placed_writes.raising_calls import runs_kernel_of_core

__all__ = [
    "Link",
    "ProgramFacts",
    "Refused",
    "in_place_form",
    "name_of",
    "writes_by_row",
]

#: tags of calls that return new memory of the usual layout
_NEW_MEMORY = frozenset({OpTags.POINTWISE_OP, OpTags.MATMUL_OP, OpTags.REDUCTION_OP})
#: calls whose results may have gaps, or elements that overlap
_UNUSUAL = frozenset({"torch.empty_strided", "torch.Tensor.new_empty_strided"})


def has_own_form(bsym: BoundSymbol) -> bool:
    """Return whether the kernel of a call itself says how it writes in place."""
    return isinstance(getattr(bsym.sym.python_impl, "in_place", None), InPlaceForm)


def in_place_form(bsym: BoundSymbol) -> InPlaceForm | None:
    """Return the in-place form of a call that runs, or None.

    The forms of rows are for calls that core's kernels run.
    """
    form = getattr(bsym.sym.python_impl, "in_place", None)
    if isinstance(form, InPlaceForm):
        return form
    row = row_of(bsym.sym)
    return None if row is None else row.in_place


def writes_by_row(bsym: BoundSymbol) -> bool:
    """Return whether a call is an in-place form of a row, which a kernel of torch or of core runs."""
    operator, ending, _ = bsym.sym.id.rpartition(ENDING)
    row = row_of(operator) if ending else None
    return row is not None and row.in_place is not None


@dataclass
class Link:
    """A call of a chain, at a position of the program: ``copies`` become the memory of ``bases``."""

    position: int
    bsym: BoundSymbol
    form: InPlaceForm
    bases: Sequence[TensorProxy]
    copies: Sequence[TensorProxy]
    #: whether it keeps what it overwrites, writes memory of the program itself, or neither
    tag: OpenTag | None = None

    def base_of(self, value: TensorProxy) -> TensorProxy | None:
        """Return the argument whose memory a result becomes; None for a result in other memory."""
        pairs = zip(self.bases, self.copies, strict=True)
        return next((b for b, c in pairs if c.name == value.name), None)

    def of(self, region: BoundSymbol) -> Link:
        """Return the link for another form of its region."""
        return replace(self, bsym=region, form=region.sym.python_impl.in_place)

    def writes_all_of(self, target: TensorProxy) -> bool:
        """Return whether it overwrites all elements of an input."""
        return self.form.is_whole and are_same(self.bases[0].shape, target.shape)

    def in_place(self, values: Mapping[str, TensorProxy]) -> BoundSymbol:
        """Return the call that writes, on the operands that ``values`` names."""
        call, own = substitute_operands(self.bsym, values), self.bsym.sym
        if own.is_fusion:  # its form has its code, which ends with the program
            made = _made_symbol(self.form, own.name, own.id, self.tag)
            symbol = replace(made, is_fusion=True, executor=own.executor)
        else:
            symbol = _symbol(self.form, own.name, own.id, self.tag)
        return self.bsym.from_bsym(
            sym=symbol,
            args=call.args,
            kwargs=call.kwargs,
            output=self.form.results(self.bsym.output),
            subsymbols=self.bsym.subsymbols if own.is_fusion else (),
        )


#: how the names of in-place forms end
_ENDINGS = {
    None: "_in_place",
    OpTags.KEEPS_OVERWRITTEN: "_in_place_kept",
    OpTags.WRITES_OWN_MEMORY: "_in_place_own",
}


def _made_symbol(form: InPlaceForm, name: str, operator_id: str, tag: OpenTag | None) -> Symbol:
    """Return the symbol of an in-place form."""
    row = row_of(operator_id)
    tags = frozenset({OpTags.IN_PLACE} if tag is None else {OpTags.IN_PLACE, tag})
    name = f"{name if row is None else row.name}{_ENDINGS[tag]}"
    kernel = form.kernel(keeps_overwritten=tag is OpTags.KEEPS_OVERWRITTEN)
    return Symbol(name, f"{operator_id}{ENDING}", tags=tags, python_impl=kernel)


#: the same, once for each form of a row or of a package's kernel
_symbol = cache(_made_symbol)


def _named(name: OperatorName) -> Iterator[Symbol]:
    """Yield the in-place forms of the operator that a text names, such as ``mul_in_place``."""
    called, ending, _ = name.callee.rpartition("_in_place")
    for symbol in symbols_named(OperatorName(called)) if ending else ():
        row = row_of(symbol)
        if row is not None and row.in_place is not None:
            yield from (_symbol(row.in_place, row.name, row.id, tag) for tag in _ENDINGS)


declare_finder(_named)


class ProgramFacts:
    """What is known of a program: who computes and who reads a value, and which values share memory.

    ``saved`` are the names of values that a backward has from its forward, and nobody else as far as the
    two programs say (:meth:`own_saved` of the forward).
    """

    def __init__(
        self, trace: TraceCtx, deferred: TraceCtx | None = None, saved: Set[str] = frozenset()
    ) -> None:
        self.saved = saved
        self.statements = trace.bound_symbols
        self.inputs = {p.name: p for p in trace.args if isinstance(p, TensorProxy)}
        self.is_training = TraceTag.AUGMENTED_FORWARD in trace.tags
        has_no_backward = not self.is_training and TraceTag.BACKWARD not in trace.tags
        self._is_recorded = has_no_backward and trace.grad_enabled
        self.shared = {alias.proxy.name for group in trace.input_aliases for alias in group}
        self.producer = {p.name: i for i, b in enumerate(self.statements) for p in b.flat_proxy_outs}
        self.views = {view.output.name for b in self.statements for view in views_of(b)}
        self.is_asynchronous = any(
            isinstance(p, FutureTensorProxy) for b in self.statements for p in b.flat_proxy_outs
        )
        self._memory = shared_memory(self.statements)
        self._of_inputs = {self.memory(p) for p in self.inputs.values()}
        #: the value and the input of each copy to an input
        ending = self.statements if deferred is None else deferred.bound_symbols
        self.copies = [b for b in ending if b.sym.id == COPY and b.args[1].name in self.inputs]
        self.copy_counts = Counter(b.args[1].name for b in self.copies)
        self.copy_position = {b.args[1].name: i for i, b in enumerate(self.statements) if b.sym.id == COPY}
        #: the values of a forward that the deferred writes read once: they copy it
        deferred_calls = deferred.bound_symbols if deferred is not None else []
        reads = [p.name for b in deferred_calls for p in b.flat_proxy_args]
        self._only_copied = {b.args[0].name for b in self.copies if reads.count(b.args[0].name) == 1}
        #: memory that the deferred writes read
        self.read_later = {self.memory(p) for b in deferred_calls for p in _tensors(b.flat_proxy_args)}
        #: memory → the positions of statements that read it; of the return separately
        self._readers: dict[str, list[int]] = {}
        self.returned: set[str] = set()
        for i, bsym in enumerate(self.statements):
            for p in self._read(bsym):
                self._readers.setdefault(self.memory(p), []).append(i)

    def computed(self) -> Iterator[TensorProxy]:
        """Yield the tensors that statements have as results, as often as they do."""
        for bsym in self.statements:
            yield from _tensors(bsym.flat_proxy_outs)

    def memory(self, p: TensorProxy) -> str:
        """Return the name that represents the values with which a value may share memory."""
        return self._memory.find(p.name)

    def _read(self, bsym: BoundSymbol) -> Iterator[TensorProxy]:
        if bsym.sym.id == RETURN:
            results = bsym.flat_proxy_args
            if self.is_training:  # beside the results it has all inputs
                returned, saved = bsym.args
                tree = (returned["output"], returned["flat_output"])
                results = (
                    *(p for p in proxies_in(tree) if p.name not in self._only_copied),
                    *proxies_in(saved),
                )
            self.returned |= {self.memory(p) for p in results if isinstance(p, TensorProxy)}
        elif bsym.sym.id not in STRUCTURAL:
            is_copy = bsym.sym.id == COPY or OpTags.SAME_ELEMENTS in bsym.tags
            read = bsym.args[:1] if is_copy else (bsym.args, bsym.kwargs)
            yield from (p for p in proxies_in(read) if isinstance(p, TensorProxy))

    def is_own(self, p: TensorProxy) -> bool:
        """Return whether a value has memory of its own that a kernel of core, or a region, has allocated."""
        position = self.producer.get(p.name)
        if position is None or p.name in self.views or self.memory(p) in self._of_inputs:
            return False
        bsym = self.statements[position]
        is_known = runs_kernel_of_core(bsym) or _is_of_region(bsym)
        return is_known and bsym.sym.id not in _UNUSUAL and OpTags.IN_PLACE not in bsym.all_tags

    def is_recorded(self, bsym: BoundSymbol) -> bool:
        """Return whether torch's autograd may record a call.

        It may in a program without a backward that runs with gradients on, of operands that require grad.
        """
        return self._is_recorded and any(p.requires_grad for p in _tensors(bsym.flat_proxy_args))

    def _is_new(self, p: TensorProxy) -> bool:
        """Return whether the operator that computes a value certainly returns new memory."""
        bsym = self.statements[self.producer[p.name]]
        return bsym.sym.is_fusion or not bsym.all_tags.isdisjoint(_NEW_MEMORY)

    def own_saved(self) -> Set[str]:
        """Return the names of the saved values of a forward in memory of no input and no result."""
        results, saved = self.statements[-1].args[0], proxies_in(self.statements[-1].args[1])
        held = {self.memory(p) for p in _tensors(proxies_in((results["output"], results["flat_output"])))}
        return {
            p.name
            for p in _tensors(saved)
            if p.name in self.producer and self.memory(p) not in held | self._of_inputs
            if p.name not in self.views and self._is_new(p)
        }

    def readers_of(self, memory: str) -> Sequence[int]:
        """Return the positions of the statements that read some memory; not that of the return."""
        return self._readers.get(memory, ())

    def is_private(self, p: TensorProxy) -> bool:
        """Return whether nobody but the program ever has the memory of a value.

        It is not that of a result or of a saved value, and no code reads it that may keep it.
        """
        memory = self.memory(p)
        if memory in self.returned or memory in self.read_later:
            return False
        if p.name not in self.saved and not (self.is_own(p) and self._is_new(p)):
            return False
        return all(_keeps_nothing(self.statements[i]) for i in self.readers_of(memory))

    def ends_with(self, p: TensorProxy, position: int) -> bool:
        """Return whether the call at a position is the last that reads the memory of ``p``, only as ``p``."""
        memory = self.memory(p)
        others = (o for o in _tensors(self.statements[position].flat_proxy_args) if o.name != p.name)
        return all(i <= position for i in self.readers_of(memory)) and all(
            self.memory(o) != memory for o in others
        )

    def check_reads(self, link: Link, memory: Set[str], end: int, dropped: Container[int]) -> None:
        """Raise Refused if ``memory``, which a call is to write, is read by it or between it and ``end``."""
        bases = {p.name for p in link.bases}
        operands = [p for p in proxies_in((link.bsym.args, link.bsym.kwargs)) if isinstance(p, TensorProxy)]
        others = [p for p in operands if p.name not in bases]
        if any(self.memory(p) in memory for p in others) or (
            len(operands) - len(others) > len(bases) and not link.form.is_whole
        ):
            raise Refused(f"{name_of(link.bsym)} reads its memory by another argument")
        for i in sorted(i for m in memory for i in self._readers.get(m, ())):
            if link.position < i < end and i not in dropped:
                raise Refused(f"{name_of(self.statements[i])} reads the old elements")
        if end == len(self.statements) and memory & self.returned:
            raise Refused("the old elements are a result, or saved for the backward")

    def link(self, position: int) -> Link | None:
        """Return the call at a position with its in-place form; None if it has none."""
        bsym = self.statements[position]
        form = in_place_form(bsym)
        if form is None or not (runs_kernel_of_core(bsym) or has_own_form(bsym)):
            return None
        bases, copies = form.bases(bsym.args, bsym.kwargs), form.copies(bsym.output)
        if len(bases) != len(copies) or not all(map(have_same_elements, bases, copies)):
            return None
        return Link(position, bsym, form, bases, copies)


def _tensors(values: Iterable[object]) -> Iterator[TensorProxy]:
    return (p for p in values if isinstance(p, TensorProxy))


def _keeps_nothing(bsym: BoundSymbol) -> bool:
    """Return whether a call certainly keeps no reference to what it reads."""
    if bsym.sym.is_fusion:
        return True
    may_keep = OpTags.HOOKED in bsym.all_tags or has_effect(bsym) or has_opaque(bsym)
    return (runs_kernel_of_core(bsym) or _is_of_region(bsym)) and not may_keep


def _is_of_region(bsym: BoundSymbol) -> bool:
    """Return whether a call is a region, or part of one, of an executor that computes in memory of inputs."""
    return isinstance(bsym.sym.executor, FusionExecutor) and bsym.sym.executor.reuses


class Refused(Exception):
    """A write is not put in place; the message is the reason."""


def name_of(bsym: BoundSymbol) -> str:
    """Return the name of a call as reasons show it."""
    return str(bsym.sym.name if bsym.sym.is_fusion else bsym.sym.id)
