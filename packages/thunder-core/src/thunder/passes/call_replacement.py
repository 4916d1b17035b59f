"""Calls replaced one by one, by what a function records for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.base.errors import InvalidArgument
from thunder.base.pytree import tree_map
from thunder.base.tags import OpTags
from thunder.ir.evaluation import rewrite
from thunder.ir.proxies import is_proxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.rewrite import refuse_new_writes
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ir.trace import TraceCtx, get_tracectx
from thunder.passes.result_memory import ProgramMemory, with_own_memory

__all__ = ["replace_calls"]


def replace_calls(
    trace: TraceCtx,
    replacement: Callable[[BoundSymbol], Any],
    *,
    nested: bool = False,
    provenance: str | None = None,
) -> TraceCtx:
    """Return a trace in which calls are replaced by what a function records for them.

    `replacement(bsym)` is called for every top-level call; with `nested=True` also for those of which a
    composite consists, such as the linear layers of `multi_head_attention_forward`: if one of them is
    replaced, they take the place of the composite. It returns None to keep the call, else the results that
    replace the outputs of `bsym`, in the same structure; later calls read them. A result in the memory of an
    argument, where the call made new memory, is copied if the caller of the program may get it. `provenance`
    is the name of the new trace, by default that of the function. Raises InvalidArgument for a result of
    another shape, dtype or device than the output that it replaces, and for a write to a tensor.
    """
    memory = ProgramMemory(trace)

    def checked(bsym: BoundSymbol) -> Any:
        results = replacement(bsym)
        return None if results is None else _in_own_memory(bsym, results, memory)

    name = provenance or str(getattr(replacement, "__name__", "Replacement of calls"))
    return rewrite(trace, checked, name, nested=nested)


def _in_own_memory(bsym: BoundSymbol, results: Any, memory: ProgramMemory) -> Any:
    """Return the results in the place of a call's outputs; raise InvalidArgument for others than those."""
    trace = get_tracectx()
    assert trace is not None, "the replacement of a call is recorded"
    recorded = trace.peek_scope()
    if not has_tags(bsym, {OpTags.IN_PLACE}):
        refuse_new_writes(recorded, f"replaces a call of {bsym.sym.id}")
    outputs, values = list(proxies_in(bsym.output)), list(proxies_in(results))
    forms = [[str(p.type_string()) for p in proxies] for proxies in (outputs, values)]
    if forms[0] != forms[1]:
        raise InvalidArgument(
            f"a call of {bsym.sym.id} is replaced by results of another form: "
            f"{', '.join(forms[1])} and not {', '.join(forms[0])}"
        )
    copies, separate = with_own_memory(
        trace, bsym, list(recorded), list(zip(outputs, values, strict=True)), memory
    )
    if not copies:
        return results
    recorded.extend(copies)
    remaining = (value for _, value in separate)
    return tree_map(lambda leaf: next(remaining) if is_proxy(leaf) else leaf, results)
