"""The parameters and buffers that a prologue unpacks, and their use as inputs of the computation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any
from weakref import WeakKeyDictionary

import torch

from thunder.base.errors import InvalidArgument, PluginError, UnsupportedProgram, nearest
from thunder.base.structural_ids import RETURN
from thunder.ir.dataflow import producers
from thunder.ir.effects import written_tensors
from thunder.ir.evaluation import SET_GRAD_ENABLED, recorded_by
from thunder.ir.proxies import ProxyTag, TensorProxy, is_proxy
from thunder.ir.rewrite import CHECK_TENSOR, add_trace_output, refuse_new_writes
from thunder.ir.substitution import substitute_operands
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx

__all__ = ["add_input", "cast_inputs", "get_checks", "module_tensors", "replace_input", "replace_inputs"]

CAST = "prims.convert_element_type"
CHECK_SAME = "prims.check_same_object"
UNPACK_MEMBERS = frozenset({"prims.unpack_parameter", "prims.unpack_buffer"})
UNPACK_OBJECT = "prims.unpack_function_obj"
#: the values of a prologue that are the compiled module, and its overriding tensors
OWN_ROOTS = frozenset({"self", "overrides"})


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
    argument = _as_read(prologue, name, tensor)
    computation.args.append(argument)
    return argument


def _as_read(prologue: TraceCtx, name: str, tensor: TensorProxy) -> TensorProxy:
    """Return an input of the computation, in the form in which the hook's transform has left it.

    A later transform that changed it, as one that shards it, computes this form from the tensor in use.
    """
    if name not in prologue.input_forms:
        return tensor.replace()
    shape, dtype = prologue.input_forms[name]
    return tensor.replace(shape=shape, dtype=dtype, strides=None, input_offset=None)


def replace_input(
    prologue: TraceCtx,
    computation: TraceCtx,
    name: str,
    compute: Callable[..., Any],
    *others: str,
    recompute: bool = True,
) -> TensorProxy | None:
    """Let the computation compute a parameter or buffer from the tensor in use, which overrides it.

    Before its first use, `compute(tensor, *tensors)` is recorded: it gets the proxy of the tensor in use,
    with its own metadata, and those of `others`, which become inputs. The program then reads the result. Both
    traces are changed. A backward computes it again; with `recompute=False` the result is saved for it like
    any other. Returns the result, or None if the program does not read the tensor, or if the hook has
    replaced it under another of its names.

        computation(x, w): linear(x, w)   →   computation(x, w, scale): w0 = w * scale; linear(x, w0)

    Raises InvalidArgument if the result has another shape, dtype or device than the program reads, or if
    `compute` writes to a tensor, and UnsupportedProgram if the program writes to the tensor.
    """
    replacements = {name: (compute, others)}
    return replace_inputs(prologue, computation, replacements, recompute=recompute).get(name)


def replace_inputs(
    prologue: TraceCtx,
    computation: TraceCtx,
    replacements: Mapping[str, tuple[Callable[..., Any], Sequence[str]]],
    *,
    recompute: bool = True,
) -> dict[str, TensorProxy]:
    """Do what `replace_input` does for many tensors at once: name → what computes it, and the other tensors.

    The computations read the tensors in use, also where these are replaced by another row. Returns the
    results by name, without those that are not read. It takes time proportional to the program, where
    `replace_input` for each would take that for each tensor.
    """
    tensors, replaced = module_tensors(prologue), _replaced.setdefault(prologue, set())
    positions = {p.name: i for i, p in enumerate(computation.args)}
    chosen: dict[str, TensorProxy] = {}  # name → the tensor in use
    for name in replacements:
        stored = tensors[name] if name in tensors else _module_tensor(prologue, name)
        if stored is not None and stored.name not in replaced and stored.name in positions:
            replaced.add(stored.name)
            chosen[name] = stored
    originals = {name: computation.args[positions[stored.name]] for name, stored in chosen.items()}
    _refuse_writes(computation, {p.name: name for name, p in originals.items()})
    for name, stored in chosen.items():
        computation.args[positions[stored.name]] = _as_read(prologue, name, stored)
    first = _first_uses(computation, {p.name for p in originals.values()})
    recorded_at: dict[int, list[BoundSymbol]] = {}
    results: dict[str, TensorProxy] = {}
    for name, stored in chosen.items():
        compute, others = replacements[name]
        inputs = [add_input(prologue, computation, other) for other in others]
        recorded, value = recorded_by(computation, compute, computation.args[positions[stored.name]], *inputs)
        refuse_new_writes(recorded, f"computes {name}")
        _check_form(name, originals[name], value)
        if recompute:
            for proxy in (p for bsym in recorded for p in bsym.flat_proxy_outs):
                proxy.tags.add(ProxyTag.RECOMPUTE_IN_BACKWARD)
        if originals[name].name in first:
            results[name] = value
            use, position = first[originals[name].name]
            recorded_at.setdefault(position, []).extend(
                b.from_bsym(source=b.source or use.source) for b in recorded
            )
    values = {originals[name].name: value for name, value in results.items()}
    calls: list[BoundSymbol] = []
    for index, bsym in enumerate(computation.bound_symbols):
        calls += recorded_at.get(index, ())
        calls.append(substitute_operands(bsym, values))
    computation.bound_symbols = calls
    computed = {value.name: chosen[name].name for name, value in results.items()}
    computation.computed_inputs = {**computation.computed_inputs, **computed}
    return results


def _first_uses(computation: TraceCtx, names: Set[str]) -> dict[str, tuple[BoundSymbol, int]]:
    """Return the first call that reads each tensor, and the index at which the tensor can be computed."""
    first: dict[str, tuple[BoundSymbol, int]] = {}
    has_modes = False  # a later use may be in another grad mode
    for index, bsym in enumerate(computation.bound_symbols):
        for p in bsym.flat_proxy_args:
            if p.name in names:
                first.setdefault(p.name, (bsym, 0 if has_modes else index))
        has_modes = has_modes or bsym.sym.id == SET_GRAD_ENABLED
    return first


def _check_form(name: str, original: TensorProxy, value: Any) -> None:
    """Raise InvalidArgument if a computed tensor is not of the form that the program reads."""
    if not isinstance(value, TensorProxy) or value.type_string() != original.type_string():
        computed = value.type_string() if isinstance(value, TensorProxy) else type(value).__name__
        raise InvalidArgument(
            f'{name} is computed as "{computed}", and the program reads "{original.type_string()}"',
            hint="The result has the shape, dtype and device of the module's own tensor.",
        )


#: the names of the tensors that a hook has replaced, by the copy of the prologue that it works on
_replaced: WeakKeyDictionary[TraceCtx, set[str]] = WeakKeyDictionary()


def _refuse_writes(computation: TraceCtx, names: Mapping[str, str]) -> None:
    """Raise UnsupportedProgram if a program writes to one of some tensors, given with their dotted names."""
    for bsym in computation.bound_symbols:
        for target in written_tensors(bsym) if any(p.name in names for p in bsym.flat_proxy_args) else ():
            name = names.get(target.name)
            if name is not None:
                raise UnsupportedProgram(
                    f"the program writes to {name}, which a transform computes from another tensor",
                    where=bsym.locations,
                    hint="Write to it outside of the compiled program, or let the transform leave the tensor "
                    "as it is.",
                )


def returned_inputs(prologue: TraceCtx) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return what a prologue returns: the inputs of the computation, and those of the epilogue.

    Raises PluginError if it returns something else.
    """
    end = prologue.bound_symbols[-1] if prologue.bound_symbols else None
    if end is not None and end.sym.id == RETURN and len(end.args) == 1:
        match end.args[0]:
            case (tuple() as inputs, tuple() as reached):
                return inputs, reached
    raise PluginError(
        "a transform returned a prologue that does not return the inputs of computation and epilogue",
        found=None if end is None else str(end),
        hint="The last statement returns ((inputs of the computation), (inputs of the epilogue)).",
    )


