"""Tools to edit traces: visiting, inserting, replacing, evaluating; and to edit prologues."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import Any
from weakref import WeakKeyDictionary

import torch

from thunder.base.errors import InvalidArgument, TraceError, UnsupportedProgram, nearest
from thunder.base.structural_ids import RETURN
from thunder.base.tags import OpTags
from thunder.ir.dataflow import producers
from thunder.ir.evaluation import eval_trace
from thunder.ir.proxies import ProxyTag, TensorProxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.substitution import substitute, substitute_in_tree, substitute_operands
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace, tracectx

__all__ = [
    "VISIT_TYPE",
    "add_input",
    "add_trace_output",
    "cast_inputs",
    "eval_trace",
    "get_checks",
    "insert_inplace",
    "module_tensors",
    "replace_calls",
    "replace_inplace",
    "replace_input",
    "trace_with_replaced_proxy_metadata",
    "visitor_transform",
]

CHECK_TENSOR = "prims.check_tensor_shape_and_metadata"
CAST = "prims.convert_element_type"
CHECK_SAME = "prims.check_same_object"
UNPACK_MEMBERS = frozenset({"prims.unpack_parameter", "prims.unpack_buffer"})
UNPACK_OBJECT = "prims.unpack_function_obj"
COPY_ = "prims.copy_"
SET_GRAD_ENABLED = "prims.set_grad_enabled"
#: the values of a prologue that are the compiled module, and its overriding tensors
OWN_ROOTS = frozenset({"self", "overrides"})


class VISIT_TYPE(Enum):
    """The place of the calls that a visitor recorded, relative to the visited bound symbol."""

    INSERT_BEFORE = auto()
    INSERT_AFTER = auto()
    REPLACE = auto()
    NO_OP = auto()


def _record(trace: TraceCtx, fn: Callable[..., Any], *args: Any) -> tuple[list[BoundSymbol], Any]:
    """Return the bound symbols that `fn(*args)` records, and its result."""
    scope: list[BoundSymbol] = []
    with tracectx(trace):
        trace.push_scope(scope)
        try:
            result = fn(*args)
        finally:
            trace.pop_scope()
    return scope, result


def visitor_transform(
    trace: TraceCtx, visit: Callable[[BoundSymbol], VISIT_TYPE], *, provenance: str | None = None
) -> TraceCtx:
    """Return a trace in which `visit` has been called on every top-level bound symbol.

    Calls that `visit(bsym)` records are inserted before or after `bsym`, or replace it, as its result (a
    VISIT_TYPE) states.
    """
    start = time.perf_counter_ns()
    new = from_trace(trace)
    for bsym in trace.bound_symbols:
        recorded, answer = _record(new, visit, bsym)
        if not isinstance(answer, VISIT_TYPE):
            raise InvalidArgument(f"a visitor returned {answer!r}", hint="It returns a member of VISIT_TYPE.")
        before = recorded if answer in (VISIT_TYPE.INSERT_BEFORE, VISIT_TYPE.REPLACE) else []
        visited = [] if answer is VISIT_TYPE.REPLACE else [bsym]
        after = recorded if answer is VISIT_TYPE.INSERT_AFTER else []
        new.bound_symbols += [*before, *visited, *after]
    took = time.perf_counter_ns() - start
    new.set_provenance(TraceProvenance(provenance or str(getattr(visit, "__name__", "Visitor")), took))
    return new


def insert_inplace(trace: TraceCtx, idx: int, fn: Callable[[], Any]) -> None:
    """Record `fn()` at position `idx` of the trace itself."""
    recorded, _ = _record(trace, fn)
    trace.bound_symbols[idx:idx] = recorded


def replace_inplace(trace: TraceCtx, idx: int, fn: Callable[[BoundSymbol], Any]) -> None:
    """Record `fn(bsym)` in place of the bound symbol at position `idx` of the trace itself."""
    recorded, _ = _record(trace, fn, trace.bound_symbols[idx])
    trace.bound_symbols[idx : idx + 1] = recorded


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
    replace the outputs of `bsym`, in the same structure; later calls read them. Raises InvalidArgument for a
    result of another shape, dtype or device than the output that it replaces, and for a write to a tensor.
    """
    start = time.perf_counter_ns()
    new, replaced, grad_mode = from_trace(trace), dict[str, Any](), torch.is_grad_enabled()

    def changed(bsym: BoundSymbol) -> list[BoundSymbol]:
        bsym = substitute_operands(bsym, replaced)
        with torch.set_grad_enabled(grad_mode):
            recorded, results = _record(new, replacement, bsym)
        if results is not None:
            if not has_tags(bsym, {OpTags.IN_PLACE}):
                _refuse_new_writes(recorded, f"replaces a call of {bsym.sym.id}")
            return _renamed(recorded, bsym, results, replaced)
        calls = [changed(sub) for sub in bsym.subsymbols] if nested else []
        if all(call is sub for (call, *_), sub in zip(calls, bsym.subsymbols, strict=False)):
            return [bsym]
        return [_in_place_of(call, bsym) for part in calls for call in part]

    for bsym in trace.bound_symbols:
        if bsym.sym.id == SET_GRAD_ENABLED:
            grad_mode = bool(bsym.args[0])
        new.bound_symbols += changed(bsym)
    new.args = list(trace.args)  # `replacement` may have added inputs
    took = time.perf_counter_ns() - start
    name = provenance or str(getattr(replacement, "__name__", "Replacement of calls"))
    new.set_provenance(TraceProvenance(name, took))
    return new


