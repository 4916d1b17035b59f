"""Memory of the program itself that is written again.

Note [Memory that is reused]
A value that nothing reads any more gives its memory to the result of the call that reads it last, if that
computes each element from the elements at the same place:

    t0 = torch.mm(x, w)             t0 = torch.mm(x, w)
    t1 = torch.sin(t0)         →    t1 = sin_reuses_0(t0)
    del t0                          del t0

The two names have one memory then, as far as the kernel finds that a new result would have its strides
(``ops/reused_memory``). The value

- is computed by a kernel of core that returns new memory (``ProgramFacts.is_own``), elementwise, a product or
  a reduction; so it is not an input, nor a view of one;
- is not a result, not saved for the backward, and not copied to an input afterwards;
- in a backward it may be one that was saved, if the forward has computed it and returns no part of its
  memory. Where the call runs (``mul_takes_1``), a new result is computed unless nobody else has the tensor:
  with ``retain_graph``, under hooks of saved tensors and by ``grad_fn.saved_tensors`` others have it;
- has dtype, device and shape of the result, symbolic sizes by name;
- does not require grad where torch's autograd records calls: in a program without a backward, whose
  gradients nobody asks for, a tensor that is written again would keep its history;
- is read by kernels of core and by fusion regions alone, none of which comes later: other code may keep it.

A small value is left: its memory matters little, and so do the microseconds.

A fusion region computes in the memory of inputs that it is compiled for (Note [Inputs that end]).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import replace

from thunder.base.tags import OpTags
from thunder.ir.ending_inputs import have_same_elements
from thunder.ir.proxies import TensorProxy
from thunder.ir.substitution import substitute_operands
from thunder.ir.symbol import BoundSymbol
from thunder.ir.traced_sizes import tensor_bytes
from thunder.ops.reused_memory import operands_of, reusing
from thunder.ops.writing_regions import form_of
from thunder.passes.placed_writes.program_facts import Link, ProgramFacts, Refused

__all__ = [
    "SMALLEST",
    "is_large",
    "operand_to_reuse",
    "parts_of_own",
    "private_values",
    "region_in_memory_of_inputs",
    "reused",
]

#: the least size of a value whose memory is reused, in bytes
SMALLEST = 1 << 16


def is_large(value: object) -> bool:
    """Return whether a value is so large that its memory matters."""
    return isinstance(value, TensorProxy) and tensor_bytes(value) >= SMALLEST


def parts_of_own(
    facts: ProgramFacts, links: dict[int, Link], values: dict[str, TensorProxy]
) -> tuple[dict[int, Link], dict[str, TensorProxy]]:
    """Return calls that write a part of a tensor which the program has computed, and reads no more.

    The second result has the values that become memory of earlier ones. ``links`` and ``values`` are those of
    inputs that are written in place.
    """
    found: dict[int, Link] = {}
    own: dict[str, TensorProxy] = {}  # a value that became memory of an earlier one, by name
    for position in range(len(facts.statements)):
        link = facts.link(position) if position not in links and not facts.is_asynchronous else None
        if link is None or not link.form.keeps_layout:
            continue
        (base,), (copy,) = link.bases, link.copies
        if base.name in values or not (base.name in own or facts.is_own(base)):
            continue
        if facts.is_recorded(link.bsym):
            continue
        if facts.is_training and (
            facts.memory(copy) in facts.returned or base.requires_grad > copy.requires_grad
        ):
            continue  # what is saved for the backward keeps its name, and a result its gradient
        if facts.memory(base) in facts.read_later:
            continue
        try:
            facts.check_reads(link, {facts.memory(base)}, len(facts.statements), ())
        except Refused:
            continue
        link.tag = OpTags.WRITES_OWN_MEMORY
        found[position], own[copy.name] = link, own.get(base.name, base)
    return found, own


def operand_to_reuse(facts: ProgramFacts, position: int, values: dict[str, TensorProxy]) -> int | None:
    """Return the position of an argument in whose memory a call can compute its result, or None.

    ``values`` are the values that become memory of others otherwise.
    """
    bsym = facts.statements[position]
    result = bsym.output
    if type(result) is not TensorProxy or result.name in values or not is_large(result):
        return None
    if facts.is_recorded(bsym):
        return None
    # a saved value comes last: others may have it when the backward runs
    for i, operand in sorted(operands_of(bsym), key=lambda pair: pair[1].name in facts.saved):
        if (
            have_same_elements(operand, result)
            and operand.name not in values
            and facts.is_private(operand)
            and facts.ends_with(operand, position)
        ):
            return i
    return None


def reused(facts: ProgramFacts, position: int, values: dict[str, TensorProxy]) -> BoundSymbol | None:
    """Return the call at a position as one that computes in the memory of an argument, or None."""
    bsym = facts.statements[position]
    if bsym.sym.is_fusion:
        region = region_in_memory_of_inputs(facts, position, values)
        return None if region is bsym else substitute_operands(region, values)
    if facts.is_asynchronous or (operand := operand_to_reuse(facts, position, values)) is None:
        return None
    call = substitute_operands(bsym, values)
    return bsym.from_bsym(
        sym=reusing(str(bsym.sym.id), operand, is_saved=bsym.args[operand].name in facts.saved),
        args=call.args,
        kwargs=call.kwargs,
        subsymbols=(),
    )


def private_values(facts: ProgramFacts) -> Set[str]:
    """Return the names of the large values of a program that nobody else has, and that have no view."""
    names = Counter(map(facts.memory, facts.computed()))
    return {
        p.name
        for p in facts.computed()
        if is_large(p) and names[facts.memory(p)] == 1 and facts.is_private(p)
    }


def region_in_memory_of_inputs(
    facts: ProgramFacts, position: int, values: dict[str, TensorProxy]
) -> BoundSymbol:
    """Return the call of a region that computes in the memory of the inputs that end with it; or the call."""
    bsym = facts.statements[position]
    form = form_of(bsym.sym.python_impl)
    ending = {
        target: operand
        for target in (() if form is None else form.targets)
        if not facts.is_asynchronous and not facts.is_recorded(bsym)
        if (operand := bsym.args[target]).name not in values
        if facts.is_private(operand) and facts.ends_with(operand, position)
    }
    if form is None or not ending:
        return bsym
    saved = {i for i, operand in ending.items() if operand.name in facts.saved}
    symbol = replace(
        bsym.sym,
        name=f"{bsym.sym.name}_{'takes' if saved else 'reuses'}",
        tags=bsym.sym.tags | {OpTags.IN_PLACE, OpTags.WRITES_OWN_MEMORY},
        python_impl=form.reusing(own=ending.keys() - saved, saved=saved),
    )
    return bsym.from_bsym(sym=symbol)
