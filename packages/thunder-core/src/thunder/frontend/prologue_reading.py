"""The facts that the statements of a prologue check: how a prologue that a transform changed is read.

    t_fc_weight = unpack_parameter(self, 'fc.weight')     →     the fact of self.fc.weight,
    check_tensor_shape_and_metadata(t_fc_weight, …)             with the metadata of the tensor in use

`thunder.frontend.prologue_statements` goes the other way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch

from thunder.base.equal_values import COMPARISONS
from thunder.base.errors import PluginError
from thunder.base.provenance import Path, StepKind, object_root, root
from thunder.base.structural_ids import COMMENT, RELEASES, RETURN
from thunder.frontend.facts import Fact, TensorFacts
from thunder.frontend.free_sizes import FreeSizes
from thunder.frontend.prologue_statements import (
    ALL_CHECKS,
    DICT_OF_MEMBER,
    IF_RETURNED,
    KIND_OF_CHECK,
    KIND_OF_STEP,
    Interface,
    metadata,
)
from thunder.frontend.value_names import is_size
from thunder.ir.module_inputs import module_tensors
from thunder.ir.object_names import argument_value
from thunder.ir.proxies import is_proxy
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.trace import TraceCtx
from thunder.ops import prims


class Acquired(Protocol):
    """The facts that a program was acquired with, and what is known of symbols."""

    @property
    def facts(self) -> Iterable[Fact]: ...

    @property
    def sizes(self) -> SizeFacts | None: ...


def interface_of(
    prologue: TraceCtx,
    roots: dict[str, Any],
    acquired: Acquired | None = None,
    *,
    assumed_device: bool = False,
) -> Interface:
    """Return what the statements of a prologue check and return, for the call with these roots.

    Sizes that are symbols are those of what was acquired; what is known of them is checked apart from the
    statements. With ``assumed_device`` tensors are taken to be on the devices that the checks name. Raises
    PluginError for a statement that is neither an unpacking nor a check, and for the check of a tensor that
    does not hold for the call.
    """
    facts, sizes = ((), None) if acquired is None else (acquired.facts, acquired.sizes)
    free = {f.source: f.expected.free for f in facts if f.kind == "tensor" and f.expected.free is not None}
    reader = _StatementReader(roots, assumed_device, free)
    end = prologue.bound_symbols[-1] if prologue.bound_symbols else None
    inputs, reached = _returned(end)
    returned = {proxy.name for proxy in inputs}
    for bsym in prologue.bound_symbols[:-1]:
        if IF_RETURNED not in bsym.own_tags or bsym.args[0].name in returned:
            reader.read(bsym)
    _check_sizes_are_found(reader, inputs)
    return Interface(
        facts=reader.with_distinctness(),
        inputs=tuple((proxy, reader.path(proxy)) for proxy in inputs),
        reached=tuple(map(reader.path, reached)),
        sizes=sizes,
    )


def _check_sizes_are_found(reader: _StatementReader, inputs: Iterable[Any]) -> None:
    """Raise PluginError for the size of a tensor whose check, which finds the size, a transform dropped."""
    checked = {fact.path.source for fact in reader.facts if fact.kind == "tensor"}
    for path in (reader.path(proxy) for proxy in inputs if isinstance(proxy, SymbolicNumber)):
        owner = path.parent.parent if path.parent is not None and is_size(path) else None
        if owner is not None and owner.source not in checked:
            raise PluginError(
                f"a transform dropped the check of {owner.source}, of which a size or stride is a symbol",
                hint="Keep the checks of arguments, or leave out keeps_sizes = True.",
            )


def _returned(end: BoundSymbol | None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
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
    returned, _ = _returned(prologue.bound_symbols[-1] if prologue.bound_symbols else None)
    return returned, [p for p in computation.args if is_proxy(p)]


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


#: the unpackings of all elements, and the type of the container
CONTAINERS = {prims.unpack_tuple.id: tuple, prims.unpack_list.id: list}


class _StatementReader:
    """Reads statements in order; a path is one object for each value, however often it is used."""

    def __init__(self, roots: dict[str, Any], assumed_device: bool, free: Mapping[str, FreeSizes]) -> None:
        self.roots, self.assumed_device, self.free = roots, assumed_device, free
        self.paths: dict[str, Path] = {name: root(name) for name in ("args", "kwargs")}
        self.facts: list[Fact] = []
        self._steps: dict[tuple[int, str, str], Path] = {}

    def path(self, proxy: Any) -> Path:
        """Return the path of the value of a proxy."""
        return self.paths[proxy.name]

    def read(self, bsym: BoundSymbol) -> None:
        """Note what a statement unpacks or checks."""
        symbol = bsym.sym.id
        if symbol == COMMENT or symbol in RELEASES:
            return
        if symbol in CONTAINERS:
            self._read_elements(bsym)
        elif symbol == prims.check_tensors.id:
            for proxy, metadata in zip(*bsym.args, strict=True):
                self.read(prims.check_tensor_shape_and_metadata.bind(proxy, *metadata, output=None))
        elif bsym.output is not None:
            self.paths[bsym.output.name] = self._unpacked(bsym)
        elif symbol == prims.check_tensor_shape_and_metadata.id:
            self.facts.append(self._tensor_fact(bsym))
        elif symbol == prims.check_compare.id and any(isinstance(p, SymbolicNumber) for p in bsym.args):
            return  # a relation of symbols
        else:
            self.facts.append(self._fact(bsym))

    def _step(self, path: Path, kind: StepKind, key: Any) -> Path:
        """Return the path that is a step longer; the same one for the same name."""
        if kind not in ("instance", "key") or type(key) is not str:
            return path.step(kind, key)
        known = self._steps.get((id(path), kind, key))
        if known is None:
            known = self._steps[id(path), kind, key] = path.step(kind, key)
        return known

    def _read_elements(self, bsym: BoundSymbol) -> None:
        """Note the elements that a tuple or list is unpacked into, with its type and its length."""
        container, n = bsym.args
        path = self.path(container)
        self.facts += [Fact("type", path, CONTAINERS[bsym.sym.id]), Fact("len", path, n)]
        for index, element in enumerate(bsym.output):
            self.paths[element.name] = self._step(path, "index", index)

    def _unpacked(self, bsym: BoundSymbol) -> Path:
        symbol, (first, *rest) = bsym.sym.id, bsym.args
        if symbol == prims.unpack_function_obj.id:
            return object_root(bsym.kwargs.get("name", "object"), argument_value(first))
        if symbol in KIND_OF_STEP:
            key = argument_value(rest[0]) if rest else None
            return self._step(self.path(first), KIND_OF_STEP[symbol], key)
        if symbol not in DICT_OF_MEMBER:
            raise _unknown(bsym)
        path, (name,) = self.path(first), rest
        if type(path.root_object) is dict:  # overriding tensors
            return self._step(path, "key", name)
        *owners, last = name.split(".")
        for owner in owners:
            path = self._step(self._step(path, "instance", "_modules"), "key", owner)
        return self._step(self._step(path, "instance", DICT_OF_MEMBER[symbol]), "key", last)

    def _fact(self, bsym: BoundSymbol) -> Fact:
        symbol, (first, *rest) = bsym.sym.id, bsym.args
        if symbol not in ALL_CHECKS or not is_proxy(first):
            raise _unknown(bsym)
        path, expected = self.path(first), [argument_value(argument) for argument in rest]
        others = tuple(self.path(p) for p in rest if is_proxy(p))
        match symbol.removeprefix("prims."):
            case "check_same_object" | "check_other_object" if others:
                return Fact("same", path, symbol == prims.check_same_object.id, others)
            case "check_none":
                return Fact("is", path, None)
            case "check_overlap":
                return Fact("overlap", path, expected[0], others)
            case "check_apart":
                return Fact("apart", path, True, others)
            case "check_different":
                return Fact("different", path, True, others)
            case "check_has_attr" if expected[1:] == [False]:
                return Fact("lacks", path, expected[0])
            case "check_has_attr":
                return Fact("has_key", self._step(path, "attribute", "__dict__"), expected[0])
            case "check_contains":
                return Fact("has_key" if expected[1:] != [False] else "lacks_key", path, expected[0])
            case "check_empty":
                return Fact("empty", path, None)
            case "check_compare" if expected[0] in COMPARISONS:
                value = expected[1]
                return Fact(expected[0], path, True, others or (object_root(repr(value), value),))
            case "check_compare":
                raise _unknown(bsym)
        return Fact(KIND_OF_CHECK[symbol], path, expected[0])

    def _tensor_fact(self, bsym: BoundSymbol) -> Fact:
        proxy, shape, device, dtype, requires_grad = bsym.args
        path = self.path(proxy)
        tensor = path.fetch(self.roots)
        if not isinstance(tensor, torch.Tensor):
            raise _wrong_check(bsym, path, type(tensor).__name__)
        assumed = torch.device(device) if self.assumed_device else None
        facts = TensorFacts.of(tensor, assumed, self.free.get(path.source))
        if metadata(facts) != (tuple(shape), device, dtype, requires_grad):
            raise _wrong_check(bsym, path, str(metadata(facts)))
        return Fact("tensor", path, facts)

    def with_distinctness(self) -> tuple[Fact, ...]:
        """Return the facts, and the fact that all tensors are different objects."""
        paths = [f.path for f in self.facts if f.kind == "tensor"]
        distinct = [Fact("distinct", paths[0], True, tuple(paths[1:]))] if len(paths) > 1 else []
        return (*self.facts, *distinct)


def _wrong_check(bsym: BoundSymbol, path: Path, found: str) -> PluginError:
    return PluginError(
        f"a transform checks {path.source} for metadata that the tensor does not have",
        found={"statement": str(bsym), "tensor": found},
        hint="The check has the metadata of the tensor in use; get_checks has that statement.",
    )


def _unknown(bsym: BoundSymbol) -> PluginError:
    return PluginError(
        f"a prologue has a call of {bsym.sym.id}, which is neither an unpacking nor a check",
        found={"statement": str(bsym)},
        hint="The primitives of prologues are in thunder.core.prims: unpack_… and check_….",
    )