def _refuse_new_writes(recorded: Iterable[BoundSymbol], purpose: str) -> None:
    """Raise InvalidArgument for a write to a tensor: the program's own have been functionalised already."""
    for bsym in recorded:
        if has_tags(bsym, {OpTags.IN_PLACE}):
            raise InvalidArgument(
                f"the function that {purpose} writes to a tensor, by {bsym.sym.id}",
                hint="Use an out-of-place operator.",
            )


def _in_place_of(call: BoundSymbol, bsym: BoundSymbol) -> BoundSymbol:
    """Return a call with the source line and the tags of the one that it replaces."""
    return call.from_bsym(source=call.source or bsym.source, tags=call.own_tags | bsym.own_tags)


def _renamed(
    recorded: list[BoundSymbol], bsym: BoundSymbol, results: Any, replaced: dict[str, Any]
) -> list[BoundSymbol]:
    """Return the recorded calls with the names of the outputs of `bsym`.

    Values that replace outputs in later calls are entered into `replaced`.
    """
    outputs, values = proxies_in(bsym.output), proxies_in(results)
    if [_form(p) for p in outputs] != [_form(p) for p in values]:
        raise InvalidArgument(
            f"a call of {bsym.sym.id} is replaced by results of another form: "
            f"{', '.join(map(_form, values))} and not {', '.join(map(_form, outputs))}"
        )
    computed = {p.name for b in recorded for p in b.flat_proxy_outs}
    names: dict[str, Any] = {}
    for output, value in zip(outputs, values, strict=True):
        if value.name in computed and value.name not in names:
            names[value.name] = value.replace(name=output.name)
        replaced[output.name] = names.get(value.name, value)
    return [_in_place_of(substitute(b, names), bsym) for b in recorded]


def _form(p: Any) -> str:
    return str(p.type_string())


# -- prologues ---------------------------------------------------------------------------------------------


def get_checks(prologue: TraceCtx) -> dict[str, tuple[BoundSymbol, BoundSymbol]]:
    """Return the bound symbols that check and unpack each tensor of a prologue, by its name."""
    unpacked = producers(prologue)
    return {
        bsym.args[0].name: (bsym, unpacked[bsym.args[0]])
        for statement in prologue.bound_symbols
        for bsym in (statement, *statement.subsymbols)
        if bsym.sym.id == CHECK_TENSOR
    }


def module_tensors(prologue: TraceCtx) -> dict[str, TensorProxy]:
    """Return the parameters and buffers that a prologue unpacks, by their dotted names.

    They are those that the program reads, and those under names that a transform added with `override`. The
    metadata are those of the tensors in use. A tensor with several names is there under each. Names are
    relative to the compiled module; those of another module follow the name that it has in the prologue.
    """
    aliases = {
        bsym.args[0].name: bsym.args[1]
        for bsym in prologue.bound_symbols
        if bsym.sym.id == CHECK_SAME and isinstance(bsym.args[1], TensorProxy)
    }
    tensors = {}
    for bsym in prologue.bound_symbols:
        if bsym.sym.id in UNPACK_MEMBERS:
            owner, name = bsym.args
            tensor = aliases.get(bsym.output.name, bsym.output)
            if isinstance(tensor, TensorProxy):
                tensors[name if owner.name in OWN_ROOTS else f"{owner.name}.{name}"] = tensor
    return tensors