def _interface(prologue: TraceCtx, computation: TraceCtx) -> tuple[tuple[Any, ...], list[Any]]:
    """Return what a prologue returns for the computation, and what the computation takes."""
    return returned_inputs(prologue)[0], [p for p in computation.args if is_proxy(p)]


def check_count(prologue: TraceCtx, computation: TraceCtx, transform: str) -> None:
    """Raise PluginError unless a prologue returns the inputs that the computation takes, in its order.

    ``transform`` is the name of the transform that returned them.
    """
    returned, taken = _interface(prologue, computation)
    if len(returned) != len(taken):
        raise PluginError(
            f"the prologue that {transform} returned has {len(returned)} inputs for the computation, "
            f"which takes {len(taken)}",
            found={"prologue": [p.name for p in returned], "computation": [p.name for p in taken]},
            hint="thunder.core.rewrite.add_input adds an input to both.",
        )
    names, taken_names = [p.name for p in returned], [p.name for p in taken]
    if names != taken_names and sorted(names) == sorted(taken_names):
        raise PluginError(
            f"the prologue that {transform} returned has the inputs of the computation in another order",
            found={"prologue": names, "computation": taken_names},
            hint="The computation takes its inputs in the order in which the prologue returns them.",
        )


def check_metadata(prologue: TraceCtx, computation: TraceCtx) -> None:
    """Raise PluginError unless the computation takes its inputs with the metadata that they have."""
    names = {tensor.name: name for name, tensor in module_tensors(prologue).items()}
    for value, argument in zip(*_interface(prologue, computation), strict=True):
        if _described(value) != _described(argument):
            name = names.get(value.name, value.name)
            raise PluginError(
                f"the program reads {name} with other metadata than the tensor in use has",
                found={"program": _described(argument), "in use": _described(value)},
                hint="It is overridden with a tensor of another form, and no transform changes how it is "
                "read. thunder.core.rewrite.replace_input does, in transform_traces_pre_prologue.",
            )


def _described(value: Any) -> str:
    grad = ", requires grad" if getattr(value, "requires_grad", False) else ""
    return f"{value.type_string()}{grad}"