def cast_inputs(trace: TraceCtx) -> dict[str, TensorProxy]:
    """Return the input that a value is, or of which it is a cast, by the name of the value.

    Under autocast a program casts a weight before it reads it. A value that `replace_input` has computed
    is taken for the tensor in use.
    """
    inputs = {p.name: p for p in trace.args if isinstance(p, TensorProxy)}
    inputs |= {value: inputs[stored] for value, stored in trace.computed_inputs.items() if stored in inputs}
    _add_casts(trace.bound_symbols, inputs)
    return inputs


def _add_casts(bsyms: Iterable[BoundSymbol], inputs: dict[str, TensorProxy]) -> None:
    for bsym in bsyms:
        match bsym.flat_proxy_args, bsym.flat_proxy_outs:
            case (operand,), (result,) if operand.name in inputs and _casts(bsym):
                inputs[result.name] = inputs[operand.name]
            case _:
                _add_casts(bsym.subsymbols, inputs)


def _casts(bsym: BoundSymbol) -> bool:
    return bsym.sym.id == CAST or (bool(bsym.subsymbols) and all(map(_casts, bsym.subsymbols)))


def _module_tensor(prologue: TraceCtx, name: str) -> TensorProxy | None:
    """Return a tensor of the module by its dotted name; None for one that the program does not read."""
    tensors = module_tensors(prologue)
    module = next((b.args[0].value for b in prologue.bound_symbols if _unpacks(b, "self")), None)
    if name in tensors or not isinstance(module, torch.nn.Module):
        names = list(tensors)
    else:
        members = (*module.named_parameters(remove_duplicate=False), *module.named_buffers())
        names = list(dict.fromkeys([*tensors, *(member for member, _ in members)]))
    if name not in names:
        close = nearest(name, names)
        guess = f"; did you mean {close!r}?" if close else ""
        raise InvalidArgument(
            f"the module has no tensor {name!r}{guess}",
            found={"tensors": ", ".join(names)},
            hint="model.override(name, tensor) adds one.",
        )
    return tensors.get(name)


def _unpacks(bsym: BoundSymbol, name: str) -> bool:
    return bsym.sym.id == UNPACK_OBJECT and bool(bsym.output.name == name)


def add_input(prologue: TraceCtx, computation: TraceCtx, name: str) -> TensorProxy:
    """Let the computation take a parameter or buffer of the module by its dotted name; return its proxy.

    Both traces are changed. An input that the computation has already is returned as it is. Raises
    InvalidArgument for a name that the prologue does not unpack.
    """
    tensor = _module_tensor(prologue, name)
    if tensor is None:
        raise InvalidArgument(
            f"the prologue does not unpack {name!r}: the program does not read it",
            hint="The tensors that a program reads, and those that override one, can become inputs.",
        )
    for argument in computation.args:
        if argument.name == tensor.name:
            return argument  # type: ignore[no-any-return]
    add_trace_output(prologue, tensor, subindex=0)
    computation.names.add(tensor.name)
    argument = tensor.replace()
    computation.args.append(argument)
    return argument


def replace_input(
    prologue: TraceCtx, computation: TraceCtx, name: str, compute: Callable[..., Any], *others: str
) -> TensorProxy | None:
    """Let the computation compute a parameter or buffer from the tensor in use, which overrides it.

    Before its first use, `compute(tensor, *tensors)` is recorded: it gets the proxy of the tensor in use,
    with its own metadata, and those of `others`, which become inputs. The program then reads the result. Both
    traces are changed. A backward computes it again. Returns the result, or None if the program does not read
    the tensor, or if the hook has replaced it under another of its names.

        computation(x, w): linear(x, w)   →   computation(x, w, scale): w0 = w * scale; linear(x, w0)

    Raises InvalidArgument if the result has another shape, dtype or device than the program reads, or if
    `compute` writes to a tensor, and UnsupportedProgram if the program writes to the tensor.
    """
    stored = _module_tensor(prologue, name)
    replaced = _replaced.setdefault(prologue, set())
    if stored is None or stored.name in replaced:
        return None
    index = next((i for i, p in enumerate(computation.args) if p.name == stored.name), None)
    if index is None:
        return None
    replaced.add(stored.name)
    original = computation.args[index]
    _refuse_writes(computation, original, name)
    computation.args[index] = stored.replace()
    inputs = [add_input(prologue, computation, other) for other in others]
    recorded, value = _record(computation, compute, computation.args[index], *inputs)
    _refuse_new_writes(recorded, f"computes {name}")
    if not isinstance(value, TensorProxy) or _form(value) != _form(original):
        computed = _form(value) if isinstance(value, TensorProxy) else type(value).__name__
        raise InvalidArgument(
            f'{name} is computed as "{computed}", and the program reads "{_form(original)}"',
            hint="The result has the shape, dtype and device of the module's own tensor.",
        )
    for proxy in (p for bsym in recorded for p in bsym.flat_proxy_outs):
        proxy.tags.add(ProxyTag.RECOMPUTE_IN_BACKWARD)
    calls = computation.bound_symbols
    first = next((i for i, b in enumerate(calls) if b.has_input([original])), None)
    if first is None:
        return None
    if any(b.sym.id == SET_GRAD_ENABLED for b in calls[:first]):
        first = 0  # a later use may be in another grad mode
    later = [substitute_operands(bsym, {original.name: value}) for bsym in calls[first:]]
    computation.bound_symbols = [*calls[:first], *recorded, *later]
    computation.computed_inputs = {**computation.computed_inputs, value.name: stored.name}
    return value


#: the names of the tensors that a hook has replaced, by the copy of the prologue that it works on
_replaced: WeakKeyDictionary[TraceCtx, set[str]] = WeakKeyDictionary()


def _refuse_writes(computation: TraceCtx, tensor: TensorProxy, name: str) -> None:
    for bsym in computation.bound_symbols:
        if has_tags(bsym, {OpTags.IN_PLACE}):
            targets = bsym.args[1:] if bsym.sym.id == COPY_ else bsym.flat_proxy_args
            if any(getattr(target, "name", None) == tensor.name for target in targets):
                raise UnsupportedProgram(
                    f"the program writes to {name}, which a transform computes from another tensor",
                    where=bsym.locations,
                )


def add_trace_output(trace: TraceCtx, proxy: Any, subindex: int | None = None) -> None:
    """Add `proxy` to the results of the trace itself, as the last element of its tuple.

    `subindex` selects the tuple among the results: a prologue returns `((computation's inputs), (epilogue's
    inputs))`. Raises TraceError if there is no such tuple.
    """
    end = trace.bound_symbols[-1]
    if end.sym.id != RETURN:
        raise TraceError("the trace does not end with a return")
    output = trace.output
    target = output if subindex is None else output[subindex]
    if not isinstance(target, tuple):
        raise TraceError(
            f"the trace does not return a tuple to which {proxy.name} could be added", found=str(end)
        )
    longer: Any = (*target, proxy)
    if subindex is not None:
        longer = tuple(longer if i == subindex else item for i, item in enumerate(output))
    trace.bound_symbols[-1] = end.from_bsym(args=(longer,) if len(end.args) == 1 else longer)


def trace_with_replaced_proxy_metadata(trace: TraceCtx, changes: Mapping[str, Mapping[str, Any]]) -> TraceCtx:
    """Return a trace whose tensors of these names have other metadata.

    `changes` is, for example, `{"t_weight": {"shape": (4, 4)}}`. Values computed from the tensors keep their
    metadata. Raises InvalidArgument for a name that the trace does not have.
    """
    tensors = {p.name: p for p in trace.args if isinstance(p, TensorProxy)}
    for bsym in trace.bound_symbols:
        tensors.update({p.name: p for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy)})
    unknown = set(changes) - set(tensors)
    if unknown:
        raise InvalidArgument(f"the trace has no tensor {sorted(unknown)[0]!r}")
    changed = {name: tensors[name].replace(**metadata) for name, metadata in changes.items()}
    new = from_trace(trace)
    new.args = substitute_in_tree(trace.args, changed)
    new.bound_symbols = [_with_metadata(b, changed) for b in trace.bound_symbols]
    new.set_provenance(TraceProvenance("Replacement of proxy metadata"))
    return new


def _with_metadata(bsym: BoundSymbol, changed: Mapping[str, TensorProxy]) -> BoundSymbol:
    if bsym.sym.id == CHECK_TENSOR and bsym.args[0].name in changed:
        p = changed[bsym.args[0].name]
        facts = (tuple(p.shape), p.device.device_str(), p.dtype.torch_dtype, p.requires_grad)
        return bsym.from_bsym(args=(p, *facts))
    return substitute(bsym, changed)
